"""Finds cuobjdump and nvdisasm, and asks them: which code a binary holds, and its disassembly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.build.toolchain import output, packaged_tool
from marlin_gen.errors import ToolchainError

GET_TOOLS = "`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`, or install the CUDA toolkit"
_LISTED = re.compile(r"^(ELF|PTX) file\s+\d+: (\S*?\.?(sm_\d+[af]?)\.(?:cubin|ptx))\s*$", re.MULTILINE)
_CUBIN = b"\x7fELF"
_EM_CUDA = 190  # e_machine of a cubin


@dataclass(frozen=True)
class Embedded:
    """Device code in an object, a shared library or an executable.

    Attributes:
        kind: ``ELF`` for native code, ``PTX`` for what the driver compiles.
        arch: its architecture, ``sm_90``.
        file: name that cuobjdump gives it.
    """

    kind: str
    arch: str
    file: str


def find_tool(name: str) -> str:
    """Path of a tool: that of CUDA_HOME or CUDA_PATH, of PATH, of the installed Python packages.

    Raises:
        ToolchainError: there is none.
    """
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if (home := os.environ.get(variable)) and (found := shutil.which(os.path.join(home, "bin", name))):
            return found
    if found := shutil.which(name) or packaged_tool(name):
        return found
    raise ToolchainError(f"no {name}: not in CUDA_HOME or CUDA_PATH, not on PATH, not among the Python packages", GET_TOOLS)


def embedded(path: Path) -> list[Embedded]:
    """The device code of a binary, native code first.

    Raises:
        ToolchainError: cuobjdump is missing or cannot read the file.
    """
    listed = (_cuobjdump([option, str(path)]) for option in ("--list-elf", "--list-ptx"))
    return [Embedded(kind, arch, file) for text in listed for kind, file, arch in _LISTED.findall(text)]


def embedded_archs(path: Path) -> tuple[list[str], list[str]]:
    """Architectures of a binary's native code, and of its PTX, each sorted and without repetition."""
    found = embedded(path)
    native, ptx = (sorted({e.arch for e in found if e.kind == kind}) for kind in ("ELF", "PTX"))
    return native, ptx


def is_cubin(path: Path) -> bool:
    """Whether a file is device code itself, not a host binary that holds some."""
    with path.open("rb") as file:
        head = file.read(20)
    return head.startswith(_CUBIN) and int.from_bytes(head[18:20], "little") == _EM_CUDA


def disassemble(cubin: Path) -> str:
    """SASS of a cubin with its source lines, each with the chain of calls that was inlined (``nvdisasm -gi``).

    Raises:
        ToolchainError: nvdisasm is missing or too old for the cubin's architecture.
    """
    return output([find_tool("nvdisasm"), "-gi", "-c", str(cubin)])


def extract(binary: Path, folder: Path) -> list[Path]:
    """Write the cubins of a host binary into a folder.

    Raises:
        ToolchainError: a tool is missing, the binary holds no native device code, or holds several pieces of one name, as a
            module of several kernels does: cuobjdump would write one over the other.
    """
    names = [e.file for e in embedded(binary) if e.kind == "ELF"]
    if not names:
        raise ToolchainError(f"{binary} holds no native device code", "give a cubin, or an object that nvcc made")
    if len(set(names)) < len(names):
        hint = "inspect its kernels by name"
        raise ToolchainError(f"{binary} holds {len(names)} pieces of device code that cannot be told apart", hint)
    _cuobjdump(["--extract-elf", "all", str(binary.absolute())], folder)
    return [folder / name for name in names]


def _cuobjdump(words: Sequence[str], folder: Path | None = None) -> str:
    """Standard output of cuobjdump. That there is nothing to list makes it fail too, with exit code 255."""
    command = [find_tool("cuobjdump"), *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder, check=False)
    if done.returncode not in (0, 255):
        raise ToolchainError(f"{' '.join(command)} failed with exit code {done.returncode}: {done.stderr.strip()[:500]}")
    return done.stdout
