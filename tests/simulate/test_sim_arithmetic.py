"""16-bit float arithmetic and bit operations against references that share nothing with them."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from marlin_gen.simulate import Buffer
from marlin_gen.simulate.formats import to_bits, to_values

if TYPE_CHECKING:
    from conftest import Lab

_LOOP = """
for (int i = thread_index(); i < p.m; i += 32) {
  const U4 a = ldg128(at(p.a, 16 * i)), b = ldg128(at(p.b, 16 * i)), c = ldg128(at(p.scales, 16 * i));
  stg128(at(p.c, 16 * i), U4{%s});
}"""


def _apply(lab: Lab, expression: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """The expression on words, where x stands for the part of a word group; arrays of uint16 or uint32."""
    parts = ", ".join(expression.replace("$", part) for part in "xyzw")
    out = np.zeros_like(a)
    more = [Buffer("b", b), Buffer("scales", a if c is None else c)]
    result = lab.run(_LOOP % parts, a, out, *more, scalars={"m": a.nbytes // 16})
    assert result.faults == ()
    return out


def _operands(count: int, seed: int) -> list[np.ndarray]:
    """Random bits, then bits of special values paired with everything."""
    rng = np.random.default_rng(seed)
    special = np.array(
        [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0x3F80, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7F7F, 0x7F80, 0xFF80],
        np.uint16,
    )
    return [
        np.concatenate([rng.integers(0, 1 << 16, count, dtype=np.uint16), np.repeat(special, 16), rng.choice(special, 16)])
        for _ in range(3)
    ]


@pytest.mark.parametrize("name", ["add2", "sub2", "mul2"])
def test_f16_against_numpy(lab: Lab, name: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    others = np.random.default_rng(1).permutation(every)[:12]
    a, b = np.tile(every, len(others)), np.repeat(others, len(every))
    got = _apply(lab, f"f16::{name}(a.$, b.$)", a, b).view(np.float16)
    with np.errstate(all="ignore"):
        x, y = a.view(np.float16), b.view(np.float16)
        want = {"add2": x + y, "sub2": x - y, "mul2": x * y}[name]
    number = ~np.isnan(want)
    assert np.array_equal(got.view(np.uint16)[number], want.view(np.uint16)[number])
    assert (got.view(np.uint16)[~number] == 0x7FFF).all()  # the hardware's one NaN


@cache
def _finite(a_dtype: str) -> list[Fraction]:
    """The finite values that are not negative, in the order of their bits."""
    largest = {"f16": 0x7BFF, "bf16": 0x7F7F}[a_dtype]
    return [Fraction(v) for v in to_values(a_dtype, np.arange(largest + 1, dtype=np.uint16))]


def _nearest(a_dtype: str, exact: Fraction) -> float:
    """The nearest value of the type, ties to even, in exact arithmetic."""
    values, size = _finite(a_dtype), abs(exact)
    bits = bisect_right(values, size) - 1
    step = values[bits] - values[bits - 1] if bits == len(values) - 1 else values[bits + 1] - values[bits]
    rest = size - values[bits]
    bits += rest > step / 2 or (rest == step / 2 and bits % 2 == 1)
    value = float("inf") if bits == len(values) else float(values[bits])
    return -value if exact < 0 else value


@pytest.mark.parametrize("a_dtype", ["f16", "bf16"])
def test_fma_rounds_once(lab: Lab, a_dtype: str) -> None:
    a, b, c = _operands(6000, seed=2)
    got = to_values(a_dtype, _apply(lab, f"{a_dtype}::fma2(a.$, b.$, c.$)", a, b, c))
    operands = (to_values(a_dtype, x).tolist() for x in (a, b, c))
    finite = 0
    for x, y, z, result in zip(*operands, got.tolist(), strict=True):
        if not np.isfinite([x, y, z]).all():
            with np.errstate(invalid="ignore"):
                assert np.array_equal(np.float64(x) * y + z, result, equal_nan=True)
            continue
        assert _nearest(a_dtype, Fraction(x) * Fraction(y) + Fraction(z)) == result
        finite += 1
    assert finite > 4000


def test_fma_decides_ties_by_addends_far_below(lab: Lab) -> None:
    def fma(a_dtype: str, *operands: float) -> float:
        a, b, c = (to_bits(a_dtype, np.full(8, x)) for x in operands)
        return float(to_values(a_dtype, _apply(lab, f"{a_dtype}::fma2(a.$, b.$, c.$)", a, b, c))[0])

    assert fma("f16", 1.5, 683, 0) == 1024  # 1024.5, a tie, goes to even
    assert fma("f16", 1.5, 683, 2.0**-24) == 1025  # an fp32 sum would drop the addend
    assert fma("bf16", 7, 37, 0) == 260  # 259
    assert fma("bf16", 7, 37, -(2.0**-100)) == 258  # a float64 sum would drop it


@pytest.mark.parametrize("name", ["add2", "sub2", "mul2"])
def test_bf16_against_exact(lab: Lab, name: str) -> None:
    a, b, _ = _operands(4000, seed=3)
    got = to_values("bf16", _apply(lab, f"bf16::{name}(a.$, b.$)", a, b))
    x, y = to_values("bf16", a), to_values("bf16", b)
    for i in np.flatnonzero(np.isfinite(x) & np.isfinite(y)):
        left, right = Fraction(x[i]), Fraction(y[i])
        exact = {"add2": left + right, "sub2": left - right, "mul2": left * right}[name]
        assert _nearest("bf16", exact) == got[i]


@pytest.mark.parametrize("a_dtype", ["f16", "bf16"])
def test_conversions(lab: Lab, a_dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    same = _apply(lab, f"{a_dtype}::pack({a_dtype}::low(a.$), {a_dtype}::high(a.$))", every, every)
    number = ~np.isnan(to_values(a_dtype, every))
    assert np.array_equal(same[number], every[number])
    assert np.array_equal(to_bits(a_dtype, to_values(a_dtype, every))[number], every[number])


def test_lop3(lab: Lab) -> None:
    a, b, c = (np.random.default_rng(i).integers(0, 1 << 32, 32, dtype=np.uint32) for i in range(3))
    for table in (0xEA, 0x96, 0xE8, 0xC0, 0xF0, 0x6A, 0x01):
        got = _apply(lab, f"lop3<{table}>(a.$, b.$, c.$)", a, b, c)
        for bit in range(32):
            index = ((a >> bit & 1) << 2) | ((b >> bit & 1) << 1) | (c >> bit & 1)
            assert np.array_equal(got >> bit & 1, table >> index & 1)


def test_prmt(lab: Lab) -> None:
    a, b = (np.random.default_rng(i).integers(0, 1 << 32, 32, dtype=np.uint32) for i in range(2))
    together = np.stack([a, b], axis=1).view(np.uint8)  # eight bytes each
    for selector in (0x1010, 0x3232, 0x5250, 0x5351, 0x7604, 0x0123):
        want = np.stack([together[:, selector >> 4 * i & 7] for i in range(4)], axis=1).copy().view(np.uint32)[:, 0]
        assert np.array_equal(_apply(lab, f"prmt(a.$, b.$, {selector})", a, b), want)
