"""QuantType: what a quant type's template head says, checked, and the value of every code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

from marlin_gen.errors import TemplateError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Codes of one lane in one 16x16 weight tile, in the order of ``QuantType.slots``: index = 4*n_hi + 2*k_hi + h for the code
# at row k = 8*k_hi + 2*(lane%4) + h and column n = 8*n_hi + lane//4 of the tile (two B fragments of mma m16n8k16).
CODES_PER_LANE = 8
ZERO_KINDS = ("none", "int", "float")
_KEYS = {
    "name": str, "summary": str, "bits": int, "slots": list, "value": str, "table": list,
    "zero": str, "a_dtypes": list, "group_sizes": list,
}  # fmt: skip
_ITEMS: dict[str, tuple[type, ...]] = {"slots": (int,), "table": (int, float), "a_dtypes": (str,), "group_sizes": (int,)}


@dataclass(frozen=True)
class QuantType:
    """A weight format: how codes are stored, and what they mean.

    Attributes:
        name: file stem of its template.
        summary: one line for lists and docs.
        bits: bits of a code.
        slots: bit offset, inside the words of a lane, of each of its codes of one 16x16 tile (``CODES_PER_LANE`` of them).
        value: Python expression for a code's value from ``q`` (code) and ``z`` (zero point), before the scale; or
        table: the value of every code, where no expression is.
        zero: ``none``, ``int`` (exact 0..2^bits) or ``float`` zero points, one a group and column.
        a_dtypes: activation types that the template serves.
        group_sizes: group sizes it allows; empty for all that the kernel family allows.
        source: path of the template, for messages.
    """

    name: str
    summary: str
    bits: int
    slots: tuple[int, ...]
    value: str
    table: tuple[float, ...]
    zero: str
    a_dtypes: tuple[str, ...]
    group_sizes: tuple[int, ...]
    source: str

    @property
    def has_zero(self) -> bool:
        """Whether weights carry zero points."""
        return self.zero != "none"

    @property
    def tile_words(self) -> int:
        """32-bit words of a lane's codes in one 16x16 tile."""
        return self.bits * CODES_PER_LANE // 32

    @property
    def codes(self) -> int:
        """Number of code values."""
        return 1 << self.bits

    @cached_property
    def _compiled(self) -> CodeType:
        return compile(self.value, self.source, "eval")

    def decode(self, q: NDArray[np.integer[Any]], zero: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Values of codes before the scale, exact in float64.

        Args:
            q: codes, any integer dtype and shape.
            zero: zero points broadcastable to ``q``; needed if the type has them.
        """
        import numpy as np

        if self.table:
            values: NDArray[np.float64] = np.asarray(self.table, dtype=np.float64)[q]
            return values
        names: dict[str, Any] = {"q": q.astype(np.float64)}
        if self.has_zero:
            names["z"] = np.asarray(zero, dtype=np.float64)
        return np.asarray(eval(self._compiled, {"__builtins__": {}}, names), dtype=np.float64)


def from_head(head: dict[str, Any], name: str, source: str) -> QuantType:
    """Check a template head and make the record.

    Raises:
        TemplateError: a key is unknown, missing or of the wrong type, or the values contradict each other; names the file.
    """
    problems = [f"unknown key {key!r}; keys are {', '.join(_KEYS)}" for key in head if key not in _KEYS]
    problems += [
        f"{key} must be of type {kind.__name__}, not {type(head[key]).__name__}"
        for key, kind in _KEYS.items()
        if key in head and type(head[key]) is not kind
    ]
    problems += [
        f"{key} holds {item!r}, which is not of type {' or '.join(kind.__name__ for kind in kinds)}"
        for key, kinds in _ITEMS.items()
        if type(head.get(key)) is list
        for item in head[key]
        if type(item) not in kinds
    ]
    problems += [f"{key} is missing" for key in ("name", "summary", "bits", "slots", "zero", "a_dtypes") if key not in head]
    if problems:
        raise TemplateError(f"{source}: head of quant type {name}: " + "; ".join(problems))
    quant = QuantType(
        name=head["name"], summary=head["summary"], bits=head["bits"], slots=tuple(head["slots"]),
        value=head.get("value", ""), table=tuple(float(v) for v in head.get("table", ())), zero=head["zero"],
        a_dtypes=tuple(head["a_dtypes"]), group_sizes=tuple(head.get("group_sizes", ())), source=source,
    )  # fmt: skip
    problems = list(_contradictions(quant, name))
    if problems:
        raise TemplateError(f"{source}: head of quant type {name}: " + "; ".join(problems))
    return quant


def _contradictions(quant: QuantType, stem: str) -> list[str]:
    found = []
    if quant.name != stem:
        found.append(f"name is {quant.name!r} but the file is named {stem!r}")
    if not (quant.name.isascii() and quant.name.isalnum() and quant.name == quant.name.lower()):
        found.append(f"name {quant.name!r} must be lower-case letters and digits")
    if quant.bits not in (4, 8):
        found.append(f"bits = {quant.bits}, but packed layouts exist for 4 and 8 bits")
    elif bad := [s for s in quant.slots if s < 0 or s % quant.bits or s + quant.bits > 32 * quant.tile_words]:
        found.append(f"slots {bad} do not lie on multiples of {quant.bits} inside {quant.tile_words} word(s)")
    if len(quant.slots) != CODES_PER_LANE or len(set(quant.slots)) != len(quant.slots):
        found.append(f"slots must be {CODES_PER_LANE} different bit offsets")
    if bool(quant.value) == bool(quant.table):
        found.append("give either value (an expression in q and z) or table (the value of every code)")
    if quant.table and len(quant.table) != quant.codes:
        found.append(f"table has {len(quant.table)} values; {quant.bits} bits have {quant.codes} codes")
    if quant.table and quant.has_zero:
        found.append('a table leaves no place for zero points: write zero = "none", or value with z')
    if quant.zero not in ZERO_KINDS:
        found.append(f"zero = {quant.zero!r} is none of {', '.join(ZERO_KINDS)}")
    if unknown := sorted(set(quant.a_dtypes) - {"f16", "bf16"}):
        found.append(f"a_dtypes {unknown} are unknown; f16 and bf16 exist")
    if quant.value and not found:
        found += _expression_problems(quant)
    return found


def _expression_problems(quant: QuantType) -> list[str]:
    import numpy as np

    try:
        values = quant.decode(np.arange(quant.codes), np.zeros(1) if quant.has_zero else None)
    except Exception as error:  # the expression is the template author's: whatever it raises is reported as theirs
        return [f"value = {quant.value!r} cannot be evaluated: {error}"]
    return [] if values.shape == (quant.codes,) else [f"value = {quant.value!r} does not depend on q"]
