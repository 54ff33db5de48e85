"""Content hashes: the same contents give the same key, whatever the process, the paths, the times or the order of configs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from marlin_gen.build.paths import TEMPLATES

if TYPE_CHECKING:
    from marlin_gen.emit.templates import Templates

_PACKAGE = Path(__file__).resolve().parent.parent
_GENERATOR = ("config", "quant", "layout", "schedule", "emit", "build")  # rooms whose Python decides what is compiled

# What the runtime and compiled kernels must agree on: arguments, the division of work, the layout of packed weights.
_CONTRACT = ("device/params.cuh", "host/row.hpp", "host/binding.cpp")
_CONTRACT_PYTHON = ("schedule/partition.py", "layout/packing.py", "layout/fragments.py")


def digest(parts: Iterable[str | bytes]) -> str:
    """sha256 of a sequence of texts, each with its length, as 40 hexadecimal digits."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:40]


def file_digest(path: Path) -> str:
    """sha256 of a file's contents."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def folder_texts(templates: Templates, folders: Iterable[str]) -> dict[str, str]:
    """Files of some folders of a template tree by name (``device/mma.cuh``), each as the tree would serve it."""
    names = (name for folder in folders for name in templates.find(folder, ""))
    return {name: templates.read(name) for name in sorted(names)}


def template_digest(templates: Templates) -> str:
    """Digest of everything in the tree that an emitted or compiled kernel depends on."""
    families = {path.name for folder in templates.dirs for path in (folder / "kernel").glob("*") if path.is_dir()}
    folders = ["device", "host", "quant", *(f"kernel/{family}" for family in sorted(families))]
    return digest(part for item in folder_texts(templates, folders).items() for part in item)


@cache
def generator_digest() -> str:
    """Digest of the Python that turns configs into source."""
    files = sorted(path for room in _GENERATOR for path in (_PACKAGE / room).rglob("*.py"))
    return digest(part for path in files for part in (str(path.relative_to(_PACKAGE)), path.read_bytes()))


@cache
def contract_digest() -> str:
    """Digest of what the runtime and compiled kernels must agree on; a module built under another one is not used."""
    return digest(path.read_bytes() for path in [*(TEMPLATES / n for n in _CONTRACT), *(_PACKAGE / n for n in _CONTRACT_PYTHON)])
