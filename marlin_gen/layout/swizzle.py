"""The XOR swizzle of activations in shared memory, and the bank conflicts it removes."""

from __future__ import annotations

CHUNK_BYTES = 16  # what a cp.async and one row of an ldmatrix block move
_BANK_ROW_CHUNKS = 8  # 32 banks of 4 bytes serve eight chunks at a time


def chunk_position(row: int, chunk: int, swizzle: bool) -> int:
    """Position inside its row of 16-byte chunk ``chunk`` of row ``row``: XOR with the row, modulo eight.

    Rows are multiples of 128 bytes, so the low three bits of the position name the banks; eight successive rows of one
    chunk (an ldmatrix block) thus fall on eight different bank groups.
    """
    return chunk ^ (row % _BANK_ROW_CHUNKS) if swizzle else chunk


def ldmatrix_conflicts(row_chunks: int, chunk: int, swizzle: bool) -> int:
    """Extra shared-memory wavefronts of one 8x8 ldmatrix block: rows 0..7 of chunk ``chunk``.

    Args:
        row_chunks: 16-byte chunks in a row of the tile.
    """
    banks = [(row * row_chunks + chunk_position(row, chunk, swizzle)) % _BANK_ROW_CHUNKS for row in range(8)]
    return max(banks.count(bank) for bank in banks) - 1
