"""Finds nvcc, ninja and the host compiler, and knows what this nvcc can do."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from marlin_gen.config.arch import Arch
from marlin_gen.errors import ToolchainError

MINIMUM = (11, 8)
GET_NVCC = "install the CUDA toolkit, or `pip install 'marlin-gen[cuda]'` (nvcc as Python packages), or give --nvcc PATH"
GET_NINJA = "`pip install ninja`, or your system's ninja (Debian, Ubuntu: apt install ninja-build)"
GET_CXX = "install g++ (Debian, Ubuntu: apt install g++), or set CXX to a C++17 compiler that this nvcc supports"


@dataclass(frozen=True)
class Toolchain:
    """The tools of a build.

    Attributes:
        nvcc, ninja: programs.
        cxx: the host compiler, first word a program.
        nvcc_version, cxx_version: all that the tools say of themselves; part of every key.
        release: nvcc's version as (major, minor).
    """

    nvcc: str
    ninja: str
    cxx: tuple[str, ...]
    nvcc_version: str
    cxx_version: str
    release: tuple[int, int]

    @cached_property
    def library_dirs(self) -> tuple[str, ...]:
        """Where the static CUDA runtime lies if nvcc does not look there itself (the Python packages)."""
        folder = Path(self.nvcc).resolve().parent.parent / "lib"
        return (str(folder),) if (folder / "libcudart_static.a").is_file() else ()

    def check_archs(self, archs: Sequence[Arch]) -> None:
        """Raise ToolchainError if this nvcc cannot compile for one of ``archs``."""
        known = {line.removeprefix("compute_") for line in output([self.nvcc, "--list-gpu-arch"]).split()}
        for arch in archs:
            if arch.number.rstrip("a") not in known:
                version = ".".join(map(str, self.release))
                hint = f"it knows {', '.join('sm_' + n for n in sorted(known, key=int))}; choose with --arch, or use another nvcc"
                raise ToolchainError(f"nvcc {version} ({self.nvcc}) cannot compile for {arch.name}", hint)


def discover(nvcc: str | None = None) -> Toolchain:
    """Find all tools of a build.

    Args:
        nvcc: the user's choice of nvcc (``--nvcc``): a program, or the folder of a CUDA toolkit.

    Raises:
        ToolchainError: a tool is missing, too old or does not run; says which and how to get it.
    """
    compiler, cxx = find_nvcc(nvcc), find_cxx()
    text = output([compiler, "--version"])
    return Toolchain(compiler, find_ninja(), cxx, text, output([*cxx, "--version"]), release(compiler, text))


def find_nvcc(chosen: str | None = None) -> str:
    """Path of nvcc: ``chosen``, else that of CUDA_HOME or CUDA_PATH, of PATH, of the installed Python packages.

    Raises:
        ToolchainError: there is none, or the chosen one does not exist.
    """
    if chosen:
        for path in (Path(chosen), Path(chosen) / "bin" / "nvcc"):
            if found := shutil.which(str(path.expanduser().absolute())):
                return found
        if os.sep not in chosen and (found := shutil.which(chosen)):
            return found
        raise ToolchainError(f"--nvcc {chosen} is neither nvcc nor a CUDA toolkit's folder", GET_NVCC)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if (home := os.environ.get(variable)) and (found := shutil.which(os.path.join(home, "bin", "nvcc"))):
            return found
    if found := shutil.which("nvcc") or packaged_tool("nvcc"):
        return found
    raise ToolchainError("no nvcc: not in CUDA_HOME or CUDA_PATH, not on PATH, not among the Python packages", GET_NVCC)


def packaged_tool(name: str) -> str | None:
    """A program of the PyPI packages of CUDA 13 and newer, nvidia-cuda-nvcc for instance; None if it is not installed."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [path for folder in folders for path in sorted(folder.glob(f"cu*/bin/{name}"), reverse=True)]
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)


def find_ninja() -> str:
    """Path of ninja: of the Python package, else of PATH.

    Raises:
        ToolchainError: there is none.
    """
    if importlib.util.find_spec("ninja") is not None:
        import ninja

        if found := shutil.which(os.path.join(ninja.BIN_DIR, "ninja")):
            return found
    if found := shutil.which("ninja"):
        return found
    raise ToolchainError("no ninja: neither the Python package nor a program on PATH", GET_NINJA)


def find_cxx() -> tuple[str, ...]:
    """The host compiler's command: CXX, else g++.

    Raises:
        ToolchainError: there is none.
    """
    words = os.environ.get("CXX", "g++").split()
    if not words or shutil.which(words[0]) is None:
        named = f"CXX={os.environ['CXX']!r}" if "CXX" in os.environ else "g++"
        raise ToolchainError(f"no C++ compiler: {named} is not on PATH", GET_CXX)
    return tuple(words)


def release(nvcc: str, text: str) -> tuple[int, int]:
    """nvcc's version from what ``nvcc --version`` says. Raises ToolchainError if it is too old."""
    match = re.search(r"release (\d+)\.(\d+)", text)
    if match is None:
        raise ToolchainError(f"{nvcc} --version says no release: {text.strip()[:200]!r}", GET_NVCC)
    found = int(match[1]), int(match[2])
    if found < MINIMUM:
        need = ".".join(map(str, MINIMUM))
        raise ToolchainError(f"nvcc {match[1]}.{match[2]} ({nvcc}) is too old: CUDA {need} or newer is needed", GET_NVCC)
    return found


def output(command: Sequence[str]) -> str:
    """What a tool prints. Raises ToolchainError if it does not run or fails."""
    try:
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    except OSError as error:
        raise ToolchainError(f"{command[0]} does not run: {error.strerror}") from None
    if done.returncode:
        raise ToolchainError(f"{' '.join(command)} failed with exit code {done.returncode}: {done.stderr.strip()[:500]}")
    return done.stdout
