"""What launches share between their CTAs: arrival counters and partial tiles. No two streams ever share either.

Counters are zero before a launch and zero again after it. They are rows of slabs that are allocated and zeroed once, outside any
CUDA graph: a row belongs for good to one stream, or to one stream of one capture (its graph may later run on any stream beside
eager launches). A launch therefore costs no memset, and nothing of ours stays alive in a graph's memory pool.

Partial tiles are temporary memory of the launch, taken from torch's stream-ordered caching allocator. Only the opt-in atomic
reduction needs zeros, which its kernels restore: it keeps one buffer a stream (or stream of the capture under way).
"""

from __future__ import annotations

import threading

import torch

ROWS = 512  # of a slab
SLABS = 8  # at most, a device; further captures zero their counters with each launch
_CTAS_PER_SM = 8  # at most, by the legality rules


class _Rows:
    """The counter rows of one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.width = _CTAS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count
        self.slabs: list[torch.Tensor] = []
        self.left = 0

    @property
    def low(self) -> bool:
        """Whether a slab should be added as soon as nothing is captured."""
        return self.left < ROWS // 2 and len(self.slabs) < SLABS

    def add_slab(self) -> None:
        with torch.cuda.device(self.device):
            self.slabs.append(torch.zeros((ROWS, self.width), dtype=torch.int32, device=self.device))
            torch.cuda.current_stream().synchronize()  # zeros for every stream
        self.left = ROWS

    def take(self) -> int | None:
        """Address of an unused row, or None if all are taken."""
        if self.left == 0:
            return None
        self.left -= 1
        return self.slabs[-1][self.left].data_ptr()


_lock = threading.Lock()
_devices: dict[int, _Rows] = {}
_low: set[int] = set()
_taken: dict[tuple[int, int, int], int] = {}
_sums: dict[tuple[int, int, int], torch.Tensor] = {}


def reserve(device: int) -> None:
    """Make sure of counters on a device. Call outside CUDA graph capture."""
    with _lock:
        rows = _devices.setdefault(device, _Rows(device))
        if rows.low:
            rows.add_slab()
        _low.discard(device)


def counters(device: int, stream: int, capture: int) -> int | None:
    """Address of the zeroed counters of a stream.

    Args:
        device: index of the stream's device.
        stream: the stream's handle.
        capture: id of the capture under way on it, 0 outside capture.

    Returns:
        None if there are none left, which only happens during capture: the launch must then bring zeros of its own.
    """
    if _low and device in _low and not capture:
        reserve(device)
    key = (device, stream, capture)
    return _taken.get(key) or _take(key)


def _take(key: tuple[int, int, int]) -> int | None:
    device, _, capture = key
    if device not in _devices and not capture:
        reserve(device)
    with _lock:
        rows = _devices.get(device)
        row = _taken.get(key) or (rows.take() if rows else None)
        if rows is None or rows.low:
            _low.add(device)
        if row is None:
            return None
        if capture:
            for old in [k for k in _taken if k[2] not in (0, capture)]:  # captures that have ended; their graphs keep the rows
                del _taken[old]
        _taken[key] = row
        return row


def partial(device: int, stream: int, capture: int, floats: int, zeroed: bool) -> torch.Tensor:
    """fp32 room for partial tiles; hold it until the launch is enqueued.

    Args:
        device, stream, capture: as for ``counters``.
        floats: values needed.
        zeroed: they must be zeros, and the launch leaves zeros (atomic reduction).
    """
    if not zeroed:
        return torch.empty(floats, dtype=torch.float32, device=device)
    key = (device, stream, capture)
    found = _sums.get(key)
    if found is None or found.numel() < floats:
        with _lock:
            for old in [k for k in _sums if k[2] not in (0, capture)]:
                del _sums[old]
            _sums[key] = found = torch.zeros(floats, dtype=torch.float32, device=device)
    return found
