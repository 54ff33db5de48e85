"""Launch plans: what dispatch decided for one product on one GPU, remembered."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import torch

from marlin_gen.errors import DispatchError
from marlin_gen.runtime import workspace
from marlin_gen.runtime.dispatch import choose, serving
from marlin_gen.runtime.problem import Device, Problem
from marlin_gen.runtime.registry import loaded_kernels
from marlin_gen.runtime.values import DTYPE_NAMES

_INT32_MAX = 2**31 - 1


class Weights(Protocol):
    """What a product needs of a layer: ``PackedWeight`` and ``MarlinLinear`` have it."""

    @property
    def qweight(self) -> torch.Tensor: ...
    @property
    def scales(self) -> torch.Tensor: ...
    @property
    def zeros(self) -> torch.Tensor | None: ...
    @property
    def bias(self) -> torch.Tensor | None: ...
    @property
    def k(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def group_size(self) -> int: ...
    @property
    def quant(self) -> str: ...


class Plan(NamedTuple):
    """A launch but for its pointers; names as in ``GemmParams``.

    Attributes:
        row: of the kernel in the module.
        partial_floats: size of ``partial``, 0 if no column is shared (then no counters are used either).
        zeroed: ``partial`` must be zeros (atomic reduction).
    """

    row: int
    n_pad: int
    k_tiles: int
    n_tiles: int
    columns: int
    stripe: int
    grid: int
    partial_floats: int
    zeroed: bool


@lru_cache(maxsize=8192)
def plan(
    device: int, m: int, k: int, n: int, group_size: int, quant: str, a_dtype: torch.dtype, reduction: str, kernel: str | None
) -> Plan:
    """The plan for ``m`` rows of a layer on GPU ``device``.

    Args:
        reduction, kernel: as for ``gemm``.

    Raises:
        DispatchError: nothing that is built can run it.
    """
    if m > _INT32_MAX:
        raise DispatchError(f"M={m} is more than {_INT32_MAX} rows", "split the rows into several calls")
    problem = Problem(k, n, group_size, quant, DTYPE_NAMES[a_dtype])
    choice = choose(loaded_kernels(), problem, m, gpu(device), reduction, kernel)
    part, config = choice.estimate.partition, choice.kernel.config
    return Plan(
        choice.kernel.index, problem.shape.n_pad, part.k_tiles, part.n_tiles, part.columns, part.stripe, part.grid,
        part.partial_floats, config.reduction == "atomic",
    )  # fmt: skip


@lru_cache
def gpu(device: int) -> Device:
    """GPU ``device`` of this machine."""
    found = torch.cuda.get_device_properties(device)
    return Device.of_capability((found.major, found.minor), found.multi_processor_count)


def prepare(weights: Weights) -> None:
    """What a layer needs before its first product: on a GPU, a kernel that serves it, and counters.

    Raises:
        DispatchError: no built kernel can serve the layer; names the nearest ones and the config lines to add.
    """
    if weights.qweight.is_cuda:
        device = weights.qweight.get_device()
        problem = Problem(weights.k, weights.n, weights.group_size, weights.quant, DTYPE_NAMES[weights.scales.dtype])
        serving(loaded_kernels(), problem, gpu(device))
        workspace.reserve(device)
