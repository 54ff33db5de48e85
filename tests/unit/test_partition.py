"""The striped partition: every tile once, sharers that agree with the slices, slots and counters that do not collide."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marlin_gen.config import KernelConfig
from marlin_gen.errors import DispatchError
from marlin_gen.schedule import Partition, partition

M16 = KernelConfig.from_name("marlin_f16_u4b8_m16n64k64_g64_s4_sm80_t128")
M8 = KernelConfig.from_name("marlin_f16_u4b8_m8n128k128_g128_s4_sm90")


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    config = draw(st.sampled_from([M16, M8]))
    k_tiles, n_tiles = draw(st.integers(1, 40)), draw(st.integers(1, 12))
    m, grid = draw(st.integers(1, 70)), draw(st.integers(1, 264))
    return partition(
        m, k_tiles * config.thread_k, n_tiles * config.thread_n, config, grid, draw(st.sampled_from([1, 1, 2, 4, 1000]))
    )


@given(partitions())
def test_every_tile_belongs_to_exactly_one_cta(part: Partition) -> None:
    seen = Counter(
        (column, k_tile) for cta in range(part.grid) for column, first, end in part.slices(cta) for k_tile in range(first, end)
    )
    assert seen == Counter({(column, k_tile): 1 for column in range(part.columns) for k_tile in range(part.k_tiles)})


@given(partitions())
def test_every_cta_has_work_and_as_much_as_the_others(part: Partition) -> None:
    tiles = [sum(end - first for _, first, end in part.slices(cta)) for cta in range(part.grid)]
    assert all(tiles) and set(tiles[:-1]) <= {part.stripe} and tiles[-1] <= part.stripe
    for cta in range(part.grid):
        columns = [column for column, _, _ in part.slices(cta)]
        assert columns == list(range(columns[0], columns[-1] + 1))


@given(partitions())
def test_sharers_are_the_ctas_that_have_slices_of_the_column(part: Partition) -> None:
    owners = defaultdict(list)
    for cta in range(part.grid):
        for column, _, _ in part.slices(cta):
            owners[column].append(cta)
    for column, ctas in owners.items():
        first, last = part.sharers(column)
        assert ctas == list(range(first, last + 1))
    assert part.shared_columns or all(len(ctas) == 1 for ctas in owners.values())


@given(partitions())
def test_slots_and_counters_do_not_collide(part: Partition) -> None:
    """The kernel's rule: CTA x keeps its part of a column in slot 2x + (x is the column's first), counted at that first CTA."""
    slots: list[int] = []
    counters: dict[int, int] = {}
    for cta in range(part.grid):
        for column, first_tile, end in part.slices(cta):
            if end - first_tile < part.k_tiles:
                first, last = part.sharers(column)
                assert first < last and part.shared_columns
                slots.append(2 * cta + (cta == first))
                assert counters.setdefault(first, column) == column
                assert first < part.grid
    assert len(slots) == len(set(slots))
    assert all((slot + 1) * part.slot_floats <= part.partial_floats for slot in slots)


@given(partitions(), st.integers(1, 264))
def test_the_grid_is_not_exceeded(part: Partition, grid: int) -> None:
    other = partition(1, part.k_tiles * M16.thread_k, part.n_tiles * M16.thread_n, M16, grid)
    assert other.grid <= grid and other.stripe == -(-other.tiles // grid)
    assert (other.grid - 1) * other.stripe < other.tiles <= other.grid * other.stripe


@pytest.mark.parametrize(("grid", "stripe", "ctas"), [(1, 12, 1), (3, 4, 3), (5, 3, 4), (12, 1, 12), (500, 1, 12), (0, 12, 1)])
def test_stripes_of_twelve_tiles(grid: int, stripe: int, ctas: int) -> None:
    part = partition(16, 4 * 64, 3 * 64, M16, grid)
    assert (part.k_tiles, part.n_tiles, part.columns, part.tiles) == (4, 3, 3, 12)
    assert (part.stripe, part.grid) == (stripe, ctas)
    assert part.shared_columns == (stripe % 4 != 0)
    assert part.partial_floats == (2 * ctas * 16 * 64 if part.shared_columns else 0)


def test_a_smallest_stripe_takes_fewer_ctas() -> None:
    assert partition(16, 4 * 64, 3 * 64, M16, 12, min_stripe=4).grid == 3
    assert partition(16, 4 * 64, 3 * 64, M16, 2, min_stripe=4).stripe == 6
    assert partition(16, 4 * 64, 3 * 64, M16, 12, min_stripe=100).stripe == 12


@pytest.mark.parametrize(("m", "columns"), [(1, 3), (16, 3), (17, 6), (33, 9)])
def test_rows_are_columns_of_tiles_after_those_of_the_first_rows(m: int, columns: int) -> None:
    assert partition(m, 64, 3 * 64, M16, 7).columns == columns


@pytest.mark.parametrize("m_tile", [8, 16, 32, 48, 64])
@pytest.mark.parametrize(("thread_n", "threads"), [(64, 128), (128, 256), (256, 256), (64, 256)])
def test_a_slot_holds_a_tile_and_whole_work_items(m_tile: int, thread_n: int, threads: int) -> None:
    config = dataclasses.replace(M8, m_tile=m_tile, thread_n=thread_n, threads=threads)
    slot = partition(1, 128, 256, config, 1).slot_floats
    assert slot >= m_tile * thread_n and slot % (threads * 8) == 0


def test_products_of_too_many_tiles_are_refused() -> None:
    """Tile numbers are 32-bit in the kernel: 2^31 - 1 are the most."""
    n_pad = 64 * 1024
    edge = 16 * (2**31 // (1024 * 1024))
    with pytest.raises(DispatchError, match=f"M={edge}, K=65536, N=65536 make {2**31} tiles") as raised:
        partition(edge, 1024 * 64, n_pad, M16, 132)
    assert "several calls" in raised.value.hint and M16.name in raised.value.message
    part = partition(edge - 16, 1024 * 64, n_pad, M16, 132)
    assert part.tiles == 2**31 - 2**20
    assert part.slices(part.grid - 1)[-1] == (part.columns - 1, 0, 1024)
