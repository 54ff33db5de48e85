"""Finds quant types: every ``quant/*.cuh.j2`` of the template folders, read from the TOML in its opening comment."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from marlin_gen.errors import TemplateError, UnknownNameError
from marlin_gen.quant.quant_type import QuantType, from_head
from marlin_gen.toml import tomllib

if TYPE_CHECKING:
    from marlin_gen.emit.templates import Templates

SUFFIX = ".cuh.j2"
_HEAD = re.compile(r"\s*\{#-?(?P<toml>.*?)-?#\}", re.DOTALL)


def quant_names(templates: Templates) -> list[str]:
    """Names of all quant types, sorted."""
    return [path[len("quant/") : -len(SUFFIX)] for path in templates.find("quant", SUFFIX)]


@cache
def load_quant(name: str, templates: Templates) -> QuantType:
    """Read one quant type.

    Raises:
        UnknownNameError: there is no such type.
        TemplateError: its head is malformed; the message names file and line.
    """
    known = quant_names(templates)
    if name not in known:
        raise UnknownNameError(
            f"unknown quant type {name!r}",
            f"known types: {', '.join(known)}; `marlin-gen new-quant {name}` writes a skeleton",
        )
    path = f"quant/{name}{SUFFIX}"
    text, source = templates.read(path), templates.describe(path)
    match = _HEAD.match(text)
    if match is None:
        raise TemplateError(f"{source}:1: a quant type begins with a TOML head in a Jinja comment {{#- ... -#}}")
    try:
        head = tomllib.loads(match["toml"])
    except (ValueError, RecursionError) as error:  # no TOML, a number of thousands of digits, lists too deep
        found = re.search(r"line (\d+)", str(error))
        line = text[: match.start("toml")].count("\n") + (int(found[1]) if found else 1)
        raise TemplateError(f"{source}:{line}: {error}") from None
    return from_head(head, name, source)
