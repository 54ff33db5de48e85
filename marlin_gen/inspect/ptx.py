"""PTX text as instructions with their operands and source lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from marlin_gen.inspect.assembly import Place, operands

_ENTRY = re.compile(r"\s*(?:\.visible |\.weak |\.extern )*\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)")
_TARGET = re.compile(r"\s*\.target\s+(sm_\w+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_STATEMENT = re.compile(r"[\s{}]*(?:[\w$]+:[\s{}]*)*(?:@(!?%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_At = tuple[str, str, str]  # file, line, column
_COMMENT = re.compile(r"//.*$", re.MULTILINE)

# A copy is cp.async.ca or .cg; the words that share its first two parts are instructions of their own.
_NOT_PREFIX = {"cp.async": ("cp.async.ca", "cp.async.cg")}


@dataclass(frozen=True)
class PtxInstruction:
    """One PTX instruction.

    Attributes:
        guard: predicate it runs under, such as ``!%p1``; empty without one.
        opcode: with its modifiers, ``ld.global.nc.v4.u32``.
        operands: as written.
        place: the line in the kernel itself, not in what was inlined; None if unknown.
    """

    guard: str
    opcode: str
    operands: tuple[str, ...]
    place: Place | None


@dataclass(frozen=True)
class PtxFunction:
    """A kernel (``entry``) or a device function."""

    name: str
    arch: str
    entry: bool
    instructions: tuple[PtxInstruction, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """Instructions by opcode, modifiers included."""
        return Counter(i.opcode for i in self.instructions)

    def count(self, name: str) -> int:
        """Instructions of a name with or without modifiers: ``mma.sync``, ``bar.sync``. ``cp.async`` are copies alone."""
        names = _NOT_PREFIX.get(name, (name,))
        return sum(n for opcode, n in self.counts.items() for word in names if opcode == word or opcode.startswith(word + "."))


def parse_ptx(text: str) -> list[PtxFunction]:
    """Read a PTX file."""
    files = {int(number): file for number, file in _FILE.findall(text)}
    functions: list[PtxFunction] = []
    arch = match[1] if (match := re.search(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE)) else ""
    found: list[PtxInstruction] = []
    head: re.Match[str] | None = None
    inside, statement, depth = False, "", 0
    outer: dict[_At, _At] = {}
    here: Place | None = None
    for line in _COMMENT.sub("", text).splitlines():
        if not inside and (match := _ENTRY.match(line)):
            head, found, outer, here, depth = match, [], {}, None, 0
        if head is None:
            continue
        if inside and (loc := _LOC.match(line)):
            here = _outermost(loc, outer, files) or here
            continue
        depth += line.count("{") - line.count("}")
        if not inside:
            inside, statement = depth > 0, ""
            continue
        *whole, statement = (statement + "\n" + line).split(";")
        found += [instruction for part in whole if (instruction := _instruction(part, here))]
        if depth == 0:
            functions.append(PtxFunction(head[2], arch, head[1] == "entry", tuple(found)))
            head, inside = None, False
    return functions


def _outermost(loc: re.Match[str], outer: dict[_At, _At], files: dict[int, str]) -> Place | None:
    """The line of the kernel that a ``.loc`` belongs to, through all that was inlined; None for line 0, which is none."""
    at = (loc[1], loc[2], loc[3])
    if loc[4]:
        outer[at] = (loc[4], loc[5], loc[6])
    else:
        outer.pop(at, None)
    for _ in range(64):
        if at not in outer:
            break
        at = outer[at]
    return Place(files.get(int(at[0]), ""), int(at[1])) if int(at[1]) else None


def _instruction(statement: str, place: Place | None) -> PtxInstruction | None:
    """An instruction; None for a declaration or nothing."""
    match = _STATEMENT.fullmatch(statement)
    return PtxInstruction(match[1] or "", match[2], operands(match[3]), place) if match else None
