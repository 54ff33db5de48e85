"""The speed table: time of a layer's product against cuBLAS and Humming in the same run.

``python -m marlin_gen.bench`` prints it and writes JSON rows {K, N, M, us, ...} that ``anchors``-style tools can read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from marlin_gen.bench.contenders import Contender, Cublas, Humming, Marlin, WrongResult
from marlin_gen.bench.timing import Timing, interleaved
from marlin_gen.runtime.dispatch import explain

SHAPES = ((4096, 4096), (14336, 4096), (4096, 28672), (8192, 10240), (8192, 57344), (28672, 8192))
ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 1024)
_FILE_WIDTH = 160  # of the table where there is no terminal
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def measure(
    shapes: list[tuple[int, int]], rows: list[int], dtype: str, peers: bool, humming_rows: list[int]
) -> Iterator[dict[str, object]]:
    """One dict for every shape and M: us of each contender, spread, and the kernel that ran."""
    for k, n in shapes:
        ours = Marlin(k, n, DTYPES[dtype])
        contenders: list[Contender] = [ours, Cublas(ours.weight)]
        if peers and Humming.available():
            contenders.append(Humming(ours.weight))
        for m in rows:
            a = torch.randn((m, k), device="cuda").to(DTYPES[dtype])
            calls, notes = {}, {}
            for contender in contenders:
                if contender.name == Humming.name and m not in humming_rows:
                    continue
                try:
                    calls[contender.name] = contender.calls(a)
                except WrongResult as error:
                    notes[contender.name] = str(error)
            times = interleaved(calls)
            yield _row(k, n, m, dtype, times, notes)
        del ours, contenders
        torch.cuda.empty_cache()


def _row(k: int, n: int, m: int, dtype: str, times: dict[str, Timing], notes: dict[str, str]) -> dict[str, object]:
    chosen = explain(m, n, k, quant="u4b8", group_size=128, a_dtype=dtype).to_dict()
    own = times.get(Marlin.name)
    return {
        "K": k, "N": n, "M": m, "a_dtype": dtype, "us": own.us if own else None, "kernel": chosen["chosen"],
        "times": {name: asdict(t) for name, t in times.items()}, "wrong": notes,
    }  # fmt: skip


@click.command()
@click.option("--shapes", default=",".join(f"{k}x{n}" for k, n in SHAPES), show_default=True, help="Layers, KxN.")
@click.option("--rows", default=",".join(map(str, ROWS)), show_default=True, help="Values of M, comma-separated.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="f16", show_default=True, help="Activation type.")
@click.option("--peers/--no-peers", default=True, show_default=True, help="Also measure Humming, if it is installed.")
@click.option("--humming-rows", default="1,16,64,256", show_default=True, help="Values of M for Humming (it compiles).")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all rows here, after every row.")
def main(shapes: str, rows: str, dtype: str, peers: bool, humming_rows: str, json_path: Path | None) -> None:
    """Time u4b8 products (groups of 128) with cold L2 in CUDA graphs, beside cuBLAS and Humming."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    if not torch.cuda.is_available():
        raise SystemExit("marlin_gen.bench needs a CUDA GPU; `marlin-gen explain` predicts without one")
    if peers and not Humming.available():
        console.print("humming is not installed (pip install humming-kernels): not measured")
    layers = [(int(k), int(n)) for k, n in (shape.split("x") for shape in shapes.split(","))]
    results: list[dict[str, object]] = []
    table = Table("K x N", "M", "us", "spread", "cublas", "humming", "x cublas", "kernel")
    for row in measure(layers, _numbers(rows), dtype, peers, _numbers(humming_rows)):
        results.append(row)
        table.add_row(*_cells(row))
        if json_path:
            json_path.write_text(json.dumps(results, indent=1))
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {dtype} activations, u4b8 group 128, us a launch")
    console.print(table)
    for row in results:
        for name, note in row["wrong"].items():  # type: ignore[attr-defined]
            console.print(f"[red]no time for {name} at {row['K']}x{row['N']} M={row['M']}: {note}[/red]")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _cells(row: dict[str, object]) -> list[str]:
    times: dict[str, dict[str, float]] = row["times"]  # type: ignore[assignment]
    own, cublas, humming = (times.get(name) for name in (Marlin.name, Cublas.name, Humming.name))
    us = [f"{t['us']:.2f}" if t else "-" for t in (own, cublas, humming)]
    spread = f"{own['low']:.2f}..{own['high']:.2f}" if own else "-"
    ratio = f"{cublas['us'] / own['us']:.2f}" if own and cublas else "-"
    return [f"{row['K']}x{row['N']}", str(row["M"]), us[0], spread, us[1], us[2], ratio, str(row["kernel"])]
