"""What the verbs share: options, tables, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def template_dirs(function: F) -> F:
    """The option ``--template-dir``, any number of times."""
    option = click.option(
        "--template-dir", "template_dirs", multiple=True, type=click.Path(exists=True, file_okay=False),
        help="A folder laid out like templates/, searched before the packaged one. May be repeated.",
    )  # fmt: skip
    return option(function)


def sources(function: F) -> F:
    """The options ``--configs`` and ``--arch``."""
    function = click.option(
        "--arch", "archs", metavar="LIST",
        help="Architectures to build for: 9.0, 'sm_80,sm_90', '8.0+PTX;9.0' (embed PTX too). One that the configs do not name "
        "takes over their kernels for the next older one. Default: those that the configs name.",
    )(function)  # fmt: skip
    return click.option(
        "--configs", "sources", metavar="SOURCE", multiple=True,
        help="A TOML file, the name of a packaged set, or the name of one kernel. May be repeated.",
    )(function)  # fmt: skip


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Rows as text in columns: the first ``left`` to the left, the others, numbers, to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        padded = (c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(padded).rstrip()

    return "\n".join([click.style(line(head), bold=True), *(line(row) for row in cells)])


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


class Bar:
    """Follows a build: a progress bar on a terminal, a line for each tenth of the way elsewhere."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self._tenth = 0

    def progress(self, done: int, total: int, what: str) -> None:
        """``done`` of ``total`` steps are done; ``what`` is the latest or the next."""
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("", total=total)
            self._bar.update(self._task, completed=done, total=total, description=what)
        elif total and (done == total or done * 10 // total != self._tenth):
            self._tenth = done * 10 // total
            click.echo(f"[{done}/{total}] {what}", err=True)

    def note(self, text: str) -> None:
        """Something the user should know."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text, err=True)


@contextmanager
def progress() -> Iterator[Bar]:
    """A bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Bar(None)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        yield Bar(bar)


def store_option(function: F) -> F:
    """The option ``--out``: the folder of built things."""
    return click.option(
        "--out", type=click.Path(file_okay=False, path_type=Path),
        help="Folder of built things. Default: generated/ of a source checkout, else the user's cache folder; "
        "the environment variable MARLIN_GEN_CACHE names another, which the runtime uses too.",
    )(function)  # fmt: skip
