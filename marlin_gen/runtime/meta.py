"""Metadata of packed weights: sizes, quant type, and the version of the layout, kept as a tensor beside the others."""

from __future__ import annotations

import json
from typing import Any

import torch

from marlin_gen.errors import LayoutError

LAYOUT = "marlin"
LAYOUT_VERSION = 1


def encode_meta(weights: Any) -> torch.Tensor:
    """Sizes, quant type and layout version of packed weights as a uint8 tensor (JSON), so that a state is all tensors."""
    meta = {name: getattr(weights, name) for name in ("k", "n", "group_size", "quant")}
    text = json.dumps({"layout": LAYOUT, "version": LAYOUT_VERSION, **meta}, sort_keys=True)
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def decode_meta(meta: torch.Tensor) -> dict[str, Any]:
    """Inverse of ``encode_meta``.

    Raises:
        LayoutError: the tensor is not such metadata, or of another layout version.
    """
    try:
        found = json.loads(bytes(meta.tolist()))
        names = {"layout", "version", "k", "n", "group_size", "quant"}
        result: dict[str, Any] = {name: found[name] for name in names}
        if any(type(result[name]) is not int for name in ("k", "n", "group_size")) or type(result["quant"]) is not str:
            raise TypeError
    except (AttributeError, ValueError, TypeError, KeyError):
        raise LayoutError("the metadata of packed weights is unreadable", "pack the weights again") from None
    check_layout(result["layout"], result["version"])
    return result


def check_layout(layout: str, version: int) -> None:
    """Refuse weights packed for another layout or version."""
    if (layout, version) != (LAYOUT, LAYOUT_VERSION):
        raise LayoutError(
            f"weights are packed in layout {layout!r} version {version}; this marlin-gen reads {LAYOUT!r} {LAYOUT_VERSION}",
            "pack them again from the checkpoint, or use the marlin-gen that packed them",
        )
