"""Phases of a kernel's source, from its banner comments, and the instruction mix of any set of instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from marlin_gen.inspect.loops import MATRIX
from marlin_gen.inspect.sass import Instruction

_BANNER = re.compile(r"\s*// (?P<rule>====|----) (?P<title>.+?) (?P=rule)\s*$")
_KERNEL = re.compile(r"\s*(?:MG_KERNEL\(|(?:extern \"C\" )?__global__\b)")

CATEGORIES: dict[str, tuple[str, ...]] = {
    "tensor": (*MATRIX, "WARPGROUP", "WARPGROUPSET"),
    "async copy": ("LDGSTS", "LDGDEPBAR", "DEPBAR", "UBLKCP", "UTMALDG", "UTMASTG", "SYNCS", "ARRIVES"),
    "shared load": ("LDS", "LDSM"),
    "shared store": ("STS", "STSM"),
    "global": ("LDG", "LD", "STG", "ST", "ATOM", "ATOMG", "RED", "REDG", "CCTL"),
    "local": ("LDL", "STL"),
    "half": ("HADD2", "HFMA2", "HMUL2", "HMNMX2", "HSETP2", "HSET2"),
    "float": ("FADD", "FMUL", "FFMA", "FSEL", "FSETP", "FMNMX", "MUFU", "FADD2", "FMUL2", "FFMA2"),
    "logic": ("LOP3", "PRMT", "SHF", "BMSK", "SGXT"),
    "convert": ("F2F", "F2FP", "F2I", "I2F", "I2FP", "F2IP", "I2I"),
    "integer": (
        "IADD3", "IADD", "IMAD", "LEA", "ISETP", "IABS", "IMNMX", "VIMNMX", "VIADD", "VIADDMNMX", "SEL", "PLOP3", "P2R", "R2P",
        "POPC", "FLO", "IDP", "LEPC",
    ),
    "move": ("MOV", "CS2R", "S2R", "S2UR", "R2UR", "LDC", "SHFL", "NOP"),
    "barrier": ("BAR", "MEMBAR", "ERRBAR", "CGAERRBAR", "FENCE", "WARPSYNC", "UCGABAR"),
    "control": ("BRA", "BRX", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "JMP", "YIELD", "BREAK", "NANOSLEEP"),
}  # fmt: skip
"""Families of SASS instructions by what they occupy; the uniform ones (``U...``) are a family of their own."""
_CATEGORY = {mnemonic: name for name, mnemonics in CATEGORIES.items() for mnemonic in mnemonics}


def category(mnemonic: str) -> str:
    """Family of a SASS mnemonic: one of CATEGORIES, ``uniform`` or ``other``."""
    return _CATEGORY.get(mnemonic) or ("uniform" if mnemonic.startswith(("U", "LDCU")) else "other")


def mix(instructions: Iterable[Instruction]) -> Counter[str]:
    """Instructions that can run, by family."""
    return Counter(category(i.mnemonic) for i in instructions if not i.never)


@dataclass(frozen=True)
class Phase:
    """A part of the source under a banner.

    Attributes:
        title: the banner's text.
        level: 1 for ``// ==== ... ====``, 2 for ``// ---- ... ----``, which is part of the 1 above it.
        first, last: its lines.
    """

    title: str
    level: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The title up to its colon."""
        return self.title.partition(":")[0]


class Source:
    """An emitted kernel's text, and its phases.

    Args:
        text: the whole file.
        file: base name by which the compiler knows it.
    """

    def __init__(self, text: str, file: str = "kernel.cu") -> None:
        self.text, self.file = text, file
        self.lines = text.splitlines()

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """All banners in order; a phase of level 1 spans those of level 2 in it."""
        found = ((line, _BANNER.match(text)) for line, text in enumerate(self.lines, 1))
        marks = [(line, m["title"], 1 if m["rule"] == "====" else 2) for line, m in found if m]
        ends = []
        for index, (_, _, level) in enumerate(marks):
            following = (line for line, _, other in marks[index + 1 :] if other <= level)
            end = next(following, len(self.lines) + 1)
            ends.append((min(end, self.kernel_line) if marks[index][0] < self.kernel_line else end) - 1)
        return tuple(Phase(title, level, line, end) for (line, title, level), end in zip(marks, ends, strict=True))

    @cached_property
    def kernel_line(self) -> int:
        """The line where the kernel itself begins: sections above it hold functions that are inlined. 1 if there is none."""
        return next((line for line, text in enumerate(self.lines, 1) if _KERNEL.match(text)), 1)

    def line_of(self, instruction: Instruction) -> int | None:
        """Line of the kernel that an instruction belongs to; None if it comes from nowhere in this file."""
        return next((p.line for p in reversed(instruction.places) if p.base == self.file), None)

    def phase_of(self, instruction: Instruction) -> Phase | None:
        """The innermost phase that an instruction belongs to."""
        line = self.line_of(instruction)
        inside = [p for p in self.phases if line is not None and p.first <= line <= p.last]
        return max(inside, key=lambda p: (p.level, p.first), default=None)

    def helper_of(self, instruction: Instruction) -> Phase | None:
        """The section of inlined functions that an instruction comes from, that of the quant type for instance."""
        lines = [p.line for p in instruction.places if p.base == self.file and p.line < self.kernel_line]
        return next((p for p in reversed(self.phases) if lines and p.level == 1 and p.first <= lines[-1] <= p.last), None)
