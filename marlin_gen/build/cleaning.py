"""Removes built things that nothing uses any more."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from marlin_gen.build.manifest import manifests, read_manifest
from marlin_gen.build.paths import Store, disk_errors

_KEPT = {"README.md", "objects", "modules", ".lock"}
# What builds make in each folder. Nothing else is touched: the folder may be no store at all, but hold a `modules` of its own.
_NAMES = {
    "objects": "[0-9a-f]{40}",
    "modules": r".+-[0-9a-f]{12}\..*so|\..+\.json\.\d+",  # and records
    "work": r"tmp\w+",
    "simulator": r"(machine-)?[0-9a-f]{32}\b.*|tmp\w+",
}


def clean(store: Store, everything: bool = False) -> int:
    """Remove sources, objects and modules of no current set; with ``everything``, those in use too.

    Returns:
        Bytes freed.

    Raises:
        CacheError: something cannot be removed.
    """
    import filelock

    if not store.root.is_dir():
        return 0
    with disk_errors(store.root), filelock.FileLock(store.lock):
        current = [] if everything else manifests(store)
        kernels = [kernel for manifest in current for kernel in manifest.kernels]
        used = {store.objects / kernel.object for kernel in kernels} | {store.root / kernel.name for kernel in kernels}
        for manifest in current:
            used |= {store.modules / manifest.module, store.modules / f"{manifest.set}.json"}
        candidates = [path for path in store.root.iterdir() if path.name not in _KEPT and (path / "kernel.cu").is_file()]
        for folder, names in _NAMES.items():
            if (store.root / folder).is_dir():
                candidates += [path for path in (store.root / folder).iterdir() if re.fullmatch(names, path.name)]
        candidates += [path for path in store.modules.glob("*.json") if read_manifest(path)]
        return sum(_remove(path) for path in candidates if path not in used)


def _remove(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        shutil.rmtree(path)
    else:
        size = path.stat().st_size
        path.unlink()
    return size
