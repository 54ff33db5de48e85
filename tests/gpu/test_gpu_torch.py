"""Tensors, devices and torch's machinery on the GPU: K10, K12, K13, K15, and the host's share of a call."""

from __future__ import annotations

import copy
import pickle
import time

import pytest
import torch
from gpu_products import CUDA, SENTINEL, exact

import marlin_gen as mg
from marlin_gen import MarlinLinear
from marlin_gen.errors import DispatchError, LayoutError
from marlin_gen.runtime.reference import Maker

K, N = 512, 256


@pytest.fixture
def layer():
    return exact("u4b8", 128, torch.float16, 6, K, N, True)


def views(a):
    wide = torch.full((6, K + 8), float("nan"), device=CUDA, dtype=a.dtype)
    odd = torch.full((6, K + 1), float("nan"), device=CUDA, dtype=a.dtype)
    shifted = torch.full((6 * K + 1,), float("nan"), device=CUDA, dtype=a.dtype)
    for buffer in (wide, odd):
        buffer[:, :K] = a
    shifted[1:] = a.flatten()
    return {
        "row stride K+8": wide[:, :K],
        "row stride K+1": odd[:, :K],
        "misaligned": shifted[1:].view(6, K),
        "transposed": a.T.contiguous().T,
        "every other row": a.repeat_interleave(2, 0)[::2],
        "three dimensions": a.view(2, 3, K),
    }


def test_k10_strides(layer):
    product, packed = layer
    for name, a in views(product.a).items():
        assert torch.equal(mg.gemm(a, packed).view(6, N), product.expected), name
    assert torch.equal(mg.gemm(product.a[2], packed), product.expected[2])
    assert torch.equal(mg.gemm(product.a[:1].expand(70, K), packed), product.expected[:1].expand(70, N))


def test_k10_out(layer):
    product, packed = layer
    base = torch.full((6, 2 * N + 8), SENTINEL, device=CUDA).half()
    shapes = {
        "aligned slice": base[:, 8 : N + 8],
        "misaligned slice": base[:, 3 : N + 3],
        "odd row stride": torch.empty(6, N + 1, device=CUDA).half()[:, :N],
        "strided columns": base[:, : 2 * N : 2],
        "transposed": torch.empty(N, 6, device=CUDA).half().T,
    }
    for name, out in shapes.items():
        assert mg.gemm(product.a, packed, out=out) is out
        assert torch.equal(out, product.expected), name
    together = torch.empty(6, K + N, device=CUDA).half()
    together[:, :K] = product.a
    mg.gemm(together[:, :K], packed, out=together[:, K:])
    assert torch.equal(together[:, K:], product.expected)
    square = Maker(device=CUDA).exact(70, 256, 256)
    a = square.a.clone()
    assert torch.equal(mg.gemm(a, square.packed(), out=a), square.expected)


def test_k10_refused(layer):
    product, packed = layer
    for bad, options in (
        (product.a.bfloat16(), {}), (product.a.float(), {}), (product.a.to(torch.float8_e4m3fn), {}), (product.a.int(), {}),
        (product.a[:, 8:], {}), (product.a, {"out": torch.empty(6, N + 1, device=CUDA).half()}),
        (product.a, {"out": torch.empty(6, N).half()}), (product.a, {"reduction": "chain32"}), (product.a, {"kernel": "marlin"}),
    ):  # fmt: skip
        with pytest.raises(DispatchError):
            mg.gemm(bad, packed, **options)
        assert torch.equal(mg.gemm(product.a, packed), product.expected)


def test_k12_operands_on_different_devices(layer):
    product, packed = layer
    with pytest.raises(DispatchError, match="cpu.*cuda:0"):
        mg.gemm(product.a.cpu(), packed)
    with pytest.raises(LayoutError, match="cpu.*cuda:0"):
        torch.ops.marlin_gen.gemm(product.a, packed.qweight, packed.scales.cpu(), None, None, K, N, 128, "u4b8", "fp32", None)
    with pytest.raises(LayoutError, match="cpu.*cuda:0"):
        mg.pack(product.codes, product.scales.cpu())


def test_k12_a_second_device_while_the_first_is_current(layer):
    if torch.cuda.device_count() < 2:
        pytest.skip("K12: needs two GPUs")
    product, packed = layer
    there = packed.to("cuda:1")
    assert torch.equal(mg.gemm(product.a.to("cuda:1"), there).to(CUDA), product.expected)
    assert torch.cuda.current_device() == 0
    with pytest.raises(DispatchError, match="cuda:0.*cuda:1"):
        mg.gemm(product.a, there)


def test_k13_opcheck(layer):
    product, p = layer
    torch.library.opcheck(
        torch.ops.marlin_gen.gemm,
        (product.a, p.qweight, p.scales, p.zeros, p.bias, p.k, p.n, p.group_size, p.quant, "fp32", None),
    )


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_k13_compiled_in_one_graph(layer, mode, monkeypatch):
    monkeypatch.undo()  # the guards around partial tiles would stay alive in a graph's memory pool
    _, packed = layer
    compiled = torch.compile(lambda a: torch.relu(mg.gemm(a, packed)) + 1, fullgraph=True, mode=mode, dynamic=False)
    for m in (1, 16, 17, 0):
        a = Maker(device=CUDA, seed=m).exact(max(m, 1), K, N).a[:m]
        for _ in range(3):
            assert torch.equal(compiled(a).clone(), torch.relu(mg.gemm(a, packed)) + 1)


def test_k13_weights_changed_in_place_after_capture(layer):
    product, _ = layer
    packed = product.packed()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = mg.gemm(product.a, packed)
    packed.qweight.copy_(Maker(device=CUDA, seed=5).exact(1, K, N).packed().qweight)
    graph.replay()
    assert torch.equal(c, mg.gemm(product.a, packed)) and not torch.equal(c, product.expected)


def test_k13_layers(layer):
    product, packed = layer
    linear = MarlinLinear.from_packed(packed)
    for other in (copy.deepcopy(linear), pickle.loads(pickle.dumps(linear)), copy.deepcopy(linear).cpu().cuda()):
        assert torch.equal(other(product.a), product.expected)
    fresh = MarlinLinear(K, N, device=CUDA)
    fresh.load_state_dict(linear.state_dict())
    assert torch.equal(fresh(product.a), product.expected)
    assert torch.equal(copy.deepcopy(linear).bfloat16()(product.a.bfloat16()), product.expected.bfloat16())
    with pytest.raises(LayoutError, match="cannot become"):
        linear.float()
    compiled = torch.compile(linear, fullgraph=True)
    assert torch.equal(compiled(product.a), product.expected)


def test_k13_gradients(layer):
    product, packed = layer
    a = product.a.clone().requires_grad_()
    mg.gemm(a, packed).sum().backward()
    assert torch.allclose(a.grad.float(), packed.dequantize().float().sum(1).expand(6, K), rtol=1e-2, atol=1e-1)


def test_k14_a_layer_that_nothing_serves_is_refused_when_made():
    codes = torch.zeros(96 * 16, 64, dtype=torch.uint8)
    packed = mg.pack(codes, torch.ones(16, 64).half(), group_size=96)
    for make in (lambda: packed.to(CUDA), lambda: MarlinLinear.from_packed(packed).cuda()):
        with pytest.raises(DispatchError, match="no built kernel serves"):
            make()


def test_k15_memory_of_packing():
    k, n = 32768, 8192
    codes = torch.randint(0, 16, (k, n), device=CUDA, dtype=torch.uint8)
    scales = torch.ones(k // 128, n, device=CUDA).half()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    packed = mg.pack(codes, scales)
    size = sum(t.numel() * t.element_size() for t in (packed.qweight, packed.scales))
    assert torch.cuda.max_memory_allocated() - before <= 1.2 * size + 16 * n


def test_k15_layer_after_layer_does_not_grow(monkeypatch):
    monkeypatch.undo()  # the guards around partial tiles stay alive until the test ends
    a = torch.ones(1, 4096, device=CUDA).half()
    used = []
    for _ in range(32):
        product, packed = exact.__wrapped__("u4b8", 128, torch.float16, 1, 4096, 1024)
        mg.gemm(a, packed)
        del product, packed
        used.append(torch.cuda.memory_allocated())
    assert used[-1] == used[1]


def test_the_host_spends_little_on_a_call(layer, monkeypatch, record_property):
    """The goal is 8 us with the output's allocation; the limit leaves room for slow machines."""
    monkeypatch.undo()  # the guards around partial tiles cost time
    product, packed = layer
    a = product.a[:1]
    for _ in range(100):
        mg.gemm(a, packed)
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            mg.gemm(a, packed)
        best = min(best, (time.perf_counter() - start) / 50)
        torch.cuda.synchronize()
    record_property("us per call", best * 1e6)
    assert best < 25e-6


def test_k14_the_explained_kernel_is_the_one_used(layer):
    product, packed = layer
    answer = mg.explain(6, N, K)
    assert answer.device.capability == torch.cuda.get_device_capability()
    assert torch.equal(mg.gemm(product.a, packed, kernel=answer.chosen), product.expected)
