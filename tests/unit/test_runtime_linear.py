"""MarlinLinear: quantising, state dicts, dtypes, devices, copies."""

from __future__ import annotations

import copy
import io
import pickle
from dataclasses import replace

import pytest
import torch

import marlin_gen as mg
from marlin_gen import MarlinLinear
from marlin_gen.errors import LayoutError
from marlin_gen.runtime.quants import quant_type
from marlin_gen.runtime.reference import Maker

K, N = 256, 200


@pytest.fixture
def linear():
    torch.manual_seed(1)
    return torch.nn.Linear(K, N).half()


@pytest.fixture
def layer(linear):
    return MarlinLinear.from_linear(linear, "u4", 64)


X = torch.randn(5, K, generator=torch.Generator().manual_seed(2)).half()


@pytest.mark.parametrize(("quant", "limit"), [("u4b8", 0.075), ("u4", 0.07)])
@pytest.mark.parametrize("group", [32, 128, -1, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_from_linear_is_close(linear, quant, limit, group, dtype):
    linear = linear.to(dtype)
    layer = MarlinLinear.from_linear(linear, quant, group)
    x = X.to(layer.scales.dtype)
    y, reference = layer(x).float(), linear(x.to(dtype)).float()
    assert (y - reference).abs().mean() < limit * reference.abs().mean()
    assert (layer.in_features, layer.out_features) == (K, N)


@pytest.mark.parametrize("quant", ["u4b8", "u4"])
def test_from_linear_keeps_weights_that_are_codes_already(quant):
    product = Maker(quant, 128).exact(1, 128, 64)
    weights = product.packed().dequantize()
    weights[0], weights[1] = (-8, 7) if quant == "u4b8" else (-7.5, 7.5)  # the full range, at scale 1
    linear = torch.nn.Linear(128, 64, bias=False).half()
    linear.weight.data = weights.round().clamp(-8, 7).T if quant == "u4b8" else weights.T.round().clamp(-8, 7)
    layer = MarlinLinear.from_linear(linear, quant, 128)
    error = (layer.packed.dequantize().T - linear.weight).abs().max()
    assert error <= 0.55  # half a step, and the symmetric range ends at 7.5 steps


def test_a_weight_of_zeros_stays_zero(linear):
    linear.weight.data.zero_()
    for quant in ("u4b8", "u4"):
        assert torch.equal(MarlinLinear.from_linear(linear, quant, 64)(X), linear.bias.expand(5, N))


def test_group_that_does_not_divide(linear):
    with pytest.raises(LayoutError, match="K=256 .* 96"):
        MarlinLinear.from_linear(linear, "u4b8", 96)


def test_state_dict_travels(layer):
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(layer).state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    for device in (None, "meta"):
        fresh = torch.nn.Sequential(MarlinLinear(K, N, quant="u4", group_size=64, device=device))
        fresh.load_state_dict(state, assign=device == "meta")
        assert torch.equal(fresh(X), layer(X))


@pytest.mark.parametrize(
    ("other", "pattern"),
    [
        ({"quant": "u4b8"}, "u4b8"),
        ({"quant": "u4", "group_size": 128}, "128"),
        ({"in_features": 320, "quant": "u4"}, "320"),
    ],
)
def test_state_of_another_layer_is_refused(layer, other, pattern):
    fresh = MarlinLinear(**{"in_features": K, "out_features": N, "group_size": 64, **other})
    before = fresh.qweight.clone()
    with pytest.raises(LayoutError, match=pattern):
        fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh.qweight, before)


def test_state_of_another_version_is_refused(layer):
    state = layer.state_dict()
    text = bytes(state["_extra_state"].tolist()).replace(b'"version": 1', b'"version": 9')
    state["_extra_state"] = torch.tensor(list(text), dtype=torch.uint8)
    with pytest.raises(LayoutError, match="version 9"):
        layer.load_state_dict(state)


def test_copies(layer):
    y = layer(X)
    for other in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        MarlinLinear.from_packed(layer.packed),
        layer.to("cpu"),
    ):
        assert torch.equal(other(X), y)
    clone = copy.deepcopy(layer)
    clone.scales.zero_()
    assert torch.equal(layer(X), y)


def test_dtypes(layer):
    y = layer(X).float()
    other = torch.nn.Sequential(layer).to(torch.bfloat16)(X.bfloat16())
    assert other.dtype == torch.bfloat16 and (other.float() - y).abs().mean() < 0.02 * y.abs().mean()
    for convert in (layer.float, layer.double, lambda: layer.to(torch.float32)):
        with pytest.raises(LayoutError, match="cannot become"):
            convert()
    assert layer.scales.dtype == torch.bfloat16


def test_values_that_do_not_fit_a_dtype_are_refused():
    """Nothing becomes infinite in silence: neither by half() nor by loading the state of a bf16 layer."""
    codes = torch.randint(0, 16, (128, 64), dtype=torch.uint8)
    for parts in (
        {"scales": torch.full((1, 64), 2.0**60).bfloat16()},
        {"scales": torch.ones(1, 64).bfloat16(), "bias": torch.full((64,), 1e6)},
    ):
        large = MarlinLinear.from_packed(mg.pack(codes, **parts))
        with pytest.raises(LayoutError, match="do not fit torch.float16"):
            large.half()
        assert large.scales.dtype == torch.bfloat16
        other = MarlinLinear(128, 64, bias=large.bias is not None)
        with pytest.raises(LayoutError, match="do not fit torch.float16"):
            other.load_state_dict(large.state_dict())
        other.load_state_dict(large.state_dict(), assign=True)
        assert other.scales.dtype == torch.bfloat16


def test_a_dtype_that_the_quant_type_does_not_serve():
    only_f16 = replace(quant_type("u4"), name="u4f16", a_dtypes=("f16",))
    other = MarlinLinear.from_linear(torch.nn.Linear(K, N).half(), only_f16, 64)
    with pytest.raises(LayoutError, match="does not serve torch.bfloat16"):
        other.bfloat16()
    assert other.scales.dtype == torch.float16


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("quant", ["u4b8", "u4"])
def test_weights_that_are_no_numbers_are_refused(linear, quant, value):
    linear.weight.data[3, 5] = value
    with pytest.raises(LayoutError, match="NaN or infinity"):
        MarlinLinear.from_linear(linear, quant, 64)


def test_a_group_of_all_of_k_need_not_be_a_multiple_of_16():
    """"-1 (or K) for all", whatever K is."""
    made = MarlinLinear.from_linear(torch.nn.Linear(100, 30), group_size=100)
    assert made.group_size == -1 and made(X[:, :100]).shape == (5, 30)
    assert MarlinLinear(100, 30, group_size=100).group_size == -1


def test_compiled(layer):
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for m in (1, 16, 17):
        x = torch.randn(m, K).half()
        assert torch.equal(compiled(x), layer(x))


def test_repr_and_packed(layer):
    assert "in_features=256, out_features=200, bias=True, quant=u4, group_size=64" in repr(layer)
    assert torch.equal(mg.gemm(X, layer.packed), layer(X))
    layer.qweight.zero_()
    assert not layer.packed.qweight.any()


def test_wrong_layers():
    for options, pattern in (
        ({"group_size": 96}, "96"),
        ({"group_size": 64.0}, "64.0 is not an int"),
        ({"group_size": None}, "None is not an int"),
        ({"dtype": torch.float32}, "activation type"),
    ):
        with pytest.raises(LayoutError, match=pattern):
            MarlinLinear(K, N, **options)
