"""Counter rows: one for each stream and each stream of a capture, never shared, bounded, never allocated during capture."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from marlin_gen.runtime import workspace


class HostRows(workspace._Rows):
    """Rows in host memory."""

    def __init__(self, device):
        self.device, self.width, self.slabs, self.left = device, 16, [], 0

    def add_slab(self):
        self.slabs.append(torch.zeros((workspace.ROWS, self.width), dtype=torch.int32))
        self.left = workspace.ROWS


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setattr(workspace, "_Rows", HostRows)
    for name in ("_devices", "_taken", "_sums"):
        monkeypatch.setattr(workspace, name, {})
    monkeypatch.setattr(workspace, "_low", set())
    return workspace


def test_rows_are_kept_and_never_shared(tables):
    keys = [(device, stream, capture) for device in (0, 1) for stream in (0, 7, 9) for capture in (0, 3)]
    tables.reserve(0)
    tables.reserve(1)
    rows = [tables.counters(*key) for key in keys]
    assert rows == [tables.counters(*key) for key in keys]
    ends = sorted(rows)
    assert all(later - earlier >= 16 * 4 for earlier, later in pairwise(ends))


def test_a_first_call_inside_capture_brings_its_own_zeros(tables):
    assert tables.counters(0, 5, 11) is None
    assert not tables._devices
    assert tables.counters(0, 5, 0)  # outside capture a slab is made
    assert tables.counters(0, 5, 12)


def test_ended_captures_keep_their_rows_but_are_forgotten(tables):
    tables.reserve(0)
    first, second = tables.counters(0, 5, 11), tables.counters(0, 5, 12)
    assert first != second
    assert (0, 5, 11) not in tables._taken and (0, 5, 12) in tables._taken


def test_eager_calls_refill_and_memory_is_bounded(tables):
    """K15: many captures cost at most SLABS slabs; after that launches bring zeros of their own."""
    tables.counters(0, 1, 0)
    seen = set()
    for capture in range(1, workspace.ROWS * workspace.SLABS + 100):
        row = tables.counters(0, 1, capture)
        assert row is None or row not in seen
        seen.add(row)
        tables.counters(0, 1, 0)
    assert len(tables._devices[0].slabs) == workspace.SLABS
    assert None in seen and len(seen) > workspace.ROWS * workspace.SLABS // 2
    assert tables.counters(0, 1, 0)


def test_atomic_sums_are_zero_grow_and_stay_apart(tables, monkeypatch):
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, device=None, **options: zeros(*size, **options))
    small = tables.partial(0, 5, 0, 10, True)
    assert small.numel() == 10 and not small.any()
    assert tables.partial(0, 5, 0, 8, True) is small
    assert tables.partial(0, 5, 0, 20, True).numel() == 20
    captured = tables.partial(0, 5, 3, 10, True)
    assert captured is not tables.partial(0, 5, 4, 10, True)
    assert (0, 5, 3) not in tables._sums and (0, 5, 0) in tables._sums
