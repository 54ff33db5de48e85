"""marlin-gen: a code-generating kernel compiler for mixed-precision linear layers.

The names below are the public Python interface; they import torch only when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from marlin_gen.version import __version__

if TYPE_CHECKING:
    from marlin_gen.runtime.dispatch import explain
    from marlin_gen.runtime.linear import MarlinLinear
    from marlin_gen.runtime.ops import gemm
    from marlin_gen.runtime.packed import PackedWeight, pack, unpack

_LAZY = {
    "pack": "marlin_gen.runtime.packed",
    "unpack": "marlin_gen.runtime.packed",
    "PackedWeight": "marlin_gen.runtime.packed",
    "gemm": "marlin_gen.runtime.ops",
    "explain": "marlin_gen.runtime.dispatch",
    "MarlinLinear": "marlin_gen.runtime.linear",
}

__all__ = ["MarlinLinear", "PackedWeight", "__version__", "explain", "gemm", "pack", "unpack"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        found = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = found  # the next look-up is an ordinary one
        return found
    raise AttributeError(f"module 'marlin_gen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
