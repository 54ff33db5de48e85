"""Activation dtypes, and codes decoded with torch on any device."""

from __future__ import annotations

import torch

from marlin_gen.errors import LayoutError
from marlin_gen.quant import QuantType

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def activation_dtype(a_dtype: str | torch.dtype, quant: QuantType) -> torch.dtype:
    """The torch dtype of ``f16``, ``bf16`` or the dtype itself.

    Raises:
        LayoutError: it is no activation dtype, or not one of the quant type's.
    """
    dtype = DTYPES.get(a_dtype) if isinstance(a_dtype, str) else a_dtype
    if dtype not in DTYPE_NAMES:
        raise LayoutError(f"a_dtype {a_dtype} is no activation type", "use torch.float16 or torch.bfloat16")
    if DTYPE_NAMES[dtype] not in quant.a_dtypes:
        raise LayoutError(f"quant type {quant.name} does not serve {dtype}", f"it serves {', '.join(quant.a_dtypes)}")
    return dtype


def code_values(quant: QuantType, codes: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
    """Values of codes before the scale, in fp32 (exact for 4- and 8-bit codes with integer zero points).

    Args:
        codes: integer tensor of any shape.
        zeros: zero points broadcastable to ``codes``, or None for a type without.
    """
    if quant.table:
        return torch.tensor(quant.table, dtype=torch.float32, device=codes.device)[codes.long()]
    names = {"q": codes.float(), "z": None if zeros is None else zeros.float()}
    result: torch.Tensor = eval(quant.value, names)  # checked when the head was read
    return result
