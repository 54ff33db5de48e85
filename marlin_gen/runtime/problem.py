"""The three records that dispatch joins: a kernel, a device, a layer. They need neither GPU nor torch."""

from __future__ import annotations

from dataclasses import dataclass

from marlin_gen.config import ARCHS, KernelConfig
from marlin_gen.errors import DispatchError
from marlin_gen.layout import PackedShape


@dataclass(frozen=True)
class Kernel:
    """A built kernel.

    Attributes:
        index: its row in the module.
        config: what it is specialised for.
        shared_bytes: dynamic shared memory of a CTA.
    """

    index: int
    config: KernelConfig
    shared_bytes: int


@dataclass(frozen=True)
class Device:
    """What dispatch must know of a GPU.

    Attributes:
        capability: compute capability.
        sms: multiprocessors.
        shared_limit: most dynamic shared memory of a CTA, bytes.
    """

    capability: tuple[int, int]
    sms: int
    shared_limit: int

    @classmethod
    def of_capability(cls, capability: tuple[int, int], sms: int) -> Device:
        """A device described by its compute capability alone.

        Raises:
            DispatchError: no architecture that marlin-gen knows runs there, or it has no multiprocessors.
        """
        if sms < 1:
            raise DispatchError(f"sms = {sms}: a device has at least one multiprocessor")
        limits = [arch.shared_per_cta for arch in ARCHS.values() if arch.runs_on(capability)]
        if not limits:
            raise DispatchError(f"no known architecture runs on compute capability {capability[0]}.{capability[1]}")
        exact = [arch.shared_per_cta for arch in ARCHS.values() if arch.capability == capability]
        return cls(capability, sms, (exact or limits)[-1])

    def __str__(self) -> str:
        return f"compute capability {self.capability[0]}.{self.capability[1]}, {self.sms} SMs"


@dataclass(frozen=True)
class Problem:
    """A layer, as dispatch sees it: everything but M.

    Attributes:
        k, n: true sizes of the weights.
        group_size: rows that share a scale, -1 for all (normalised: never k).
        quant: name of the quant type.
        a_dtype: ``f16`` or ``bf16``.
    """

    k: int
    n: int
    group_size: int
    quant: str
    a_dtype: str

    @property
    def shape(self) -> PackedShape:
        """True and padded sizes."""
        return PackedShape(self.k, self.n, self.group_size)

    def __str__(self) -> str:
        return f"K={self.k}, N={self.n}, {self.quant}, group size {self.group_size}, {self.a_dtype}"
