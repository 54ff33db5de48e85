"""Packing: exact round trips, the documented placement, memory, and every refusal with its reason."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle

import pytest
import torch

import marlin_gen as mg
from marlin_gen.errors import LayoutError
from marlin_gen.runtime.meta import encode_meta
from marlin_gen.runtime.quants import quant_type
from marlin_gen.runtime.reference import Maker, expected

QUANTS = ["u4b8", "u4"]


def layer(k=256, n=192, quant="u4b8", group=64, dtype=torch.float16, bias=True, seed=0):
    maker = Maker(quant, group, dtype, seed=seed)
    scales = torch.rand((1 if group == -1 else k // group, n)).add(0.5).to(dtype)
    added = torch.randn(n).to(dtype) if bias else None
    return maker.codes(k, n), scales, maker.zeros(k, n), added


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("k", "n", "group"),
    [
        (16, 1, 16),
        (16, 16, -1),
        (128, 64, 128),
        (256, 192, 64),
        (232, 70, -1),
        (1, 1, -1),
        (96, 464, 32),
        (2880, 72, 32),
        (512, 65, 256),
    ],
)
def test_unpack_is_the_inverse(quant, dtype, k, n, group):
    codes, scales, zeros, bias = layer(k, n, quant, group, dtype)
    packed = mg.pack(codes, scales, zeros, quant=quant, group_size=group, bias=bias)
    back = mg.unpack(packed)
    assert torch.equal(back.codes, codes) and torch.equal(back.scales, scales) and torch.equal(back.bias, bias)
    assert (zeros is None and back.zeros is None) or torch.equal(back.zeros, zeros)
    assert (packed.k, packed.n, packed.a_dtype) == (k, n, dtype)


@pytest.mark.parametrize("codes", ["constant", "ramp"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_code_dtypes(codes, dtype):
    k, n = 64, 128
    q = torch.full((k, n), 15) if codes == "constant" else torch.arange(k * n).reshape(k, n) % 16
    packed = mg.pack(q.to(dtype), torch.ones(1, n, dtype=torch.float16), group_size=-1)
    assert torch.equal(mg.unpack(packed).codes, q.to(torch.uint8))


def test_words_follow_the_direct_formula():
    codes, scales, _, _ = layer(32, 128, group=32)
    words = mg.pack(codes, scales, group_size=32).qweight.reshape(-1, 128 * 2)  # [K/16, 2N]: the Marlin format
    for k in range(32):
        for n in range(128):
            lane, nibble = (n % 8) * 4 + (k % 8) // 2, 4 * (k % 2) + 2 * ((n % 16) // 8) + (k % 16) // 8
            word = int(words[k // 16, n // 64 * 128 + lane * 4 + n % 64 // 16])
            assert word >> 4 * nibble & 15 == int(codes[k, n])


def test_strided_codes_pack_alike():
    codes, scales, _, _ = layer()
    wide = torch.empty(256, 400, dtype=torch.uint8)
    wide[:, 1:385:2] = codes
    for strided in (codes.T.contiguous().T, wide[:, 1:385:2]):
        assert not strided.is_contiguous()
        assert torch.equal(mg.pack(strided, scales, group_size=64).qweight, mg.pack(codes, scales, group_size=64).qweight)


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dequantize_rounds_once(quant, dtype):
    codes, scales, zeros, _ = layer(quant=quant, dtype=dtype)
    packed = mg.pack(codes, scales, zeros, quant=quant, group_size=64)
    assert torch.equal(packed.dequantize(), expected(torch.eye(256, dtype=dtype), codes, scales, zeros, None, quant).to(dtype))


@pytest.mark.parametrize("scale", [2.0**-14, 2.0**-20, 2.0**-24])
def test_small_scales_are_kept(scale):
    """K2: a product with a subnormal scale is rounded, not flushed."""
    codes = torch.full((16, 64), 9, dtype=torch.uint8)
    packed = mg.pack(codes, torch.full((1, 64), scale, dtype=torch.float16), group_size=-1)
    assert (packed.dequantize().double() == scale).all()


def test_one_group_is_the_same_however_written():
    """K6: g=-1 equals g=K."""
    codes, _, _, bias = layer(128, 64, group=-1)
    scales = torch.rand(1, 64).half()
    one, other = (mg.pack(codes, scales, group_size=g, bias=bias) for g in (-1, 128))
    assert one.group_size == other.group_size == -1
    assert torch.equal(one.scales, other.scales) and torch.equal(one.qweight, other.qweight)


def test_scales_are_rounded_to_another_dtype_only_when_asked():
    codes, scales, _, _ = layer()
    assert mg.pack(codes, scales.float(), group_size=64, a_dtype=torch.bfloat16).scales.dtype == torch.bfloat16
    assert mg.pack(codes, scales, group_size=64, a_dtype="bf16").a_dtype == torch.bfloat16
    with pytest.raises(LayoutError, match="float32"):
        mg.pack(codes, scales.float(), group_size=64)


CODES, SCALES, _, BIAS = layer()
PACKED = mg.pack(CODES, SCALES, group_size=64, bias=BIAS)
REFUSALS = {
    "K6 packed again": ((PACKED, SCALES), {}, "packed already"),
    "K6 packed words again": ((PACKED.qweight, SCALES), {}, r"int32 \[6144\]"),
    "K6 raw GPTQ words": ((torch.randint(-(2**31), 2**31, (256, 192)).int(), SCALES), {}, "codes reach from"),
    "K6 scales of g=64 declared 128": ((CODES, SCALES), {"group_size": 128}, "belong to group size 64"),
    "K6 scales transposed": ((CODES, SCALES.T), {}, "transposed"),
    "K1 group does not divide K": (
        (torch.zeros(7392, 64).byte(), torch.ones(57, 64).half()),
        {"group_size": 128},
        "K=7392 .* 128",
    ),
    "K1 group does not divide K, 32": (
        (torch.zeros(4304, 64).byte(), torch.ones(134, 64).half()),
        {"group_size": 32},
        "K=4304 .* 32",
    ),
    "group not a multiple of 16": ((CODES, SCALES), {"group_size": 8}, "multiple of 16"),
    "float codes": ((CODES.float(), SCALES), {}, "torch.float32"),
    "codes of a wrong rank": ((CODES[0], SCALES), {}, r"\[192\]"),
    "no weights": ((CODES[:, :0], SCALES[:, :0]), {}, "empty"),
    "negative codes": ((CODES.int() - 8, SCALES), {}, "from -8"),
    "scales fp8": ((CODES, SCALES.to(torch.float8_e4m3fn)), {}, "float8"),
    "scales NaN": ((CODES, SCALES * float("nan")), {}, "NaN"),
    "scales on another device": ((CODES, SCALES.to("meta")), {}, "on meta"),
    "bias of a wrong size": ((CODES, SCALES), {"bias": BIAS[:5]}, r"bias are \[5\]"),
    "zeros for a type without": ((CODES, SCALES, SCALES.int()), {}, "has no zero points"),
    "no zeros for a type with": ((CODES, SCALES), {"quant": "u4"}, "needs zero points"),
    "float zeros for integer ones": ((CODES, SCALES, SCALES), {"quant": "u4"}, "integer zero points"),
    "zeros out of range": ((CODES, SCALES, torch.full((4, 192), 17)), {"quant": "u4"}, "17"),
    "a_dtype float32": ((CODES, SCALES), {"a_dtype": torch.float32}, "activation type"),
    "scales overflow": ((CODES, SCALES.float() * 1e6), {"a_dtype": torch.float16}, "infinity"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(name):
    arguments, options, pattern = REFUSALS[name]
    with pytest.raises(LayoutError, match=pattern):
        mg.pack(*arguments, **{"group_size": 64, **options})


def test_zero_16_is_a_zero_point():
    """K6: GPTQ v1 stores 15 for z=16."""
    zeros = torch.full((4, 192), 16)
    packed = mg.pack(CODES, SCALES, zeros, quant="u4", group_size=64)
    assert torch.equal(mg.unpack(packed).zeros, zeros.int())


def test_copies_and_files():
    """K13: deepcopy, pickle, torch.save and state_dict keep the weights; a damaged or future one is refused."""
    for other in (
        copy.deepcopy(PACKED),
        pickle.loads(pickle.dumps(PACKED)),
        mg.PackedWeight.from_state_dict(PACKED.state_dict()),
    ):
        assert torch.equal(other.qweight, PACKED.qweight) and torch.equal(other.bias, PACKED.bias) and other.k == PACKED.k
    file = io.BytesIO()
    torch.save(PACKED.state_dict(), file)
    file.seek(0)
    assert mg.PackedWeight.from_state_dict(torch.load(file, weights_only=True)).n == 192
    state = PACKED.state_dict()
    future = bytes(state["meta"].tolist()).replace(b'"version": 1', b'"version": 2')
    good = bytes(state["meta"].tolist())
    texts = [good.replace(b'"k": 256', k) for k in (b'"k": "256"', b'"k": 256.0', b'"k": true', b'"k": null')]
    assert good not in texts
    for meta, pattern in ((future, "version 2"), *((text, "unreadable") for text in (b"{}", b"\xff", b"[1]", *texts))):
        with pytest.raises(LayoutError, match=pattern):
            mg.PackedWeight.from_state_dict({**state, "meta": torch.tensor(list(meta), dtype=torch.uint8)})
    with pytest.raises(LayoutError, match="unreadable"):
        mg.PackedWeight.from_state_dict({**state, "meta": None})
    with pytest.raises(LayoutError, match="has qweight, scales and meta"):
        mg.PackedWeight.from_state_dict({"weight": SCALES})
    assert encode_meta(PACKED).dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"qweight": PACKED.qweight.reshape(-1, 128)}, "qweight"),
        ({"qweight": PACKED.qweight[:-1]}, "qweight"),
        ({"scales": PACKED.scales.bfloat16()}, "bias"),
        ({"scales": PACKED.scales.float()}, "activation type"),
        ({"scales": PACKED.scales.T.contiguous().T}, "contiguous"),
        ({"zeros": PACKED.scales}, "no zero points"),
        ({"bias": PACKED.bias.to("meta")}, "on meta"),
    ],
)
def test_a_record_of_parts_that_do_not_belong_together(change, pattern):
    parts = {name: getattr(PACKED, name) for name in ("qweight", "scales", "zeros", "bias", "k", "n", "group_size", "quant")}
    with pytest.raises(LayoutError, match=pattern):
        mg.PackedWeight(**{**parts, **change})


def test_a_quant_type_from_elsewhere():
    """K14: a type that is no packaged name is used as a record."""
    kind = quant_type("u4b8")
    other = dataclasses.replace(kind, name="elsewhere")
    packed = mg.pack(CODES, SCALES, quant=other, group_size=64)
    assert packed.quant == "elsewhere" and torch.equal(packed.dequantize(), mg.pack(CODES, SCALES, group_size=64).dequantize())


def test_memory_on_the_cpu():
    """K15: no tensor of the codes' size in a wider type is ever made; torch's profiler sees every allocation."""
    codes, scales, _, _ = layer(4096, 1024, group=128)
    with torch.profiler.profile(profile_memory=True) as profile:
        packed = mg.pack(codes, scales)
    largest = max((event.cpu_memory_usage for event in profile.events()), default=0)
    assert largest <= 4 * packed.qweight.numel()
