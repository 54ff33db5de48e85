"""What a compiled kernel consists of, found among what is built or compiled for the purpose."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.build import commands, ninja
from marlin_gen.build.compiling import Compiler
from marlin_gen.build.failures import failures
from marlin_gen.build.modules import built_kernels
from marlin_gen.build.objects import find_object
from marlin_gen.build.paths import Store, candidate_roots
from marlin_gen.build.toolchain import Toolchain, discover
from marlin_gen.config import KernelConfig
from marlin_gen.config.arch import parse_arch
from marlin_gen.emit import Rendered, Templates, render
from marlin_gen.errors import MarlinGenError, ToolchainError
from marlin_gen.inspect import tools
from marlin_gen.inspect.ptx import PtxFunction, parse_ptx
from marlin_gen.inspect.sass import Function, parse_sass
from marlin_gen.quant.discovery import load_quant
from marlin_gen.schedule.plan import KernelPlan


@dataclass(frozen=True)
class Artifacts:
    """One kernel for one architecture, as the compiler left it.

    Attributes:
        name: the kernel's symbol.
        origin: where it comes from, in words.
        sass: its machine code; sass_text: the whole disassembly that it was read from.
        cubin_bytes: size of the cubin.
        ptx, ptx_text, source, ptxas: the kernel's PTX, the file that it was read from, the text of ``kernel.cu``, what
            ``ptxas -v`` said; None where it is not kept.
        plan: what the generator intended; None for a kernel that marlin-gen did not emit.
        notes: what the reader should know.
    """

    name: str
    origin: str
    sass: Function
    sass_text: str
    cubin_bytes: int
    ptx: PtxFunction | None = None
    ptx_text: str | None = None
    source: str | None = None
    ptxas: str | None = None
    plan: KernelPlan | None = None
    notes: tuple[str, ...] = ()


def of_kernel(name: str, store: Store | None = None, template_dirs: Sequence[str] = (), nvcc: str | None = None) -> Artifacts:
    """A kernel by its name, as the templates emit it now: the object that is built from just that, else one compiled here.

    Args:
        store: where to look for objects; by default wherever builds go by default.
        nvcc: the user's nvcc; None finds one. Without any, the kernel as it was built last.

    Raises:
        ConfigError: there is no such kernel.
        ToolchainError: nvdisasm is missing, or nvcc is and the kernel is not built; or nvcc failed.
    """
    tools.find_tool("nvdisasm")  # before nvcc takes its time
    templates, stores = Templates(template_dirs), [store] if store else [Store(root) for root in candidate_roots()]
    rendered = render(KernelConfig.from_name(name), templates)
    try:
        toolchain = discover(nvcc)
    except ToolchainError:
        built = [k for place in stores for k in built_kernels(place) if k.record.name == name]
        if not built:
            raise
        note = "no nvcc here: this is the kernel as it was built, which may not be what the templates emit now"
        return of_folder(built[0].object_dir, name, rendered.plan, (note,))
    compiler = Compiler(stores[0], toolchain, templates, 1, _Silent())
    for ptx in (False, True):
        unit = compiler.unit(rendered, parse_arch(rendered.config.arch), ptx)
        for place in stores:
            if find_object(place, unit.key):
                return of_folder(place.objects / unit.key, name, rendered.plan)
    with tempfile.TemporaryDirectory() as folder:
        _compile(rendered, compiler.headers, toolchain, Path(folder))
        return of_folder(Path(folder) / name, name, rendered.plan, origin="compiled for this report")


def of_folder(
    folder: Path, name: str | None = None, plan: KernelPlan | None = None, notes: tuple[str, ...] = (), origin: str = ""
) -> Artifacts:
    """The kernel whose ``kernel.cubin`` lies in a folder, with its companions there."""
    return of_binary(folder / "kernel.cubin", name, plan, notes, origin)


def of_binary(
    path: Path, name: str | None = None, plan: KernelPlan | None = None, notes: tuple[str, ...] = (), origin: str = ""
) -> Artifacts:
    """A kernel in a cubin or in an object of one architecture. What lies beside it and belongs to it is read too.

    Args:
        name: which kernel; needed where there are several.

    Raises:
        ToolchainError: a tool is missing, or the file does not hold that kernel, or holds several.
    """
    if not path.is_file():
        raise ToolchainError(f"{path} does not exist", "give a cubin, an object file, or the name of a kernel")
    with tempfile.TemporaryDirectory() as folder:
        cubins = [path] if tools.is_cubin(path) else tools.extract(path, Path(folder))
        texts = [(tools.disassemble(cubin), cubin.stat().st_size) for cubin in cubins]
    found = [(f, text, size) for text, size in texts for f in parse_sass(text)]
    chosen = [row for row in found if name in (None, row[0].name)]
    if len(chosen) != 1:
        names = ", ".join(sorted({f"{f.name} ({f.arch})" for f, _, _ in found})) or "nothing"
        raise ToolchainError(f"{path} holds {names}", "give the name of one kernel in it, and a file for one architecture")
    sass, disassembly, size = chosen[0]
    source, ptx_text, said = (_text(path.with_name(p)) for p in (f"{path.stem}.cu", f"{path.stem}.ptx", "ptxas.txt"))
    ptx = next((f for f in parse_ptx(ptx_text or "") if f.name == sass.name), None)
    return Artifacts(
        sass.name, origin or str(path), sass, disassembly, size, ptx, ptx_text if ptx else None, source, said,
        plan or _plan(sass.name), notes,
    )  # fmt: skip


class _Silent:
    """Events of a compilation that nobody follows."""

    def progress(self, done: int, total: int, what: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


def _compile(rendered: Rendered, headers: dict[str, str], toolchain: Toolchain, folder: Path) -> None:
    """Compile one kernel exactly as a build does: ``<folder>/<name>/kernel.cubin`` and its companions."""
    arch = parse_arch(rendered.config.arch)
    toolchain.check_archs([arch])
    edge = commands.kernel_edge(rendered.name, arch, False, toolchain)
    files = {f"{commands.INCLUDE}/{Path(name).name}": text for name, text in headers.items()}
    files |= {f"{rendered.name}/kernel.cu": rendered.text, "build.ninja": ninja.build_file([edge])}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    if not ninja.run(toolchain.ninja, folder, 1, _Silent().progress):
        failure = failures(folder, [edge])[0]
        raise ToolchainError(str(failure), failure.hint)
    log = folder / f"{edge.output}.log"
    log.rename(log.with_name("ptxas.txt"))


def _plan(name: str) -> KernelPlan | None:
    """The plan of a kernel with a name of ours, as this version of marlin-gen makes it."""
    try:
        config = KernelConfig.from_name(name)
        return KernelPlan.create(config, load_quant(config.quant, Templates()))
    except MarlinGenError:
        return None


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
