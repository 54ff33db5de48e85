"""From a kernel's name to its source, PTX, machine code and the compiler's words."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from marlin_gen.build import commands, ninja
from marlin_gen.build.failures import failures
from marlin_gen.build.keys import folder_texts
from marlin_gen.build.objects import find_object
from marlin_gen.build.paths import Store, candidate_roots
from marlin_gen.build.toolchain import Toolchain, discover
from marlin_gen.config import KernelConfig
from marlin_gen.config.arch import parse_arch
from marlin_gen.emit import Rendered, Templates, render
from marlin_gen.errors import ToolchainError
from marlin_gen.inspect.phases import Source
from marlin_gen.inspect.ptx import PtxFunction, parse_ptx
from marlin_gen.inspect.ptxas import KernelUsage, PtxasReport, parse_ptxas
from marlin_gen.inspect.sass import Function, parse_sass
from marlin_gen.inspect.tools import disassemble

SOURCE = "kernel.cu"  # name under which the emitted text is compiled, and which line information therefore gives


@dataclass(frozen=True)
class Compiled:
    """A kernel as the compiler left it.

    Attributes:
        ptx: text. said: the compiler's messages. cubin: device code.
        object_bytes: size of the object that goes into a module.
    """

    rendered: Rendered
    ptx: str
    said: str
    cubin: bytes
    object_bytes: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.rendered.name

    @cached_property
    def sass(self) -> str:
        """The disassembly with source lines. Raises ToolchainError if nvdisasm is missing or too old."""
        with tempfile.TemporaryDirectory(prefix="marlin-gen-") as folder:
            path = Path(folder, "kernel.cubin")
            path.write_bytes(self.cubin)
            return disassemble(path)

    @cached_property
    def sass_function(self) -> Function:
        """The kernel's machine code. Raises ToolchainError as ``sass`` does."""
        return _named(parse_sass(self.sass), self.name, "nvdisasm prints")

    @cached_property
    def ptx_function(self) -> PtxFunction:
        """The kernel's PTX."""
        return _named(parse_ptx(self.ptx), self.name, "the PTX holds")

    @cached_property
    def ptxas(self) -> PtxasReport:
        """What the compiler said."""
        return parse_ptxas(self.said)

    @cached_property
    def usage(self) -> KernelUsage:
        """Resources of the kernel."""
        return _named(self.ptxas.kernels, self.name, "ptxas speaks of")

    @cached_property
    def source(self) -> Source:
        """The emitted text with its phases."""
        return Source(self.rendered.text, SOURCE)


def compile_kernel(name: str, template_dirs: Sequence[str] = (), nvcc: str | None = None) -> Compiled:
    """Emit a kernel and compile it as ``build`` does, or take what a build has left of the very same text and tools.

    Args:
        template_dirs: searched before the packaged templates.
        nvcc: the user's nvcc; None finds one.

    Raises:
        ConfigError, TemplateError: there is no such kernel, or a template is wrong.
        ToolchainError: a tool is missing, or the compiler failed.
    """
    templates = Templates(template_dirs)
    rendered = render(KernelConfig.from_name(name), templates)
    tools, arch = discover(nvcc), parse_arch(rendered.config.arch)
    headers = {n: text for n, text in folder_texts(templates, ("device", "host")).items() if n.endswith((".cuh", ".hpp"))}
    key = commands.kernel_key(rendered.text, arch, False, headers, tools)
    for root in candidate_roots():
        store = Store(root)
        if find_object(store, key) is not None:
            return _read(rendered, store.objects / key, "ptxas.txt")
    tools.check_archs([arch])
    with tempfile.TemporaryDirectory(prefix="marlin-gen-") as folder:
        _compile(rendered, headers, tools, Path(folder))
        return _read(rendered, Path(folder, name), "kernel.o.log")


def _compile(rendered: Rendered, headers: dict[str, str], tools: Toolchain, work: Path) -> None:
    """Compile in a folder laid out as those of builds are."""
    texts = {f"{commands.INCLUDE}/{Path(n).name}": text for n, text in headers.items()}
    texts[f"{rendered.name}/{SOURCE}"] = rendered.text
    for file, text in texts.items():
        path = work / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    edge = commands.kernel_edge(rendered.name, parse_arch(rendered.config.arch), False, tools)
    (work / "build.ninja").write_text(ninja.build_file([edge]), encoding="utf-8")
    if not ninja.run(tools.ninja, work, 1, lambda done, total, what: None):
        failure = failures(work, [edge])[0]
        raise ToolchainError(str(failure), failure.hint)


_Named = TypeVar("_Named", Function, PtxFunction, KernelUsage)


def _named(found: Iterable[_Named], name: str, who: str) -> _Named:
    for item in found:
        if item.name == name:
            return item
    raise ToolchainError(f"{who} no function {name}", "the tools may be of different versions: `marlin-gen env` shows them")


def _read(rendered: Rendered, folder: Path, log: str) -> Compiled:
    return Compiled(
        rendered,
        ptx=(folder / "kernel.ptx").read_text(encoding="utf-8"),
        said=(folder / log).read_text(encoding="utf-8", errors="replace"),
        cubin=(folder / "kernel.cubin").read_bytes(),
        object_bytes=(folder / "kernel.o").stat().st_size,
    )
