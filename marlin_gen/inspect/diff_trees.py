"""Differences between two whole folders of kernels: two stores of built things, or two of emitted sources."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marlin_gen.build.manifest import KernelRecord, manifests
from marlin_gen.build.paths import Store
from marlin_gen.errors import ConfigError
from marlin_gen.inspect.ptx import parse_ptx
from marlin_gen.inspect.tables import Table, markdown_table, table_text

ADDED, REMOVED, CHANGED, REBUILT, SAME = "added", "removed", "changed", "rebuilt", "same"


@dataclass(frozen=True)
class Entry:
    """A kernel in a folder.

    Attributes:
        source: its ``kernel.cu``.
        record: what its build recorded; None for sources that are only emitted.
    """

    source: Path
    record: KernelRecord | None

    @property
    def text(self) -> str:
        return self.source.read_text(encoding="utf-8")

    @property
    def ptx_instructions(self) -> int | None:
        """Number of PTX instructions; None if it is not compiled."""
        ptx = self.source.with_suffix(".ptx")
        return sum(len(f.instructions) for f in parse_ptx(ptx.read_text(encoding="utf-8"))) if ptx.is_file() else None


@dataclass(frozen=True)
class TreeRow:
    """One kernel of either folder.

    Attributes:
        status: ``added``, ``removed``, ``changed`` (other source), ``rebuilt`` (the same source, but other headers, flags or
            tools) or ``same``.
        lines: lines of the source that are new, and that are gone.
        registers, spills, shared, bytes, ptx: (before, after): registers of a thread, spilled bytes of a thread, shared memory
            of a CTA, size of the object, PTX instructions. None for a side that does not know.
    """

    name: str
    status: str
    lines: tuple[int, int]
    registers: tuple[int | None, int | None]
    spills: tuple[int | None, int | None]
    shared: tuple[int | None, int | None]
    bytes: tuple[int | None, int | None]
    ptx: tuple[int | None, int | None]


@dataclass(frozen=True)
class TreeDiff:
    """How a folder of kernels differs from another. ``rows`` are sorted by name and hold those that are the same too."""

    before: Path
    after: Path
    rows: tuple[TreeRow, ...]

    @property
    def changed(self) -> list[TreeRow]:
        return [row for row in self.rows if row.status != SAME]

    def to_dict(self) -> dict[str, Any]:
        """All rows as plain values, for JSON."""
        return {"before": str(self.before), "after": str(self.after), "rows": [asdict(row) for row in self.rows]}

    def to_text(self) -> str:
        """The kernels that differ, as a table of plain text."""
        table = self._table()
        return (table_text(table) + "\n" if table.rows else "") + self._total() + "\n"

    def to_markdown(self) -> str:
        """The kernels that differ, as a Markdown table."""
        table = self._table()
        return (markdown_table(table.head, table.rows) + "\n\n" if table.rows else "") + self._total() + "\n"

    def _table(self) -> Table:
        head = ("kernel", "", "lines", "registers", "spills", "shared", "object", "PTX")
        rows = [
            (r.name, r.status, f"+{r.lines[0]} -{r.lines[1]}", *map(_pair, (r.registers, r.spills, r.shared, r.bytes, r.ptx)))
            for r in self.changed
        ]
        return Table("Kernels that differ", head, rows, 2)

    def _total(self) -> str:
        counts = {status: sum(r.status == status for r in self.rows) for status in (ADDED, REMOVED, CHANGED, REBUILT, SAME)}
        return f"{len(self.rows)} kernel(s): " + ", ".join(f"{n} {status}" for status, n in counts.items() if n)


def read_tree(folder: Path) -> dict[str, Entry]:
    """Kernels of a folder by name: of a store of built things, or as ``marlin-gen emit --out`` writes them.

    Raises:
        ConfigError: the folder holds no kernels.
    """
    store, found = Store(folder), dict[str, Entry]()
    for manifest in manifests(store):
        for record in manifest.kernels:
            found.setdefault(record.name, Entry(store.objects / record.object / "kernel.cu", record))
    if not found:
        found = {path.parent.name: Entry(path, None) for path in sorted(folder.glob("*/kernel.cu"))}
    if not found:
        raise ConfigError(
            f"{folder} holds no kernels", "give a folder that `marlin-gen build` or `marlin-gen emit` wrote (--out)"
        )
    return found


def diff_trees(before: Path, after: Path) -> TreeDiff:
    """Compare two folders of kernels by the kernels' names.

    Raises:
        ConfigError: a folder holds no kernels.
    """
    a, b = read_tree(before), read_tree(after)
    return TreeDiff(before, after, tuple(_row(name, a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys())))


def _row(name: str, a: Entry | None, b: Entry | None) -> TreeRow:
    status = _status(a, b)

    def both(get: Callable[[KernelRecord], int]) -> tuple[int | None, int | None]:
        return _of(a, get), _of(b, get)

    differ = status != SAME
    return TreeRow(
        name, status, _lines(a, b) if differ else (0, 0), both(lambda r: r.registers),
        both(lambda r: r.spill_stores + r.spill_loads), both(lambda r: r.shared_bytes), both(lambda r: r.bytes),
        (a.ptx_instructions if a and differ else None, b.ptx_instructions if b and differ else None),
    )  # fmt: skip


def _of(entry: Entry | None, get: Callable[[KernelRecord], int]) -> int | None:
    return get(entry.record) if entry and entry.record else None


def _status(a: Entry | None, b: Entry | None) -> str:
    if a is None or b is None:
        return ADDED if a is None else REMOVED
    if a.text != b.text:
        return CHANGED
    keys = a.record and a.record.object, b.record and b.record.object
    return REBUILT if None not in keys and keys[0] != keys[1] else SAME


def _lines(a: Entry | None, b: Entry | None) -> tuple[int, int]:
    before, after = (entry.text.splitlines() if entry else [] for entry in (a, b))
    blocks = [op for op in difflib.SequenceMatcher(None, before, after).get_opcodes() if op[0] != "equal"]
    return sum(j2 - j1 for *_, j1, j2 in blocks), sum(i2 - i1 for _, i1, i2, *_ in blocks)


def _pair(pair: tuple[int | None, int | None]) -> str:
    """A pair of numbers: one if they are the same."""
    shown = ["-" if value is None else str(value) for value in pair]
    return shown[0] if shown[0] == shown[1] else " → ".join(shown)
