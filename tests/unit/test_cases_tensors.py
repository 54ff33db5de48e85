"""K10 to K13 on CPU tensors: strides, shapes, refusals and torch's machinery behave as on a GPU."""

from __future__ import annotations

import importlib

import pytest
import torch

import marlin_gen as mg
from marlin_gen.errors import DispatchError, LayoutError
from marlin_gen.runtime.reference import TOLERANCE, Maker, expected, relative_error

K, N = 256, 192
PRODUCT = Maker("u4", 64).exact(6, K, N, bias=True)
PACKED = PRODUCT.packed()


def of_rows(a):
    return expected(a, PRODUCT.codes, PRODUCT.scales, PRODUCT.zeros, PRODUCT.bias, "u4").to(a.dtype)


@pytest.mark.parametrize("quant", ["u4b8", "u4"])
@pytest.mark.parametrize("group", [32, 64, 128, -1, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_reference_path_is_exact(quant, group, dtype):
    maker = Maker(quant, group, dtype)
    for product in (maker.exact(5, K, N, bias=True), maker.identity(K, N), maker.exact(3, 512, 65)):
        assert torch.equal(mg.gemm(product.a, product.packed()), product.expected)
    random = maker.random(9, K, N, bias=True)
    assert relative_error(mg.gemm(random.a, random.packed()), random.expected) < TOLERANCE[dtype]


def strided_views():
    a = PRODUCT.a
    wide = torch.full((6, K + 8), float("nan"), dtype=a.dtype)
    wide[:, :K] = a
    odd = torch.full((6, K + 1), float("nan"), dtype=a.dtype)
    odd[:, :K] = a
    return {
        "row stride K+8": wide[:, :K],
        "row stride K+1": odd[:, :K],
        "transposed": a.T.contiguous().T,
        "expanded row": a[:1].expand(6, K),
        "every other row": a.repeat_interleave(2, 0)[::2],
        "three dimensions": a.reshape(2, 3, K),
        "one dimension": a[0],
        "no rows in two dimensions": a[:0].reshape(0, 3, K),
    }


@pytest.mark.parametrize("name", strided_views())
def test_k10_strides_and_shapes(name):
    a = strided_views()[name]
    result = mg.gemm(a, PACKED)
    assert result.shape == (*a.shape[:-1], N)
    assert torch.equal(result, of_rows(a.reshape(-1, K)).reshape(result.shape))


def outputs():
    base = torch.zeros(6, 2 * N + 3).half()
    return {
        "contiguous": torch.zeros(6, N).half(),
        "slice of columns": base[:, 3 : N + 3],
        "column strides": base[:, : 2 * N : 2],
        "transposed": torch.zeros(N, 6).half().T,
    }


@pytest.mark.parametrize("name", outputs())
def test_k10_out(name):
    out = outputs()[name]
    assert mg.gemm(PRODUCT.a, PACKED, out=out) is out
    assert torch.equal(out, PRODUCT.expected)


def test_k10_out_that_overlaps_a():
    square = Maker().exact(4, 128, 128)
    a = square.a.clone()
    mg.gemm(a, square.packed(), out=a)
    assert torch.equal(a, square.expected)


@pytest.mark.parametrize(
    ("a", "options", "pattern"),
    [
        (PRODUCT.a.bfloat16(), {}, "bfloat16"),
        (PRODUCT.a.float(), {}, "float32"),
        (PRODUCT.a.to(torch.float8_e4m3fn), {}, "float8"),
        (PRODUCT.a.int(), {}, "int32"),
        (PRODUCT.a[:, :128], {}, "K=256"),
        (PRODUCT.a.T, {}, "K=256"),
        (torch.tensor(1.0).half(), {}, "K=256"),
        (PRODUCT.a, {"out": torch.zeros(6, N + 1).half()}, "out is"),
        (PRODUCT.a, {"out": torch.zeros(1, N).half()}, "out is"),
        (PRODUCT.a, {"out": torch.zeros(6, N)}, "out is"),
        (PRODUCT.a, {"out": torch.zeros(6, N, device="meta").half()}, "out is"),
        (PRODUCT.a, {"kernel": "marlin_f16_u4_m16n64k128_g64_s4_sm90"}, "kernels run on GPUs"),
        (PRODUCT.a, {"reduction": "fp16"}, "'fp16' is none of fp32, chain16, atomic"),
        (PRODUCT.a.clone().requires_grad_(), {"out": torch.zeros(6, N).half()}, "gradients"),
    ],
)
def test_k10_refused(a, options, pattern):
    with pytest.raises(DispatchError, match=pattern):
        mg.gemm(a, PACKED, **options)
    assert torch.equal(mg.gemm(PRODUCT.a, PACKED), PRODUCT.expected)


def test_k6_raw_words_given_to_the_product():
    words = torch.zeros(K // 8, N, dtype=torch.int32)
    with pytest.raises(DispatchError, match="PackedWeight"):
        mg.gemm(PRODUCT.a, words)
    with pytest.raises(LayoutError, match="qweight"):
        torch.ops.marlin_gen.gemm(PRODUCT.a, words, PACKED.scales, PACKED.zeros, None, K, N, 64, "u4", "fp32", None)


def test_k12_meta_and_cpu_do_not_mix():
    with pytest.raises(DispatchError, match="meta.*cpu"):
        mg.gemm(PRODUCT.a.to("meta"), PACKED)
    result = mg.gemm(PRODUCT.a.to("meta"), PACKED.to("meta"))
    assert result.is_meta and result.shape == (6, N)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("quant", ["u4b8", "u4"])
def test_k13_opcheck(requires_grad, quant):
    product = Maker(quant, 64).exact(3, 128, 64, bias=quant == "u4")
    p = product.packed()
    a = product.a.clone().requires_grad_(requires_grad)
    torch.library.opcheck(
        torch.ops.marlin_gen.gemm, (a, p.qweight, p.scales, p.zeros, p.bias, p.k, p.n, p.group_size, p.quant, "fp32", None)
    )


def test_k13_compiled_in_one_graph():
    compiled = torch.compile(lambda a: mg.gemm(a, PACKED) + 1, fullgraph=True, backend="aot_eager")
    for m in (1, 16, 17, 0):
        a = Maker(seed=m).exact(m, K, N).a if m else PRODUCT.a[:0]
        assert torch.equal(compiled(a), mg.gemm(a, PACKED) + 1)


def test_k13_compiled_with_out():
    def into(a, out):
        return mg.gemm(a, PACKED, out=out)

    out = torch.zeros(6, N).half()
    torch.compile(into, fullgraph=True, backend="aot_eager")(PRODUCT.a, out)
    assert torch.equal(out, PRODUCT.expected)


def test_k13_gradients_flow_to_the_activations():
    a = PRODUCT.a.clone().requires_grad_()
    mg.gemm(a, PACKED).sum().backward()
    assert torch.allclose(a.grad, torch.ones(6, N).half() @ PACKED.dequantize().T)
    with torch.no_grad():
        assert not mg.gemm(a, PACKED).requires_grad


def test_k13_importing_twice_and_reloading():
    from marlin_gen.runtime import ops

    again = importlib.reload(ops)
    assert torch.equal(again.gemm(PRODUCT.a, PACKED), PRODUCT.expected)
