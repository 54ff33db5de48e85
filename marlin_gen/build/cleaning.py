"""Removes built things that nothing uses any more."""

from __future__ import annotations

import shutil
from pathlib import Path

from marlin_gen.build.manifest import manifests
from marlin_gen.build.paths import Store, disk_errors

_KEPT = {"README.md", "objects", "modules", ".lock"}


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
        candidates = [path for path in store.root.iterdir() if path.name not in _KEPT and _ours(path, store)]
        candidates += [path for folder in (store.objects, store.modules) if folder.is_dir() for path in folder.iterdir()]
        return sum(_remove(path) for path in candidates if path not in used)


def _ours(path: Path, store: Store) -> bool:
    """Whether a build made this: nothing else in the folder is touched, in case it holds other things too."""
    return path in (store.work, store.simulator) or (path / "kernel.cu").is_file()


def _remove(path: Path) -> int:
    if path.is_dir():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        shutil.rmtree(path)
    else:
        size = path.stat().st_size
        path.unlink()
    return size
