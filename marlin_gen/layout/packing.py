"""The packed weight layout ``marlin``: a lane's words are its own MMA fragments, in the order it consumes them.

Weights [K, N] are padded to [k_pad, n_pad] and cut into blocks of 16 rows and 64 columns, row of blocks after row of blocks.
A block holds, for each of 32 lanes, the lane's codes of the block's four 16x16 tiles; a 4-bit lane has one word a tile and
reads its four words with one 16-byte access. Wider codes have further such planes: [plane][lane][4 words].
For 4 bits this is bit for bit the format of IST Marlin (int32 [K/16, 2N]).

Scales (and zero points) are 16-bit values [groups, n_pad], permuted per 64 columns so that a lane's eight are 16 bytes: column
8*j + i of the 64 stands at 8*i + j. Scales of a single group over all of K are applied in the epilogue and keep their order;
zero points are always permuted, since the main loop subtracts them.

All functions take numpy arrays or torch tensors alike: they use only slicing, shifts and ors, which mean the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marlin_gen.errors import LayoutError
from marlin_gen.layout.fragments import weight_element
from marlin_gen.quant.quant_type import CODES_PER_LANE, QuantType

TILE_K = 16
BLOCK_N = 64
_TILES = BLOCK_N // 16
_VECTOR_WORDS = 4
K_MULTIPLE = 128  # the deepest thread_k: every tile divides a padded K
N_MULTIPLE = 64  # the narrowest thread_n


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class PackedShape:
    """Sizes of a packed layer.

    Attributes:
        k, n: true sizes of the weight matrix.
        group_size: rows that share a scale, -1 for all.
    """

    k: int
    n: int
    group_size: int

    def __post_init__(self) -> None:
        if self.k < 1 or self.n < 1:
            raise LayoutError(f"a weight matrix [K={self.k}, N={self.n}] is empty", "K and N must be at least 1")
        if self.group_size != -1 and (self.group_size < 1 or self.group_size % TILE_K):
            raise LayoutError(
                f"group size {self.group_size} is not a multiple of {TILE_K}", "use 32, 64 or 128, or -1 for one group"
            )
        if self.group_size != -1 and self.k % self.group_size:
            raise LayoutError(
                f"K={self.k} is not a multiple of the group size {self.group_size}",
                "quantise with a group size that divides K, or with -1",
            )

    @property
    def k_pad(self) -> int:
        """K padded to whole tiles."""
        return _round_up(self.k, K_MULTIPLE)

    @property
    def n_pad(self) -> int:
        """N padded to whole blocks."""
        return _round_up(self.n, N_MULTIPLE)

    @property
    def groups(self) -> int:
        """Scale rows of the true matrix."""
        return 1 if self.group_size == -1 else self.k // self.group_size

    @property
    def groups_pad(self) -> int:
        """Scale rows stored: those of the padded matrix."""
        return 1 if self.group_size == -1 else _round_up(self.k_pad, self.group_size) // self.group_size

    def words(self, bits: int) -> int:
        """32-bit words of the packed codes."""
        return self.k_pad * self.n_pad * bits // 32


def _block_view(words: Any, shape: PackedShape, quant: QuantType) -> Any:
    """Packed words as [k16, n64, plane, lane/4, lane%4, word in vector]."""
    planes = _TILES * quant.tile_words // _VECTOR_WORDS
    return words.reshape(shape.k_pad // TILE_K, shape.n_pad // BLOCK_N, planes, 8, 4, _VECTOR_WORDS)


def _places(quant: QuantType) -> list[tuple[int, int, int, int, int, int, int]]:
    """For every code of lane 0 in a block: (n16 tile, n_hi, k_hi, h, plane, word in vector, bit)."""
    places = []
    for tile in range(_TILES):
        for index in range(CODES_PER_LANE):
            k, n = weight_element(0, index)
            word, bit = divmod(quant.slots[index], 32)
            plane, vector = divmod(tile * quant.tile_words + word, _VECTOR_WORDS)
            places.append((tile, n // 8, k // 8, k % 2, plane, vector, bit))
    return places


def pack_codes(codes: Any, out: Any, shape: PackedShape, quant: QuantType, first_row: int = 0) -> None:
    """Pack whole 16-row tiles of codes into ``out``.

    Args:
        codes: integer array [rows, n], rows a multiple of 16, values 0 .. 2^bits - 1 (the caller has checked them).
        out: int32 [k_pad * n_pad * bits / 32], zeroed where it will be written; changed in place.
        first_row: row of the matrix at which ``codes`` begins, a multiple of 16.
    """
    rows, n = codes.shape
    blocks, ragged = n // BLOCK_N, n % BLOCK_N
    target = _block_view(out, shape, quant)[first_row // TILE_K : (first_row + rows) // TILE_K]
    # [k16, k_hi, c, h, n64, tile, n_hi, g]: lane = 4*g + c
    dims = (rows // TILE_K, 2, 4, 2)
    if blocks:
        _or_into(target[:, :blocks], codes[:, : blocks * BLOCK_N].reshape(*dims, blocks, _TILES, 2, 8), quant)
    if ragged:  # the last, partly filled block column
        edge = codes[:, blocks * BLOCK_N :]
        for g_first in range(0, ragged, 8):  # runs of eight columns keep (tile, n_hi) fixed
            run = edge[:, g_first : g_first + 8]
            width = run.shape[1]
            tile, n_hi = divmod(g_first // 8, 2)
            _or_into_run(target[:, blocks, :, :width], run.reshape(*dims, width), quant, tile, n_hi)


def _or_into(target: Any, codes: Any, quant: QuantType) -> None:
    for tile, n_hi, k_hi, half, plane, vector, bit in _places(quant):
        for c in range(4):
            part = codes[:, k_hi, c, half, :, tile, n_hi]  # [k16, n64, g]
            target[:, :, plane, :, c, vector] |= _as_int32(part, target) << bit


def _or_into_run(target: Any, codes: Any, quant: QuantType, tile: int, n_hi: int) -> None:
    for place_tile, place_n_hi, k_hi, half, plane, vector, bit in _places(quant):
        if (place_tile, place_n_hi) == (tile, n_hi):
            for c in range(4):
                target[:, plane, :, c, vector] |= _as_int32(codes[:, k_hi, c, half], target) << bit


def _as_int32(array: Any, like: Any) -> Any:
    return array.astype(like.dtype) if hasattr(array, "astype") else array.to(like.dtype)


def unpack_codes(words: Any, out: Any, shape: PackedShape, quant: QuantType) -> None:
    """Inverse of ``pack_codes`` over the whole padded matrix.

    Args:
        words: int32 [k_pad * n_pad * bits / 32].
        out: integer array [k_pad, n_pad], C-contiguous, changed in place.
    """
    source = _block_view(words, shape, quant)
    view = out.reshape(shape.k_pad // TILE_K, 2, 4, 2, shape.n_pad // BLOCK_N, _TILES, 2, 8)
    mask = quant.codes - 1
    for tile, n_hi, k_hi, half, plane, vector, bit in _places(quant):
        for c in range(4):
            view[:, k_hi, c, half, :, tile, n_hi] = (source[:, :, plane, :, c, vector] >> bit) & mask


def permute_scales(rows: Any, out: Any) -> None:
    """Write grouped scales (or zero points) [groups, n_pad] into ``out`` of the same shape, permuted per 64 columns."""
    groups, n_pad = rows.shape
    source = rows.reshape(groups, n_pad // BLOCK_N, 8, 8)  # [.., j, i] for column 8*j + i
    target = out.reshape(groups, n_pad // BLOCK_N, 8, 8)
    for j in range(8):
        target[:, :, :, j] = source[:, :, j, :]


def unpermute_scales(rows: Any, out: Any) -> None:
    """Inverse of ``permute_scales``: the permutation transposes 8x8 squares and is its own inverse."""
    permute_scales(rows, out)
