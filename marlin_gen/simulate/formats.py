"""16-bit float types as numpy sees them: values in float64, bits in uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MANTISSA = {"f16": 10, "bf16": 7}  # stored bits


def to_bits(a_dtype: str, values: NDArray[Any]) -> NDArray[np.uint16]:
    """Round float64 values of any shape to ``f16`` or ``bf16``, nearest even."""
    if a_dtype == "f16":
        with np.errstate(over="ignore"):
            return np.asarray(values, np.float64).astype(np.float16).view(np.uint16)
    x = np.asarray(values, np.float64)
    size = np.abs(x)
    finite = np.isfinite(x)
    exponent = np.maximum(np.frexp(np.where(finite & (size > 0), size, 1.0))[1] - 1, -126)
    quanta = np.rint(np.ldexp(np.where(finite, size, 0.0), 7 - exponent)).astype(np.int64)
    bits = np.minimum(((exponent + 126).astype(np.int64) << 7) + quanta, 0x7F80)
    bits = np.where(size > 0, bits, 0)
    bits = np.where(np.isinf(x), 0x7F80, np.where(np.isnan(x), 0x7FFF, bits))
    return (bits | np.where(np.signbit(x), 0x8000, 0)).astype(np.uint16)


def to_values(a_dtype: str, bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    """Exact values of ``f16`` or ``bf16`` bits."""
    if a_dtype == "f16":
        return bits.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def rounded(a_dtype: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """Values rounded to the type."""
    return to_values(a_dtype, to_bits(a_dtype, values))
