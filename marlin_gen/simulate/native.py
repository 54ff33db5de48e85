"""The structs of ``templates/sim/machine/launch.hpp`` for ctypes, and kernel arguments read from their header."""

from __future__ import annotations

import ctypes as c
import re
from collections.abc import Mapping

READABLE, WRITABLE, INITIALISED, WRITE_ONCE = 1, 2, 4, 8
_BUFFER_SHIFT = 40


def device_address(index: int) -> int:
    """Where the modelled device places buffer ``index``, as in ``launch.hpp``."""
    return ((index + 1) << _BUFFER_SHIFT) + (1 << (_BUFFER_SHIFT - 1))


class BufferStruct(c.Structure):
    """``sim::Buffer``."""

    _fields_ = (
        ("name", c.c_char_p), ("host", c.c_void_p), ("allowed", c.c_void_p), ("written", c.c_void_p),
        ("bytes", c.c_int64), ("flags", c.c_int32),
    )  # fmt: skip


class FaultStruct(c.Structure):
    """``sim::FaultRecord``."""

    _fields_ = (
        ("kind", c.c_char * 32), ("detail", c.c_char * 320),
        ("line", c.c_int32), ("cta", c.c_int32), ("thread", c.c_int32), ("count", c.c_int32),
    )  # fmt: skip


class ConflictStruct(c.Structure):
    """``sim::ConflictRecord``."""

    _fields_ = (
        ("op", c.c_char * 16), ("line", c.c_int32), ("unused", c.c_int32),
        ("accesses", c.c_int64), ("wavefronts", c.c_int64), ("minimum", c.c_int64),
    )  # fmt: skip


STATS = ("barriers", "mma", "ldmatrix", "async_copies", "global_loads", "global_stores", "wavefronts")


class StatsStruct(c.Structure):
    """``sim::Stats``."""

    _fields_ = tuple((name, c.c_int64) for name in STATS)


class LaunchStruct(c.Structure):
    """``sim::Launch``."""

    _fields_ = (
        ("grid", c.c_int32), ("threads", c.c_int32), ("shared_bytes", c.c_int32), ("order", c.c_int32),
        ("seed", c.c_uint32),
        ("buffer_count", c.c_int32), ("fault_capacity", c.c_int32), ("conflict_capacity", c.c_int32),
        ("max_steps", c.c_int64),
        ("buffers", c.POINTER(BufferStruct)), ("params", c.c_void_p),
        ("faults", c.POINTER(FaultStruct)), ("conflicts", c.POINTER(ConflictStruct)), ("stats", c.POINTER(StatsStruct)),
        ("fault_count", c.c_int32), ("conflict_count", c.c_int32), ("completed", c.c_int32),
    )  # fmt: skip


_TYPES = {"int32_t": c.c_int32, "uint32_t": c.c_uint32, "int64_t": c.c_int64, "float": c.c_float}
_FIELD = re.compile(r"^\s*(?:const\s+)?(?P<type>\w+)(?P<pointer>\*?)\s+(?P<names>\w+(?:\s*,\s*\w+)*);", re.MULTILINE)


def params_type(header: str, struct: str = "GemmParams") -> type[c.Structure]:
    """The ctypes twin of a plain struct of pointers and numbers, read from the C++ header that defines it.

    Raises:
        ValueError: the header does not define the struct, or with a field of another kind.
    """
    body = re.search(rf"struct {struct} \{{(.*?)^\}};", header, re.DOTALL | re.MULTILINE)
    if body is None:
        raise ValueError(f"the header defines no struct {struct}")
    fields: list[tuple[str, type]] = []
    for match in _FIELD.finditer(body[1]):
        if not match["pointer"] and match["type"] not in _TYPES:
            raise ValueError(f"struct {struct}: {match[0].strip()} is neither a pointer nor one of {', '.join(_TYPES)}")
        kind = c.c_void_p if match["pointer"] else _TYPES[match["type"]]
        fields += [(name.strip(), kind) for name in match["names"].split(",")]
    return type(struct, (c.Structure,), {"_fields_": fields})


def make_params(kind: type[c.Structure], values: Mapping[str, int]) -> c.Structure:
    """A struct with the given fields set and all others zero.

    Raises:
        ValueError: a name is no field of the struct.
    """
    known = {field[0] for field in kind._fields_}
    if unknown := sorted(set(values) - known):
        raise ValueError(f"{kind.__name__} has no field {', '.join(unknown)}")
    return kind(**values)
