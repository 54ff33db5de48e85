"""Verbs that make things: ``build``, ``emit``, ``new-quant``, ``clean``; and ``env``, which says what they need."""

from __future__ import annotations

from pathlib import Path

import click

from marlin_gen.build import driver
from marlin_gen.build.paths import CacheError, Store, default_store
from marlin_gen.build.request import Request
from marlin_gen.cli import show
from marlin_gen.config import Arch, parse_arch_list
from marlin_gen.errors import MarlinGenError


@click.command("build", short_help="Compile kernels into the module that the runtime loads.")
@show.sources
@click.option("--nvcc", metavar="PATH", help="nvcc or a CUDA toolkit's folder. Default: CUDA_HOME, PATH, the Python packages.")
@show.store_option
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Compilers at once. Default: by cores, free memory and MAX_JOBS.")
@show.template_dirs
@click.option(
    "--verify", type=click.Choice(["none", "sample", "all"]), default="sample", show_default=True,
    help="Which kernels must pass the simulator before the module is put to use; a sample holds one of each kind.",
)  # fmt: skip
@click.option("--no-verify", "verify", flag_value="none", help="The same as --verify none.")
def build_verb(
    sources: tuple[str, ...], archs: str | None, nvcc: str | None, out: Path | None, jobs: int | None,
    template_dirs: tuple[str, ...], verify: str,
) -> None:  # fmt: skip
    """Compile kernels into the module that the runtime loads.

    Only what changed is compiled: the contents of sources, headers, flags and tools decide, never times. Any number of builds
    may run at once. No GPU is needed. Several sets may be built one after another; all of them are used.

    \b
    Examples:
      marlin-gen build                                    the default set
      marlin-gen build --arch 9.0                         ... for Hopper only
      marlin-gen build --configs layers.toml --arch '8.0+PTX;9.0'
      marlin-gen build --configs marlin_f16_u4b8_m16n64k128_g128_s8_sm90
    """
    store, remark = (Store(out.absolute()), "") if out else default_store()
    request = Request(sources or ("default",), _archs(archs), template_dirs, nvcc, jobs, verify)
    with show.progress() as bar:
        if remark:
            bar.note(remark)
        outcome = driver.build(request, store, bar)
    rows = [
        (
            k.name, k.registers, k.spill_stores + k.spill_loads, k.shared_bytes,
            f"{k.seconds:.1f}" if k.name in outcome.compiled else "kept", show.size(k.bytes),
            "yes" if k.name in outcome.verified else "no",
        )
        for k in outcome.manifest.kernels
    ]  # fmt: skip
    click.echo(show.table(("kernel", "registers", "spills", "shared", "seconds", "object", "verified"), rows))
    names = ", ".join(sorted({k.arch for k in outcome.manifest.kernels}))
    new = len(outcome.compiled)
    done = f"{new} compiled, {len(rows) - new} kept" if new else "nothing to compile"
    click.echo(f"{len(rows)} kernel(s) for {names}{'' if archs else ' (--arch chooses others)'}: {done}")
    click.echo(f"module: {store.modules / outcome.manifest.module}, {show.size(outcome.manifest.size)}")


@click.command("emit", short_help="Write the CUDA source of kernels, without compiling.")
@show.sources
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write into.")
@show.template_dirs
def emit_verb(sources: tuple[str, ...], archs: str | None, out: Path, template_dirs: tuple[str, ...]) -> None:
    """Write the source of kernels, without compiling: OUT/<kernel>/kernel.cu.

    A matrix is a TOML file of [[kernels]] tables. Keys are the fields of a kernel's config, with one value or a list; a table
    names the product of its lists. tile = [[128, 64], [64, 256]] lists (thread_k, thread_n).

    \b
    Examples:
      marlin-gen emit --configs default --out sources
      marlin-gen emit --configs marlin_f16_u4b8_m16n64k128_g128_s8_sm90 --out .
    """
    request = Request(sources or ("default",), _archs(archs), template_dirs)
    with show.progress() as bar:
        names = driver.emit_sources(request, out.absolute(), bar)
    click.echo("".join(f"{out / name / 'kernel.cu'}\n" for name in names), nl=False)


@click.command("new-quant", short_help="Write the skeleton of a quant type.")
@click.argument("name")
@click.option(
    "--template-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write into its folder quant/. Default: the current folder.",
)
def new_quant_verb(name: str, template_dir: Path | None) -> None:
    """Write the commented skeleton of a quant type: one file, which already passes every test.

    `verify`, `build`, `emit`, `inspect` and `diff` find it with the same --template-dir.

    \b
    Example:
      marlin-gen new-quant s4 --template-dir my-templates
      marlin-gen verify marlin_f16_s4_m16n64k128_g128_s4_sm90 --template-dir my-templates
    """
    from marlin_gen.emit import Templates
    from marlin_gen.quant import quant_names, skeleton

    text = skeleton(name, Templates())
    path = (template_dir / "quant" if template_dir else Path()) / f"{name}.cuh.j2"
    if name in quant_names(Templates()):
        raise MarlinGenError(f"a packaged quant type is named {name!r}", "choose another name: a file of this one would hide it")
    if path.exists():
        raise MarlinGenError(f"{path} exists already", "choose another name, or remove the file first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CacheError(f"cannot write {path}: {error.strerror}", "give another folder with --template-dir") from None
    click.echo(str(path))


@click.command("clean")
@show.store_option
@click.option("--all", "everything", is_flag=True, help="Remove also what is in use; `marlin-gen build` makes it again.")
def clean_verb(out: Path | None, everything: bool) -> None:
    """Remove compiled things that no current module uses.

    Everything a build makes is a function of configs, templates and tools: nothing is lost but time.
    """
    from marlin_gen.build.cleaning import clean

    store = Store(out.absolute()) if out else default_store()[0]
    click.echo(f"{show.size(clean(store, everything))} freed in {store.root}")


@click.command("env", short_help="Show what this machine has, and what is missing.")
@click.option("--nvcc", metavar="PATH", help="The nvcc to look at.")
def env_verb(nvcc: str | None) -> None:
    """Show what this machine has of all that marlin-gen uses, and how to get what is missing."""
    from marlin_gen.build.survey import survey

    items = survey(nvcc)
    width = max(len(item.name) for item in items)
    for item in items:
        found = item.found or click.style("missing", fg="yellow") + f": {item.hint}"
        click.echo(f"{item.name:{width}}  {found}")


def _archs(text: str | None) -> tuple[tuple[Arch, bool], ...]:
    return () if text is None else tuple(parse_arch_list(text))
