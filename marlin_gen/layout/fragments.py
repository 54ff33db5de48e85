"""Fragments of ``mma.m16n8k16`` and ``ldmatrix``, as functions of lane, register and half.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix". With group g = lane/4 and
c = lane%4; a register holds two 16-bit halves h = 0, 1.
"""

from __future__ import annotations

LANES = 32  # of a warp


def a_element(lane: int, register: int, half: int) -> tuple[int, int]:
    """(row, k) of the A operand (16 x 16, four registers)."""
    g, c = divmod(lane, 4)
    return g + 8 * (register & 1), 2 * c + half + 8 * (register >> 1)


def b_element(lane: int, register: int, half: int) -> tuple[int, int]:
    """(k, column) of the B operand (16 x 8, two registers)."""
    g, c = divmod(lane, 4)
    return 2 * c + half + 8 * register, g


def c_element(lane: int, value: int) -> tuple[int, int]:
    """(row, column) of the accumulator (16 x 8, four fp32 values)."""
    g, c = divmod(lane, 4)
    return g + 8 * (value >> 1), 2 * c + (value & 1)


def weight_element(lane: int, index: int) -> tuple[int, int]:
    """(k, n) inside a 16x16 weight tile of a lane's code ``index`` = 4*n_hi + 2*k_hi + h.

    The tile is two B operands side by side (n_hi), and at the same time the A operand of the transposed product: there
    registers 0..3 are (n_hi, k_hi) = (0,0), (1,0), (0,1), (1,1).
    """
    n_hi, k_hi, half = index >> 2, (index >> 1) & 1, index & 1
    k, n = b_element(lane, k_hi, half)
    return k, n + 8 * n_hi


def ldmatrix_row(lane: int) -> tuple[int, int]:
    """(row, 8-column block) whose address ``lane`` gives to ldmatrix.x4 so that the result is the A operand."""
    return lane % 16, lane // 16
