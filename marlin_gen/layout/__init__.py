"""Where every value lies: fragments of a warp, packed weights and scales, swizzled activations."""

from marlin_gen.layout.packing import (
    BLOCK_N,
    TILE_K,
    PackedShape,
    pack_codes,
    permute_scales,
    unpack_codes,
    unpermute_scales,
)

__all__ = ["BLOCK_N", "TILE_K", "PackedShape", "pack_codes", "permute_scales", "unpack_codes", "unpermute_scales"]
