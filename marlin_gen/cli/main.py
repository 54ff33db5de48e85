"""The ``marlin-gen`` program: finds the verb, turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from marlin_gen.errors import MarlinGenError
from marlin_gen.version import __version__

# Verbs in the order of the help, and the module that holds each: only the verb that is called is loaded.
VERBS = {
    "build": "building",
    "list": "listing",
    "verify": "checking",
    "explain": "checking",
    "inspect": "inspecting",
    "diff": "inspecting",
    "emit": "building",
    "new-quant": "building",
    "env": "building",
    "clean": "building",
}

_HELP = """Generate, compile and check CUDA kernels for mixed-precision linear layers:
4-bit weights times fp16 or bf16 activations.

\b
First steps:
  marlin-gen env                      what this machine has, and what is missing
  marlin-gen build                    compile the default set of kernels
  marlin-gen list                     the kernels that are built
  marlin-gen explain 16 8192 8192     which kernel serves M=16, N=8192, K=8192, and why

`marlin-gen VERB --help` explains a verb, with examples. No verb needs a GPU.
"""


class Verbs(click.Group):
    """A group that imports a verb when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the verbs, as the help shows them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of a name, or None."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"marlin_gen.cli.{VERBS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_") + "_verb")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb where there is no such one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, 1)
            ctx.fail(f"no such verb: {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else f" Verbs: {', '.join(VERBS)}"))
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="marlin-gen")
@click.option("--debug", is_flag=True, help="Show Python's traceback with an error.")
def program(debug: bool) -> None:
    """See ``_HELP``; ``main`` reads the option."""


def main() -> NoReturn:
    """Run the program. Exit code 0: done; 1: failed; 2: wrong usage; 130: interrupted."""
    debug = "--debug" in sys.argv[1:]
    try:
        code = program.main(prog_name="marlin-gen", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        _fail("interrupted", "", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `marlin-gen list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MarlinGenError as error:
        if debug:
            raise
        _fail(error.message, error.hint, 1)
    except Exception as error:
        if debug:
            raise
        _fail(
            f"{type(error).__name__}: {error}",
            "this is a fault of marlin-gen or of the machine; `marlin-gen --debug ...` shows where. Please report it",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, hint: str, code: int) -> NoReturn:
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    if hint:
        click.echo(click.style("hint: ", fg="cyan", bold=True) + hint, err=True)
    sys.exit(code)
