"""Products for GPU tests: cached problems, buffers with canaries, kernels and layers that are built."""

from __future__ import annotations

from functools import cache, lru_cache

import pytest
import torch

import marlin_gen as mg
from marlin_gen.config import KernelConfig
from marlin_gen.errors import DispatchError
from marlin_gen.runtime.dispatch import serving
from marlin_gen.runtime.plans import gpu
from marlin_gen.runtime.problem import Problem
from marlin_gen.runtime.reference import Maker
from marlin_gen.runtime.registry import loaded_kernels
from marlin_gen.runtime.values import DTYPE_NAMES, DTYPES

CUDA = "cuda"
BOTH = [torch.float16, torch.bfloat16]
TERMS = {torch.float16: 64, torch.bfloat16: 8}  # nonzero activations whose sum is exact in 16 bits
SENTINEL = 777.0


@cache
def built(quant, group, dtype):
    """Whether any built kernel serves such layers (whatever K and N)."""
    try:
        return bool(serving(loaded_kernels(), Problem(2**14, 64, group, quant, DTYPE_NAMES[dtype]), gpu(0)))
    except DispatchError:
        return False


def need(case, quant, group, dtype):
    if not built(quant, group, dtype):
        pytest.skip(f"{case}: no kernel is built for {quant}, group size {group}, {dtype}")


@lru_cache(maxsize=24)
def exact(quant, group, dtype, m, k, n, bias=False, terms=None):
    """An integer-exact product on the GPU and its packed weights."""
    product = Maker(quant, group, dtype, CUDA).exact(m, k, n, bias=bias, terms=terms)
    return product, product.packed()


@lru_cache(maxsize=8)
def identity(quant, group, dtype, k, n):
    product = Maker(quant, group, dtype, CUDA).identity(k, n)
    return product, product.packed()


@lru_cache(maxsize=8)
def random(quant, group, dtype, m, k, n, bias=False):
    product = Maker(quant, group, dtype, CUDA).random(m, k, n, bias=bias)
    return product, product.packed()


def of_kernel(name):
    """Quant type, group size, dtype, and terms of exact problems for a kernel."""
    config = KernelConfig.from_name(name)
    dtype = DTYPES[config.a_dtype]
    return config.quant, config.group_size, dtype, TERMS[dtype] if config.reduction == "chain16" else None


def fits(kernel, n):
    """Whether a kernel's tile divides a padded width."""
    return -(-n // 64) * 64 % KernelConfig.from_name(kernel).thread_n == 0


class Canaries:
    """A product between canaries: A is a slice of a NaN-filled buffer, C one of a sentinel-filled buffer."""

    def __init__(self, a, n):
        m, k = a.shape
        whole = torch.full((m + 2, -(-k // 8) * 8 + 8), float("nan"), dtype=a.dtype, device=a.device)
        self.a = whole[1 : m + 1, :k]
        self.a.copy_(a)
        self.whole = torch.full((m + 2, -(-n // 8) * 8 + 8), SENTINEL, dtype=a.dtype, device=a.device)
        self.c = self.whole[1 : m + 1, :n]

    def run(self, packed, **options):
        mg.gemm(self.a, packed, out=self.c, **options)
        result = self.c.clone()
        self.c.fill_(SENTINEL)
        assert (self.whole == SENTINEL).all(), "a kernel wrote outside C"
        return result
