"""The record of a built module: which kernels it holds and what the compiler said of them. One JSON file for each set."""

from __future__ import annotations

import importlib.machinery
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from marlin_gen.build.keys import contract_digest, file_digest
from marlin_gen.build.paths import Store, disk_errors

EXT_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
"""How this Python's extension modules end; a module with another ending is for another Python."""



@dataclass(frozen=True)
class KernelRecord:
    """One compiled kernel.

    Attributes:
        name, arch, threads, shared_bytes, m_tile, thread_n, thread_k: as the module's ``rows()`` say; shared memory is dynamic,
            bytes of a CTA.
        object: key of the compiled object, its folder in ``objects/``.
        ptx: whether PTX is embedded beside the native code.
        registers: of a thread. spill_stores, spill_loads: bytes of a thread, by ptxas.
        bytes: size of the object. seconds: that compiling took.
    """

    name: str
    arch: str
    threads: int
    shared_bytes: int
    m_tile: int
    thread_n: int
    thread_k: int
    object: str
    ptx: bool
    registers: int
    spill_stores: int
    spill_loads: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Manifest:
    """One built module.

    Attributes:
        set: name of the set of kernels.
        module: file name of the module, in ``modules/``; its ``size`` in bytes and ``sha256`` tell a damaged one.
        inputs: key of all that was asked for and all it was made from.
        contract: digest of what the runtime and the kernels must agree on.
        abi: Python's suffix of extension modules.
        nvcc: release of the compiler.
        serial: grows with each build of the store; of two modules with the same kernel the newer serves it.
        kernels: sorted by name, in the order of the module's rows.
    """

    set: str
    module: str
    size: int
    sha256: str
    inputs: str
    contract: str
    abi: str
    nvcc: str
    serial: int
    kernels: tuple[KernelRecord, ...]

    def intact(self, store: Store) -> bool:
        """Whether the module's file is what was built."""
        path = store.modules / self.module
        try:
            return path.stat().st_size == self.size and file_digest(path) == self.sha256
        except OSError:
            return False

    @property
    def usable(self) -> bool:
        """Whether this Python and this version of the runtime can use the module."""
        return self.abi == EXT_SUFFIX and self.contract == contract_digest()

    def write(self, store: Store) -> None:
        """Make this the record of its set, at once and whole.

        Raises:
            CacheError: the folder cannot be written.
        """
        target = store.modules / f"{self.set}.json"
        write_whole(target, json.dumps(asdict(self), indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that no reader ever sees half of it; leave one alone that already says this."""
    with disk_errors(path.parent):
        if path.is_file() and path.read_bytes() == text.encode():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def read_manifest(path: Path) -> Manifest | None:
    """Read one record; None if there is none, or it is damaged or of another version."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kernels = tuple(KernelRecord(**kernel) for kernel in values.pop("kernels"))
        manifest = Manifest(kernels=kernels, **values)
        return manifest if _typed(manifest) and all(map(_typed, kernels)) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _typed(record: Manifest | KernelRecord) -> bool:
    """Whether texts and whole numbers of a record that was read are what its definition says."""
    return all(f.type not in ("str", "int", "bool") or type(getattr(record, f.name)).__name__ == f.type for f in fields(record))


def manifests(store: Store) -> list[Manifest]:
    """All records of a store, the newest first."""
    found = (read_manifest(path) for path in sorted(store.modules.glob("*.json")))
    return sorted((m for m in found if m is not None), key=lambda m: -m.serial)
