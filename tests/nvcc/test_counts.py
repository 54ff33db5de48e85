"""nvcc on emitted kernels: instruction counts equal the plan's, nothing is spilled, registers are as estimated."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from marlin_gen.build.toolchain import find_cxx, find_nvcc, packaged_tool
from marlin_gen.config import ARCHS, KernelConfig
from marlin_gen.config.arch import REGISTERS_PER_SM
from marlin_gen.emit import Rendered, Templates, render
from marlin_gen.emit.templates import PACKAGED
from marlin_gen.errors import ToolchainError

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
SASS = {"mma.sync": "HMMA", "ldmatrix": "LDSM", "cp.async": "LDGSTS"}
SLACK = 20  # registers that the compiler may take beyond the estimate


@dataclass(frozen=True)
class Compiled:
    """A kernel as nvcc saw it: its PTX, its cubin, what ptxas said."""

    rendered: Rendered
    ptx: str
    cubin: Path
    report: str


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


def counted(instructions: Counter[str], name: str) -> int:
    """Instructions of this name: cp.async is the copies alone, not its groups."""
    if name == "cp.async":
        name = "cp.async.cg"
    return sum(n for found, n in instructions.items() if found == name or found.startswith(name + "."))


def test_ptx_has_the_instructions_of_the_plan(kernel: Compiled) -> None:
    instructions = Counter(re.findall(r"^\s*(?:\{[^\n]*?;\s*)?(?:@!?%?\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)", kernel.ptx, re.MULTILINE))
    instructions += Counter(re.findall(r"@p (cp\.async[\w.:]*)", kernel.ptx))
    expected = kernel.rendered.plan.expected_counts()
    assert {name: counted(instructions, name) for name in expected} == expected


def test_nothing_is_spilled_or_kept_on_a_stack(kernel: Compiled) -> None:
    assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", kernel.report) == [
        ("0", "0", "0")
    ]
    assert ".local" not in kernel.ptx


def test_registers_are_as_estimated(kernel: Compiled) -> None:
    used = int(re.findall(r"Used (\d+) registers", kernel.report)[0])
    config, estimate = kernel.rendered.config, kernel.rendered.plan.register_estimate
    bound = REGISTERS_PER_SM // (config.threads * config.ctas)
    assert used <= bound, "as many CTAs as promised do not fit on an SM"
    # where several CTAs share an SM the compiler is bound to that, and takes what there is; the estimate is the least it needs
    assert estimate - SLACK <= used <= (estimate + SLACK if config.ctas == 1 else bound)


def test_the_kernel_compiles_without_warnings(kernel: Compiled) -> None:
    assert not re.search(r"warning|\bC7\d\d\d\b", kernel.report, re.IGNORECASE), kernel.report


def test_sass_has_as_many_matrix_instructions_and_copies(kernel: Compiled) -> None:
    cuobjdump = shutil.which("cuobjdump") or packaged_tool("cuobjdump")
    if cuobjdump is None:
        pytest.skip("no cuobjdump: not on PATH, and nvidia-cuda-cuobjdump is not installed")
    done = subprocess.run([cuobjdump, "-sass", str(kernel.cubin)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cuobjdump cannot read this cubin: {done.stderr.strip()}")
    expected = kernel.rendered.plan.expected_counts()
    found = Counter(re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z]\w*)", done.stdout, re.MULTILINE))
    assert {ptx: found[sass] for ptx, sass in SASS.items()} == {ptx: expected[ptx] for ptx in SASS}
