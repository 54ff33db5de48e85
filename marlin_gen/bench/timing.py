"""Time of a launch: CUDA graphs over rotating weights, contenders in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

COLD_BYTES = 450_000_000  # weights that a graph cycles through: several times the L2 of any GPU
MIN_LAUNCHES = 24  # of a graph, so that its own launch does not count


@dataclass(frozen=True)
class Timing:
    """Microseconds of one launch: median over rounds, and the spread between the fastest and the slowest round."""

    us: float
    low: float
    high: float


def copies_for(weight_bytes: int) -> int:
    """Copies of a layer's weights that make its reads come from DRAM: at least 3, at most 60."""
    return max(3, min(60, -(-COLD_BYTES // weight_bytes)))


def capture(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """A graph of all calls, repeated until it holds ``MIN_LAUNCHES``."""
    repeats = -(-MIN_LAUNCHES // len(calls))
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls[0]()  # whatever a first call allocates or loads
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeats):
                for call in calls:
                    call()
    return graph


def interleaved(contenders: Mapping[str, Sequence[Callable[[], object]]], rounds: int = 7) -> dict[str, Timing]:
    """Time contenders in turn, round after round, so that clocks and heat treat them alike.

    Args:
        contenders: for each name the calls of one rotation: same product, different copies of the weights.
        rounds: replays of each graph that are timed, after one that is not.
    """
    graphs = {name: (capture(calls), len(calls) * -(-MIN_LAUNCHES // len(calls))) for name, calls in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds + 1):
        for name, (graph, launches) in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / launches)
    return {name: Timing(statistics.median(t[1:]), min(t[1:]), max(t[1:])) for name, t in times.items()}
