"""Loops of a SASS function, from its jumps."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from marlin_gen.inspect.sass import Function, Instruction

MATRIX = ("HMMA", "IMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCQMMA")
"""Instructions of the tensor cores."""


@dataclass(frozen=True)
class Loop:
    """A natural loop: the blocks from which its head is reached again without leaving it.

    Attributes:
        instructions: in order of address; out-of-line parts are included.
        blocks: runs of instructions without a jump in or out.
    """

    instructions: tuple[Instruction, ...]
    blocks: int

    @property
    def matrix(self) -> int:
        """Instructions of the tensor cores."""
        return sum(i.mnemonic in MATRIX for i in self.instructions)

    @property
    def longest_stretch(self) -> tuple[Instruction, ...]:
        """The longest run of instructions without one of the tensor cores, around the back edge too, in order of address."""
        at = [index for index, i in enumerate(self.instructions) if i.mnemonic in MATRIX]
        if not at:
            return self.instructions
        once_more = [*at, at[0] + len(self.instructions)]
        start, end = max(pairwise(once_more), key=lambda pair: pair[1] - pair[0])
        return tuple(self.instructions[index % len(self.instructions)] for index in range(start + 1, end))


def loops(function: Function) -> list[Loop]:
    """All loops, the smallest first. Those that share a head are one."""
    starts, successors = _blocks(function)
    predecessors: dict[int, set[int]] = defaultdict(set)
    for block, nexts in successors.items():
        for following in nexts:
            predecessors[following].add(block)
    members: dict[int, set[int]] = defaultdict(set)
    for block, nexts in successors.items():
        for head in nexts:
            if head <= block and (body := _body(head, block, starts[0], predecessors)):
                members[head] |= body
    found = []
    for body in members.values():
        inside = [i for i in function.instructions if starts[bisect_right(starts, i.address) - 1] in body]
        found.append(Loop(tuple(inside), len(body)))
    return sorted(found, key=lambda loop: len(loop.instructions))


def main_loop(function: Function) -> Loop | None:
    """The innermost loop with the most instructions of the tensor cores; None if they are in no loop."""
    found = [loop for loop in loops(function) if loop.matrix]
    innermost = [a for a in found if not any(len(b.instructions) < len(a.instructions) and _inside(b, a) for b in found)]
    return max(innermost, key=lambda loop: loop.matrix, default=None)


def _inside(inner: Loop, outer: Loop) -> bool:
    return {i.address for i in inner.instructions} <= {i.address for i in outer.instructions}


def _blocks(function: Function) -> tuple[list[int], dict[int, set[int]]]:
    """Addresses at which basic blocks begin, sorted, and which block may follow which."""
    instructions = function.instructions
    begin = {instructions[0].address} if instructions else set()
    jumps = [(i, function.labels.get(i.target or "")) for i in instructions]
    begin.update(target for _, target in jumps if target is not None)
    for (before, target), (after, _) in pairwise(jumps):
        if target is not None or before.ends_path:
            begin.add(after.address)
    starts = sorted(begin)
    successors: dict[int, set[int]] = {start: set() for start in starts}
    for instruction, target in jumps:
        if target is not None:
            successors[starts[bisect_right(starts, instruction.address) - 1]].add(target)
    for before, after in pairwise(instructions):
        if after.address in successors and not before.ends_path:
            successors[starts[bisect_right(starts, before.address) - 1]].add(after.address)
    return starts, successors


def _body(head: int, tail: int, entry: int, predecessors: dict[int, set[int]]) -> set[int]:
    """Blocks of the loop that the jump from ``tail`` back to ``head`` closes; none if it can be entered elsewhere."""
    body, open_blocks = {head}, [tail]
    while open_blocks:
        block = open_blocks.pop()
        if block not in body:
            body.add(block)
            open_blocks += predecessors[block]
    return set() if entry in body and entry != head else body
