"""The oracle of instruction counts: what a plan promises against what the compiler made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marlin_gen.inspect.ptx import PtxFunction
from marlin_gen.inspect.sass import Function

SASS_NAMES = {
    "mma.sync": "HMMA",
    "ldmatrix": "LDSM",
    "cp.async": "LDGSTS",
    "cp.async.commit_group": "LDGDEPBAR",
    "cp.async.wait_group": "DEPBAR",
    "bar.sync": "BAR",
    "lop3": "LOP3",
}
"""The machine instruction that a PTX instruction becomes."""
_BINDING = ("mma.sync", "ldmatrix", "cp.async")  # ptxas neither doubles, merges nor invents these


@dataclass(frozen=True)
class Count:
    """One expected number of instructions.

    Attributes:
        level: ``PTX`` or ``SASS``.
        name: PTX opcode without modifiers, or SASS mnemonic.
        binding: whether another number is an error. ptxas may merge or add barriers and waits.
    """

    level: str
    name: str
    expected: int
    found: int
    binding: bool

    @property
    def exact(self) -> bool:
        return self.expected == self.found


def compare(expected: Mapping[str, int], ptx: PtxFunction | None, sass: Function | None) -> list[Count]:
    """Counts of a kernel beside what its plan expects.

    Args:
        expected: ``KernelPlan.expected_counts()``: PTX opcodes without modifiers.
        ptx, sass: the kernel; a level that is None is left out.
    """
    rows = [Count("PTX", name, n, ptx.count(name), True) for name, n in expected.items()] if ptx else []
    if sass:
        names = [(name, SASS_NAMES[name], n) for name, n in expected.items() if name in SASS_NAMES and name != "lop3"]
        rows += [Count("SASS", made, n, sass.counts[made], name in _BINDING) for name, made, n in names]
    return rows
