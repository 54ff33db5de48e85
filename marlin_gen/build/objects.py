"""Compiled kernels kept by content: ``objects/<key>/`` with the object, its source, PTX, cubin and what ptxas said."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.build.keys import file_digest
from marlin_gen.build.manifest import write_whole
from marlin_gen.build.paths import Store, disk_errors
from marlin_gen.errors import ToolchainError

_ELF = b"\x7fELF"
_FACTS = "object.json"
_KEPT = (".o", ".cu", ".cpp", ".ptx", ".cubin")


@dataclass(frozen=True)
class Facts:
    """What is known of an object: its ``file`` name, ``sha256`` and size in ``bytes``; the rest as in KernelRecord."""

    file: str
    sha256: str
    bytes: int
    seconds: float
    registers: int
    spill_stores: int
    spill_loads: int


def find_object(store: Store, key: str) -> Facts | None:
    """The object with a key; None if there is none or its file is not what was compiled."""
    folder = store.objects / key
    try:
        facts = Facts(**json.loads((folder / _FACTS).read_text(encoding="utf-8")))
        return facts if file_digest(folder / facts.file) == facts.sha256 else None
    except (OSError, ValueError, TypeError):
        return None


def keep_object(store: Store, key: str, folder: Path, stem: str, seconds: Mapping[str, float]) -> Facts | None:
    """Move a fresh object into the store, at once and whole.

    Args:
        folder: where ``<stem>.o`` and its companions were made, on the store's file system.
        seconds: that making ``<folder>/<stem>.o`` took.

    Returns:
        None if it was not made.

    Raises:
        ToolchainError: the compiler succeeded, but its object is empty or no object at all.
        CacheError: the store cannot be written.
    """
    made = folder / f"{stem}.o"
    if not made.is_file() or (folder / f"{stem}.o.exit").exists():
        return None
    from marlin_gen.inspect.ptxas import parse_ptxas  # late: that room builds on this one

    data = made.read_bytes()
    if not data.startswith(_ELF):
        raise ToolchainError(f"{folder.name}: the compiler made {len(data)} bytes that are no object file", "build again")
    with disk_errors(store.root):
        os.replace(folder / f"{stem}.o.log", folder / "ptxas.txt")
        said = parse_ptxas((folder / "ptxas.txt").read_text(encoding="utf-8", errors="replace")).kernels
        used = (said[0].registers, said[0].spill_stores, said[0].spill_loads) if said else (0, 0, 0)
        took = seconds.get(f"{folder.name}/{made.name}", 0.0)
        facts = Facts(made.name, file_digest(made), len(data), took, *used)
        for path in folder.iterdir():
            if path.name != "ptxas.txt" and (path.suffix not in _KEPT or path.name.count(".") > 1):
                path.unlink()
        write_whole(folder / _FACTS, json.dumps(vars(facts), indent=1) + "\n")
        target = store.objects / key
        if target.exists():  # damaged
            shutil.rmtree(target)
        os.replace(folder, target)
    return facts
