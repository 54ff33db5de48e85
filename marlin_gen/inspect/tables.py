"""Tables as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A part of a report: a heading, rows, and how many columns are words and not numbers."""

    heading: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1


def table_text(table: Table) -> str:
    """A table as plain text in columns, as wide as it needs."""
    lines = [table.head, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.head))]
    cells = (
        [c.ljust(w) if i < table.words else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    )
    return "\n".join("  ".join(line).rstrip() for line in cells)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in GitHub's Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(escaped(str(cell)) for cell in line) + " |" for line in lines)


def escaped(cell: str) -> str:
    """A text without what Markdown would take for markup."""
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
