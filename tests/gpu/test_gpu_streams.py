"""Order, streams, graphs and other processes: K3, K4."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from gpu_products import BOTH, CUDA, exact, random

import marlin_gen as mg
from marlin_gen.errors import DispatchError
from marlin_gen.runtime import workspace
from marlin_gen.runtime.reference import Maker
from marlin_gen.runtime.registry import loaded_kernels

REPEATED = [(16, 512, 3584), (16, 1024, 8192), (64, 512, 8192), (1, 512, 8192), (16, 256, 8192)]  # M, N, K


def digests() -> list[str]:
    """Hashes of the results of the products that are repeated."""
    found = []
    for dtype in BOTH:
        for m, n, k in REPEATED:
            product = Maker("u4b8", 128, dtype, CUDA).random(m, k, n)
            found.append(
                hashlib.sha256(mg.gemm(product.a, product.packed()).cpu().view(torch.int16).numpy().tobytes()).hexdigest()
            )
    return found


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(("m", "n", "k"), REPEATED)
def test_k3_two_hundred_repeats_are_bitwise_equal(m, n, k, dtype):
    product, packed = random("u4b8", 128, dtype, m, k, n)
    first = mg.gemm(product.a, packed)
    different = sum((mg.gemm(product.a, packed) != first).sum() for _ in range(200))
    assert int(different) == 0


def run_here(code: str, **options) -> subprocess.CompletedProcess[str]:
    """Run code in a new process that can import this file."""
    head = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport torch, marlin_gen as mg, test_gpu_streams as t\n"
    )
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=120, **options)


def test_k3_a_second_process_gives_the_same_bits():
    result = run_here("print('\\n'.join(t.digests()))")
    assert result.stdout.split() == digests(), result.stderr


@pytest.mark.parametrize("tool", ["racecheck", "memcheck"])
def test_k3_k4_sanitizer(tool):
    if not (sanitizer := shutil.which("compute-sanitizer")):
        pytest.skip(f"K3 {tool}: compute-sanitizer is not installed")
    code = "import torch, marlin_gen as mg\nfrom marlin_gen.runtime.reference import Maker\n"
    for m, k, n in ((16, 512, 256), (64, 1024, 512), (1, 2560, 2560), (1, 256, 64), (64, 256, 256)):
        code += f"p = Maker(device='cuda').exact({m}, {k}, {n}); assert torch.equal(mg.gemm(p.a, p.packed()), p.expected)\n"
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", "--kernel-regex", "kns=marlin", sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def reductions() -> list[str]:
    """Those for which fp16 kernels in groups of 128 are built."""
    built = [
        k.config for k in loaded_kernels() if (k.config.a_dtype, k.config.quant, k.config.group_size) == ("f16", "u4b8", 128)
    ]
    return sorted({config.reduction for config in built})


@pytest.mark.parametrize("reduction", ["fp32", "chain16", "atomic"])
def test_k4_two_streams_and_one_layer(reduction):
    if reduction not in reductions():
        pytest.skip(f"K4: no {reduction} kernel is built")
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256, False, 64)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    wrong = []
    for _ in range(300):
        for stream in streams:
            with torch.cuda.stream(stream):
                wrong.append((mg.gemm(product.a, packed, reduction=reduction) != product.expected).any())
    torch.cuda.synchronize()
    assert not any(wrong)
    assert len({workspace.counters(0, stream.cuda_stream, 0) for stream in streams}) == 2


def captured(a, packed, pool=None, **options):
    """A graph of one product and its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        c = mg.gemm(a, packed, **options)
    return graph, c


def test_k4_a_graph_replayed_with_new_activations():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    mg.gemm(product.a, packed)
    a = product.a.clone()
    graph, c = captured(a, packed)
    for i in range(100):
        shifted = product.a.roll(i, 0)
        a.copy_(shifted)
        torch.empty(2**28, device=CUDA)  # 1 GiB, freed at once
        if i == 50:
            torch.cuda.empty_cache()
        graph.replay()
        assert torch.equal(c, product.expected.roll(i, 0))


def test_k4_two_graphs_and_eager_calls_at_once():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    a = product.a.clone()
    graphs = [captured(a, packed) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in graphs]
    wrong = []
    torch.cuda.synchronize()
    for _ in range(100):
        for stream, (graph, c) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
                wrong.append((c != product.expected).any())
        wrong.append((mg.gemm(a, packed) != product.expected).any())
    torch.cuda.synchronize()
    assert not any(wrong)


def test_k4_a_fork_inside_a_capture():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    side, graph, results = torch.cuda.Stream(), torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        for _ in range(3):
            results.append(mg.gemm(product.a, packed))
            with torch.cuda.stream(side):
                results.append(mg.gemm(product.a, packed))
        torch.cuda.current_stream().wait_stream(side)
    for _ in range(50):
        for c in results:
            c.zero_()
        graph.replay()
        assert all(torch.equal(c, product.expected) for c in results)


def test_k4_first_use_of_the_workspace_inside_a_capture(monkeypatch):
    for name in ("_devices", "_taken", "_sums"):
        monkeypatch.setattr(workspace, name, {})
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    graph, c = captured(product.a, packed)
    for _ in range(3):
        c.zero_()
        graph.replay()
        assert torch.equal(c, product.expected)


def test_k4_the_first_call_of_a_process_inside_a_capture():
    result = run_here(
        "p = t.Maker(device='cuda').exact(16, 8192, 256); w = p.packed(); torch.cuda.synchronize()\n"
        "g, c = t.captured(p.a, w); g.replay(); print(torch.equal(c, p.expected))"
    )
    assert result.stdout.strip() == "True", result.stderr


def test_k4_memory_of_nans():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    graph, c = captured(product.a, packed)
    for _ in range(3):
        blocks = [torch.full((2**20 * size,), float("nan"), device=CUDA) for size in (1, 2, 4, 64, 200)]
        del blocks
        assert torch.equal(mg.gemm(product.a, packed), product.expected)
        graph.replay()
        assert torch.equal(c, product.expected)


def test_k4_while_other_work_holds_the_gpu():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256, False, 64)
    big = torch.randn(8192, 8192, device=CUDA).half()
    busy, start = torch.cuda.Stream(), time.monotonic()
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        for _ in range(900):  # about two seconds
            big @ big
    for reduction in reductions():
        assert torch.equal(mg.gemm(product.a, packed, reduction=reduction), product.expected)
    torch.cuda.synchronize()
    assert time.monotonic() - start < 30


def test_k4_good_calls_after_refusals():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    for bad in (product.a.float(), product.a[:, :100], product.a.cpu()):
        with pytest.raises(DispatchError):
            mg.gemm(bad, packed)
        assert torch.equal(mg.gemm(product.a, packed), product.expected)


def test_k4_after_a_killed_process():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    code = (
        "import torch, marlin_gen as mg\nfrom marlin_gen.runtime.reference import Maker\n"
        "p = Maker(device='cuda').exact(16, 8192, 256); w = p.packed(); print('ready', flush=True)\n"
        "while True: mg.gemm(p.a, w)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    assert torch.equal(mg.gemm(product.a, packed), product.expected)


def test_k4_many_captures_do_not_grow_memory():
    product, packed = exact("u4b8", 128, torch.float16, 16, 8192, 256)
    pool = torch.cuda.graph_pool_handle()
    graphs = [captured(product.a, packed, pool) for _ in range(64)]
    for graph, c in graphs[::21]:
        graph.replay()
        assert torch.equal(c, product.expected)
    assert len(workspace._devices[0].slabs) <= 2
