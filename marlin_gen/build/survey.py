"""What this machine has of all that marlin-gen can use: ``marlin-gen env``."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from marlin_gen.build import toolchain
from marlin_gen.build.jobs import free_memory, job_count
from marlin_gen.build.paths import ENV_CACHE, TEMPLATES, candidate_roots
from marlin_gen.config.matrix import SETS
from marlin_gen.errors import MarlinGenError
from marlin_gen.version import __version__

_PACKAGES = ("torch", "numpy", "jinja2", "pybind11", "ninja", "click", "rich", "filelock", "platformdirs")


@dataclass(frozen=True)
class Item:
    """One thing looked for.

    Attributes:
        found: its version and place; empty if it is missing.
        hint: what it is needed for and how to get it, if it is missing.
    """

    name: str
    found: str
    hint: str = ""


def survey(nvcc: str | None = None) -> list[Item]:
    """Look for everything. Raises nothing for what is missing."""
    items = [Item("marlin-gen", __version__), Item("python", f"{platform.python_version()} on {platform.platform()}")]
    items += [_tool("nvcc", lambda: _nvcc(nvcc)), _tool("ninja", _ninja), _tool("c++", _cxx)]
    items += [_package(name) for name in _PACKAGES]
    for tool in ("cuobjdump", "nvdisasm"):
        place = shutil.which(tool) or toolchain.packaged_tool(tool) or ""
        items.append(Item(tool, place, f"shows SASS (marlin-gen inspect): `pip install nvidia-cuda-{tool}`, or the CUDA toolkit"))
    gpu = "compiling needs none; running kernels needs an NVIDIA GPU of compute capability 8.0 or newer, and its driver"
    items.append(Item("gpu", _gpus(), gpu))
    items += [
        Item("jobs", f"{_jobs()} compilers at once ({os.cpu_count()} cores, {free_memory() / 1e9:.1f} GB free)"),
        Item("templates", str(TEMPLATES)),
        Item("config sets", f"{SETS}: {', '.join(path.stem for path in sorted(SETS.glob('*.toml')))}"),
        Item("built things", f"{candidate_roots()[0]} (another folder: {ENV_CACHE})"),
    ]
    return items


def _tool(name: str, look: Callable[[], str]) -> Item:
    try:
        return Item(name, look())
    except MarlinGenError as error:
        return Item(name, "", f"{error.message}: {error.hint}")


def _nvcc(chosen: str | None) -> str:
    path = toolchain.find_nvcc(chosen)
    release = toolchain.release(path, toolchain.output([path, "--version"]))
    return f"{release[0]}.{release[1]}, {path}"


def _ninja() -> str:
    path = toolchain.find_ninja()
    return f"{toolchain.output([path, '--version']).strip()}, {path}"


def _cxx() -> str:
    command = toolchain.find_cxx()
    return f"{toolchain.output([*command, '--version']).splitlines()[0]}, {shutil.which(command[0])}"


def _package(name: str) -> Item:
    try:
        return Item(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Item(name, "", f"`pip install {name}`")


def _gpus() -> str:
    """Names, compute capabilities and driver, as nvidia-smi tells them."""
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(done.stdout.strip().splitlines()) if done.returncode == 0 else ""


def _jobs() -> str:
    try:
        return str(job_count())
    except MarlinGenError as error:
        return error.message
