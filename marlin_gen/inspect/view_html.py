"""A report as one HTML file that needs nothing else: the source beside its SASS, phase by phase."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jinja2

from marlin_gen.inspect.phases import CATEGORIES, Phase, category
from marlin_gen.inspect.report import Report
from marlin_gen.inspect.sass import Instruction
from marlin_gen.inspect.view_text import finding, loop_facts, summary, verdict

_FOLD = 14  # more instructions of one source line than this are folded


@dataclass(frozen=True)
class Code:
    """One instruction as it is shown."""

    address: str
    text: str
    family: str
    line: int | None


@dataclass(frozen=True)
class Row:
    """A line of the source and what became of it."""

    number: int
    text: str
    code: list[Code]
    banner: bool

    @property
    def folded(self) -> bool:
        return len(self.code) > _FOLD


@dataclass(frozen=True)
class Section:
    """A phase of level 1 with its lines."""

    title: str
    rows: list[Row]
    open: bool

    @property
    def instructions(self) -> int:
        return sum(len(row.code) for row in self.rows)


def to_html(report: Report) -> str:
    """The report as a whole HTML document; it follows the reader's choice of light or dark."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    loop = report.subject.loop
    plan = report.kernel.plan
    return env.get_template("report.html.j2").render(
        r=report,
        summary=summary(report)[1:],
        loop_facts=loop_facts(report),
        loop=[_code(report, i) for i in loop.instructions] if loop else [],
        sections=_sections(report),
        lost=[_code(report, i) for i in report.kernel.sass.instructions if report.subject.source.line_of(i) is None],
        families=[*CATEGORIES, "uniform", "other"],
        regions=[r for r in plan.shared.values() if r.bytes] if plan else [],
        shared_bytes=plan.shared_bytes if plan else 0,
        finding=finding,
        verdict=verdict(report),
    )


def _sections(report: Report) -> list[Section]:
    source = report.subject.source
    by_line: dict[int, list[Code]] = {}
    for instruction in report.kernel.sass.instructions:
        if (line := source.line_of(instruction)) is not None:
            by_line.setdefault(line, []).append(_code(report, instruction))
    top = [p for p in source.phases if p.level == 1]
    first = top[0].first if top else len(source.lines) + 1
    kernel = source.kernel_line
    spans = [("head of the file", 1, first - 1), *((p.title, p.first, p.last) for p in top)]
    if top and not any(begin <= kernel <= end for _, begin, end in spans):
        following = next((p.first for p in top if p.first > kernel), len(source.lines) + 1)
        spans.append(("the kernel begins", kernel, following - 1))
    inner = {p.first for p in source.phases}
    heart = _heart(report)
    return [
        Section(
            title, [Row(n, source.lines[n - 1], by_line.get(n, []), n in inner) for n in range(begin, end + 1)], begin == heart
        )
        for title, begin, end in sorted(spans, key=lambda span: span[1])
        if begin <= end
    ]


def _heart(report: Report) -> int | None:
    """First line of the phase that holds most of the main loop."""
    loop = report.subject.loop
    found: dict[Phase, int] = {}
    for instruction in loop.instructions if loop else ():
        line = report.subject.source.line_of(instruction)
        phase = next((p for p in report.subject.source.phases if p.level == 1 and line and p.first <= line <= p.last), None)
        if phase:
            found[phase] = found.get(phase, 0) + 1
    return max(found, key=lambda phase: found[phase]).first if found else None


def _code(report: Report, instruction: Instruction) -> Code:
    family = "never" if instruction.never else category(instruction.mnemonic)
    line = report.subject.source.line_of(instruction)
    return Code(f"{instruction.address:04x}", str(instruction), family.replace(" ", "-"), line)
