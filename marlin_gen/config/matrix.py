"""TOML matrices: a few lines that name many kernels.

A file holds one or more ``[[kernels]]`` tables. Each key is a field of ``KernelConfig`` with one value or a list of values; a
list is an axis, and the table names the product of its axes. ``tile`` is an axis of ``[thread_k, thread_n]`` pairs. With
``skip_illegal = true`` combinations that break a rule are left out; without it they are errors. A name that does not exist, of a
quant type for instance, is always an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from marlin_gen.config.arch import parse_arch
from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.errors import ConfigError, UnknownNameError
from marlin_gen.toml import tomllib

SETS = Path(__file__).with_name("sets")
_FIELDS = {f.name: f for f in fields(KernelConfig)}
_KEYS = sorted(set(_FIELDS) - {"thread_k", "thread_n"} | {"tile", "skip_illegal"})


def config_sets() -> dict[str, Path]:
    """The matrices that come with the package, by name."""
    return {path.stem: path for path in sorted(SETS.glob("*.toml"))}


def load_matrix(
    source: str, archs: Iterable[str] = (), legal: Callable[[KernelConfig], None] | None = None
) -> list[KernelConfig]:
    """Read the kernels that ``source`` names.

    Args:
        source: a TOML file, the name of a packaged set, or a kernel name.
        archs: architectures that replace those of the file; empty keeps them.
        legal: raises ConfigError for a config that cannot be emitted (``emit.check_legal``); needed where a table has
            ``skip_illegal``, and otherwise called so that all illegal configs of the file are reported together.

    Returns:
        Configs without duplicates, sorted by name.

    Raises:
        ConfigError: the source is unknown or malformed; a wrong key is named with its line.
    """
    archs = [parse_arch(arch).name for arch in archs]
    path = config_sets().get(source, Path(source))
    if path.suffix != ".toml":
        config = KernelConfig.from_name(source) if re.match(r"[a-z0-9]+_(f16|bf16)_", source) else None
        if config is None:
            raise ConfigError(
                f"no config set, file or kernel is named {source!r}",
                f"sets: {', '.join(config_sets())}; or give a .toml file or a kernel name",
            )
        found = [config] if not archs else [_for_arch(config, arch) for arch in archs]
        for config in found:
            if legal:
                legal(config)
        return _unique(found)
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", f"packaged sets: {', '.join(config_sets())}") from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of thousands of digits, lists too deep
        raise ConfigError(f"{path}: {error}", "see the packaged sets for examples: marlin-gen env prints their folder") from None
    return _unique(_expand_file(path, text, tables, archs, legal))


def _expand_file(
    path: Path, text: str, tables: dict[str, Any], archs: list[str], legal: Callable[[KernelConfig], None] | None
) -> list[KernelConfig]:
    for key in tables:
        if key != "kernels":
            raise ConfigError(f"{path}:{_line(text, key)}: unknown key {key!r}", "a matrix holds [[kernels]] tables")
    kernels = tables.get("kernels")
    if not isinstance(kernels, list) or not kernels or not all(isinstance(table, dict) for table in kernels):
        raise ConfigError(f"{path} names no kernel", "add a [[kernels]] table")
    configs: list[KernelConfig] = []
    problems: list[str] = []
    for number, table in enumerate(kernels, 1):
        if archs:
            table = table | {"arch": archs}
        skip = table.pop("skip_illegal", False)
        if type(skip) is not bool:
            raise _wrong_type(path, text, "skip_illegal", skip, "bool", number)
        for config in _expand_table(path, text, table, number):
            try:
                if legal:
                    legal(config)
                configs.append(config)
            except ConfigError as error:
                if not skip or isinstance(error, UnknownNameError):
                    problems.append(str(error))
    if problems:
        raise ConfigError(f"{path}: {len(problems)} illegal config(s):\n" + "\n".join(problems))
    if not configs:
        raise ConfigError(f"{path} names no legal kernel", "see `marlin-gen emit --help` for the axes and their rules")
    return configs


def _expand_table(path: Path, text: str, table: dict[str, Any], number: int) -> list[KernelConfig]:
    for key in table:
        if key not in _KEYS:
            raise ConfigError(
                f"{path}:{_line(text, key, number)}: unknown key {key!r} in table {number} of [[kernels]]",
                f"keys are {', '.join(_KEYS)}",
            )
    axes = [(key, value if isinstance(value, list) else [value]) for key, value in table.items()]
    if "tile" in table:
        pairs = table["tile"]
        pairs = pairs if isinstance(pairs, list) and all(isinstance(pair, list) for pair in pairs) else [pairs]
        axes = [(key, pairs if key == "tile" else values) for key, values in axes]
    for key, axis in axes:
        if not axis:
            raise ConfigError(f"{path}:{_line(text, key, number)}: {key} = [] names no kernel", "give a value or several")
    configs = []
    for values in itertools.product(*(values for _, values in axes)):
        given = dict(zip((key for key, _ in axes), values, strict=True))
        if "tile" in given:
            tile = given.pop("tile")
            if not (isinstance(tile, list) and len(tile) == 2):
                line = _line(text, "tile", number)
                raise ConfigError(f"{path}:{line}: tile = {tile!r} in table {number}", "a tile is [thread_k, thread_n]")
            given["thread_k"], given["thread_n"] = tile
        for key, value in given.items():
            _check_type(path, text, key, value, number)
        try:
            configs.append(KernelConfig(**given))
        except UnknownNameError as error:  # the one name that a config looks up itself
            raise UnknownNameError(f"{path}:{_line(text, 'arch', number)}: {error.message}", error.hint) from None
        except TypeError:
            missing = [f for f in ("arch", "a_dtype", "quant", "m_tile", "thread_k", "group_size", "stages") if f not in given]
            names = ", ".join("tile" if f == "thread_k" else f for f in missing)
            raise ConfigError(f"{path}: table {number} of [[kernels]] lacks {names}", "every kernel needs these fields") from None
    return configs


def _check_type(path: Path, text: str, key: str, value: Any, number: int) -> None:
    kind = str(_FIELDS[key].type)
    wanted = bool if "bool" in kind else int if "int" in kind else str
    if type(value) is not wanted:
        written = "tile" if key in ("thread_k", "thread_n") else key
        raise _wrong_type(path, text, written, value, wanted.__name__, number)


def _wrong_type(path: Path, text: str, key: str, value: Any, wanted: str, number: int) -> ConfigError:
    message = f"{path}:{_line(text, key, number)}: {key} = {value!r} is not of type {wanted}"
    return ConfigError(message, "see the packaged sets for examples")


def _line(text: str, key: str, table: int = 0) -> int:
    """Line of ``key``, searched from the ``table``-th [[kernels]] header on."""
    starts = [m.start() for m in re.finditer(r"^\s*\[\[kernels\]\]", text, re.MULTILINE)]
    begin = starts[table - 1] if 0 < table <= len(starts) else 0
    match = re.search(rf"^\s*(\[\[?|[\"'])?{re.escape(key)}\b", text[begin:], re.MULTILINE)
    return text[: begin + (match.end() if match else 0)].count("\n") + 1


def _for_arch(config: KernelConfig, arch: str) -> KernelConfig:
    default = config.evict_first == parse_arch(config.arch).evict_first
    return replace(config, arch=arch, evict_first=None if default else config.evict_first)


def _unique(configs: Iterable[KernelConfig]) -> list[KernelConfig]:
    return sorted(set(configs), key=lambda c: c.name)
