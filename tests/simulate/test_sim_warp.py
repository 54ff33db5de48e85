"""ldmatrix and mma: which lane gets what, against the maps of marlin_gen.layout and a numpy product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from marlin_gen.layout import fragments
from marlin_gen.simulate import Buffer
from marlin_gen.simulate.formats import to_bits, to_values

if TYPE_CHECKING:
    from conftest import Lab

_FILL = """
const uint32_t s = shared_base();
const int t = thread_index();
cp_async16<0>(s + 16 * t, at(p.a, 16 * t), true);
cp_async_commit();
cp_async_wait<0>();
cta_sync();
"""


def test_ldmatrix_x4_is_the_a_operand(lab: Lab) -> None:
    a = np.arange(256, dtype=np.uint16).reshape(16, 16)
    c = np.zeros((32, 4, 2), np.uint16)
    body = _FILL + "stg128(at(p.c, 16 * t), ldmatrix_x4<0>(s + t % 16 * 32 + t / 16 * 16));"
    assert lab.run(body, a, c).faults == ()
    for lane in range(32):
        for register in range(4):
            for half in range(2):
                assert c[lane, register, half] == a[fragments.a_element(lane, register, half)]


def test_ldmatrix_x2_ignores_the_upper_lanes_addresses(lab: Lab) -> None:
    b = np.arange(256, dtype=np.uint16).reshape(16, 16)  # rows 0..7 are columns of B, k along the row
    c = np.zeros((32, 4, 2), np.uint16)
    body = (
        _FILL
        + """
    const FragB b = ldmatrix_x2<-32>(t < 16 ? s + 32 + t % 8 * 32 + t / 8 * 16 : 12345u);
    stg128(at(p.c, 16 * t), U4{b.lo, b.hi, 0, 0});"""
    )
    assert lab.run(body, b, c).faults == ()
    for lane in range(32):
        for register in range(2):
            for half in range(2):
                k, n = fragments.b_element(lane, register, half)
                assert c[lane, register, half] == b[n, k]


@pytest.mark.parametrize("a_dtype", ["f16", "bf16"])
def test_mma_is_a_product(lab: Lab, a_dtype: str) -> None:
    rng = np.random.default_rng(0)
    left, right, start = rng.integers(-8, 9, (16, 16)), rng.integers(-8, 9, (16, 8)), rng.integers(-99, 99, (16, 8))
    a, b, c = np.zeros((32, 4, 2), np.uint16), np.zeros((32, 4, 2), np.uint16), np.zeros((32, 4), np.float32)
    for lane in range(32):
        for half in range(2):
            for r in range(4):
                a[lane, r, half] = to_bits(a_dtype, left[fragments.a_element(lane, r, half)])
            for r in range(2):
                b[lane, r, half] = to_bits(a_dtype, right[fragments.b_element(lane, r, half)])
        c[lane] = [start[fragments.c_element(lane, i)] for i in range(4)]
    body = f"""
    const int t = thread_index();
    const U4 b = ldg128(at(p.b, 16 * t));
    F4 c = ldg_partial(p.partial + 4 * t);
    mma_{a_dtype}(c, ldg128(at(p.a, 16 * t)), FragB{{b.x, b.y}});
    stg_partial(p.partial + 4 * t, c);"""
    result = lab.run(body, a, np.zeros(2, np.uint16), Buffer("b", b), Buffer("partial", c, "rw"))
    assert (result.faults, result.stats["mma"]) == ((), 1)
    product = left @ right + start
    for lane in range(32):
        assert c[lane].tolist() == [product[fragments.c_element(lane, i)] for i in range(4)]


def test_formats_round_trip() -> None:
    for a_dtype in ("f16", "bf16"):
        assert to_values(a_dtype, to_bits(a_dtype, np.array([1.5, -0.0, 1e9]))).tolist()[:2] == [1.5, -0.0]
    assert to_bits("bf16", np.array([np.inf, -np.inf, 3.4e38, 1e-45])).tolist() == [0x7F80, 0xFF80, 0x7F80, 0]
