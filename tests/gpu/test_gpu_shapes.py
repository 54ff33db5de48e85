"""Shapes, sizes and numbers through dispatch: K1, K2, K5, K6, K11."""

from __future__ import annotations

import pytest
import torch
from gpu_products import BOTH, CUDA, Canaries, exact, identity, need, random

import marlin_gen as mg
from marlin_gen.errors import LayoutError
from marlin_gen.runtime.reference import TOLERANCE, Maker, relative_error


@pytest.mark.parametrize("n", [64, 192, 448])
@pytest.mark.parametrize("dtype", BOTH)
def test_k1_one_tile_with_zero_points(n, dtype):
    need("K1", "u4", 64, dtype)
    product, packed = identity("u4", 64, dtype, 128, n)
    assert torch.equal(Canaries(product.a, n).run(packed), product.expected)


@pytest.mark.parametrize("m", [1, 16, 17, 64])
def test_k1_k_2880_in_groups_of_32(m):
    need("K1", "u4b8", 32, torch.bfloat16)
    product, packed = random("u4b8", 32, torch.bfloat16, 64, 2880, 2880)
    assert relative_error(mg.gemm(product.a[:m], packed), product.expected[:m]) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("m", [1, 33])
def test_k1_k_8256_in_groups_of_64(m):
    need("K1", "u4b8", 64, torch.float16)
    product, packed = exact("u4b8", 64, torch.float16, 33, 8256, 1024)
    assert torch.equal(mg.gemm(product.a[:m], packed), product.expected[:m])


@pytest.mark.parametrize(
    ("m", "n", "k", "group"), [(5, 32, 256, 128), (5, 464, 256, 128), (5, 1, 256, 128), (5, 256, 232, -1), (65, 464, 256, 128)]
)
def test_k1_ragged_sizes(m, n, k, group):
    need("K1", "u4b8", group, torch.float16)
    product, packed = exact("u4b8", group, torch.float16, m, k, n)
    assert torch.equal(Canaries(product.a, n).run(packed), product.expected)
    assert torch.equal(mg.gemm(product.a, packed), product.expected)


@pytest.mark.parametrize(("k", "n", "group"), [(7392, 8192, 128), (4304, 1152, 32)])
def test_k1_groups_that_do_not_divide_k(k, n, group):
    with pytest.raises(LayoutError, match=f"K={k} .* {group}"):
        mg.pack(
            torch.zeros(k, n, dtype=torch.uint8, device=CUDA), torch.ones(-(-k // group), n, device=CUDA).half(), group_size=group
        )


@pytest.mark.parametrize("power", [-14, -20, -24])
def test_k2_small_scales_are_rounded_not_flushed(power):
    codes = torch.full((256, 64), 9, dtype=torch.uint8, device=CUDA)
    packed = mg.pack(codes, torch.full((2, 64), 2.0**power, device=CUDA).half())
    result = mg.gemm(torch.eye(256, device=CUDA).half(), packed)
    assert (result.double() == 2.0**power).all()


@pytest.mark.parametrize("power", [-100, 60])
def test_k2_bf16_keeps_its_range(power):
    codes = torch.full((256, 64), 9, dtype=torch.uint8, device=CUDA)
    packed = mg.pack(codes, torch.full((2, 64), 2.0**power, device=CUDA).bfloat16())
    assert (mg.gemm(torch.eye(256, device=CUDA).bfloat16(), packed).double() == 2.0**power).all()


@pytest.mark.parametrize(("k", "group"), [(21504, 128), (8192, 32), (16384, 64)])
@pytest.mark.parametrize("dtype", BOTH)
def test_k2_many_groups(k, group, dtype):
    need("K2", "u4b8", group, dtype)
    groups, n = k // group, 256
    maker = Maker("u4b8", group, dtype, CUDA)
    codes = maker.codes(k, n)
    scales = (1 + torch.arange(groups, device=CUDA) / 256).to(dtype)[:, None].expand(groups, n)
    packed = mg.pack(codes, scales, group_size=group)
    weights = ((codes.float() - 8) * scales.float().repeat_interleave(group, 0)).to(dtype).double()
    a = torch.randn(3, k, device=CUDA).to(dtype)
    assert relative_error(mg.gemm(a, packed), a.double() @ weights) < TOLERANCE[dtype]
    rows = torch.zeros(groups, k, device=CUDA, dtype=dtype)  # row g sees group g alone
    for g in range(groups):
        rows[g, g * group : (g + 1) * group] = 1
    assert torch.equal(mg.gemm(rows, packed), (rows.double() @ weights).to(dtype))


def test_k2_overflow_is_inf_in_fp16_and_finite_in_bf16():
    codes = torch.full((8192, 64), 15, dtype=torch.uint8, device=CUDA)
    for dtype, finite in zip(BOTH, (False, True), strict=True):
        packed = mg.pack(codes, torch.ones(64, 64, device=CUDA).to(dtype))
        result = mg.gemm(torch.full((3, 8192), 16.0, device=CUDA, dtype=dtype), packed)
        assert result.isfinite().all() == finite and not result.isnan().any() and (result > 0).all()


def test_k2_one_group_scales_in_fp32():
    """The unscaled sum, 86050 * 10, is over fp16; the result is not."""
    need("K2", "u4", -1, torch.float16)
    ones = torch.ones(1, 64, device=CUDA)
    packed = mg.pack(torch.full((4096, 64), 15, device=CUDA), ones.half() * 0.01, ones.int() * 8, quant="u4", group_size=-1)
    result = mg.gemm(torch.full((1, 4096), 3.0, device=CUDA).half(), packed)
    assert (result == torch.tensor(4096 * 3 * 7 * float(torch.tensor(0.01).half())).half().to(CUDA)).all()


M_EDGES = (15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257, 511, 512, 513, 575, 577, 1024, 1025, 4097)


@pytest.mark.parametrize(
    ("quant", "group", "dtype"), [("u4b8", 128, BOTH[0]), ("u4b8", 128, BOTH[1]), ("u4", 128, BOTH[0]), ("u4b8", -1, BOTH[0])]
)
def test_k5_row_counts_at_every_edge(quant, group, dtype):
    need("K5", quant, group, dtype)
    product, packed = exact(quant, group, dtype, 4097, 256, 512)
    for m in M_EDGES:
        assert torch.equal(Canaries(product.a[:m], 512).run(packed), product.expected[:m]), m


def test_k5_activations_beyond_2_31_elements():
    m, k, n = 262145, 8192, 256
    product, packed = exact("u4b8", 128, torch.float16, 65, k, n)
    a = torch.zeros(m, k, dtype=torch.float16, device=CUDA)
    a[-65:], a[:65] = product.a, product.a
    result = mg.gemm(a, packed)
    assert torch.equal(result[-65:], product.expected) and torch.equal(result[:65], product.expected)
    assert not result[65:-65].any()


def test_k5_a_million_rows():
    product, packed = exact("u4b8", 128, torch.float16, 1048577, 256, 64)
    assert torch.equal(mg.gemm(product.a, packed), product.expected)
    need("K5", "u4b8", -1, torch.float16)
    product, packed = exact("u4b8", 128, torch.float16, 1048577, 128, 64)
    assert torch.equal(mg.gemm(product.a, packed), product.expected)


def test_k6_one_group_however_written():
    need("K6", "u4b8", -1, torch.float16)
    product, _ = random("u4b8", -1, torch.float16, 17, 128, 256)
    one, other = (mg.pack(product.codes, product.scales, group_size=g) for g in (-1, 128))
    assert torch.equal(mg.gemm(product.a, one), mg.gemm(product.a, other))


@pytest.mark.parametrize("quant", ["u4b8", "u4"])
@pytest.mark.parametrize(("k", "n"), [(128, 1), (256, 200), (4096, 4096)])
def test_k6_packing_on_the_gpu_and_on_the_cpu_agree(quant, k, n):
    need("K6", quant, 64, torch.float16)
    maker = Maker(quant, 64)
    codes, zeros, scales = maker.codes(k, n), maker.zeros(k, n), torch.rand(k // 64, n).half()
    there = mg.pack(codes.to(CUDA), scales.to(CUDA), None if zeros is None else zeros.to(CUDA), quant=quant, group_size=64)
    here = mg.pack(codes, scales, zeros, quant=quant, group_size=64)
    assert torch.equal(there.qweight.cpu(), here.qweight) and torch.equal(there.scales.cpu(), here.scales)
    assert torch.equal(mg.unpack(there).codes.cpu(), codes)


def test_k11_no_rows():
    _, packed = exact("u4b8", 128, torch.float16, 1, 2048, 1408)
    for shape in ((0, 2048), (0, 3, 2048), (3, 0, 2048)):
        result = mg.gemm(torch.empty(shape, device=CUDA).half(), packed)
        assert result.shape == (*shape[:-1], 1408) and result.device == packed.device


def test_k3_rows_of_different_batches(record_property):
    """Batch invariance is not offered; the difference is recorded and small."""
    product, packed = random("u4b8", 128, torch.float16, 257, 4096, 512)
    first = [mg.gemm(product.a[:m], packed)[0].float() for m in (1, 4, 16, 17, 64, 257)]
    difference = max((row - first[0]).abs().max().item() for row in first)
    record_property("largest difference of row 0", difference)
    assert difference <= 2e-3 * first[0].abs().max().item()
