"""Compiles emitted kernels into a module, keeps what is compiled by content, finds and loads what is built.

The names below are loaded when first used: finding what is built needs neither the generator nor a compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marlin_gen.build.driver import Outcome, build
    from marlin_gen.build.modules import BuiltKernel, built_kernels, built_names, load_module
    from marlin_gen.build.paths import CacheError, Store, default_store
    from marlin_gen.build.request import Request

_PLACES = {
    "Outcome": "driver", "Request": "request", "build": "driver",
    "BuiltKernel": "modules", "built_kernels": "modules", "built_names": "modules", "load_module": "modules",
    "CacheError": "paths", "Store": "paths", "default_store": "paths",
}  # fmt: skip

__all__ = [
    "BuiltKernel", "CacheError", "Outcome", "Request", "Store", "build", "built_kernels", "built_names", "default_store",
    "load_module",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"marlin_gen.build.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'marlin_gen.build' has no attribute {name!r}")
