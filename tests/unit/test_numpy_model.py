"""The plan executed in numpy: packed words to C, through the addresses that the plan's numbers give.

A second implementation of what the templates print, thread by thread: copies into the ring, ldmatrix, the lanes' words and
scales, mma, the k-warp tree, partial tiles, the store. All numbers are integers, so the result equals the plain product exactly.
Shared memory and partial slots begin as garbage, and C as a sentinel: an address that is off by anything gives a wrong integer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from marlin_gen.config import KernelConfig
from marlin_gen.emit import Templates
from marlin_gen.layout import PackedShape, pack_codes, permute_scales
from marlin_gen.layout.fragments import a_element, b_element, c_element
from marlin_gen.quant import QuantType, load_quant
from marlin_gen.schedule import KernelPlan, partition

U4B8 = load_quant("u4b8", Templates())
QUANTS = {
    "u4b8": U4B8,
    "u4": load_quant("u4", Templates()),
    "u8b128": dataclasses.replace(U4B8, name="u8b128", bits=8, slots=(0, 16, 8, 24, 32, 48, 40, 56), value="q - 128"),
}
SENTINEL = -999999
LANE = np.arange(32)
GROUP, QUAD = LANE // 4, LANE % 4


def table(element: Any, registers: int, halves: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every (lane, register, half) of a fragment."""
    places = np.array([[[element(lane, r, h) for h in range(halves)] for r in range(registers)] for lane in range(32)])
    return places[..., 0], places[..., 1]


A_ROW, A_K = table(a_element, 4, 2)
B_K, B_COL = table(b_element, 2, 2)
C_ROW, C_COL = (x[..., 0] for x in table(lambda lane, value, _: c_element(lane, value), 4, 1))


def mma(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """mma.m16n8k16 of fragments a [lane, 4, 2] and b [lane, 2, 2]; the product as a fragment [lane, 4]."""
    rows, columns = np.zeros((16, 16), np.int64), np.zeros((16, 8), np.int64)
    rows[A_ROW, A_K] = a
    columns[B_K, B_COL] = b
    return (rows @ columns)[C_ROW, C_COL]


class Launch:
    """One product and its execution, CTA by CTA."""

    def __init__(self, plan: KernelPlan, m: int, n: int, k: int, grid: int, seed: int = 0) -> None:
        self.p, self.k = plan, plan.config
        rng = self.rng = np.random.default_rng(seed)
        shape = self.shape = PackedShape(k, n, self.k.group_size)
        quant: QuantType = plan.quant
        assert shape.n_pad % self.k.thread_n == 0, "the test's N must suit the tile"
        codes = rng.integers(0, quant.codes, (k, n))
        zeros = rng.integers(0, 16, (shape.groups, n))
        scales = rng.integers(1, 4, (shape.groups, n))
        self.a = rng.integers(-1, 2, (m, k)).astype(np.int16)
        self.bias = rng.integers(-50, 50, n)
        per_row = np.arange(k) // (self.k.group_size if plan.grouped else k)
        values = quant.decode(codes, zeros[per_row]).astype(np.int64) * scales[per_row]
        self.expected = self.a.astype(np.int64) @ values + self.bias

        self.words = np.zeros(shape.words(quant.bits), np.int32)
        pack_codes(np.pad(codes, ((0, -k % 16), (0, 0))), self.words, shape, quant)
        self.scales, self.zeros = self.padded(scales), self.padded(zeros)
        if plan.grouped:
            self.scales = self.permuted(self.scales)
        self.zeros = self.permuted(self.zeros)  # always: the main loop subtracts them

        self.part = partition(m, shape.k_pad, shape.n_pad, self.k, grid)
        self.partial = np.full(max(self.part.partial_floats, 1), np.nan, np.float32)
        self.c = np.full((m, n), SENTINEL, np.int64)

    def padded(self, rows: np.ndarray) -> np.ndarray:
        out = self.rng.integers(5, 9, (self.shape.groups_pad, self.shape.n_pad)).astype(np.int16)
        out[: rows.shape[0], : rows.shape[1]] = rows
        return out

    def permuted(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty_like(rows)
        permute_scales(rows, out)
        return out

    def run(self) -> np.ndarray:
        handed: dict[int, list[np.ndarray]] = {}
        order = self.rng.permutation(self.part.grid)
        for cta in order:
            self.shared = self.rng.integers(0, 256, self.p.shared_bytes, dtype=np.uint8)
            for column, first, end in self.part.slices(int(cta)):
                items = self.reduce(self.multiply(column, first, end))
                if end - first == self.part.k_tiles:
                    self.store(column, items)
                else:
                    self.hand_over(int(cta), column, items)
                    handed.setdefault(column, [])
        for column in handed:
            first_cta, last_cta = self.part.sharers(column)
            items = sum(self.take_over(cta, column) for cta in range(first_cta, last_cta + 1))
            self.store(column, items)
        return self.c

    # ---- main loop ----
    def multiply(self, column: int, first: int, end: int) -> np.ndarray:
        """Accumulators [warp, m block, n tile, lane, 4] of a slice."""
        p = self.p
        n_tile, m0 = column % self.part.n_tiles, column // self.part.n_tiles * self.k.m_tile
        sums = np.zeros((p.warps, p.m_blocks, p.n_tiles, 32, 4), np.int64)
        for k_tile in range(first, end):
            slot = (k_tile - first) % self.k.stages
            self.fill(slot, n_tile, m0, k_tile)
            for warp in range(p.warps):
                self.warp_stage(sums[warp], warp % p.warps_n, warp // p.warps_n, slot, n_tile)
        return sums

    def fill(self, slot: int, n_tile: int, m0: int, k_tile: int) -> None:
        """One stage of copies: chunk t + pass*threads of a tile belongs to thread t."""
        p, thread = self.p, np.arange(self.k.threads)
        copy, region = p.a_copy, p.shared["a"]
        row, chunk = thread // copy.row_chunks, thread % copy.row_chunks
        put = row * p.a_row_bytes + ((chunk ^ (row & 7)) if self.k.swizzle else chunk) * 16
        for index in range(copy.passes):
            take = self.taking_part(copy, index)
            source = np.zeros((self.k.threads, 8), np.int16)
            rows, columns = m0 + row + index * copy.pass_rows, k_tile * self.k.thread_k + chunk * 8
            real = (rows < self.a.shape[0]) & (columns < self.a.shape[1])
            source[real] = self.a[rows[real, None], columns[real, None] + np.arange(8)]
            self.write(
                put[take] + region.offset + slot * region.stage_bytes + index * copy.pass_bytes, source[take].view(np.uint8)
            )
        memory = self.words.view(np.uint8)
        row_bytes = self.shape.n_pad * p.b_block_bytes // 64
        first = k_tile * (self.k.thread_k // 16) * row_bytes + n_tile * p.b_row_bytes
        self.copy(p.b_copy, "b", slot, memory, first, row_bytes)
        for prefix, field in p.scale_operands:
            memory = getattr(self, field).view(np.uint8).reshape(-1)
            s_row = k_tile // p.stages_per_group if p.stages_per_group > 1 else k_tile * p.scale_rows
            first = s_row * self.shape.n_pad * 2 + n_tile * p.scale_row_bytes
            self.copy(p.s_copy, prefix, slot, memory, first, self.shape.n_pad * 2)

    def copy(self, copy: Any, name: str, slot: int, memory: np.ndarray, first: int, row_bytes: int) -> None:
        region, thread = self.p.shared[name], np.arange(self.k.threads)
        row, chunk = thread // copy.row_chunks, thread % copy.row_chunks
        for index in range(copy.passes):
            take = self.taking_part(copy, index)
            source = first + (row + index * copy.pass_rows) * row_bytes + chunk * 16
            put = thread * 16 + region.offset + slot * region.stage_bytes + index * copy.pass_bytes
            self.write(put[take], memory[source[take, None] + np.arange(16)])

    def taking_part(self, copy: Any, index: int) -> np.ndarray:
        return np.arange(self.k.threads) < (copy.guard(index) or self.k.threads)

    def write(self, address: np.ndarray, data: np.ndarray) -> None:
        self.shared[address[:, None] + np.arange(data.shape[1])] = data

    def read(self, address: np.ndarray, count: int, dtype: Any) -> np.ndarray:
        """``count`` elements at every address."""
        size = count * np.dtype(dtype).itemsize
        return self.shared[address[:, None] + np.arange(size)].view(dtype)

    def ldmatrix(self, address: np.ndarray, blocks: int) -> np.ndarray:
        """Pairs [lane, block, 2]: lane l receives of block b the elements 2*(l%4), 2*(l%4)+1 of the row at address 8*b + l//4."""
        rows = self.read(address, 8, np.int16)
        return np.stack([rows[8 * b + GROUP[:, None], 2 * QUAD[:, None] + np.arange(2)] for b in range(blocks)], axis=1)

    def warp_stage(self, sums: np.ndarray, warp_n: int, warp_k: int, slot: int, n_tile: int) -> None:
        p = self.p
        a_row, a_half = (LANE % 8, LANE // 8 % 2) if p.transposed else (LANE % 16, LANE // 16)
        for sub in range(p.k_subtiles):
            chunk = sub * p.warps_k * 2 + warp_k * 2 + a_half
            take = a_row * p.a_row_bytes + ((chunk ^ (a_row & 7)) if self.k.swizzle else chunk) * 16
            take = take + self.slot("a", slot)
            tokens = [self.ldmatrix(take + m * p.block_rows * p.a_row_bytes, 2 if p.transposed else 4) for m in range(p.m_blocks)]

            b_take = (
                warp_k * p.b_row_bytes
                + warp_n * p.b_block_bytes
                + LANE * 16
                + self.slot("b", slot)
                + sub * p.warps_k * p.b_row_bytes
            )
            words = np.concatenate([self.read(b_take + plane * 512, 4, np.uint32) for plane in range(p.lane_planes)], axis=1)
            if sub in p.scale_loads:
                operands = [self.scale_vector(prefix, warp_n, warp_k, slot, sub) for prefix in p.scale_vectors]
            scale = operands[0] if p.grouped else np.ones((32, 8), np.int64)
            zero = operands[-1] if p.grouped else self.zero_column(n_tile, warp_n)

            for j in range(4):
                w = np.empty((32, 4, 2), np.int64)  # pairs (n_lo,k_lo) (n_lo,k_hi) (n_hi,k_lo) (n_hi,k_hi)
                for index, place in enumerate(p.quant.slots):
                    word, bit = divmod(place, 32)
                    code = words[:, j * p.quant.tile_words + word] >> np.uint32(bit) & np.uint32(p.quant.codes - 1)
                    column = 2 * j + index // 4
                    w[:, index // 2, index % 2] = p.quant.decode(code, zero[:, column]) * scale[:, column]
                for m in range(p.m_blocks):
                    if p.transposed:
                        sums[m, j] += mma(w[:, [0, 2, 1, 3]], tokens[m])
                    else:
                        sums[m, 2 * j] += mma(tokens[m], w[:, :2])
                        sums[m, 2 * j + 1] += mma(tokens[m], w[:, 2:])

    def slot(self, name: str, slot: int) -> int:
        region = self.p.shared[name]
        return region.offset + slot * region.stage_bytes

    def scale_vector(self, prefix: str, warp_n: int, warp_k: int, slot: int, sub: int) -> np.ndarray:
        p = self.p
        row = warp_k * 16 // self.k.group_size if p.scale_rows > 1 else 0
        take = (
            row * p.scale_row_bytes + warp_n * 128 + GROUP * 16 + self.slot(prefix, slot) + p.scale_row(sub) * p.scale_row_bytes
        )
        return self.read(take, 8, np.int16).astype(np.int64)

    def zero_column(self, n_tile: int, warp_n: int) -> np.ndarray:
        first = n_tile * self.k.thread_n + warp_n * 64 + GROUP * 8
        return self.zeros[0, first[:, None] + np.arange(8)].astype(np.int64)

    # ---- epilogue ----
    def reduce(self, sums: np.ndarray) -> np.ndarray:
        """Accumulators to the threads' items [m block, item, thread, 8], through shared memory."""
        p = self.p
        base, quads, slot = p.shared["reduce"].offset, np.arange(p.n_tiles) * 512, p.tree_slot_bytes
        values = sums.astype(np.float32).reshape(p.warps_k, p.warps_n, *sums.shape[1:])
        items = np.full((p.m_blocks, p.items.passes, self.k.threads, 8), np.nan, np.float32)
        thread = np.arange(self.k.threads)
        item_row, item_col = thread // p.items.row_chunks, thread % p.items.row_chunks * 8
        for blocks in p.reduce_passes:
            self.shared[base : p.shared["flag"].offset] = 0xFF  # NaN
            for step in p.tree_rounds:
                for warp_k, putting in [(w, w >= step.half) for w in reversed(range(2 * step.half))]:
                    for warp_n in range(p.warps_n):
                        tree = warp_k * slot + warp_n * p.n_tiles * 512 + LANE * 16
                        for m in blocks:
                            at = (
                                base
                                + (m - blocks[0]) * p.reduce_block_bytes
                                + (step.put_slot if putting else step.take_slot) * slot
                            )
                            for n in range(p.n_tiles):
                                if putting:
                                    self.write(tree + at + quads[n], values[warp_k, warp_n, m, n].view(np.uint8))
                                else:
                                    values[warp_k, warp_n, m, n] += self.read(tree + at + quads[n], 4, np.float32)
            for m in blocks:
                rows = base + (m - blocks[0]) * p.reduce_block_bytes
                for warp_n in range(p.warps_n):
                    for n in range(p.n_tiles):
                        self.fragment_to_rows(rows, warp_n, n, values[0, warp_n, m, n])
                for i in range(p.items.passes):
                    take = self.taking_part(p.items, 0)
                    address = rows + i * p.items.pass_rows * p.reduce_row_bytes + item_row * p.reduce_row_bytes + item_col * 4
                    items[m, i, take] = self.read(address[take], 8, np.float32)
        return items

    def fragment_to_rows(self, rows: int, warp_n: int, n: int, quad: np.ndarray) -> None:
        p = self.p
        if p.transposed:
            put = QUAD * 2 * p.reduce_row_bytes + (warp_n * 64 + GROUP) * 4 + rows + n * 64
            offsets = (0, p.reduce_row_bytes, 32, 32 + p.reduce_row_bytes)
        else:
            put = GROUP * p.reduce_row_bytes + (warp_n * 64 + QUAD * 2) * 4 + rows + n * 32
            offsets = (0, 4, 8 * p.reduce_row_bytes, 8 * p.reduce_row_bytes + 4)
        for value, offset in enumerate(offsets):
            self.write(put + offset, np.ascontiguousarray(quad[:, value : value + 1]).view(np.uint8))

    def places(self, cta: int, column: int) -> np.ndarray:
        """Indices [m block, item, thread, 8] of a CTA's items in the partial slots."""
        p, first = self.p, self.part.sharers(column)[0]
        slot = (2 * cta + (cta == first)) * p.slot_floats
        m, i, t, v = np.ogrid[: p.m_blocks, : p.items.passes, : self.k.threads, :8]
        offset = (m * p.items.passes + i) * self.k.threads * 8
        return slot + offset + t * 4 + (v // 4) * self.k.threads * 4 + v % 4

    def hand_over(self, cta: int, column: int, items: np.ndarray) -> None:
        places = self.places(cta, column)
        assert places.max() < self.partial.size and np.isnan(self.partial[places]).all(), "a partial slot is used twice"
        self.partial[places] = items

    def take_over(self, cta: int, column: int) -> np.ndarray:
        return self.partial[self.places(cta, column)]

    def store(self, column: int, items: np.ndarray) -> None:
        """8 columns of a row from every item; rows and columns beyond C are left out."""
        p, thread = self.p, np.arange(self.k.threads)
        m0, n0 = column // self.part.n_tiles * self.k.m_tile, column % self.part.n_tiles * self.k.thread_n
        taking = np.flatnonzero(self.taking_part(p.items, 0))
        for m in range(p.m_blocks):
            for i in range(p.items.passes):
                for t in taking:
                    row = m0 + thread[t] // p.items.row_chunks + m * p.block_rows + i * p.items.pass_rows
                    col = n0 + t % p.items.row_chunks * 8
                    count = min(8, self.c.shape[1] - col)
                    if row < self.c.shape[0] and count > 0:
                        assert (self.c[row, col : col + count] == SENTINEL).all(), "an element of C is stored twice"
                        scale = 1 if p.grouped else self.scales[0, col : col + count]
                        self.c[row, col : col + count] = items[m, i, t, :count] * scale + self.bias[col : col + count]


# (kernel, M, N, K, grid): every kind of tile, one to eight warps along K, ragged M, N and K, columns shared by none and by many
CASES = [
    ("marlin_f16_u4b8_m8n64k128_g128_s4_sm90", 5, 185, 512, 5),
    ("marlin_f16_u4b8_m8n128k128_g128_s4_sm90_t128_c3", 9, 256, 256, 3),
    ("marlin_f16_u4_m8n256k64_gch_s4_sm90", 3, 250, 200, 3),
    ("marlin_f16_u4b8_m16n64k128_g32_s4_sm80", 17, 100, 352, 4),
    ("marlin_f16_u4b8_m16n64k64_g64_s2_sm80_t64", 16, 64, 320, 2),
    ("marlin_f16_u4b8_m16n64k64_g16_s4_sm80_t128", 7, 64, 272, 3),
    ("marlin_bf16_u4_m16n128k128_g64_s3_sm90", 20, 256, 448, 3),
    ("marlin_f16_u4_m16n64k128_gch_s4_sm80", 1, 57, 232, 1),
    ("marlin_f16_u4b8_m16n256k64_g128_s5_sm90_t128", 11, 500, 512, 7),
    ("marlin_f16_u4_m16n128k64_g256_s4_sm90", 16, 128, 1024, 3),
    ("marlin_f16_u4b8_m16n256k128_gch_s2_sm90_t512", 30, 512, 256, 3),
    ("marlin_f16_u4b8_m48n64k64_g64_s4_sm80_t128_noswz", 100, 64, 256, 5),
    ("marlin_f16_u4b8_m32n128k128_g128_s4_sm90_hoist", 40, 128, 384, 2),
    ("marlin_f16_u4_m64n64k128_g32_s3_sm80_t128", 70, 64, 256, 3),
    ("marlin_bf16_u4b8_m64n256k64_g64_s4_sm90", 65, 256, 192, 2),
    ("marlin_f16_u4b8_m64n128k128_gch_s3_sm90_t128_c2", 128, 128, 136, 2),
    ("marlin_f16_u8b128_m8n64k128_g128_s4_sm90", 8, 128, 256, 3),
    ("marlin_f16_u8b128_m32n128k128_g32_s2_sm90", 33, 128, 352, 2),
]


@pytest.mark.parametrize(("name", "m", "n", "k", "grid"), CASES, ids=[case[0] for case in CASES])
def test_the_plan_computes_the_product(name: str, m: int, n: int, k: int, grid: int) -> None:
    config = KernelConfig.from_name(name)
    launch = Launch(KernelPlan.create(config, QUANTS[config.quant]), m, n, k, grid)
    assert (launch.run() == launch.expected).all()


def test_the_cases_are_of_every_kind() -> None:
    plans = [KernelPlan.create(c, QUANTS[c.quant]) for c in (KernelConfig.from_name(case[0]) for case in CASES)]
    assert {p.warps_k for p in plans} == {1, 2, 4, 8} and {p.warps_n for p in plans} == {1, 2, 4}
    assert {p.m_blocks for p in plans} == {1, 2, 3, 4} and {p.transposed for p in plans} == {True, False}
    assert {p.stages_per_group for p in plans} == {1, 2, 4} and {p.scale_rows for p in plans} >= {0, 1, 2, 4}
    assert {len(p.reduce_passes) for p in plans} >= {1, 2} and {bool(p.a_copy.guard(p.a_copy.passes - 1)) for p in plans} == {
        True,
        False,
    }
    assert {p.items.passes for p in plans} >= {1, 2} and {p.k_subtiles for p in plans} >= {1, 2, 4}


@pytest.mark.parametrize("grid", [1, 2, 3, 5, 7, 12, 16, 99])
def test_any_number_of_ctas_gives_the_same_product(grid: int) -> None:
    config = KernelConfig.from_name("marlin_f16_u4b8_m16n64k64_g64_s4_sm80_t128")
    launch = Launch(KernelPlan.create(config, U4B8), 20, 128, 384, grid, seed=grid)
    assert (launch.run() == launch.expected).all()
