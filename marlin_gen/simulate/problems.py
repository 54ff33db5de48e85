"""Products whose right result is known, bit for bit where possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.layout import PackedShape, pack_codes, permute_scales
from marlin_gen.quant.quant_type import QuantType
from marlin_gen.simulate.formats import MANTISSA, rounded, to_bits

_FP32_BITS = 22  # sums of integers below 2^22 are exact in fp32 with room for the rounding of a tensor core
_TOLERANCE = {"f16": 3e-4, "bf16": 3e-3}  # mean |difference| / mean |result|


@dataclass(frozen=True)
class Problem:
    """One product C[m, n] = A[m, k] W[k, n] + bias.

    Attributes:
        kind: ``integer`` and ``identity`` have one right result, bit for bit; ``random`` is compared within a tolerance.
        shape: K, N and the group size, with their padded sizes.
        a: [m, k] activations, exact in the activation type.
        codes: [k, n] weight codes.
        zeros: [groups, n] zero points, or None.
        scales: [groups, n].
        bias: [n] or None.
        expected: [m, n]: the right result, in the activation type unless ``random``.
        tolerance: mean |difference| / mean |expected| that is allowed; 0 asks for equality.
    """

    kind: str
    shape: PackedShape
    a: NDArray[np.float64]
    codes: NDArray[np.int64]
    zeros: NDArray[np.float64] | None
    scales: NDArray[np.float64]
    bias: NDArray[np.float64] | None
    expected: NDArray[np.float64]
    tolerance: float

    @property
    def m(self) -> int:
        """Rows of the product."""
        return int(self.a.shape[0])

    def __str__(self) -> str:
        return f"{self.kind} M={self.m} N={self.shape.n} K={self.shape.k}" + ("" if self.bias is None else " with bias")


def integer(
    config: KernelConfig, quant: QuantType, m: int, n: int, k: int, rng: np.random.Generator, bias: bool = False
) -> Problem:
    """Activations -1, 0, 1 and scales that are powers of two: every order of summation gives the same bits.

    Rows have as many nonzero activations as keep every partial sum exact: in fp32, or in the activation type where partial
    sums are kept in it (``chain16``).
    """
    shape, codes, zeros = _weights(config, quant, n, k, rng)
    scales = rng.choice([0.5, 1.0], (shape.groups, n))
    values = _dequantised(config, quant, shape, codes, zeros, scales)
    bits = MANTISSA[config.a_dtype] + 1 if config.reduction == "chain16" else _FP32_BITS
    terms = max(1, int(2**bits * _quantum(values) / max(np.abs(values).max(), 1e-30)))
    a = rng.choice([-1.0, 1.0], (m, k))
    if terms < k:
        for row in a:
            row[rng.permutation(k)[terms:]] = 0
    else:
        a *= rng.random((m, k)) < 0.7
    added = rng.integers(-4, 5, n).astype(np.float64) if bias else None
    return _problem("integer", config, shape, a, codes, zeros, scales, added, a @ values, 0.0)


def identity(config: KernelConfig, quant: QuantType, n: int, k: int, rng: np.random.Generator) -> Problem:
    """A = identity, any scales: C is the dequantised matrix itself. Finds wrong permutations, codes, zero points, scales."""
    shape, codes, zeros = _weights(config, quant, n, k, rng)
    scales = rounded(config.a_dtype, rng.uniform(0.01, 0.1, (shape.groups, n)))
    values = _dequantised(config, quant, shape, codes, zeros, scales)
    return _problem("identity", config, shape, np.eye(k), codes, zeros, scales, None, values, 0.0)


def random(config: KernelConfig, quant: QuantType, m: int, n: int, k: int, rng: np.random.Generator) -> Problem:
    """Normal activations and odd scales, against float64 over weights dequantised in the activation type."""
    shape, codes, zeros = _weights(config, quant, n, k, rng)
    scales = rounded(config.a_dtype, rng.uniform(0.01, 0.1, (shape.groups, n)))
    a = rounded(config.a_dtype, rng.standard_normal((m, k)))
    values = _dequantised(config, quant, shape, codes, zeros, scales)
    tolerance = _TOLERANCE[config.a_dtype] * (4 if config.reduction == "chain16" else 1)
    return _problem("random", config, shape, a, codes, zeros, scales, None, a @ values, tolerance)


def packed_weights(problem: Problem, quant: QuantType) -> NDArray[np.int32]:
    """int32 words as ``GemmParams.b`` wants them."""
    shape = problem.shape
    words = np.zeros(shape.words(quant.bits), np.int32)
    rows = -(-shape.k // 16) * 16
    codes = np.zeros((rows, shape.n), np.int64)
    codes[: shape.k] = problem.codes
    pack_codes(codes, words, shape, quant)
    return words


def stored_scales(problem: Problem, a_dtype: str) -> NDArray[np.uint16]:
    """uint16 [groups_pad, n_pad]: permuted if grouped, else in natural order, as the epilogue reads them."""
    rows = _padded(problem.scales, problem.shape, a_dtype)
    return rows if problem.shape.group_size == -1 else _permuted(rows)


def stored_zeros(problem: Problem, a_dtype: str) -> NDArray[np.uint16] | None:
    """uint16 [groups_pad, n_pad], always permuted: dequantisation needs them, not the epilogue. None without zero points."""
    return None if problem.zeros is None else _permuted(_padded(problem.zeros, problem.shape, a_dtype))


def stored_bias(problem: Problem, a_dtype: str) -> NDArray[np.uint16] | None:
    """uint16 [n_pad] in natural order, or None."""
    return None if problem.bias is None else _padded(problem.bias[None], problem.shape, a_dtype)[0]


def _padded(values: NDArray[np.float64], shape: PackedShape, a_dtype: str) -> NDArray[np.uint16]:
    padded = np.zeros((shape.groups_pad, shape.n_pad), np.uint16)
    padded[: len(values), : shape.n] = to_bits(a_dtype, values)
    return padded


def _permuted(rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
    out = np.empty_like(rows)
    permute_scales(rows, out)
    return out


def _weights(
    config: KernelConfig, quant: QuantType, n: int, k: int, rng: np.random.Generator
) -> tuple[PackedShape, NDArray[np.int64], NDArray[np.float64] | None]:
    shape = PackedShape(k, n, config.group_size)
    usable = np.flatnonzero(np.isfinite(quant.decode(np.arange(quant.codes), np.zeros(1) if quant.has_zero else None)))
    codes = rng.choice(usable, (k, n)).astype(np.int64)
    zeros = rng.integers(0, quant.codes, (shape.groups, n)).astype(np.float64) if quant.has_zero else None
    return shape, codes, zeros


def _dequantised(
    config: KernelConfig,
    quant: QuantType,
    shape: PackedShape,
    codes: NDArray[np.int64],
    zeros: NDArray[np.float64] | None,
    scales: NDArray[np.float64],
) -> NDArray[np.float64]:
    """[k, n] weights rounded to the activation type; with one group for all of K the kernel rounds only the result."""
    group = np.arange(shape.k) // (shape.k if shape.group_size == -1 else shape.group_size)
    exact = quant.decode(codes, None if zeros is None else zeros[group]) * scales[group]
    return exact if shape.group_size == -1 else rounded(config.a_dtype, exact)


def _quantum(values: NDArray[np.float64]) -> float:
    """The largest power of two that divides all values (at most 1)."""
    quantum = 1.0
    while not np.array_equal(values / quantum, np.rint(values / quantum)):
        quantum /= 2
    return quantum


def _problem(
    kind: str,
    config: KernelConfig,
    shape: PackedShape,
    a: NDArray[np.float64],
    codes: NDArray[np.int64],
    zeros: NDArray[np.float64] | None,
    scales: NDArray[np.float64],
    bias: NDArray[np.float64] | None,
    product: NDArray[np.float64],
    tolerance: float,
) -> Problem:
    result = product if bias is None else product + bias
    expected = result if tolerance else rounded(config.a_dtype, result)
    return Problem(kind, shape, a, codes, zeros, scales, bias, expected, tolerance)


def _of_group(problem: Problem, rows: NDArray[np.float64], k: int, column: int) -> float:
    group_size = problem.shape.group_size
    return float(rows[0 if group_size == -1 else k // group_size, column])


def difference(problem: Problem, got: NDArray[np.float64]) -> str:
    """What is wrong with a result; empty if nothing is."""
    want = problem.expected
    if problem.tolerance == 0:
        wrong = np.argwhere(~((got == want) | (np.isnan(got) & np.isnan(want))))
        if wrong.size == 0:
            return ""
        row, column = (int(i) for i in wrong[0])
        first = f"C[{row}, {column}] is {got[row, column]:g}, not {want[row, column]:g}"
        if problem.kind == "identity":  # row is k, and the result is one weight: its code is what a quant type's author looks for
            zero = "" if problem.zeros is None else f" with zero point {_of_group(problem, problem.zeros, row, column):g}"
            scale = _of_group(problem, problem.scales, row, column)
            first += f" (code {problem.codes[row, column]}{zero} at scale {scale:g})"
        return f"{len(wrong)} of {want.size} results are wrong; {first}"
    error = float(np.abs(got - want).mean() / np.abs(want).mean())
    if math.isfinite(error) and error <= problem.tolerance:
        return ""
    return f"mean |difference| / mean |result| is {error:.2e}, more than {problem.tolerance:.0e}"
