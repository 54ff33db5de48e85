"""SASS as nvdisasm prints it, as instructions with their addresses, operands and source lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from marlin_gen.inspect.assembly import Place, operands

_SECTION = re.compile(r"\s*\.section\s+\.text\.(\S+?),")
_TARGET = re.compile(r"\s*\.target\s+(sm_\w+)")
_LABEL = re.compile(r"(\.L_x_\d+|\.L_\d+|[A-Za-z_$][\w$]*):\s*$")
_WHERE = re.compile(r'\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<inlined> inlined at "[^"]*", line \d+)?')
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P[T\d])\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<rest>[^;]*);"
)
_TARGET_LABEL = re.compile(r"`\(([^)]+)\)")
_JUMPS = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "KILL")


@dataclass(frozen=True)
class Instruction:
    """One SASS instruction.

    Attributes:
        address: bytes from the function's start.
        guard: predicate it runs under, such as ``!P0``; empty without one.
        opcode: with its modifiers, ``LDGSTS.E.BYPASS.128``.
        operands: as written, without ``.reuse``.
        places: where it comes from: the innermost inlined function first, the line in the kernel itself last; empty if unknown.
    """

    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    places: tuple[Place, ...] = ()

    @property
    def mnemonic(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])

    @property
    def never(self) -> bool:
        """Whether it never runs: ptxas pads copies with loads under ``@!PT``."""
        return self.guard in ("!PT", "!UPT")

    @property
    def place(self) -> Place | None:
        """The line in the kernel itself."""
        return self.places[-1] if self.places else None

    @property
    def target(self) -> str | None:
        """Label or function that it jumps to or calls, if it says one."""
        found = _TARGET_LABEL.search(" ".join(self.operands)) if self.mnemonic in (*_JUMPS, "CALL") else None
        return found[1] if found else None

    @property
    def is_call(self) -> bool:
        """Whether it calls a subroutine. ptxas writes some jumps inside a function as ``CALL.REL.NOINC`` too."""
        return self.mnemonic == "CALL" and not (self.target or "").startswith(".L_")

    @property
    def ends_path(self) -> bool:
        """Whether control never goes on to the next instruction."""
        conditional = self.guard or "DIV" in self.modifiers or any(re.fullmatch(r"!?U?P\d", o) for o in self.operands)
        return self.mnemonic in (*_JUMPS, "CALL") and not self.is_call and not conditional

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class Function:
    """A kernel or a device function.

    Attributes:
        labels: addresses by name.
    """

    name: str
    arch: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of the code."""
        return self.instructions[-1].address + self._step if self.instructions else 0

    @cached_property
    def _step(self) -> int:
        return self.instructions[1].address - self.instructions[0].address if len(self.instructions) > 1 else 16

    @cached_property
    def counts(self) -> Counter[str]:
        """Instructions that can run, by mnemonic."""
        return count(self.instructions)


def count(instructions: Iterable[Instruction]) -> Counter[str]:
    """Instructions that can run, by mnemonic."""
    return Counter(i.mnemonic for i in instructions if not i.never)


def parse_sass(text: str) -> list[Function]:
    """Read what ``nvdisasm -c``, with or without ``-g`` or ``-gi``, prints.

    Trailing NOPs and the jump to itself before them, which fill up the last cache line, are left out.
    """
    functions: list[Function] = []
    arch, name, labels, found = "", "", {}, []  # type: str, str, dict[str, int], list[Instruction]
    pending: list[str] = []
    places: tuple[Place, ...] = ()
    chain_open = False

    def finish() -> None:
        if name and found:
            functions.append(Function(name, arch, tuple(_unpadded(found)), labels))

    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            address = int(match["address"], 16)
            labels.update(dict.fromkeys(pending, address))
            pending, chain_open = [], False
            words = operands(match["rest"].replace(".reuse", ""))
            found.append(Instruction(address, match["guard"] or "", match["opcode"], words, places))
        elif match := _WHERE.match(line):
            place = Place(match["file"], int(match["line"]))
            places = (*places, place) if chain_open else (place,)
            chain_open = True
        elif match := _SECTION.match(line):
            finish()
            name, labels, found, pending, places = match[1], {}, [], [], ()
        elif match := _LABEL.match(line):
            pending.append(match[1])
        elif match := _TARGET.match(line):
            arch = match[1]
    finish()
    return functions


def _unpadded(found: list[Instruction]) -> list[Instruction]:
    end = len(found)
    while end and found[end - 1].mnemonic == "NOP":
        end -= 1
    if end and found[end - 1].mnemonic == "BRA" and end < len(found):
        end -= 1
    return found[:end]
