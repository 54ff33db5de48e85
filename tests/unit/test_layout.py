"""Fragments against the PTX ISA, the packed layout against its direct formula, the swizzle against the banks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from marlin_gen.config import KernelConfig, config_sets, load_matrix
from marlin_gen.emit import Templates
from marlin_gen.errors import LayoutError
from marlin_gen.layout import PackedShape, pack_codes, permute_scales, unpack_codes, unpermute_scales
from marlin_gen.layout.fragments import a_element, b_element, c_element, ldmatrix_row, weight_element
from marlin_gen.layout.swizzle import chunk_position, ldmatrix_conflicts
from marlin_gen.quant import QuantType, load_quant

U4B8 = load_quant("u4b8", Templates())
U8 = dataclasses.replace(U4B8, name="u8", bits=8, slots=(0, 16, 8, 24, 32, 48, 40, 56))
SHAPES = [
    (16, 1), (16, 7), (32, 8), (128, 64), (128, 65), (48, 192), (128, 464), (272, 100), (256, 57), (16, 120),
    (128, 1), (384, 127), (112, 63),
]  # fmt: skip


def codes_of(k: int, n: int, quant: QuantType = U4B8) -> np.ndarray:
    return np.random.default_rng(k * 1000 + n).integers(0, quant.codes, (k, n), dtype=np.uint8)


def packed(codes: np.ndarray, quant: QuantType = U4B8) -> np.ndarray:
    shape = PackedShape(*codes.shape, -1)
    words = np.zeros(shape.words(quant.bits), np.int32)
    pack_codes(codes, words, shape, quant)
    return words


# ---- fragments of mma.m16n8k16 ----------------------------------------------------------------------------------------
# PTX ISA 8.x, 9.7.14.5.8, "Matrix Fragments for mma.m16n8k16 with floating point type", in its own words:
# groupID = %laneid >> 2, threadID_in_group = %laneid % 4;
# A: row = groupID for ai where 0 <= i < 2 || 4 <= i < 6, else groupID + 8; col = threadID_in_group * 2 + (i & 1), + 8 for i >= 4;
# B: row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; col = groupID;
# C: row = groupID for i < 2, groupID + 8 for i >= 2; col = threadID_in_group * 2 + (i & 1).


def ptx_a(lane: int, i: int) -> tuple[int, int]:
    row = (lane >> 2) if 0 <= i < 2 or 4 <= i < 6 else (lane >> 2) + 8
    col = (lane % 4) * 2 + (i & 1)
    return row, col + 8 if i >= 4 else col


def ptx_b(lane: int, i: int) -> tuple[int, int]:
    row = (lane % 4) * 2 + (i & 1)
    return row + 8 if i >= 2 else row, lane >> 2


def ptx_c(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) if i < 2 else (lane >> 2) + 8, (lane % 4) * 2 + (i & 1)


def test_fragments_are_those_of_the_ptx_isa() -> None:
    for lane in range(32):
        assert [a_element(lane, i // 2, i % 2) for i in range(8)] == [ptx_a(lane, i) for i in range(8)]
        assert [b_element(lane, i // 2, i % 2) for i in range(4)] == [ptx_b(lane, i) for i in range(4)]
        assert [c_element(lane, i) for i in range(4)] == [ptx_c(lane, i) for i in range(4)]


def test_every_element_of_a_fragment_has_one_place() -> None:
    assert len({a_element(lane, r, h) for lane in range(32) for r in range(4) for h in range(2)}) == 256
    assert len({b_element(lane, r, h) for lane in range(32) for r in range(2) for h in range(2)}) == 128
    assert len({c_element(lane, i) for lane in range(32) for i in range(4)}) == 128
    assert len({weight_element(lane, i) for lane in range(32) for i in range(8)}) == 256


def test_a_weight_tile_is_two_b_operands_and_the_transposed_products_a_operand() -> None:
    for lane in range(32):
        for index in range(8):
            n_hi, k_hi, half = index // 4, index // 2 % 2, index % 2
            k, n = weight_element(lane, index)
            b_row, b_col = ptx_b(lane, 2 * k_hi + half)
            assert (k, n) == (b_row, b_col + 8 * n_hi)
            register = n_hi + 2 * k_hi  # pairs (n_lo,k_lo) (n_lo,k_hi) (n_hi,k_lo) (n_hi,k_hi) are A registers 0, 2, 1, 3
            assert (n, k) == ptx_a(lane, 2 * register + half)


def test_ldmatrix_delivers_the_a_operand() -> None:
    """Lane l gives the address of row l%8 of block l/8 and receives, of each block, the pair at row l/4, column 2*(l%4)."""
    addresses = [ldmatrix_row(lane) for lane in range(32)]
    for lane in range(32):
        for block in range(4):
            row, chunk = addresses[8 * block + lane // 4]
            for half in range(2):
                assert (row, 8 * chunk + 2 * (lane % 4) + half) == ptx_a(lane, 2 * block + half)


# ---- packed weights ---------------------------------------------------------------------------------------------------


def test_words_of_four_bits_follow_the_direct_formula() -> None:
    """IST Marlin's int32 [K/16, 2N]: every code at its word and nibble."""
    k_all, n_all = 128, 192
    codes = codes_of(k_all, n_all)
    expected = np.zeros((k_all // 16, 2 * n_all), np.uint32)
    for k in range(k_all):
        for n in range(n_all):
            lane = (n % 8) * 4 + (k % 8) // 2
            word = (n // 64) * 128 + lane * 4 + (n % 64) // 16
            nibble = 4 * (k % 2) + 2 * ((n % 16) // 8) + (k % 16) // 8
            expected[k // 16, word] |= np.uint32(int(codes[k, n]) << (4 * nibble))
    assert (packed(codes).view(np.uint32).reshape(expected.shape) == expected).all()


def marlin_permutation() -> list[int]:
    """The 1024-long permutation of IST Marlin, as published: MMA fragments of four column tiles, then nibbles interleaved."""
    perm: list[int] = []
    for lane in range(32):
        col = lane // 4
        one = [
            16 * row + col + 8 * block
            for block in (0, 1)
            for row in (2 * (lane % 4), 2 * (lane % 4) + 1, 2 * (lane % 4 + 4), 2 * (lane % 4 + 4) + 1)
        ]
        for tile in range(4):
            perm.extend(p + 256 * tile for p in one)
    return [perm[8 * i + j] for i in range(128) for j in (0, 2, 4, 6, 1, 3, 5, 7)]


def test_words_of_four_bits_follow_the_published_permutation() -> None:
    perm = marlin_permutation()
    assert perm[:10] == [0, 128, 8, 136, 16, 144, 24, 152, 256, 384] and sorted(perm) == list(range(1024))
    k_all, n_all = 128, 128
    codes = codes_of(k_all, n_all)
    tiles = codes.reshape(k_all // 16, 16, n_all // 16, 16).transpose(0, 2, 1, 3).reshape(-1, 1024)
    tiles = tiles[:, perm].reshape(k_all // 16, -1)
    expected = np.zeros((k_all // 16, 2 * n_all), np.uint32)
    for i in range(8):
        expected |= tiles[:, i::8].astype(np.uint32) << np.uint32(4 * i)
    assert (packed(codes).view(np.uint32).reshape(expected.shape) == expected).all()


def test_words_of_eight_bits_are_planes_of_16_bytes_a_lane() -> None:
    codes = codes_of(128, 128, U8)
    words = packed(codes, U8).view(np.uint8).reshape(8, 2, 2, 32, 16)  # [k16, n64, plane, lane, byte of 16]
    for k in range(128):
        for n in range(128):
            lane = (n % 8) * 4 + (k % 8) // 2
            index = 4 * ((n % 16) // 8) + 2 * ((k % 16) // 8) + k % 2
            byte = (n % 64) // 16 * 8 + U8.slots[index] // 8
            assert words[k // 16, n // 64, byte // 16, lane, byte % 16] == codes[k, n]


@pytest.mark.parametrize("quant", [U4B8, U8], ids=["4 bit", "8 bit"])
@pytest.mark.parametrize(("k", "n"), SHAPES)
def test_unpack_is_the_inverse_of_pack(k: int, n: int, quant: QuantType) -> None:
    codes, shape = codes_of(k, n, quant), PackedShape(k, n, -1)
    assert shape.k_pad % 128 == 0 and shape.n_pad % 64 == 0 and 0 <= shape.k_pad - k < 128 and 0 <= shape.n_pad - n < 64
    out = np.full((shape.k_pad, shape.n_pad), 99, np.uint8)
    unpack_codes(packed(codes, quant), out, shape, quant)
    assert (out[:k, :n] == codes).all()
    assert not out[k:].any() and not out[:, n:].any()


@pytest.mark.parametrize(("k", "n"), SHAPES)
def test_numpy_and_torch_give_the_same_words(k: int, n: int) -> None:
    codes, shape = codes_of(k, n), PackedShape(k, n, -1)
    words = torch.zeros(shape.words(4), dtype=torch.int32)
    pack_codes(torch.from_numpy(codes), words, shape, U4B8)
    assert (words.numpy() == packed(codes)).all()
    out = torch.zeros((shape.k_pad, shape.n_pad), dtype=torch.uint8)
    unpack_codes(words, out, shape, U4B8)
    assert (out.numpy()[:k, :n] == codes).all()


@pytest.mark.parametrize("n", [64, 100, 192])
def test_rows_may_be_packed_in_parts(n: int) -> None:
    codes, shape = codes_of(256, n), PackedShape(256, n, 32)
    words = np.zeros(shape.words(4), np.int32)
    for first, end in ((112, 256), (0, 16), (16, 112)):
        pack_codes(codes[first:end], words, shape, U4B8, first)
    assert (words == packed(codes)).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_codes_of_any_integer_type(dtype: Any) -> None:
    codes = codes_of(128, 72)
    assert (packed(codes.astype(dtype)) == packed(codes)).all()


@pytest.mark.parametrize("pattern", ["constant", "ramp", "one"])
def test_patterns(pattern: str) -> None:
    """Each of the 16 nibble values in every place, and a single code among zeros."""
    codes = np.zeros((128, 64), np.uint8)
    if pattern == "ramp":
        codes[:] = np.arange(128 * 64).reshape(128, 64) % 16
    elif pattern == "constant":
        codes[:] = 15
    else:
        codes[127, 63] = 15
    words = packed(codes).view(np.uint32)
    assert np.unpackbits(words.view(np.uint8)).sum() == np.unpackbits(codes).sum()
    assert (words == 0xFFFFFFFF).all() or pattern != "constant"
    assert np.flatnonzero(words).tolist() == [words.size - 1] or pattern != "one"


@pytest.mark.parametrize(
    ("k", "n", "group", "said"),
    [
        (0, 64, -1, "K=0"), (64, 0, -1, "N=0"), (64, 64, 0, "group size 0"), (64, 64, 24, "group size 24"),
        (7392, 8192, 128, "K=7392"),
        (4304, 1152, 32, "K=4304"), (128, 64, -2, "group size -2"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be_packed(k: int, n: int, group: int, said: str) -> None:
    with pytest.raises(LayoutError, match=said) as raised:
        PackedShape(k, n, group)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("k", "group", "groups", "stored"),
    [(256, 64, 4, 4), (8256, 64, 129, 130), (2880, 32, 90, 92), (232, -1, 1, 1), (96, 48, 2, 3)],
)
def test_groups_of_the_padded_matrix(k: int, group: int, groups: int, stored: int) -> None:
    shape = PackedShape(k, 64, group)
    assert (shape.groups, shape.groups_pad) == (groups, stored)


# ---- scales -----------------------------------------------------------------------------------------------------------


def test_scales_follow_the_published_permutation() -> None:
    """Per 64 columns out[8i + j] = s[i + 8j], so that a lane's eight scales are 16 bytes."""
    rows = np.arange(3 * 192, dtype=np.int16).reshape(3, 192)
    out = np.empty_like(rows)
    permute_scales(rows, out)
    for block in range(3):
        for i in range(8):
            for j in range(8):
                assert (out[:, 64 * block + 8 * i + j] == rows[:, 64 * block + i + 8 * j]).all()
    back = np.empty_like(rows)
    unpermute_scales(out, back)
    assert (back == rows).all()
    other = torch.empty(3, 192, dtype=torch.int16)
    permute_scales(torch.from_numpy(rows), other)
    assert (other.numpy() == out).all()


def test_a_lane_reads_the_scales_of_its_own_columns() -> None:
    """16 bytes at group*16 of a block: value 2j + n_hi is the scale of the lane's column of n16 tile j, half n_hi."""
    rows = np.arange(64, dtype=np.int16).reshape(1, 64)
    out = np.empty_like(rows)
    permute_scales(rows, out)
    for lane in range(32):
        mine = out[0, lane // 4 * 8 :][:8]
        for j in range(4):
            for index in range(8):
                _, n = weight_element(lane, index)
                assert mine[2 * j + index // 4] == 16 * j + n


# ---- swizzle ----------------------------------------------------------------------------------------------------------


def shipped_tiles() -> list[tuple[int, int]]:
    """(m_tile, thread_k) of every kernel of every packaged set."""
    found = {(c.m_tile, c.thread_k) for name in config_sets() for c in load_matrix(name)}
    assert len(found) > 5
    return sorted(found)


@pytest.mark.parametrize(("m_tile", "thread_k"), shipped_tiles())
def test_the_swizzle_is_a_bijection_without_bank_conflicts(m_tile: int, thread_k: int) -> None:
    chunks = thread_k * 2 // 16
    places = {row * chunks + chunk_position(row, chunk, True) for row in range(m_tile) for chunk in range(chunks)}
    assert places == set(range(m_tile * chunks))
    for first in range(0, m_tile, 8):
        for chunk in range(chunks):
            # an 8x8 block of ldmatrix: eight rows of 16 bytes; each of the 32 banks holds 4 bytes of one of them
            banks = [
                ((first + row) * thread_k * 2 + chunk_position(first + row, chunk, True) * 16 + byte) // 4 % 32
                for row in range(8)
                for byte in range(0, 16, 4)
            ]
            assert sorted(banks) == list(range(32))
    assert {ldmatrix_conflicts(chunks, chunk, True) for chunk in range(chunks)} == {0}


@pytest.mark.parametrize("thread_k", [64, 128])
def test_without_the_swizzle_eight_rows_meet_in_four_banks(thread_k: int) -> None:
    chunks = thread_k * 2 // 16
    assert {ldmatrix_conflicts(chunks, chunk, False) for chunk in range(chunks)} == {7}
    assert [chunk_position(row, 3, False) for row in range(16)] == [3] * 16


def test_copies_of_a_chunk_row_meet_every_bank_once() -> None:
    """A quarter warp of cp.async writes eight chunks of one row, a permutation of 128 consecutive bytes."""
    config = KernelConfig.from_name("marlin_f16_u4b8_m16n128k128_g128_s4_sm90")
    for row in range(config.m_tile):
        for first in range(0, config.thread_k // 8, 8):
            assert {chunk_position(row, first + j, True) % 8 for j in range(8)} == set(range(8))
