"""Runs every built kernel of this GPU once or twice on small products, for compute-sanitizer.

compute-sanitizer --tool racecheck python tests/gpu/sanitize.py [PART OF A NAME ...]

Prints how many kernels ran; exits with 1 if a result is wrong. Set PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that memcheck sees the
borders of every tensor.
"""

from __future__ import annotations

import sys

import torch

import marlin_gen
from marlin_gen.config import KernelConfig
from marlin_gen.runtime.dispatch import refusals
from marlin_gen.runtime.plans import gpu
from marlin_gen.runtime.problem import Problem
from marlin_gen.runtime.quants import quant_type
from marlin_gen.runtime.registry import loaded_kernels

K, N = 1024, 512


def product(config: KernelConfig, m: int) -> bool:
    """One integer-exact product; whether the result is right."""
    dtype = torch.float16 if config.a_dtype == "f16" else torch.bfloat16
    quant = quant_type(config.quant)
    g = torch.Generator().manual_seed(m)
    codes = torch.randint(0, quant.codes, (K, N), dtype=torch.uint8, generator=g)
    groups = 1 if config.group_size == -1 else K // config.group_size
    scales = torch.ones((groups, N), dtype=dtype)
    zeros = torch.randint(0, quant.codes, (groups, N), generator=g) if quant.has_zero else None
    packed = marlin_gen.pack(codes, scales, zeros, quant=config.quant, group_size=config.group_size)
    a = torch.randint(-1, 2, (m, K), generator=g).to(dtype)
    want = (a.float() @ packed.dequantize().float()).to(dtype)
    got = marlin_gen.gemm(a.cuda(), packed.to("cuda"), kernel=config.name)
    exact = config.reduction != "chain16"
    return torch.equal(got.cpu(), want) if exact else torch.allclose(got.cpu().float(), want.float(), rtol=1e-2, atol=2)


def main() -> int:
    device, ran, wrong = gpu(0), 0, []
    for kernel in loaded_kernels():
        config = kernel.config
        if not all(part in config.name for part in sys.argv[1:]):
            continue
        if refusals(kernel, Problem(K, N, config.group_size, config.quant, config.a_dtype), device, None):
            continue
        ran += 1
        for m in (1, config.m_tile + 1):
            if not product(config, m):
                wrong.append(f"{config.name} M={m}")
    print(f"{ran} kernels ran, {len(wrong)} wrong results {wrong}")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
