"""The built kernels: the compiled module that launches them, and what is known of them without loading it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from marlin_gen.config import KernelConfig
from marlin_gen.runtime.problem import Device, Kernel
from marlin_gen.runtime.quants import quant_type
from marlin_gen.schedule import KernelPlan

_H200 = Device((9, 0), 132, 227 * 1024)


class Row(Protocol):
    """A kernel of the module; its place in ``rows()`` is its index."""

    name: str
    shared_bytes: int


class KernelModule(Protocol):
    """The compiled module (see docs/architecture.md)."""

    def rows(self) -> Sequence[Row]: ...

    def launch(
        self, index: int, a: int, b: int, scales: int, zeros: int, bias: int, c: int, partial: int, counters: int,
        lda: int, ldc: int, m: int, n: int, k: int,
        n_pad: int, k_tiles: int, n_tiles: int, columns: int, stripe: int, grid: int, stream: int, /,
    ) -> None: ...  # fmt: skip

    def capture_id(self, stream: int, /) -> int: ...


def kernel_of(index: int, config: KernelConfig) -> Kernel:
    """A kernel known only by its config."""
    return Kernel(index, config, KernelPlan.create(config, quant_type(config.quant)).shared_bytes)


@cache
def module() -> KernelModule:
    """The compiled module of this machine.

    Raises:
        DispatchError: no kernels are built.
        ToolchainError: the module cannot be loaded.
    """
    from marlin_gen.build import load_module

    loaded: KernelModule = load_module()
    return loaded


@cache
def loaded_kernels() -> tuple[Kernel, ...]:
    """The kernels of the loaded module."""
    return tuple(Kernel(i, KernelConfig.from_name(row.name), row.shared_bytes) for i, row in enumerate(module().rows()))


def built_kernels() -> list[Kernel]:
    """The kernels that are built, read from the build's manifests: no GPU and no compiled code is touched.

    Raises:
        DispatchError: no kernels are built.
    """
    from marlin_gen import build

    found = {kernel.record.name: kernel.record.shared_bytes for kernel in build.built_kernels()}
    return [Kernel(i, KernelConfig.from_name(name), found[name]) for i, name in enumerate(build.built_names())]


def current_device() -> Device:
    """This machine's current GPU; an H200 where there is none."""
    if importlib.util.find_spec("torch") is None:
        return _H200
    import torch

    if not torch.cuda.is_available():
        return _H200
    from marlin_gen.runtime.plans import gpu

    return gpu(torch.cuda.current_device())
