"""A report as text, for the terminal or as Markdown."""

from __future__ import annotations

import io
from typing import Any

from marlin_gen.inspect.lints import ERROR, Lint
from marlin_gen.inspect.report import Report
from marlin_gen.inspect.tables import Table, escaped, markdown_table

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def summary(report: Report) -> list[tuple[str, str]]:
    """The facts that fit on a line each, as (subject, text) pairs."""
    usage, held, sass = report.usage, report.occupancy, report.kernel.sass
    rows = [("kernel", f"{report.name}, {report.arch}"), ("from", report.kernel.origin)]
    rows += [("note", note) for note in report.kernel.notes]
    if usage:
        spilled = usage.spill_stores + usage.spill_loads
        spills = f"{spilled} bytes spilled, {usage.stack} bytes of stack" if spilled or usage.stack else "nothing spilled"
        rows.append(("registers", f"{usage.registers}, {spills}"))
    rows.append(("code", f"{sass.counts.total()} instructions, {sass.bytes} bytes; cubin {report.kernel.cubin_bytes} bytes"))
    if held:
        limits = ", ".join(f"{name} {n}" for name, n in held.limits.items())
        rows.append(
            ("occupancy", f"{held.ctas} CTA(s), {held.warps} warps on an SM, {held.share:.0%} (CTAs allowed by: {limits})")
        )
    return [*rows, *(report.kernel.plan.describe() if report.kernel.plan else ())]


def loop_facts(report: Report) -> list[tuple[str, str]]:
    """The main loop, as (subject, text) pairs; empty without one."""
    loop = report.loop
    if loop is None:
        return []
    rows = [("one revolution", f"{loop.instructions} instructions in {loop.blocks} blocks, {loop.matrix} on tensor cores")]
    if loop.per_8_weights is not None:
        rows.append(
            ("for 8 weights", f"{loop.per_8_weights:.1f} instructions a lane, {loop.dequant_per_8_weights:.1f} of the quant type")
        )
    where = " (from line {} to line {})".format(*loop.stretch_lines) if loop.stretch_lines else ""
    rows.append(("longest stretch without MMA", f"{loop.longest_stretch} instructions{where}"))
    return [*rows, ("mix", _mix(loop.mix))]


def tables(report: Report) -> list[Table]:
    """The tables of a report; those without rows are left out."""
    counts = [(c.level, c.name, str(c.expected), str(c.found), "" if c.exact else "differs") for c in report.counts]
    phases = [
        ("  " * max(0, p.level - 1) + p.title, str(p.instructions), f"{p.first}..{p.last}" if p.level else "", _mix(p.mix))
        for p in report.phases
    ]
    found = [
        Table("Instruction counts", ("level", "instruction", "plan", "found", ""), counts, 2),
        Table("Main loop", ("", ""), loop_facts(report), 2),
        Table("Instructions by phase", ("phase", "instructions", "lines", "mix"), phases),
    ]
    return [table for table in found if table.rows]


def finding(lint: Lint) -> str:
    """A finding in one line, without its severity."""
    where = f"line {lint.line}: " if lint.line is not None else ""
    more = f" ({lint.times} times)" if lint.times > 1 else ""
    return f"{where}{lint.message}{more} [{lint.id}]"


def verdict(report: Report) -> str:
    """The findings in one sentence."""
    errors = sum(found.severity == ERROR for found in report.lints)
    return f"{errors} error(s) found" if errors else "no errors found"


def print_report(report: Report, console: Any) -> None:
    """Print a report on a ``rich`` console."""
    import rich.box
    import rich.table
    from rich.text import Text

    facts = rich.table.Table.grid(padding=(0, 2))
    for fact in summary(report):
        facts.add_row(*map(Text, fact))
    console.print(facts)
    for table in tables(report):
        shown = rich.table.Table(box=rich.box.SIMPLE_HEAD, title=table.heading, title_justify="left", show_header=any(table.head))
        for index, name in enumerate(table.head):
            words = index < table.words or name in ("lines", "mix", "")
            shown.add_column(name, justify="left" if words else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*map(Text, row))
        console.print(shown)
    for lint in report.lints:
        console.print(lint.severity, style=_COLOURS[lint.severity], end=" ")
        console.print(finding(lint), highlight=False, markup=False)
    console.print(verdict(report), style="green" if report.ok else "bold red")


def to_text(report: Report, width: int = 130) -> str:
    """The report as plain text of a width in characters."""
    from rich.console import Console

    out = io.StringIO()
    print_report(report, Console(file=out, width=width, force_terminal=False, color_system=None))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def to_markdown(report: Report) -> str:
    """The report as Markdown."""
    parts = [f"# {report.name}", markdown_table(("", ""), summary(report)[1:])]
    parts += [f"## {table.heading}\n\n{markdown_table(table.head, table.rows)}" for table in tables(report)]
    findings = "\n".join(f"- **{lint.severity}**: {escaped(finding(lint))}" for lint in report.lints)
    return "\n\n".join([*parts, f"## Findings\n\n{findings}\n\n{verdict(report)}"]) + "\n"


def _mix(found: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in found.items())
