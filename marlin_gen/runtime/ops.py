"""``gemm`` and the torch operator ``torch.ops.marlin_gen.gemm``: checks, plan, launch. Eager calls skip torch's dispatcher."""

from __future__ import annotations

from typing import Any

import torch

from marlin_gen.errors import DispatchError
from marlin_gen.runtime import workspace
from marlin_gen.runtime.dispatch import check_reduction
from marlin_gen.runtime.packed import PackedWeight, unpack
from marlin_gen.runtime.plans import Plan, Weights, plan
from marlin_gen.runtime.quants import quant_type
from marlin_gen.runtime.registry import module
from marlin_gen.runtime.values import code_values

_ROW_MULTIPLE = 8  # elements: rows of A begin on 16 bytes
_ALIGNMENT = 16
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def gemm(
    a: torch.Tensor,
    packed: PackedWeight,
    *,
    out: torch.Tensor | None = None,
    reduction: str = "fp32",
    kernel: str | None = None,
) -> torch.Tensor:
    """The product ``a @ W + bias`` of a layer, on the current stream of ``a``'s device.

    Args:
        a: [..., K] of the weights' ``a_dtype``, any strides (rows that do not begin on 16 bytes are copied first). CPU tensors
            take a slow reference path: fp32 sums over dequantised weights.
        packed: the layer.
        out: result tensor [..., N] to write into, any strides; it may overlap ``a``.
        reduction: how CTAs that share a column sum up: ``fp32`` (the same bits every time), or where such kernels are built
            ``chain16`` (16-bit partial sums) or ``atomic`` (order not fixed).
        kernel: name of the kernel to use, whatever its reduction; None lets dispatch choose.

    Returns:
        [..., N] in ``a_dtype``; ``out`` if given. Gradients flow to ``a`` only.

    Raises:
        DispatchError: a tensor has a wrong shape, dtype or device, or no built kernel (or not the forced one) can run it.
    """
    if not isinstance(packed, PackedWeight):
        raise DispatchError(f"gemm takes a PackedWeight, not {type(packed).__name__}", "make one with marlin_gen.pack")
    return product(a, packed, out, reduction, kernel)


def product(
    a: torch.Tensor, w: Weights, out: torch.Tensor | None = None, reduction: str = "fp32", kernel: str | None = None
) -> torch.Tensor:
    """``gemm`` without its check of the weights; also for ``MarlinLinear``."""
    differentiable = torch.is_grad_enabled() and a.requires_grad
    if out is not None:
        if differentiable:
            raise DispatchError("out= does not support gradients", "call without out=, or under torch.no_grad()")
        return _into(out, a, w, reduction, kernel)
    if torch.compiler.is_compiling() or differentiable or type(a) not in _PLAIN:
        result: torch.Tensor = torch.ops.marlin_gen.gemm(
            a, w.qweight, w.scales, w.zeros, w.bias, w.k, w.n, w.group_size, w.quant, reduction, kernel
        )
        return result
    return _run(a, w, None, reduction, kernel)


def _run(a: torch.Tensor, w: Weights, c: torch.Tensor | None, reduction: str, kernel: str | None) -> torch.Tensor:
    """The product into ``c`` ([m, n], rows contiguous, 16-byte aligned; for [m, k] ``a`` only) or a new tensor."""
    k, scales, shape = w.k, w.scales, a.shape
    if a.dtype != scales.dtype or a.device != scales.device or not shape or shape[-1] != k:
        raise _mismatch(a, w)
    if not a.is_cuda:
        if kernel is not None:
            raise DispatchError(f"kernel {kernel} was asked for, but the tensors are on {a.device}", "kernels run on GPUs")
        check_reduction(reduction)
        return _reference(a, w) if c is None else c.copy_(_reference(a, w))
    device = a.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _run(a, w, c, reduction, kernel)
    if c is None:
        c = a.new_empty((*shape[:-1], w.n))
    m = a.numel() // k
    if m == 0:
        return c
    rows = a if len(shape) == 2 else a.reshape(m, k)
    lda, step = rows.stride()
    if (lda % _ROW_MULTIPLE and m > 1) or rows.data_ptr() % _ALIGNMENT or step != 1:
        rows = _aligned_rows(rows)
        lda = rows.stride(0)
    chosen = plan(device, m, k, w.n, w.group_size, w.quant, a.dtype, reduction, kernel)
    _launch(chosen, rows, w, c, lda, c.stride(0) if c.dim() == 2 else w.n, m)
    return c


def _launch(p: Plan, rows: torch.Tensor, w: Weights, c: torch.Tensor, lda: int, ldc: int, m: int) -> None:
    kernels, device = module(), rows.get_device()
    stream = torch._C._cuda_getCurrentRawStream(device)
    partial = counters = 0
    if p.partial_floats:
        capture = kernels.capture_id(stream)
        room = workspace.partial(device, stream, capture, p.partial_floats, p.zeroed)
        partial = room.data_ptr()
        counters = workspace.counters(device, stream, capture) or 0
        if not counters:
            own = torch.zeros(p.grid, dtype=torch.int32, device=rows.device)  # lives until the launch is enqueued
            counters = own.data_ptr()
    zeros, bias = w.zeros, w.bias
    kernels.launch(
        p.row, rows.data_ptr(), w.qweight.data_ptr(), w.scales.data_ptr(), 0 if zeros is None else zeros.data_ptr(),
        0 if bias is None else bias.data_ptr(), c.data_ptr(), partial, counters, lda, ldc, m, w.n, w.k,
        p.n_pad, p.k_tiles, p.n_tiles, p.columns, p.stripe, p.grid, stream,
    )  # fmt: skip


def _aligned_rows(rows: torch.Tensor) -> torch.Tensor:
    m, k = rows.shape
    width = -(-k // _ROW_MULTIPLE) * _ROW_MULTIPLE
    return torch.empty((m, width), dtype=rows.dtype, device=rows.device)[:, :k].copy_(rows)


def _into(out: torch.Tensor, a: torch.Tensor, w: Weights, reduction: str, kernel: str | None) -> torch.Tensor:
    shape = (*a.shape[:-1], w.n)
    if tuple(out.shape) != shape or out.dtype != a.dtype or out.device != a.device:
        raise DispatchError(
            f"out is {out.dtype} {list(out.shape)} on {out.device}; the result is {a.dtype} {list(shape)} on {a.device}",
            "give a matching tensor, or none",
        )
    direct = a.dim() == 2 and out.is_cuda and out.stride(1) == 1 and out.stride(0) >= w.n and not out.data_ptr() % _ALIGNMENT
    if direct and not torch.compiler.is_compiling() and type(a) in _PLAIN and not _overlap(a, out):
        return _run(a, w, out, reduction, kernel)
    return out.copy_(product(a, w, None, reduction, kernel))


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether the memory from first to last element of both overlaps."""
    (x_first, x_end), (y_first, y_end) = _extent(x), _extent(y)
    return x_first < y_end and y_first < x_end


def _extent(x: torch.Tensor) -> tuple[int, int]:
    first = x.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else -1
    return first, first + (last + 1) * x.element_size()


def _mismatch(a: torch.Tensor, w: Weights) -> DispatchError:
    if a.device != w.scales.device:
        return DispatchError(f"activations are on {a.device}, weights on {w.scales.device}", "move both to one device")
    if a.dtype != w.scales.dtype:
        return DispatchError(
            f"activations are {a.dtype}; the weights were packed for {w.scales.dtype}",
            f"convert them with .to({w.scales.dtype}), or pack with another a_dtype",
        )
    return DispatchError(f"activations {list(a.shape)} do not end in K={w.k}", "give [..., K]")


def _reference(a: torch.Tensor, w: Weights) -> torch.Tensor:
    """The product on the CPU: fp32 sums; scales where kernels apply them."""
    packed = as_packed(w)
    if packed.group_size == -1:
        codes, scales, zeros, bias = unpack(packed)
        result = (a.float() @ code_values(quant_type(w.quant), codes, zeros)) * scales.float()
    else:
        bias = None if packed.bias is None else packed.bias[: w.n]
        result = a.float() @ packed.dequantize().float()
    if bias is not None:
        result += bias.float()
    return result.to(a.dtype)


def as_packed(w: Weights) -> PackedWeight:
    """The weights as a record, its tensors and sizes checked."""
    if isinstance(w, PackedWeight):
        return w
    return PackedWeight(w.qweight, w.scales, w.zeros, w.bias, w.k, w.n, w.group_size, w.quant)


# ---- the operator: what torch.compile and autograd see ----------------------------------------------------------------

_SCHEMA = (
    "gemm(Tensor a, Tensor qweight, Tensor scales, Tensor? zeros, Tensor? bias, int k, int n, int group_size, str quant, "
    "str reduction, str? kernel) -> Tensor"
)


def _op(a: torch.Tensor, *rest: Any) -> torch.Tensor:
    *weights, reduction, kernel = rest
    return _run(a, PackedWeight(*weights), None, reduction, kernel)


def _op_fake(a: torch.Tensor, qweight: Any, scales: torch.Tensor, zeros: Any, bias: Any, k: int, n: int, *_: Any) -> torch.Tensor:
    if a.shape[-1] != k or a.dtype != scales.dtype:
        raise DispatchError(f"activations are {a.dtype} {list(a.shape)}; the weights take {scales.dtype} [..., {k}]")
    return a.new_empty((*a.shape[:-1], n))


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, *tensors = inputs[:5]
    ctx.save_for_backward(*tensors)
    ctx.sizes = inputs[5:9]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    weights = PackedWeight(*ctx.saved_tensors, *ctx.sizes).dequantize()
    return (grad @ weights.T, *[None] * 10)


if not hasattr(torch.ops.marlin_gen, "gemm"):  # importing or reloading this file again changes nothing
    torch.library.define("marlin_gen::gemm", _SCHEMA.removeprefix("gemm"))
    torch.library.impl("marlin_gen::gemm", ("cpu", "cuda"), _op)
    torch.library.register_fake("marlin_gen::gemm", _op_fake)
    torch.library.register_autograd("marlin_gen::gemm", _backward, setup_context=_save)
