"""Dispatch without a GPU: which kernels are refused and why, which one is chosen, and what is suggested when there is none."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace

import pytest

import marlin_gen as mg
from marlin_gen.config import ARCHS, KernelConfig
from marlin_gen.errors import DispatchError, LayoutError
from marlin_gen.runtime.cost import MODELS, estimate, model_for
from marlin_gen.runtime.dispatch import choose, refusals, serving, suggestion
from marlin_gen.runtime.problem import Device, Kernel, Problem
from marlin_gen.runtime.registry import kernel_of
from marlin_gen.schedule import partition

H200 = Device.of_capability((9, 0), 132)
CONFIGS = [
    KernelConfig("sm_90", dtype, quant, m_tile, n, k, group, 4)
    for dtype, quant, m_tile, (k, n), group in itertools.product(
        ("f16", "bf16"), ("u4b8", "u4"), (8, 16, 64), ((128, 64), (128, 128), (64, 256)), (128, -1)
    )
]
KERNELS = [kernel_of(i, config) for i, config in enumerate(CONFIGS)]
PROBLEM = Problem(4096, 4096, 128, "u4b8", "f16")


def one(**changes):
    return kernel_of(0, replace(CONFIGS[0], **changes))


@pytest.mark.parametrize(
    ("kernel", "problem", "device", "pattern"),
    [
        (one(), replace(PROBLEM, quant="u4"), H200, "quant type u4b8"),
        (one(), replace(PROBLEM, a_dtype="bf16"), H200, "for f16"),
        (one(), replace(PROBLEM, group_size=64), H200, "group size 128"),
        (one(group_size=-1), PROBLEM, H200, "group size -1"),
        (one(thread_n=128), replace(PROBLEM, n=192), H200, "padded N 192"),
        (one(arch="sm_80"), PROBLEM, H200, "sm_80 code"),
        (one(arch="sm_90"), PROBLEM, Device.of_capability((8, 0), 108), "sm_90 code"),
        (one(arch="sm_89"), PROBLEM, Device.of_capability((8, 6), 84), "sm_89 code"),
        (replace(one(arch="sm_80"), shared_bytes=120 * 1024), PROBLEM, Device.of_capability((8, 6), 84), "shared memory"),
        (one(reduction="atomic"), PROBLEM, H200, "reduces with atomic"),
    ],
)
def test_refusals(kernel, problem, device, pattern):
    (why,) = refusals(kernel, problem, device, "fp32")
    assert pattern in why
    with pytest.raises(DispatchError, match=pattern):
        choose([kernel], problem, 1, device)


def test_a_kernel_of_larger_tiles_serves_where_one_of_small_tiles_cannot_count():
    small, large = one(m_tile=8), one(m_tile=64)
    m, problem = 2**21, Problem(8192, 8192, 128, "u4b8", "f16")
    for kernels in ([small, large], [large, small]):
        assert choose(kernels, problem, m, H200).kernel is large
    answer = mg.explain(m, problem.n, problem.k, kernels=[small.config, large.config], capability=(9, 0))
    assert answer.chosen == large.config.name and "counts rows and tiles" in answer.verdicts[1].refused
    with pytest.raises(DispatchError, match="counts rows and tiles"):
        choose([small], problem, m, H200)


@pytest.mark.parametrize("sms", [0, -5])
def test_a_device_without_multiprocessors(sms):
    with pytest.raises(DispatchError, match=f"sms = {sms}"):
        mg.explain(1, 4096, 4096, kernels=CONFIGS, capability=(9, 0), sms=sms)


def test_an_older_minor_architecture_serves():
    assert not refusals(one(arch="sm_80"), PROBLEM, Device.of_capability((8, 6), 84), "fp32")


@pytest.mark.parametrize("n", [1, 32, 64, 192, 448, 464, 2880, 4096])
@pytest.mark.parametrize("k", [64, 128, 232, 2880, 8256])
def test_every_width_and_depth_is_served(k, n):
    """K1: whatever K and N, as long as the group divides K."""
    group = -1 if k % 128 else 128
    assert serving(KERNELS, Problem(k, n, -1 if group == k else group, "u4", "bf16"), H200)


def test_the_verdict_does_not_depend_on_m():
    """K1"""
    for problem in (PROBLEM, replace(PROBLEM, n=192), replace(PROBLEM, group_size=64)):
        verdicts = {
            tuple(v.refused != "" for v in sorted(e.verdicts, key=lambda v: v.kernel))
            for e in (
                mg.explain(m, problem.n, problem.k, group_size=problem.group_size, kernels=CONFIGS) for m in (1, 17, 64, 5000)
            )
        }
        assert len(verdicts) == 1


def test_small_products_take_small_tiles():
    assert choose(KERNELS, PROBLEM, 1, H200).kernel.config.m_tile == 8
    assert choose(KERNELS, PROBLEM, 4096, H200).kernel.config.m_tile == 64


def test_a_forced_kernel_is_used_or_refused():
    """K14"""
    slow = max(mg.explain(1, 4096, 4096, kernels=CONFIGS).verdicts, key=lambda v: v.us or 0).kernel
    assert choose(KERNELS, PROBLEM, 1, H200, forced=slow).kernel.config.name == slow
    with pytest.raises(DispatchError, match="group size 128"):
        choose(KERNELS, replace(PROBLEM, group_size=-1), 1, H200, forced=slow)
    with pytest.raises(DispatchError, match="nearest built"):
        choose(KERNELS, PROBLEM, 1, H200, forced=slow + "x")
    atomic = one(reduction="atomic")
    assert choose([atomic], PROBLEM, 1, H200, forced=atomic.config.name).kernel is atomic


@pytest.mark.parametrize("group", [32, 64, 256, -1])
@pytest.mark.parametrize("reduction", ["fp32", "atomic"])
def test_the_suggested_lines_build_what_is_missing(group, reduction, tmp_path):
    """K14: no kernel for a shape names the nearest configs and lines that, built, serve it."""
    from marlin_gen.config import load_matrix

    problem = Problem(4096, 4032, group, "u4", "bf16")
    with pytest.raises(DispatchError) as caught:
        serving([k for k in KERNELS if k.config.group_size == 128], problem, H200, reduction)
    assert "marlin_bf16_u4_m" in caught.value.message
    toml = caught.value.hint.split(":", 1)[1]
    (tmp_path / "layers.toml").write_text(toml)
    built = [kernel_of(i, config) for i, config in enumerate(load_matrix(str(tmp_path / "layers.toml")))]
    assert choose(built, problem, 1, H200, reduction)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(DispatchError, match="chain32"):
        choose(KERNELS, PROBLEM, 1, H200, "chain32")


def test_no_lines_are_suggested_where_none_would_do():
    assert "no tile fits group size 48" in suggestion(replace(PROBLEM, group_size=48), H200)


def test_explain_reads_like_a_table_and_as_json():
    answer = mg.explain(16, 4096, 4096, kernels=CONFIGS)
    assert answer.chosen == answer.verdicts[0].kernel and answer.verdicts[0].us == min(v.us for v in answer.verdicts if v.us)
    lines = str(answer).splitlines()
    assert (
        lines[0].startswith("M=16, K=4096, N=4096, u4b8")
        and lines[2].startswith(f"* {answer.chosen}")
        and lines[-1].startswith("  refused, ")
    )
    refused = [v for v in answer.verdicts if v.us is None]
    said = {line.removeprefix("  refused, ").split(": ")[0] for line in lines if line.startswith("  refused, ")}
    assert refused and {v.refused for v in refused} == said
    assert json.loads(json.dumps(answer.to_dict()))["chosen"] == answer.chosen
    nothing = mg.explain(16, 4096, 4096, group_size=32, kernels=CONFIGS)
    assert nothing.chosen == "" and "group_size = 32" in nothing.why


def test_explain_normalises_the_group():
    """K6: g=K is g=-1."""
    assert "_gch_" in mg.explain(1, 64, 128, group_size=128, kernels=CONFIGS).chosen


def test_explain_refuses_what_is_no_layer():
    for m, n, k, group, error in (
        (0, 64, 128, 128, DispatchError),
        (1, 64, 192, 128, LayoutError),
        (1, 0, 128, 128, LayoutError),
    ):
        with pytest.raises(error):
            mg.explain(m, n, k, group_size=group, kernels=CONFIGS)
    with pytest.raises(DispatchError, match="7.5"):
        mg.explain(1, 64, 128, capability=(7, 5), kernels=CONFIGS)


def test_a_product_too_large_for_a_launch():
    """K5"""
    with pytest.raises(DispatchError, match="split the rows"):
        choose(KERNELS, Problem(2**17, 2**17, 128, "u4b8", "f16"), 2**26, H200)


def test_explain_imports_no_torch():
    code = (
        "import sys, marlin_gen; from marlin_gen.config import KernelConfig as K;"
        "kernels = [K('sm_90', 'f16', 'u4b8', 16, 128, 128, 128, 4)];"
        "print(marlin_gen.explain(1, 256, 256, capability=(9, 0), kernels=kernels).chosen);"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "marlin_f16_u4b8_m16n128k128_g128_s4_sm90", result.stderr


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_estimates_are_sane(capability):
    """More rows never cost less, and the partition is one that ``partition`` makes."""
    gpu, sms = model_for(capability), 100
    assert gpu in MODELS.values()
    for config in CONFIGS[:9]:
        times = []
        for m in (1, 16, 64, 256, 1024):
            best = estimate(config, m, PROBLEM.shape, 4, sms, gpu)
            part = best.partition
            assert part == partition(m, 4096, 4096, config, part.grid, part.stripe) and part.grid <= sms
            times.append(best.us)
        assert times == sorted(times) and times[0] > 1


def test_unknown_minor_capabilities_are_described_by_their_major():
    limits = {Device.of_capability(arch.capability, 1).shared_limit == arch.shared_per_cta for arch in ARCHS.values()}
    assert limits == {True}
    assert Device.of_capability((10, 3), 1).shared_limit == ARCHS["sm_100"].shared_per_cta


def test_kernels_know_their_shared_memory():
    assert all(isinstance(k, Kernel) and 16 * 1024 < k.shared_bytes <= H200.shared_limit for k in KERNELS)
