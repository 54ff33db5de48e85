"""Who is measured: marlin-gen's dispatch, cuBLAS on 16-bit weights, Humming where it is installed.

A contender makes its layers once for a shape and gives the calls of one rotation for each M, after checking its result.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import torch

from marlin_gen.bench.timing import copies_for
from marlin_gen.runtime.ops import gemm
from marlin_gen.runtime.packed import pack

GROUP = 128


class WrongResult(Exception):
    """A contender computed something else than the product: it has no time."""


class Contender(Protocol):
    """One implementation of W4A16 products."""

    name: str

    def calls(self, a: torch.Tensor) -> list[Callable[[], object]]:
        """Calls of one rotation over the layer's copies, checked on the first copy."""


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want||; NaN counts as infinite."""
    error = ((got.float() - want.float()).norm() / want.float().norm()).item()
    return error if error == error else float("inf")


def _check(name: str, got: torch.Tensor, want: torch.Tensor, bound: float) -> None:
    if (error := relative_error(got, want)) > bound:
        raise WrongResult(f"{name}: relative error {error:.3g} exceeds {bound}")


class Marlin:
    """u4b8 in groups of 128 through ``marlin_gen.gemm``: dispatch chooses kernel and partition."""

    name = "marlin-gen"

    def __init__(self, k: int, n: int, dtype: torch.dtype, seed: int = 0) -> None:
        gen = torch.Generator("cuda").manual_seed(seed)
        codes = torch.randint(0, 16, (k, n), device="cuda", dtype=torch.uint8, generator=gen)
        scales = (torch.rand((k // GROUP, n), device="cuda", generator=gen) * 0.01 + 0.002).to(dtype)
        first = pack(codes, scales, quant="u4b8", group_size=GROUP)
        self.weight = first.dequantize()
        copies = copies_for(first.qweight.numel() * 4)
        self.layers = [first] + [_copy(first) for _ in range(copies - 1)]

    def calls(self, a: torch.Tensor) -> list[Callable[[], object]]:
        c = torch.full((a.shape[0], self.weight.shape[1]), float("nan"), dtype=a.dtype, device=a.device)
        gemm(a, self.layers[0], out=c)
        _check(self.name, c, a @ self.weight, 2e-3 if a.dtype is torch.float16 else 1e-2)
        return [lambda w=layer: gemm(a, w, out=c) for layer in self.layers]  # type: ignore[misc]


def _copy(packed: Any) -> Any:
    return dataclasses.replace(packed, qweight=packed.qweight.clone(), scales=packed.scales.clone())


class Cublas:
    """``torch.mm`` on 16-bit weights [K, N]: what the layer would cost unquantised."""

    name = "cublas"

    def __init__(self, weight: torch.Tensor) -> None:
        copies = min(12, copies_for(weight.numel() * weight.element_size()))
        self.weights = [weight] + [weight.clone() for _ in range(copies - 1)]

    def calls(self, a: torch.Tensor) -> list[Callable[[], object]]:
        c = torch.empty((a.shape[0], self.weights[0].shape[1]), dtype=a.dtype, device=a.device)
        return [lambda w=weight: torch.mm(a, w, out=c) for weight in self.weights]  # type: ignore[misc]


class Humming:
    """Humming (PyPI humming-kernels), 4 bit in groups of 128, quantised by itself; compiled on first use of an M."""

    name = "humming"
    _QUANTISATION = 0.2  # bound on its relative error: it rounds the same weights to 4 bits

    def __init__(self, weight: torch.Tensor) -> None:
        from humming.layer import HummingLayer  # type: ignore[import-not-found]

        self.weight = weight
        k, n = weight.shape
        self.layers = []
        for _ in range(min(24, copies_for(weight.numel() // 2))):
            layer = HummingLayer(
                shape_n=n, shape_k=k, weight_config={"dtype": "int4", "group_size": GROUP}, torch_dtype=weight.dtype
            ).cuda()
            layer.load_from_unquantized(weight.T.contiguous())
            layer.transform()
            self.layers.append(layer)

    @staticmethod
    def available() -> bool:
        """Whether the package is installed."""
        return importlib.util.find_spec("humming") is not None

    def calls(self, a: torch.Tensor) -> list[Callable[[], object]]:
        _check(self.name, self.layers[0](a), a @ self.weight, self._QUANTISATION)
        return [lambda w=layer: w(a) for layer in self.layers]  # type: ignore[misc]
