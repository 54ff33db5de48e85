"""Quant types by name, for everything that runs kernels."""

from __future__ import annotations

from marlin_gen.emit.templates import Templates
from marlin_gen.errors import LayoutError
from marlin_gen.quant import QuantType, load_quant

_known: dict[str, QuantType] = {}


def quant_type(quant: str | QuantType) -> QuantType:
    """The quant type of a name; a ``QuantType`` (from other template folders) is remembered under its own.

    Raises:
        ConfigError: no packaged type has the name, and none was given before.
    """
    if isinstance(quant, QuantType):
        _known[quant.name] = quant
        return quant
    if quant not in _known:
        _known[quant] = load_quant(quant, Templates())
    return _known[quant]


def normal_group(k: int, group_size: int, quant: QuantType) -> int:
    """-1 for one group over all of K, however it was written: such layers take the cheaper kernels.

    Raises:
        LayoutError: K or the group size is no int.
    """
    for name, value in (("K", k), ("group size", group_size)):
        if type(value) is not int:
            raise LayoutError(f"{name} = {value!r} is not an int", "give whole numbers")
    return -1 if group_size == k and (not quant.group_sizes or -1 in quant.group_sizes) else group_size
