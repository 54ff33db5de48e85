"""Every built kernel by itself: exact, identity and random products, with canaries around A, C and the workspace."""

from __future__ import annotations

import pytest
import torch
from gpu_products import BOTH, CUDA, Canaries, exact, fits, identity, need, of_kernel, random

import marlin_gen as mg
from marlin_gen.config import KernelConfig
from marlin_gen.errors import DispatchError
from marlin_gen.runtime.reference import TOLERANCE, Maker, relative_error


def test_k2_every_kernel_is_exact(kernel):
    quant, group, dtype, terms = of_kernel(kernel)
    product, packed = exact(quant, group, dtype, 65, 4096, 512, True, terms)
    for m in (1, 8, 16, 17, 64, 65):
        result = mg.gemm(product.a[:m], packed, kernel=kernel)
        assert torch.equal(result, product.expected[:m]), f"M={m}"


def test_k4_every_kernel_between_canaries(kernel):
    quant, group, dtype, terms = of_kernel(kernel)
    for m, k, n in ((1, 2560, 2560), (1, 256, 64), (64, 256, 256), (5, 256, 464), (65, 256, 1)):
        if k % max(group, 1) or not fits(kernel, n):
            continue
        product, packed = exact(quant, group, dtype, m, k, n, m == 5, terms)
        assert torch.equal(Canaries(product.a, n).run(packed, kernel=kernel), product.expected), (m, k, n)


def test_k2_every_kernel_dequantises_right(kernel):
    quant, group, dtype, _ = of_kernel(kernel)
    product, packed = identity(quant, group, dtype, 512, 256)
    assert torch.equal(mg.gemm(product.a, packed, kernel=kernel), product.expected)


def test_k2_every_kernel_is_accurate(kernel):
    quant, group, dtype, _ = of_kernel(kernel)
    product, packed = random(quant, group, dtype, 33, 4096, 512, True)
    limit = TOLERANCE[dtype] * (4 if KernelConfig.from_name(kernel).reduction == "chain16" else 1)
    assert relative_error(mg.gemm(product.a, packed, kernel=kernel), product.expected) < limit


def test_k2_every_kernel_cancels_large_sums(kernel):
    """Partial sums reach 458752, far over fp16, and the result is exactly 0."""
    quant, group, dtype, terms = of_kernel(kernel)
    if terms is not None:
        pytest.skip(f"K2: {kernel} keeps partial sums in 16 bits")
    k, n = 8192, 256
    rows = 1 if group == -1 else k // group
    zeros = torch.full((rows, n), 8, device=CUDA) if quant == "u4" else None
    packed = mg.pack(
        torch.full((k, n), 15, device=CUDA), torch.ones(rows, n, device=CUDA, dtype=dtype), zeros, quant=quant, group_size=group
    )
    a = torch.full((16, k), 16.0, device=CUDA, dtype=dtype)
    a[:, k // 2 :] = -16
    assert not mg.gemm(a, packed, kernel=kernel).any()


def test_k2_every_kernel_keeps_bad_values_in_their_row(kernel):
    quant, group, dtype, terms = of_kernel(kernel)
    product, packed = exact(quant, group, dtype, 17, 512, 256, False, terms)
    for value, row in ((float("nan"), 3), (float("inf"), 0)):
        a = product.a.clone()
        a[row, 5] = value
        result = mg.gemm(a, packed, kernel=kernel)
        others = torch.arange(17, device=CUDA) != row
        assert torch.equal(result[others], product.expected[others])
        assert result[row].isnan().all() if value != value else not result[row].isfinite().all()


def test_k11_every_kernel_with_less_k_than_its_pipeline(kernel):
    quant, group, dtype, terms = of_kernel(kernel)
    for k in (64, 128, 192, 256):
        if k % max(group, 1) == 0 and (k != group):
            product, packed = exact(quant, group, dtype, 17, k, 256, False, terms)
            assert torch.equal(mg.gemm(product.a, packed, kernel=kernel), product.expected), k


def test_k14_a_forced_kernel_that_cannot_serve_is_refused(kernel):
    quant, group, dtype, _ = of_kernel(kernel)
    other = BOTH[dtype == BOTH[0]]
    product = Maker(quant, group, other, CUDA).exact(1, 512, 256)
    need("K14", quant, group, other)
    with pytest.raises(DispatchError, match=f"{kernel} cannot serve"):
        mg.gemm(product.a, product.packed(), kernel=kernel)
