"""Builds with the real nvcc: a module that loads, the architectures in it (case K7), the same bytes wherever it is built."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_tools import Quiet

from marlin_gen.build.driver import Outcome, build
from marlin_gen.build.modules import load
from marlin_gen.build.paths import Store
from marlin_gen.build.request import Request
from marlin_gen.build.toolchain import discover, packaged_tool
from marlin_gen.config import parse_arch_list
from marlin_gen.emit import Templates
from marlin_gen.errors import ToolchainError

pytestmark = pytest.mark.nvcc

NAME = "marlin_f16_u4b8_m8n64k128_g128_s2_sm90"


@dataclass
class Built:
    store: Store
    outcome: Outcome
    module: Any


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One kernel, for Ampere with PTX and for Hopper without, in a folder with a space and an umlaut."""
    try:
        discover()
    except ToolchainError as error:
        pytest.skip(str(error))
    store = Store(tmp_path_factory.mktemp("ge baut ü") / "out")
    outcome = build(Request((NAME,), tuple(parse_arch_list("8.0+PTX;9.0"))), store, Quiet())
    return Built(store, outcome, load(store, outcome.manifest))


def test_rows_and_calls_of_the_module(built: Built) -> None:
    rows = built.module.rows()
    assert [(r.arch, r.m_tile, r.thread_n, r.thread_k, r.threads) for r in rows] == [
        ("sm_80", 8, 64, 128, 256), ("sm_90", 8, 64, 128, 256)
    ]  # fmt: skip
    assert [r.shared_bytes for r in rows] == [k.shared_bytes for k in built.outcome.manifest.kernels]
    assert rows[0]._replace(name="x").name == "x"
    for kernel in built.outcome.manifest.kernels:
        assert 32 < kernel.registers <= 255
        assert kernel.spill_stores == kernel.spill_loads == 0
        assert kernel.bytes > 10_000
    with pytest.raises(TypeError, match="launch takes 21 integers, not 3"):
        built.module.launch(0, 1, 2)
    with pytest.raises(IndexError, match=r"kernel index 2 is not in rows\(\)"):
        built.module.launch(2, *[0] * 20)
    with pytest.raises(IndexError):
        built.module.occupancy(-1)
    with pytest.raises(OverflowError, match="4294967296 does not fit in 32 bits"):
        built.module.launch(0, *[0] * 10, 2**32, *[0] * 9)
    with pytest.raises(OverflowError):
        built.module.launch(0, -8, *[0] * 19)
    with pytest.raises(TypeError):
        built.module.launch(0, *["x"] * 20)


def test_without_a_gpu_a_call_is_an_error_that_names_cudas(built: Built) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    name = built.module.rows()[0].name
    for call in (lambda: built.module.launch(0, *[0] * 20), lambda: built.module.occupancy(0)):
        with pytest.raises(RuntimeError, match=rf"of {name}: cudaError(InsufficientDriver|NoDevice): "):
            call()


def test_embedded_code_is_what_was_asked_for(built: Built) -> None:
    tool = shutil.which("cuobjdump") or packaged_tool("cuobjdump")
    if tool is None:
        pytest.skip("no cuobjdump")

    def embedded(path: Path) -> list[tuple[str, str]]:
        found = []
        for option, kind in (("-lelf", "ELF"), ("-lptx", "PTX")):
            done = subprocess.run([tool, option, str(path)], capture_output=True, text=True)
            found += [(kind, arch) for arch in re.findall(rf"^{kind} file .*?(sm_\d+a?)", done.stdout, re.MULTILINE)]
        return found

    old, new = (built.store.objects / k.object for k in built.outcome.manifest.kernels)
    assert embedded(old / "kernel.o") == [("ELF", "sm_80"), ("PTX", "sm_80")]
    assert embedded(new / "kernel.o") == [("ELF", "sm_90")]
    module = built.store.modules / built.outcome.manifest.module
    assert sorted(set(embedded(module))) == [("ELF", "sm_80"), ("ELF", "sm_90"), ("PTX", "sm_80")]
    for folder in built.store.objects.iterdir():
        if folder not in (old, new):
            assert embedded(folder / "binding.o") == []


def test_what_is_kept_of_a_kernel(built: Built) -> None:
    folder = built.store.objects / built.outcome.manifest.kernels[1].object
    kept = {"kernel.o", "kernel.cu", "kernel.ptx", "kernel.cubin", "ptxas.txt", "object.json"}
    assert {p.name for p in folder.iterdir()} == kept
    assert f"Compiling entry function '{NAME}' for 'sm_90'" in (folder / "ptxas.txt").read_text()
    assert f"/proc/self/cwd/{NAME}/kernel.cu" in (folder / "kernel.ptx").read_text()


def test_another_folder_gives_the_same_machine_code(built: Built, tmp_path: Path) -> None:
    kernels = {k.object for k in built.outcome.manifest.kernels}
    for folder in built.store.objects.iterdir():  # the binding is slow to compile and of no interest here
        if folder.name not in kernels:
            shutil.copytree(folder, tmp_path / "b" / "objects" / folder.name)
    outcome = build(Request((NAME,)), Store(tmp_path / "b"), Quiet())
    here, there = built.outcome.manifest.kernels[1], outcome.manifest.kernels[0]
    assert here.object == there.object
    assert _text(built.store.objects / here.object) == _text(tmp_path / "b" / "objects" / there.object)
    assert str(tmp_path).encode() not in (tmp_path / "b" / "objects" / there.object / "kernel.o").read_bytes()


def test_a_wrong_kernel_shows_nvccs_first_errors(built: Built, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay" / "device"
    overlay.mkdir(parents=True)
    (overlay / "mma.cuh").write_text(Templates().read("device/mma.cuh").replace("mma_f16", "mma_f17"))
    with pytest.raises(ToolchainError) as caught:
        build(Request((NAME,), template_dirs=(str(overlay.parent),)), built.store, Quiet())
    assert re.search(rf'kernel {NAME}: exit code \d\n    {NAME}/kernel.cu\(\d+\): error: identifier "mma_f16"', str(caught.value))
    assert len(str(caught.value).splitlines()) < 12
    assert built.outcome.manifest.intact(built.store)
    assert load(built.store, built.outcome.manifest).rows()


def _text(folder: Path) -> bytes:
    """The machine code of a kernel: what nvdisasm shows of the cubin."""
    tool = shutil.which("nvdisasm") or packaged_tool("nvdisasm")
    if tool is None:
        pytest.skip("no nvdisasm")
    return subprocess.run([tool, "-c", str(folder / "kernel.cubin")], capture_output=True, check=True).stdout
