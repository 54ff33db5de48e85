"""Reading binaries: which code they hold (case K7), cubins taken out of objects, kernels found in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from marlin_gen.build.toolchain import find_cxx, find_nvcc
from marlin_gen.errors import ToolchainError
from marlin_gen.inspect import embedded_archs
from marlin_gen.inspect.artifacts import of_binary
from marlin_gen.inspect.tools import extract, find_tool, is_cubin

pytestmark = pytest.mark.nvcc

KERNELS = 'extern "C" __global__ void one(int* p) { *p = 1; }\nextern "C" __global__ void two(int* p) { *p += 2; }\n'
TARGETS = ("arch=compute_80,code=sm_80", "arch=compute_90,code=sm_90", "arch=compute_80,code=compute_80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An object for two architectures with PTX, one for sm_90 alone, one without device code, and a library of two objects."""
    try:
        nvcc, cxx, _, _ = find_nvcc(), find_cxx(), find_tool("nvdisasm"), find_tool("cuobjdump")
    except ToolchainError as error:
        pytest.skip(str(error))
    work = tmp_path_factory.mktemp("binaries")
    (work / "sub").mkdir()
    (work / "kernel.cu").write_text(KERNELS)
    (work / "sub" / "kernel.cu").write_text(KERNELS.replace("one", "three").replace("two", "four"))
    (work / "host.cpp").write_text("int f() { return 1; }\n")
    every = [word for target in TARGETS for word in ("-gencode", target)]
    pic = ["-Xcompiler=-fPIC", "-lineinfo"]
    for words in (
        [nvcc, *pic, *every, "-c", "kernel.cu", "-o", "fat.o"],
        [nvcc, *pic, "-gencode", TARGETS[1], "-c", "sub/kernel.cu", "-o", "sub/kernel.o"],
        [nvcc, *pic, "-gencode", TARGETS[1], "-c", "kernel.cu", "-o", "kernel.o"],
        [*cxx, "-c", "host.cpp", "-o", "host.o"],
        [nvcc, "-shared", "-cudart=none", "-gencode", TARGETS[1], "kernel.o", "sub/kernel.o", "-o", "library.so"],
    ):
        done = subprocess.run(words, cwd=work, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return work


def test_architectures_of_a_binary(folder: Path) -> None:
    assert embedded_archs(folder / "fat.o") == (["sm_80", "sm_90"], ["sm_80"])
    assert embedded_archs(folder / "library.so") == (["sm_90"], [])
    assert embedded_archs(folder / "host.o") == ([], [])
    with pytest.raises(ToolchainError, match="Could not open"):
        embedded_archs(folder / "missing.o")


def test_cubins_are_taken_out_of_an_object(folder: Path, tmp_path: Path) -> None:
    cubins = extract(folder / "fat.o", tmp_path)
    assert [is_cubin(path) for path in cubins] == [True, True]
    assert not is_cubin(folder / "fat.o")
    with pytest.raises(ToolchainError, match="no native device code"):
        extract(folder / "host.o", tmp_path)
    with pytest.raises(ToolchainError, match="cannot be told apart"):
        extract(folder / "library.so", tmp_path)


def test_one_kernel_of_one_architecture_is_found(folder: Path) -> None:
    one = of_binary(folder / "kernel.o", "one")
    assert (one.name, one.sass.arch, one.plan) == ("one", "sm_90", None)
    place = next(i.place for i in one.sass.instructions if i.mnemonic == "STG")
    assert place is not None
    assert (place.base, place.line) == ("kernel.cu", 1)
    with pytest.raises(ToolchainError, match=r"holds one \(sm_90\), two \(sm_90\)"):
        of_binary(folder / "kernel.o")
    with pytest.raises(ToolchainError, match="give the name of one kernel"):
        of_binary(folder / "fat.o", "one")  # twice, once for each architecture
    with pytest.raises(ToolchainError, match="does not exist"):
        of_binary(folder / "missing.cubin")
