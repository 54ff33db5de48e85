"""Lints find what they look for in the code that nvcc makes of a planted violation, and nothing else."""

from __future__ import annotations

import subprocess

import pytest

from marlin_gen.build.toolchain import find_cxx, find_nvcc
from marlin_gen.errors import ToolchainError
from marlin_gen.inspect.artifacts import Artifacts
from marlin_gen.inspect.lints import Lint, Subject, lint
from marlin_gen.inspect.sass import parse_sass
from marlin_gen.inspect.tools import disassemble, find_tool

pytestmark = pytest.mark.nvcc

PLANTED = r"""
#include <cstdint>
#define KERNEL extern "C" __global__ void
#define MMA(c) asm volatile( \
  "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%4,%4,%4},{%4,%4},{%0,%1,%2,%3};" \
  : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(w))
__device__ uint32_t shared_base() { extern __shared__ char mem[]; return (uint32_t)__cvta_generic_to_shared(mem); }

KERNEL policy_address(const char* w, int n) {
  uint64_t policy; asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  for (int i = 0; i < n; ++i)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
      :: "r"(shared_base() + threadIdx.x * 16 + (i % 4) * 4096), "l"(w + i * 4096 + threadIdx.x * 16), "l"(policy) : "memory");
  asm volatile("cp.async.wait_all;");
}
KERNEL copy_width(const char* w) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
    :: "r"(shared_base() + threadIdx.x * 4), "l"(w + threadIdx.x * 4) : "memory");
  asm volatile("cp.async.wait_all;");
}
KERNEL local_memory(float* out, int n) {
  float kept[64];
  #pragma unroll 1
  for (int i = 0; i < 64; ++i) kept[(i * n) & 63] = out[i];
  out[0] = kept[n & 63];
}
KERNEL __launch_bounds__(1024, 2) spill(float* out, const float* in, int n) {
  float v[48] = {};
  #pragma unroll 1
  for (int k = 0; k < n; ++k)
    #pragma unroll
    for (int i = 0; i < 48; ++i) v[i] = v[i] * v[(i + 1) % 48] + in[k];
  #pragma unroll
  for (int i = 0; i < 48; ++i) out[i * 1024 + threadIdx.x] = v[i];
}
KERNEL division_in_loop(float* out, uint32_t w, int n, int d) {
  float acc[4] = {};
  #pragma unroll 1
  for (int i = 0; i < n; ++i) { w += i / (d + i * i); MMA(acc); }
  out[threadIdx.x] = acc[0];
}
KERNEL call_in_loop(float* out, uint32_t w, int64_t n, int64_t d) {
  float acc[4] = {};
  #pragma unroll 1
  for (int64_t i = 0; i < n; ++i) { w += (uint32_t)((n * i + 7) / (d + i)); MMA(acc); }
  out[threadIdx.x] = acc[0];
}
KERNEL conversion_in_loop(float* out, uint32_t w, int n) {
  float acc[4] = {};
  #pragma unroll 1
  for (int i = 0; i < n; ++i) { w += __float2int_rn(acc[1] * 3.f); MMA(acc); }
  out[threadIdx.x] = acc[0];
}
KERNEL shared_width(float* out, uint32_t w, int n) {
  float acc[4] = {};
  #pragma unroll 1
  for (int i = 0; i < n; ++i) {
    uint32_t v; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_base() + i * 4) : "memory");
    w += v; MMA(acc);
  }
  out[threadIdx.x] = acc[0];
}
KERNEL narrow_accumulator(uint32_t* out, uint32_t w) {
  uint32_t c = 0, d = 0;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%2,%2,%2},{%2,%2},{%0,%1};"
    : "+r"(c), "+r"(d) : "r"(w));
  out[threadIdx.x] = c + d;
}
KERNEL flushed_subnormals(uint32_t* out, uint32_t w) {
  asm volatile("fma.rn.ftz.f16x2 %0, %0, %0, %0;" : "+r"(w));
  out[threadIdx.x] = w;
}
KERNEL nothing(float* out, uint32_t w, int n) {
  float acc[4] = {};
  #pragma unroll 1
  for (int i = 0; i < n; ++i) { w += i; MMA(acc); }
  out[threadIdx.x] = acc[0];
}
"""

EXPECTED = {
    "policy_address": "error",
    "copy_width": "error",
    "local_memory": "error",
    "spill": "error",
    "division_in_loop": "error",
    "call_in_loop": "error",
    "conversion_in_loop": "warning",
    "shared_width": "warning",
    "narrow_accumulator": "error",
    "flushed_subnormals": "error",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Lint]]:
    """Findings by rule of each planted kernel, compiled for sm_90."""
    try:
        nvcc, _, _ = find_nvcc(), find_cxx(), find_tool("nvdisasm")
    except ToolchainError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("planted")
    (folder / "kernel.cu").write_text(PLANTED)
    words = [nvcc, "-std=c++17", "-O3", "-lineinfo", "-Xptxas=-v", "-gencode", "arch=compute_90,code=sm_90", "-cubin"]
    done = subprocess.run([*words, "-o", "kernel.cubin", "kernel.cu"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels = [
        Artifacts(f.name, "planted", f, sass_text="", cubin_bytes=0, source=PLANTED, ptxas=done.stderr)
        for f in parse_sass(disassemble(folder / "kernel.cubin"))
    ]
    return {kernel.name: {one.id: one for one in lint(Subject(kernel))} for kernel in kernels}


@pytest.mark.parametrize("kernel", EXPECTED)
def test_a_planted_violation_is_found_at_its_line(found: dict[str, dict[str, Lint]], kernel: str) -> None:
    lints = found[kernel]
    name = kernel.replace("_", "-")
    assert name in lints, lints
    assert lints[name].severity == EXPECTED[kernel]
    lines = PLANTED.splitlines()
    begin = next(n for n, line in enumerate(lines, 1) if f" {kernel}(" in line)
    end = next(n for n in range(begin, len(lines) + 1) if lines[n - 1] == "}")
    if lints[name].address is None:  # the report of ptxas knows no lines
        assert name == "spill"
    else:
        assert begin <= (lints[name].line or 0) <= end


@pytest.mark.parametrize("kernel", [*EXPECTED, "nothing"])
def test_only_what_is_planted_is_found(found: dict[str, dict[str, Lint]], kernel: str) -> None:
    allowed = {
        "spill": {"local-memory"}, "local_memory": {"spill"}, "call_in_loop": {"conversion-in-loop", "division-in-loop"},
        "division_in_loop": {"conversion-in-loop"},
    }  # fmt: skip
    others = {i for i, one in found[kernel].items() if one.severity != "info"} - {kernel.replace("_", "-")}
    assert others <= allowed.get(kernel, set())


def test_policy_and_none_are_told_apart(found: dict[str, dict[str, Lint]]) -> None:
    assert "is used by" in found["policy_address"]["cache-policy"].message
    assert "is not used" in found["copy_width"]["cache-policy"].message
