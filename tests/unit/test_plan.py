"""What templates rely on: maps without overlap, copies that cover, a tree without hazards, counts."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from marlin_gen.config import KernelConfig, load_matrix
from marlin_gen.config.arch import ARCHS
from marlin_gen.config.matrix import config_sets
from marlin_gen.emit import Templates, check_legal
from marlin_gen.quant import load_quant
from marlin_gen.schedule import KernelPlan
from marlin_gen.schedule.copies import CopyPlan

TEMPLATES = Templates()
BASE = KernelConfig.from_name("marlin_f16_u4b8_m16n128k128_g128_s4_sm90")


def plan(name: str = BASE.name, **changes: Any) -> KernelPlan:
    config = dataclasses.replace(KernelConfig.from_name(name), **changes)
    return KernelPlan.create(config, load_quant(config.quant, TEMPLATES))


@pytest.fixture(scope="module")
def plans() -> list[KernelPlan]:
    """Of every kernel of every packaged set."""
    configs = {c for name in config_sets() for c in load_matrix(name, legal=lambda c: check_legal(c, TEMPLATES))}
    return [KernelPlan.create(c, load_quant(c.quant, TEMPLATES)) for c in configs]


def test_the_articles_tile() -> None:
    p = plan("marlin_f16_u4b8_m64n256k64_g128_s4_sm80")
    assert (p.warps, p.warps_n, p.warps_k, p.k_subtiles, p.m_blocks, p.n_tiles) == (8, 4, 2, 2, 4, 8)
    assert p.expected_counts()["mma.sync"] == 64 * p.m_blocks  # as many as the hand-written kernel
    assert (p.stages_per_group, p.scale_rows, p.lane_planes) == (2, 1, 1)


def test_the_warps_cover_the_tile(plans: list[KernelPlan]) -> None:
    for p in plans:
        assert p.warps_n * p.warps_k * 32 == p.config.threads and p.warps_n * 64 == p.config.thread_n
        assert p.warps_k * p.k_subtiles * 16 == p.config.thread_k and p.m_blocks * p.block_rows == p.config.m_tile
        assert p.m_blocks * p.block_rows * p.n_tiles * (16 if p.transposed else 8) == p.config.m_tile * 64


def test_shared_regions_do_not_overlap_and_fit(plans: list[KernelPlan]) -> None:
    for p in plans:
        regions = sorted(p.shared.values(), key=lambda r: r.offset)
        for one, two in itertools.pairwise(regions):
            assert one.offset + one.bytes <= two.offset
        assert p.shared_bytes == max(r.offset + r.bytes for r in regions) <= ARCHS[p.config.arch].shared_per_cta
        assert p.config.ctas * (p.shared_bytes + 1024) <= ARCHS[p.config.arch].shared_per_sm
        for region in regions:
            assert region.offset % 128 == 0
            assert region.name in ("reduce", "flag") or region.bytes == region.stage_bytes * p.config.stages


def test_copies_take_every_chunk_once(plans: list[KernelPlan]) -> None:
    for p in plans:
        rings = {"a": p.a_copy, "b": p.b_copy, **dict.fromkeys(p.scale_vectors, p.s_copy)}
        for name, copy in rings.items():
            chunks = sorted(
                t + index * copy.threads for index in range(copy.passes) for t in range(copy.guard(index) or copy.threads)
            )
            assert chunks == list(range(p.shared[name].stage_bytes // 16))
            # a thread keeps its chunk of a row: pass p is the same chunk, pass_rows further down
            assert copy.passes == 1 or copy.threads % copy.row_chunks == 0
            assert copy.pass_bytes == copy.pass_rows * copy.row_bytes or copy.passes == 1


def test_guards() -> None:
    assert [CopyPlan(16, 128, 64).guard(i) for i in range(2)] == [0, 0]
    copy = CopyPlan(24, 128, 128)  # 192 chunks
    assert (copy.passes, copy.guard(0), copy.guard(1)) == (2, 0, 64)
    assert CopyPlan(1, 256, 128).guard(0) == 16


def test_the_ring_slots_of_a_swizzled_copy_keep_the_swizzle(plans: list[KernelPlan]) -> None:
    for p in plans:
        assert p.shared["a"].stage_bytes == p.config.m_tile * p.a_row_bytes and p.a_row_bytes % 128 == 0
        assert p.a_copy.passes == 1 or p.a_copy.pass_rows % 8 == 0
        assert p.block_rows % 8 == 0


@pytest.mark.parametrize(("warps_k", "rounds"), [(1, 0), (2, 1), (4, 2), (8, 3)])
def test_the_tree_adds_every_warp_row_once(warps_k: int, rounds: int) -> None:
    p = (
        plan(thread_n=64, threads=32 * warps_k, thread_k=128 if warps_k > 2 else 64)
        if warps_k > 1
        else plan(thread_n=256, threads=128)
    )
    assert p.warps_k == warps_k and len(p.tree_rounds) == rounds
    sums = [{warp} for warp in range(warps_k)]
    taken_before: dict[int, int] = {}  # slot -> the warp row that reads it in the round before
    for step in p.tree_rounds:
        slots = {warp + step.put_slot: warp for warp in range(step.half, 2 * step.half)}
        assert len(slots) == step.half and set(slots) <= set(range(p.tree_slots))
        for slot, writer in slots.items():
            # no barrier stands between the reads of a round and the writes of the next: a warp writes only what itself has read
            assert taken_before.get(slot, writer) == writer
        taken_before = {}
        for warp in range(step.half):
            slot = warp + step.take_slot
            sums[warp] |= sums[slots[slot]]
            taken_before[slot] = warp
    assert sums[0] == set(range(warps_k))
    assert 0 not in taken_before or warps_k == 1  # the finished rows go to slot 0 without another barrier


def test_finished_rows_and_tree_slots_fit_the_epilogues_space(plans: list[KernelPlan]) -> None:
    for p in plans:
        tree = p.warps_n * p.n_tiles * 512
        rows = p.block_rows * p.reduce_row_bytes
        assert p.tree_slot_bytes >= rows
        if p.warps_k > 1:
            assert (p.tree_slots - 1) * p.tree_slot_bytes + tree <= p.reduce_block_bytes
        assert rows <= p.reduce_block_bytes
        assert p.reduce_blocks * p.reduce_block_bytes == p.shared["reduce"].bytes
        assert [m for blocks in p.reduce_passes for m in blocks] == list(range(p.m_blocks))
        assert max(len(blocks) for blocks in p.reduce_passes) == p.reduce_blocks


def test_work_items_cover_a_block_of_rows(plans: list[KernelPlan]) -> None:
    for p in plans:
        items = sorted(
            t + i * p.config.threads for i in range(p.items.passes) for t in range(p.items.guard(i) or p.config.threads)
        )
        assert items == list(range(p.block_rows * p.config.thread_n // 8))
        assert p.items.passes == 1 or not p.items.guard(0)  # one condition serves all passes
        assert all(p.items.guard(i) == p.items.guard(0) for i in range(p.items.passes))
        assert p.slot_floats == p.m_blocks * p.items.passes * p.config.threads * 8


def bank_conflicts(addresses: list[int], size: int) -> int:
    """Extra wavefronts of one access of ``size`` bytes a lane: lanes go in turns of 128 bytes, each bank one word a turn."""
    lanes, worst = 128 // size, 0
    for first in range(0, 32, lanes):
        words = {address + byte for address in addresses[first : first + lanes] for byte in range(0, size, 4)}
        banks = [word // 4 % 32 for word in words]
        worst = max(worst, max(banks.count(bank) for bank in banks) - 1)
    return worst


def test_the_epilogue_has_no_bank_conflicts(plans: list[KernelPlan]) -> None:
    for p in {(q.transposed, q.reduce_row_bytes, q.config.threads): q for q in plans}.values():
        row = p.reduce_row_bytes
        for n in range(p.n_tiles):
            if p.transposed:
                for offset in (0, row, 32, 32 + row):
                    assert bank_conflicts([lane % 4 * 2 * row + lane // 4 * 4 + n * 64 + offset for lane in range(32)], 4) == 0
            else:
                for offset in (0, 8 * row):
                    assert bank_conflicts([lane // 4 * row + lane % 4 * 8 + n * 32 + offset for lane in range(32)], 8) == 0
        for warp in range(p.warps):
            threads = range(warp * 32, min(warp * 32 + 32, p.items.chunks))
            for upper in (16, 0):  # lanes 4..7 of eight read the upper half first
                takes = [
                    t // p.items.row_chunks * row + t % p.items.row_chunks * 32 + (upper if t & 4 else 16 - upper)
                    for t in threads
                ]
                assert not takes or bank_conflicts(takes, 16) == 0


def test_scale_rows_follow_the_k_rows_of_a_warp(plans: list[KernelPlan]) -> None:
    for p in plans:
        for sub in range(p.k_subtiles):
            for warp_k in range(p.warps_k):
                k_row = (sub * p.warps_k + warp_k) * 16
                assert p.scale_row(sub, warp_k) == (k_row // p.config.group_size if p.grouped and p.scale_rows > 1 else 0)


def test_hoisted_scales_are_read_once_a_stage() -> None:
    assert plan(scale_load="hoist").scale_loads == (0,) and plan().scale_loads == (0, 1)
    assert plan(scale_load="hoist", group_size=32).scale_loads == (0, 1)
    assert plan(group_size=-1).scale_loads == ()


def test_operands_of_the_ring() -> None:
    assert set(plan().shared) == {"a", "b", "s", "reduce", "flag"}
    assert set(plan(quant="u4").shared) == {"a", "b", "s", "z", "reduce", "flag"}
    assert set(plan(quant="u4", group_size=-1).shared) == {"a", "b", "reduce", "flag"}


@pytest.mark.parametrize(
    ("changes", "copies"),
    [({}, 2 + 1 + 1), ({"quant": "u4"}, 2 + 2 + 1), ({"group_size": -1}, 2 + 1), ({"m_tile": 48}, 2 + 3 + 1)],
)
def test_counts_of_copies(changes: dict[str, Any], copies: int) -> None:
    """16 KB of weights are 2 passes of 256 threads, 4 KB of 16 activation rows one, scales and zero points one each."""
    counts = plan(**changes).expected_counts()
    assert counts["cp.async"] == 7 * copies  # four slots in a revolution, three in the fill before it
    assert (counts["cp.async.commit_group"], counts["cp.async.wait_group"]) == (7, 6)


def test_describe_names_every_region_and_count() -> None:
    p = plan(quant="u4")
    text = dict(p.describe())
    assert {f"shared {name}" for name in p.shared} < set(text)
    assert text["shared total"] == f"{p.shared_bytes} bytes"
    for name, number in p.expected_counts().items():
        assert f"{number} {name}" in text["instructions"]
