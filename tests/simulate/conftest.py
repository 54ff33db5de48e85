"""Runs small kernels, given as the body of a function, on the modelled device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marlin_gen.errors import ToolchainError
from marlin_gen.simulate import Buffer, SimResult, simulate
from marlin_gen.simulate.compile import _compiler

HEADERS = ("params", "prelude", "bits", "cp_async", "global", "half", "ldmatrix", "mma", "shared")
INCLUDES = "".join(f'#include "{name}.cuh"\n' for name in HEADERS)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests keep compiled kernels; the device itself is compiled once."""
    try:
        _compiler()
    except ToolchainError as error:
        pytest.skip(str(error))
    return tmp_path_factory.mktemp("simulator")


class Lab:
    """Launches a kernel body with buffers ``a`` (read) and ``c`` (written)."""

    def __init__(self, cache_dir: Path) -> None:
        self.cache_dir = cache_dir
        self.text = ""

    def run(self, body: str, a: np.ndarray, c: np.ndarray, *more: Buffer, **options: Any) -> SimResult:
        """``c`` may not be read and begins uninitialised, unless ``more`` brings another buffer of that name."""
        self.text = f"{INCLUDES}MG_KERNEL(32, 1) void kernel(MG_PARAM GemmParams p) {{\n{body}\n}}\n"
        names = {buffer.name for buffer in more}
        buffers = [b for b in (Buffer("a", a), Buffer("c", c, "w", initialised=False)) if b.name not in names]
        options = {"grid": 1, "threads": 32, "shared_bytes": 4096, "scalars": {}} | options
        return simulate(self.text, "kernel", [*buffers, *more], cache_dir=self.cache_dir, **options)

    def line(self, marker: str) -> int:
        """Line of the last kernel's text that contains ``marker``."""
        return next(i for i, line in enumerate(self.text.splitlines(), 1) if marker in line)

    def faults(self, body: str, more: Sequence[Buffer] = (), **options: Any) -> list[tuple[str, int]]:
        """(kind, line) of the faults of a body that needs nothing but 4 KB to read and to write."""
        a = np.arange(2048, dtype=np.uint16)
        result = self.run(body, a, np.zeros(2048, np.uint16), *more, **options)
        return [(fault.kind, fault.line) for fault in result.faults]


@pytest.fixture
def lab(cache_dir: Path) -> Lab:
    return Lab(cache_dir)
