"""How many compilers may run at once: as many as cores, memory and MAX_JOBS allow."""

from __future__ import annotations

import os
import re
from pathlib import Path

from marlin_gen.errors import ToolchainError

BYTES_PER_JOB = 1_200_000_000
"""Memory set aside for one nvcc with its cicc, ptxas and cc1plus. The emitted kernels stay under a third of it."""

_CGROUP = Path("/sys/fs/cgroup")


def job_count(asked: int | None = None) -> int:
    """Compilers to run at once.

    Args:
        asked: the user's word (``--jobs``), taken as it is; else the least of cores, free memory and the environment's MAX_JOBS.

    Raises:
        ToolchainError: MAX_JOBS is not a positive number.
    """
    if asked is not None:
        return asked
    bounds = [_cores(), free_memory() // BYTES_PER_JOB]
    if text := os.environ.get("MAX_JOBS", "").strip():
        if not text.isdecimal() or int(text) == 0:
            raise ToolchainError(f"MAX_JOBS={text!r} is not a positive number", "unset it, or write for instance MAX_JOBS=4")
        bounds.append(int(text))
    return max(1, min(bounds))


def _cores() -> int:
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return cores if quota == "max" else min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores


def free_memory() -> int:
    """Bytes that new processes may use: what the machine has free, and what is left of the control group's limit."""
    found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    free = int(found[1]) * 1024 if found else BYTES_PER_JOB
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            free = min(free, int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return max(0, free)
