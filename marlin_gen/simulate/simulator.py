"""Runs a kernel's text on the modelled device and says what was wrong with it."""

from __future__ import annotations

import ctypes as c
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marlin_gen.emit.templates import Templates
from marlin_gen.simulate import native
from marlin_gen.simulate.compile import KERNEL_FILE, compile_kernel

ORDERS = ("index", "reversed", "shuffled")
_GRANULE = 2  # bytes that share one flag
_MAX_CONFLICTS = 4096
_ONE_LAUNCH = threading.Lock()  # a compiled kernel has one device


@dataclass(frozen=True)
class Buffer:
    """Global memory of a launch; the kernel's accesses go to the array itself.

    Attributes:
        name: field of the kernel's argument that points to it.
        array: contents. Rows of a matrix may lie apart (a slice of a wider one): what is between them may not be touched.
        access: ``r``, ``w`` or ``rw``: what the kernel may do.
        initialised: whether the kernel may read what was there before; else that is poisoned with 0xff bytes.
        write_once: every element must be written exactly once.
    """

    name: str
    array: NDArray[Any]
    access: str = "r"
    initialised: bool = True
    write_once: bool = False


@dataclass(frozen=True)
class Fault:
    """Something the hardware leaves undefined, or an output that is wrong by construction.

    Attributes:
        kind: one of the kinds in docs/simulator.md.
        line: line of the kernel's text; 0 if it belongs to none.
        text: that line.
        cta, thread: where it was met first; -1 if nowhere in particular.
        count: times it was met in that line.
        detail: what happened.
    """

    kind: str
    line: int
    text: str
    cta: int
    thread: int
    count: int
    detail: str

    def __str__(self) -> str:
        where = f"{KERNEL_FILE}:{self.line}: " if self.line else ""
        who = f" [CTA {self.cta}, thread {self.thread}, {self.count}x]" if self.cta >= 0 else ""
        return f"{where}{self.kind}: {self.detail}{who}" + (f"\n    {self.text}" if self.text else "")


@dataclass(frozen=True)
class Conflict:
    """Shared-memory accesses of one line that took more wavefronts than their width needs.

    Attributes:
        op: ``lds128``, ``ldmatrix_x4``, ``sts32``, ``cp_async`` ...
        line, text: of the kernel.
        accesses: warp-wide accesses made.
        wavefronts, minimum: taken by them, and needed at least.
    """

    op: str
    line: int
    text: str
    accesses: int
    wavefronts: int
    minimum: int

    def __str__(self) -> str:
        extra = f"{self.wavefronts} wavefronts for {self.minimum} in {self.accesses} accesses"
        return f"{KERNEL_FILE}:{self.line}: bank conflicts of {self.op}: {extra}\n    {self.text}"


@dataclass(frozen=True)
class SimResult:
    """What a launch did.

    Attributes:
        faults: in the order they were met, one for each kind and line.
        conflicts: lines with bank conflicts.
        stats: counts over the launch: ``barriers`` (of CTAs), ``mma``, ``ldmatrix`` (of warps), ``async_copies``,
            ``global_loads``, ``global_stores`` (of threads), ``wavefronts`` (of shared memory).
        completed: whether every thread returned.
    """

    faults: tuple[Fault, ...]
    conflicts: tuple[Conflict, ...]
    stats: dict[str, int]
    completed: bool


def simulate(
    text: str,
    name: str,
    buffers: Sequence[Buffer],
    scalars: Mapping[str, int],
    *,
    grid: int,
    threads: int,
    shared_bytes: int,
    cache_dir: Path,
    templates: Templates | None = None,
    order: str = "index",
    seed: int = 0,
    max_faults: int = 16,
    max_steps: int = 500_000_000,
) -> SimResult:
    """Run one launch of an emitted kernel on the CPU.

    Args:
        text: the kernel's source.
        name: its function, which takes one ``GemmParams``.
        buffers: global memory; the pointers of the argument are set from their names.
        scalars: the other fields of the argument.
        grid, threads, shared_bytes: the launch; ``threads`` is a multiple of 32.
        cache_dir: where compiled kernels are kept.
        templates: tree with the ``sim`` headers; the packaged one by default.
        order: in which order CTAs run: ``index``, ``reversed``, or ``shuffled`` (by ``seed``, several taking turns).
        max_faults: different faults after which the launch is ended.
        max_steps: memory accesses of single threads after which it is ended.

    Raises:
        ToolchainError: there is no compiler, or it refused the text.
        ValueError: an argument makes no sense.
    """
    if threads % 32 or not 32 <= threads <= 1024 or grid < 1 or shared_bytes % 16:
        raise ValueError(f"a launch of {grid} CTAs of {threads} threads with {shared_bytes} bytes is not possible")
    templates = templates or Templates()
    library = c.CDLL(str(compile_kernel(text, name, cache_dir, templates).resolve()))
    addresses = {buffer.name: native.device_address(i) for i, buffer in enumerate(buffers)}
    params = native.make_params(native.params_type(templates.read("device/params.cuh")), {**scalars, **addresses})
    tracked = [_Tracked(buffer) for buffer in buffers]
    structs = (native.BufferStruct * len(buffers))(*(t.struct for t in tracked))
    faults = (native.FaultStruct * max_faults)()
    conflicts = (native.ConflictStruct * _MAX_CONFLICTS)()
    stats = native.StatsStruct()
    launch = native.LaunchStruct(
        grid=grid, threads=threads, shared_bytes=shared_bytes, order=ORDERS.index(order), seed=seed,
        buffer_count=len(buffers), fault_capacity=max_faults, conflict_capacity=_MAX_CONFLICTS, max_steps=max_steps,
        buffers=structs, params=c.cast(c.byref(params), c.c_void_p), faults=faults, conflicts=conflicts, stats=c.pointer(stats),
    )  # fmt: skip
    with _ONE_LAUNCH:
        library.mg_sim_run(c.byref(launch))

    lines = ["", *text.splitlines()]
    found = [
        Fault(f.kind.decode(), f.line, lines[f.line].strip(), f.cta, f.thread, f.count, f.detail.decode())
        for f in faults[: launch.fault_count]
    ]
    completed = bool(launch.completed)
    if completed:
        found += [fault for t in tracked if (fault := t.lost())]
    met = [
        Conflict(r.op.decode(), r.line, lines[r.line].strip(), r.accesses, r.wavefronts, r.minimum)
        for r in conflicts[: launch.conflict_count]
        if r.wavefronts > r.minimum
    ]
    return SimResult(tuple(found), tuple(met), {key: int(getattr(stats, key)) for key in native.STATS}, completed)


class _Tracked:
    """A buffer as the native side sees it, with the flags it keeps."""

    def __init__(self, buffer: Buffer) -> None:
        array = buffer.array
        if any(stride < 0 for stride in array.strides) or array.itemsize % _GRANULE:
            raise ValueError(f"buffer {buffer.name}: arrays of 2, 4 or 8 byte elements with forward strides only")
        self.buffer = buffer
        extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize if array.size else 0
        self.elements = self._granules_of_elements()
        allowed = None
        if not array.flags.c_contiguous:
            allowed = np.zeros(extent // _GRANULE, np.uint8)
            allowed[self.elements] = 1
        self.allowed = allowed
        self.written = np.zeros(max(1, extent // _GRANULE), np.uint8) if "w" in buffer.access else None
        if not buffer.initialised:
            array[...] = np.frombuffer(b"\xff" * array.itemsize, array.dtype)[0]
        flags = native.READABLE * ("r" in buffer.access) | native.WRITABLE * ("w" in buffer.access)
        flags |= native.INITIALISED * buffer.initialised | native.WRITE_ONCE * buffer.write_once
        self.struct = native.BufferStruct(
            buffer.name.encode(), array.ctypes.data, _pointer(self.allowed), _pointer(self.written), extent, flags
        )

    def _granules_of_elements(self) -> NDArray[np.int64]:
        """Index of each granule that belongs to an element, in the order of the elements."""
        array = self.buffer.array
        offsets = np.zeros(array.shape, np.int64)
        for axis, (n, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
            shape = [1] * array.ndim
            shape[axis] = n
            offsets += (np.arange(n) * stride).reshape(shape)
        first = offsets.reshape(-1, 1) // _GRANULE
        return (first + np.arange(array.itemsize // _GRANULE)).reshape(-1)

    def lost(self) -> Fault | None:
        """The fault of elements that should have been written and were not."""
        if not self.buffer.write_once or self.written is None:
            return None
        per_element = self.buffer.array.itemsize // _GRANULE
        missing = np.flatnonzero(self.written[self.elements].reshape(-1, per_element).min(axis=1) == 0)
        if missing.size == 0:
            return None
        index = [int(i) for i in np.unravel_index(missing[0], self.buffer.array.shape)]
        of_all = f"{missing.size} of {self.buffer.array.size} elements of {self.buffer.name}"
        detail = f"{of_all} were never written, the first is {index}"
        return Fault("lost output", 0, "", -1, -1, int(missing.size), detail)


def _pointer(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data
