"""nvcc on emitted kernels: instruction counts equal the plan's, nothing is spilled, registers are as estimated."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from marlin_gen.build.toolchain import find_cxx, find_nvcc
from marlin_gen.config import ARCHS, KernelConfig
from marlin_gen.config.arch import REGISTERS_PER_SM
from marlin_gen.emit import Rendered, Templates, render
from marlin_gen.emit.templates import PACKAGED
from marlin_gen.errors import ToolchainError
from marlin_gen.inspect.counts import SASS_NAMES
from marlin_gen.inspect.ptx import parse_ptx
from marlin_gen.inspect.ptxas import KernelUsage, parse_ptxas
from marlin_gen.inspect.sass import parse_sass
from marlin_gen.inspect.tools import disassemble, find_tool

pytestmark = pytest.mark.nvcc

NAMES = (
    "marlin_f16_u4b8_m64n256k64_g128_s4_sm80",
    "marlin_f16_u4b8_m8n128k128_g128_s4_sm90_t128_c3",
    "marlin_bf16_u4_m16n64k128_g32_s4_sm90",
    "marlin_f16_u4_m16n128k128_gch_s4_sm90_atomic",
    "marlin_bf16_u4b8_m64n128k128_g128_s4_sm90_chain16",
    "marlin_f16_u4b8_m48n64k64_g64_s5_sm86_t64_noef_noswz_hoist",
    "marlin_f16_u4b8_m32n128k64_g128_s4_sm90_c2",  # four registers below its limit
    "marlin_bf16_u4b8_m8n256k64_gch_s6_sm120",
)
TEMPLATES = Templates()
ONE_TO_ONE = ("mma.sync", "ldmatrix", "cp.async")  # what ptxas translates one by one
SLACK = 20  # registers that the compiler may take beyond the estimate


@dataclass(frozen=True)
class Compiled:
    """A kernel as nvcc saw it: its PTX, its cubin, what ptxas said."""

    rendered: Rendered
    ptx: str
    cubin: Path
    report: str

    @property
    def usage(self) -> KernelUsage:
        usage = parse_ptxas(self.report).of(self.rendered.name)
        assert usage is not None, self.report
        return usage


def compile_kernel(nvcc: str, rendered: Rendered, folder: Path) -> None:
    folder.mkdir(parents=True)
    source, cubin = folder / "kernel.cu", folder / "kernel.cubin"
    source.write_text(rendered.text)
    words = [nvcc, "-std=c++17", "-O3", "-lineinfo", "-Xptxas=-v", "--keep", f"--keep-dir={folder}", f"-I{PACKAGED / 'device'}"]
    words += [f"-I{PACKAGED / 'host'}", "-gencode", ARCHS[rendered.config.arch].gencode, "-cubin", "-o", str(cubin), str(source)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "report.txt").write_text(done.stderr)


@pytest.fixture(params=NAMES)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Every kernel is compiled once, for all tests and all processes of a run."""
    try:
        nvcc, _ = find_nvcc(), find_cxx()
    except ToolchainError as error:
        pytest.skip(str(error))
    base = tmp_path_factory.getbasetemp()
    base = base.parent if hasattr(request.config, "workerinput") else base  # shared by the processes of pytest-xdist
    folder, rendered = base / "nvcc" / request.param, render(KernelConfig.from_name(request.param), TEMPLATES)
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            compile_kernel(nvcc, rendered, folder)
    report = folder / "report.txt"
    assert report.is_file(), "this kernel failed to compile, see the first test of it"
    return Compiled(rendered, (folder / "kernel.ptx").read_text(), folder / "kernel.cubin", report.read_text())


def test_ptx_has_the_instructions_of_the_plan(kernel: Compiled) -> None:
    (ptx,) = parse_ptx(kernel.ptx)
    expected = kernel.rendered.plan.expected_counts()
    assert {name: ptx.count(name) for name in expected} == expected


def test_nothing_is_spilled_or_kept_on_a_stack(kernel: Compiled) -> None:
    assert (kernel.usage.stack, kernel.usage.spill_stores, kernel.usage.spill_loads) == (0, 0, 0)
    assert ".local" not in kernel.ptx


def test_registers_are_as_estimated(kernel: Compiled) -> None:
    used = kernel.usage.registers
    config, estimate = kernel.rendered.config, kernel.rendered.plan.register_estimate
    bound = REGISTERS_PER_SM // (config.threads * config.ctas)
    assert used <= bound, "as many CTAs as promised do not fit on an SM"
    # where several CTAs share an SM the compiler is bound to that, and takes what there is; the estimate is the least it needs
    assert estimate - SLACK <= used <= (estimate + SLACK if config.ctas == 1 else bound)


def test_the_kernel_compiles_without_warnings(kernel: Compiled) -> None:
    assert parse_ptxas(kernel.report).warnings == ()


def test_sass_has_as_many_matrix_instructions_and_copies(kernel: Compiled) -> None:
    try:
        find_tool("nvdisasm")
    except ToolchainError as error:
        pytest.skip(str(error))
    (sass,) = parse_sass(disassemble(kernel.cubin))
    expected = kernel.rendered.plan.expected_counts()
    assert {name: sass.counts[SASS_NAMES[name]] for name in ONE_TO_ONE} == {name: expected[name] for name in ONE_TO_ONE}
