"""Products with known results, for tests: integer-exact, identity and random problems on any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from marlin_gen.runtime.packed import PackedWeight, pack
from marlin_gen.runtime.quants import quant_type
from marlin_gen.runtime.values import code_values

TOLERANCE = {torch.float16: 3e-4, torch.bfloat16: 3e-3}  # mean |difference| / mean |result| of a random problem


@dataclass(frozen=True)
class Product:
    """C[m, n] = A[m, k] W[k, n] + bias, and its right result.

    Attributes:
        a: [m, k] activations.
        codes, scales, zeros, bias: as ``pack`` takes them.
        quant, group_size: as ``pack`` takes them.
        expected: [m, n]; in the activation dtype if every right kernel gives exactly these bits, else fp64.
    """

    a: torch.Tensor
    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    bias: torch.Tensor | None
    quant: str
    group_size: int
    expected: torch.Tensor

    def packed(self) -> PackedWeight:
        """The weights, packed."""
        return pack(self.codes, self.scales, self.zeros, quant=self.quant, group_size=self.group_size, bias=self.bias)


class Maker:
    """Makes problems for one kind of layer, the same for the same seed.

    Args:
        quant, group_size: the layer's types.
        dtype: of activations.
        device: of all tensors.
        seed: of the random numbers.
    """

    def __init__(
        self, quant: str = "u4b8", group_size: int = 128, dtype: torch.dtype = torch.float16, device: str = "cpu", seed: int = 0
    ) -> None:
        self.quant, self.group_size, self.dtype, self.device = quant, group_size, dtype, device
        self.random_state = torch.Generator(device).manual_seed(seed)

    def exact(self, m: int, k: int, n: int, *, bias: bool = False, terms: int | None = None) -> Product:
        """Activations -1, 0, 1 and scales 1/2, 1, 2: any order of summation in fp32 gives the same bits.

        Args:
            terms: nonzero activations in a row, for kernels that keep partial sums in 16 bits.
        """
        a = self._integers(-1, 2, (m, k)).to(self.dtype)
        if terms is not None:
            a *= torch.rand((m, k), generator=self.random_state, device=self.device).argsort(1).argsort(1) < terms
        scales = 2.0 ** self._integers(-1, 1 if terms else 2, (self._groups(k), n))
        added = self._integers(-8, 9, (n,)).to(self.dtype) if bias else None
        return self._product(a, n, scales.to(self.dtype), added, exact=True)

    def identity(self, k: int, n: int) -> Product:
        """A = identity: C is the dequantised matrix itself, rounded once."""
        return self._product(torch.eye(k, dtype=self.dtype, device=self.device), n, self._odd_scales(k, n), None, exact=True)

    def random(self, m: int, k: int, n: int, *, bias: bool = False) -> Product:
        """Normal activations and odd scales against fp64."""
        a = torch.randn((m, k), generator=self.random_state, device=self.device).to(self.dtype)
        added = torch.randn((n,), generator=self.random_state, device=self.device).to(self.dtype) if bias else None
        return self._product(a, n, self._odd_scales(k, n), added, exact=False)

    def codes(self, k: int, n: int) -> torch.Tensor:
        """Random codes [k, n]."""
        return self._integers(0, quant_type(self.quant).codes, (k, n)).to(torch.uint8)

    def zeros(self, k: int, n: int) -> torch.Tensor | None:
        """Random zero points [k/g, n], or None for a type without."""
        kind = quant_type(self.quant)
        zeros = self._integers(0, kind.codes + 1, (self._groups(k), n)) if kind.has_zero else None
        return zeros.to(self.dtype) if zeros is not None and kind.zero == "float" else zeros

    def _product(self, a: torch.Tensor, n: int, scales: torch.Tensor, bias: torch.Tensor | None, exact: bool) -> Product:
        k = a.shape[1]
        codes, zeros = self.codes(k, n), self.zeros(k, n)
        result = expected(a, codes, scales, zeros, bias, self.quant)
        return Product(a, codes, scales, zeros, bias, self.quant, self.group_size, result.to(self.dtype) if exact else result)

    def _groups(self, k: int) -> int:
        return 1 if self.group_size == -1 else k // self.group_size

    def _integers(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.random_state, device=self.device)

    def _odd_scales(self, k: int, n: int) -> torch.Tensor:
        uniform = torch.rand((self._groups(k), n), generator=self.random_state, device=self.device)
        return (0.01 + 0.09 * uniform).to(self.dtype)


def expected(
    a: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, bias: torch.Tensor | None, quant: str
) -> torch.Tensor:
    """The product in fp64, over weights rounded to the activation dtype (over exact values where one scale serves all of K)."""
    groups, k = scales.shape[0], codes.shape[0]
    zeros = None if zeros is None else zeros.repeat_interleave(k // groups, 0)
    values = code_values(quant_type(quant), codes, zeros)
    if groups == 1:
        result = (a.double() @ values.double()) * scales.double()
    else:
        weights = (values * scales.float().repeat_interleave(k // groups, 0)).to(a.dtype)
        result = a.double() @ weights.double()
    return result if bias is None else result + bias.double()


def relative_error(c: torch.Tensor, reference: torch.Tensor) -> float:
    """mean |c - reference| / mean |reference|."""
    return ((c.double() - reference).abs().mean() / reference.abs().mean()).item()
