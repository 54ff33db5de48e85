"""Verbs that answer questions about kernels without a GPU: ``verify``, ``explain``."""

from __future__ import annotations

import json

import click

from marlin_gen.cli import show


@click.command("verify", short_help="Run kernels on the CPU: races, bounds, wrong numbers.")
@click.argument("sources", nargs=-1, required=True, metavar="KERNEL...")
@click.option("--quick", is_flag=True, help="Only the two products that find most.")
@show.template_dirs
def verify_verb(sources: tuple[str, ...], quick: bool, template_dirs: tuple[str, ...]) -> None:
    """Run kernels on this machine's CPU, in a model of the GPU, and report every fault and wrong number.

    The emitted text itself is compiled for the CPU and run on several products with known results. The model finds data races,
    reads before a copy has landed, accesses out of bounds, deadlocks and bank conflicts. KERNEL is the name of a kernel, which
    need not be built, a TOML file or the name of a set.

    \b
    Examples:
      marlin-gen verify marlin_f16_u4b8_m16n64k128_g128_s8_sm90
      marlin-gen verify layers.toml --quick
    """
    from marlin_gen.build.request import Request
    from marlin_gen.build.verification import verify_request

    with show.progress() as bar:
        reports = verify_request(Request(sources, template_dirs=template_dirs), quick, bar.progress)
    for report in reports:
        click.echo(f"{report.name}: {len(report.runs)} launches, nothing wrong")


@click.command("explain", short_help="Say which kernel serves a product, and why.")
@click.argument("m", type=int)
@click.argument("n", type=int)
@click.argument("k", type=int)
@click.option("--quant", default="u4b8", show_default=True, help="Quant type of the weights.")
@click.option("--group", "group_size", type=int, default=128, show_default=True, help="Rows that share a scale; -1: all.")
@click.option("--dtype", "a_dtype", type=click.Choice(["f16", "bf16"]), default="f16", show_default=True, help="Activations.")
@click.option("--arch", metavar="ARCH", help="Architecture to decide for, such as 9.0. Default: this machine's GPU, or an H200.")
@click.option("--sms", type=click.IntRange(min=1), default=132, show_default=True, help="Its multiprocessors, with --arch.")
@click.option("--configs", "sources", metavar="SOURCE", multiple=True, help="Choose among these kernels instead of those built.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
def explain_verb(
    m: int, n: int, k: int, quant: str, group_size: int, a_dtype: str, arch: str | None, sms: int, sources: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Say which kernel serves a product C[M,N] = A[M,K] W[K,N], with its predicted time, and why not the others.

    Exit code 1 if none can.

    \b
    Examples:
      marlin-gen explain 16 8192 8192
      marlin-gen explain 1 4096 4096 --dtype bf16 --arch 8.0 --sms 108
      marlin-gen explain 64 8192 8192 --configs layers.toml       before anything is built
    """
    from marlin_gen.config import load_matrix
    from marlin_gen.config.arch import parse_arch
    from marlin_gen.runtime.dispatch import explain

    answer = explain(
        m, n, k, quant=quant, group_size=group_size, a_dtype=a_dtype, capability=parse_arch(arch).capability if arch else None,
        sms=sms, kernels=[c for source in sources for c in load_matrix(source)] if sources else None,
    )  # fmt: skip
    click.echo(json.dumps(answer.to_dict(), indent=1) if as_json else str(answer))
    if not answer.chosen:
        raise click.exceptions.Exit(1)
