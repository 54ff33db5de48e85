"""Differences between two kernels: their source, their instructions, what they need."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from marlin_gen.inspect.report import Report
from marlin_gen.inspect.tables import Table, markdown_table, table_text


@dataclass(frozen=True)
class Delta:
    """A number that differs. None stands for unknown."""

    name: str
    before: float | None
    after: float | None

    @property
    def change(self) -> str:
        """The difference with its sign; empty if a side is unknown."""
        return "" if self.before is None or self.after is None else f"{round(self.after - self.before, 1):+g}"


@dataclass(frozen=True)
class KernelDiff:
    """How ``after`` differs from ``before``. Only what differs is listed.

    Attributes:
        facts: registers, memory, sizes, occupancy, the main loop, errors found.
        ptx: instructions by opcode with modifiers. sass: by mnemonic.
        source: unified diff of the sources; empty if they are the same or one is unknown.
    """

    before: Report
    after: Report
    facts: list[Delta]
    ptx: list[Delta]
    sass: list[Delta]
    source: str

    @property
    def same(self) -> bool:
        return not (self.facts or self.ptx or self.sass or self.source)

    def to_dict(self) -> dict[str, Any]:
        """All differences as plain values, for JSON."""
        numbers = {name: [asdict(delta) for delta in getattr(self, name)] for name in ("facts", "ptx", "sass")}
        sides = {side: {"name": r.name, "arch": r.arch, "origin": r.kernel.origin} for side, r in self._sides.items()}
        return {**sides, "same": self.same, **numbers, "source": self.source}

    def to_text(self) -> str:
        """The differences as plain text, the source's first."""
        head = "".join(f"{side:6}  {r.name} ({r.kernel.origin})\n" for side, r in self._sides.items())
        parts = [head, self.source, *(f"{t.heading}\n{table_text(t)}\n" for t in self._tables())]
        return "\n".join(part for part in parts if part) + ("no difference\n" if self.same else "")

    def to_markdown(self) -> str:
        """The differences as Markdown."""
        parts = [f"# {self.before.name} → {self.after.name}"]
        parts += [f"## {t.heading}\n\n{markdown_table(t.head, t.rows)}" for t in self._tables()]
        parts += [f"## Source\n\n```diff\n{self.source}```"] if self.source else []
        return "\n\n".join([*parts, *(["No difference."] if self.same else [])]) + "\n"

    @property
    def _sides(self) -> dict[str, Report]:
        return {"before": self.before, "after": self.after}

    def _tables(self) -> list[Table]:
        found = (("Facts", self.facts), ("PTX instructions", self.ptx), ("SASS instructions", self.sass))
        head = ("", "before", "after", "change")
        return [
            Table(name, head, [(d.name, _shown(d.before), _shown(d.after), d.change) for d in deltas])
            for name, deltas in found
            if deltas
        ]


def diff_kernels(before: Report, after: Report) -> KernelDiff:
    """Compare two kernels, or two states of one."""
    a, b = before.kernel, after.kernel
    return KernelDiff(
        before,
        after,
        deltas(_facts(before), _facts(after)),
        deltas(a.ptx.counts, b.ptx.counts) if a.ptx and b.ptx else [],
        deltas(a.sass.counts, b.sass.counts),
        source_diff(a.source or "", b.source or "", before.name, after.name) if a.source and b.source else "",
    )


def deltas(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> list[Delta]:
    """What differs of two sets of numbers, the largest change first; a count that one side lacks is 0."""
    zero = 0 if isinstance(before, Counter) else None
    found = [Delta(name, before.get(name, zero), after.get(name, zero)) for name in dict.fromkeys([*before, *after])]
    changed = [d for d in found if d.before != d.after]
    return sorted(changed, key=lambda d: -abs((d.after or 0) - (d.before or 0))) if zero == 0 else changed


def source_diff(before: str, after: str, before_name: str, after_name: str) -> str:
    """Unified diff of two texts."""
    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), f"before/{before_name}.cu", f"after/{after_name}.cu"
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _facts(report: Report) -> dict[str, float | None]:
    usage, plan, held, loop = report.usage, report.kernel.plan, report.occupancy, report.loop
    return {
        "registers": usage.registers if usage else None,
        "spill bytes": usage.spill_stores + usage.spill_loads if usage else None,
        "stack bytes": usage.stack if usage else None,
        "shared bytes": plan.shared_bytes if plan else None,
        "instructions": report.kernel.sass.counts.total(),
        "code bytes": report.kernel.sass.bytes,
        "cubin bytes": report.kernel.cubin_bytes,
        "CTAs on an SM": held.ctas if held else None,
        "instructions of the main loop": loop.instructions if loop else None,
        "longest stretch without MMA": loop.longest_stretch if loop else None,
        "instructions for 8 weights": loop.per_8_weights if loop else None,
        "errors found": sum(found.severity == "error" for found in report.lints),
    }


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
