"""Compiles a kernel's text for the CPU, against ``templates/sim``; results are kept by the hash of all that went in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from marlin_gen.build.keys import digest, file_digest
from marlin_gen.emit.templates import Templates
from marlin_gen.errors import ToolchainError

KERNEL_FILE = "kernel.cu"
_COMMON = ("-std=c++20", "-fPIC", "-fvisibility=hidden")
_MACHINE_FLAGS = (*_COMMON, "-O2", "-c", "-x", "c++")
# -O0: a kernel is long and straight, and compiling it takes longer than what it does outside of the machine.
_KERNEL_FLAGS = (*_COMMON, "-O0", "-w", "-shared", "-DMG_SIM")
_ENTRY = """\
#include "{file}"
extern "C" void mg_sim_kernel(const void* params) {{ {name}(*static_cast<const {params}*>(params)); }}
"""


def compile_kernel(text: str, name: str, cache_dir: Path, templates: Templates, params: str = "GemmParams") -> Path:
    """Compile an emitted kernel into a shared library that runs it on the modelled device.

    Args:
        text: source of the kernel, as emitted.
        name: the kernel's function.
        cache_dir: where libraries are kept; made if missing. Safe to share between processes.
        templates: the tree whose ``sim`` headers are used.
        params: type of the kernel's argument.

    Raises:
        ToolchainError: there is no C++20 compiler, or it refused the text.
    """
    compiler = _compiler()
    include = [f"-I{folder / 'sim'}" for folder in templates.dirs]
    cache_dir.mkdir(parents=True, exist_ok=True)
    machine = _machine(compiler, templates, cache_dir)
    headers = [path for folder in templates.dirs for pattern in ("sim/*.cuh", "device/*.cuh") for path in folder.glob(pattern)]
    key = _key([*compiler, _version(compiler), *_KERNEL_FLAGS, machine.name, params, name, text], headers)
    library = _kept(cache_dir, key, ".so")
    if library is None:
        with tempfile.TemporaryDirectory(dir=cache_dir) as work:
            Path(work, KERNEL_FILE).write_text(text, encoding="utf-8")
            Path(work, "entry.cpp").write_text(_ENTRY.format(file=KERNEL_FILE, name=name, params=params), encoding="utf-8")
            _run([*compiler, *_KERNEL_FLAGS, *include, "entry.cpp", str(machine.resolve()), "-o", "made"], work)
            library = _keep(Path(work, "made"), cache_dir, key, ".so")
    return library


def _machine(compiler: Sequence[str], templates: Templates, cache_dir: Path) -> Path:
    """The modelled device as one object file: the same for all kernels, so compiled once."""
    sources = [templates.path(name) for name in templates.find("sim/machine", ".cpp")]
    headers = [templates.path(name) for name in templates.find("sim/machine", ".hpp")]
    key = f"machine-{_key([*compiler, _version(compiler), *_MACHINE_FLAGS], [*sources, *headers])}"
    target = _kept(cache_dir, key, ".o")
    if target is None:
        with tempfile.TemporaryDirectory(dir=cache_dir) as work:
            together = "".join(f'#include "{path.resolve()}"\n' for path in sources)
            Path(work, "machine.cpp").write_text(together, encoding="utf-8")
            _run([*compiler, *_MACHINE_FLAGS, "machine.cpp", "-o", "made"], work)
            target = _keep(Path(work, "made"), cache_dir, key, ".o")
    return target


def _kept(folder: Path, key: str, suffix: str) -> Path | None:
    """The file kept for a key. Its name holds the digest of its contents too: a damaged one is removed."""
    for path in folder.glob(f"{key}-*{suffix}"):
        if path.name == f"{key}-{_contents(path)}{suffix}":
            return path
        path.unlink(missing_ok=True)
    return None


def _keep(made: Path, folder: Path, key: str, suffix: str) -> Path:
    target = folder / f"{key}-{_contents(made)}{suffix}"
    os.replace(made, target)
    return target


def _contents(path: Path) -> str:
    return file_digest(path)[:16]


def _key(parts: Iterable[str], files: Iterable[Path]) -> str:
    return digest([*parts, *(f"{path.name}\n{path.read_text(encoding='utf-8')}" for path in files)])[:32]


def _compiler() -> tuple[str, ...]:
    words = os.environ.get("CXX", "g++").split()
    if not words or shutil.which(words[0]) is None:
        raise ToolchainError(
            f"no C++ compiler: {' '.join(words) or 'CXX is empty'} is not on PATH",
            "the simulator needs g++ 11 or newer (Debian, Ubuntu: apt install g++), or set CXX",
        )
    return tuple(words)


@lru_cache
def _version(compiler: Sequence[str]) -> str:
    return _run([*compiler, "--version"], None)


def _run(command: Sequence[str], folder: str | None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        errors = "\n".join(done.stderr.splitlines()[:20])
        raise ToolchainError(f"{command[0]} failed with exit code {done.returncode}:\n{errors}")
    return done.stdout
