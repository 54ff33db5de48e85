"""``list``: reads the records of builds, nothing else, and so answers at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from marlin_gen.build.modules import built_kernels
from marlin_gen.build.paths import Store, candidate_roots
from marlin_gen.build.verification import is_verified
from marlin_gen.cli.show import size, store_option, table


@click.command("list")
@store_option
@click.option("--json", "as_json", is_flag=True, help="All facts, as JSON.")
@click.option("--names", is_flag=True, help="Only the names, one a line.")
def list_verb(out: Path | None, as_json: bool, names: bool) -> None:
    """List the kernels that are built.

    Spills are bytes of a thread that the compiler had to put into memory: 0 is right. `verified` kernels have passed the
    simulator, see `marlin-gen verify --help`.

    \b
    Examples:
      marlin-gen list
      marlin-gen list --names | grep bf16
    """
    kernels = built_kernels(Store(out.absolute()) if out else None)
    verified = {k.record.name: is_verified(k.store, k.record.object) for k in kernels}
    if as_json:
        facts = [asdict(k.record) | {"set": k.manifest.set, "verified": verified[k.record.name]} for k in kernels]
        click.echo(json.dumps(facts, indent=1))
    elif names:
        click.echo("".join(f"{k.record.name}\n" for k in kernels), nl=False)
    elif not kernels:
        click.echo(f"no kernels are built in {out or candidate_roots()[0]}; `marlin-gen build` builds the default set")
    else:
        said = {True: "yes", False: "no"}
        rows = [
            (r.name, r.registers, r.spill_stores + r.spill_loads, r.shared_bytes, size(r.bytes), said[verified[r.name]])
            for r in (k.record for k in kernels)
        ]
        click.echo(table(("kernel", "registers", "spills", "shared", "object", "verified"), rows))
        click.echo(f"{len(kernels)} kernel(s), for {', '.join(sorted({k.record.arch for k in kernels}))}")
