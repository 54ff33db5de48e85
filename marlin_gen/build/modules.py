"""Finds and loads what is built."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from marlin_gen.build.keys import file_digest
from marlin_gen.build.manifest import KernelRecord, Manifest, manifests
from marlin_gen.build.paths import CacheError, Store, candidate_roots
from marlin_gen.errors import DispatchError, ToolchainError

MODULE_NAME = "marlin_gen_kernels"  # as in templates/host/binding.cpp
REBUILD = "run `marlin-gen build` (a set again: --configs SET)"


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel that is built.

    Attributes:
        record: what is known of it.
        manifest: the module that serves it; ``index`` its place there.
        store: where the module lies.
    """

    record: KernelRecord
    manifest: Manifest
    index: int
    store: Store

    @property
    def object_dir(self) -> Path:
        """Folder with ``kernel.cu``, ``kernel.o``, ``kernel.ptx``, ``kernel.cubin`` and ``ptxas.txt`` of this kernel."""
        return self.store.objects / self.record.object


def built_kernels(store: Store | None = None) -> list[BuiltKernel]:
    """All kernels that can be used, sorted by name; of several modules with the same kernel the newest serves it.

    Args:
        store: where to look; by default wherever builds go by default.
    """
    stores = [store] if store else [Store(root) for root in candidate_roots()]
    found: dict[str, BuiltKernel] = {}
    for place in stores:
        for manifest in manifests(place):
            if manifest.usable:
                for index, record in enumerate(manifest.kernels):
                    found.setdefault(record.name, BuiltKernel(record, manifest, index, place))
    return [found[name] for name in sorted(found)]


def built_names() -> list[str]:
    """Names of all kernels that are built, sorted, in the order of ``load_module().rows()``.

    Raises:
        DispatchError: there are none.
    """
    return [kernel.record.name for kernel in _some()]


def load_module() -> Any:
    """The built kernels as one module: ``rows``, ``launch``, ``occupancy``, ``capture_id`` (see templates/host/binding.cpp).

    Raises:
        DispatchError: no kernels are built.
        CacheError, ToolchainError: a module is damaged or does not load.
    """
    kernels = _some()
    modules: dict[str, ModuleType] = {}
    for kernel in kernels:
        if kernel.manifest.sha256 not in modules:
            modules[kernel.manifest.sha256] = load(kernel.store, kernel.manifest)
    if len(modules) == 1:
        return next(iter(modules.values()))
    return Merged([(modules[k.manifest.sha256], k.index) for k in kernels])


def load(store: Store, manifest: Manifest) -> ModuleType:
    """Load one module after checking that its file is what was built.

    Raises:
        CacheError: the file is missing or damaged.
        ToolchainError: it does not load.
    """
    path = store.modules / manifest.module
    if not manifest.intact(store):
        raise CacheError(f"{path} is missing or damaged", f"{REBUILD}: --configs {manifest.set}")
    return import_file(path)


def import_file(path: Path) -> ModuleType:
    """Import a compiled module by its path; ``sys.modules`` is left alone.

    Raises:
        ToolchainError: it does not load.
    """
    # pybind11 returns the module that it made first under a name, so each file gets a name of its own; Python takes the
    # initialiser's name from the part after the last point
    name = f"marlin_gen_{file_digest(path)[:16]}.{MODULE_NAME}"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise ToolchainError(f"{path} does not load: {error}", REBUILD) from None
    return module


class Merged:
    """Several modules seen as one.

    Args:
        places: (module, index there) of each kernel, sorted by the kernels' names.
    """

    def __init__(self, places: Sequence[tuple[ModuleType, int]]) -> None:
        rows = {id(module): module.rows() for module, _ in places}
        self._rows = [rows[id(module)][index] for module, index in places]
        self._places = [(module.launch, module.occupancy, index) for module, index in places]
        self.capture_id: Callable[[int], int] = places[0][0].capture_id

    def rows(self) -> list[Any]:
        """All kernels, sorted by name; the place of a row is its index."""
        return self._rows

    def launch(self, index: int, /, *values: int) -> None:
        """Enqueue a kernel on a stream of the current device. Raises RuntimeError with CUDA's error."""
        launch, _, local = self._places[index]
        launch(local, *values)

    def occupancy(self, index: int, /) -> int:
        """CTAs of a kernel that fit on an SM of the current device."""
        _, occupancy, local = self._places[index]
        return int(occupancy(local))


def _some() -> list[BuiltKernel]:
    kernels = built_kernels()
    if kernels:
        return kernels
    roots = candidate_roots()
    stale = [m for root in roots for m in manifests(Store(root)) if not m.usable]
    if stale:
        raise DispatchError(
            f"the kernels in {roots[0]} were built by another version of marlin-gen or for another Python ({stale[0].abi})",
            REBUILD,
        )
    raise DispatchError(f"no kernels are built (looked in {', '.join(map(str, roots))})", "run `marlin-gen build`")
