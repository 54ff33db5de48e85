"""Verbs that look inside compiled kernels: ``inspect``, ``diff``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marlin_gen.cli import show

if TYPE_CHECKING:
    from marlin_gen.inspect.report import Report

_nvcc = click.option("--nvcc", metavar="PATH", help="The nvcc for kernels that are not built. Default: as for `build`.")
_json = click.option("--json", "as_json", is_flag=True, help="All facts, as JSON.")


@click.command("inspect", short_help="Look inside a compiled kernel: registers, SASS, lints.")
@click.argument("kernel", metavar="KERNEL")
@click.option("--ptx", "show_ptx", is_flag=True, help="Print the PTX instead: the compiler's portable assembly language.")
@click.option("--sass", "show_sass", is_flag=True, help="Print the SASS instead: the machine code, with lines of the source.")
@_json
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page too: the source beside its SASS.")
@show.template_dirs
@_nvcc
def inspect_verb(
    kernel: str, show_ptx: bool, show_sass: bool, as_json: bool, html: Path | None, template_dirs: tuple[str, ...],
    nvcc: str | None,
) -> None:  # fmt: skip
    """Look inside a compiled kernel: registers, occupancy, instructions, and what may be wrong with it.

    KERNEL is the name of a kernel, which need not be built: what a build has left is used, else the kernel is compiled here. A
    cubin or an object file will do as well. Numbers of instructions are compared with those that the generator planned.
    Exit code 1 if an error is found.

    \b
    Examples:
      marlin-gen inspect marlin_f16_u4b8_m16n64k128_g128_s8_sm90
      marlin-gen inspect marlin_f16_u4b8_m16n64k128_g128_s8_sm90 --html kernel.html
      marlin-gen inspect marlin_f16_u4b8_m16n64k128_g128_s8_sm90 --sass | less
    """
    if show_ptx + show_sass + as_json > 1:
        raise click.UsageError("--ptx, --sass and --json exclude each other")
    report = _report(kernel, template_dirs, nvcc)
    if html:
        from marlin_gen.inspect.view_html import to_html

        _write(html, to_html(report))
    if show_ptx or show_sass:
        click.echo((report.kernel.sass_text if show_sass else report.kernel.ptx_text or "").rstrip("\n"))
    elif as_json:
        click.echo(json.dumps(report.to_dict(), indent=1))
    else:
        from rich.console import Console

        from marlin_gen.inspect.view_text import print_report, to_text

        console = Console()
        if console.is_terminal:
            print_report(report, console)
        else:
            click.echo(to_text(report), nl=False)
    if not report.ok:
        raise click.exceptions.Exit(1)


@click.command("diff", short_help="Compare two kernels, or two folders of kernels.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@_json
@show.template_dirs
@_nvcc
def diff_verb(before: str, after: str, as_json: bool, template_dirs: tuple[str, ...], nvcc: str | None) -> None:
    """Compare two kernels: their source, their instructions, what they need. Or two folders of kernels.

    A and B are names of kernels, which need not be built, or cubins or object files. Of two folders, each that of a build
    (`--out`) or one that `marlin-gen emit` wrote, the kernels that differ are listed.

    \b
    Examples:
      marlin-gen diff marlin_f16_u4b8_m16n64k128_g128_s8_sm90 marlin_f16_u4b8_m16n64k128_g128_s8_sm90_noef
      marlin-gen diff generated-before generated
    """
    from marlin_gen.inspect.diff import KernelDiff, diff_kernels
    from marlin_gen.inspect.diff_trees import TreeDiff, diff_trees

    found: KernelDiff | TreeDiff
    if Path(before).is_dir() and Path(after).is_dir():
        found = diff_trees(Path(before), Path(after))
    else:
        found = diff_kernels(_report(before, template_dirs, nvcc), _report(after, template_dirs, nvcc))
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found.to_text().rstrip("\n"))


def _report(target: str, template_dirs: tuple[str, ...], nvcc: str | None) -> Report:
    from marlin_gen.inspect.report import inspect_kernel

    return inspect_kernel(target, template_dirs=template_dirs, nvcc=nvcc)


def _write(path: Path, text: str) -> None:
    from marlin_gen.build.paths import CacheError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CacheError(f"cannot write {path}: {error.strerror}", "give another file with --html") from None
