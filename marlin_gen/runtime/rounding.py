"""The simplest quantiser: round to the nearest code, each group scaled to its own range."""

from __future__ import annotations

import torch

from marlin_gen.errors import LayoutError
from marlin_gen.quant import QuantType
from marlin_gen.runtime.values import code_values


def round_to_nearest(
    weight: torch.Tensor, quant: QuantType, group_size: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Quantise a weight matrix.

    Args:
        weight: [K, N], floating point, any strides.
        quant: the type; with zero points the range is that of the group, else it is symmetric.
        group_size: k rows that share a scale; -1 for all.
        dtype: of the scales.

    Returns:
        codes uint8 [K, N], scales [K/g, N] in ``dtype``, and zero points [K/g, N] or None.

    Raises:
        LayoutError: the group size does not divide K, or a weight is NaN or infinite.
    """
    k, n = weight.shape
    group = k if group_size == -1 else group_size
    if group < 1 or k % group:
        raise LayoutError(f"K={k} is not a multiple of the group size {group_size}", "use a group size that divides K, or -1")
    if not bool(torch.isfinite(weight).all()):
        raise LayoutError("the weights contain NaN or infinity: no code stands for them", "check the checkpoint")
    codes = torch.empty((k, n), dtype=torch.uint8, device=weight.device)
    scales = torch.empty((k // group, n), dtype=dtype, device=weight.device)
    zeros = torch.empty((k // group, n), dtype=torch.float32, device=weight.device) if quant.has_zero else None
    no_zero = torch.zeros((), device=weight.device) if quant.has_zero else None
    values, order = code_values(quant, torch.arange(quant.codes, device=weight.device), no_zero).sort(stable=True)
    steps = (values[-1] - values[0]).item()
    middles = (values[1:] + values[:-1]) / 2
    for g in range(k // group):
        rows = slice(g * group, (g + 1) * group)
        w = weight[rows].float()
        if zeros is None:
            span = 2 * w.abs().amax(0)
        else:
            low, high = w.amin(0).clamp(max=0), w.amax(0).clamp(min=0)
            span = high - low
        scale = torch.where(span > 0, span / steps, 1.0).to(dtype)
        scale = torch.where(scale > 0, scale, torch.finfo(dtype).smallest_normal).float()
        scales[g] = scale
        scaled = w / scale
        if zeros is not None:
            zeros[g] = (-low / scale).round().clamp(0, quant.codes - 1)
            scaled += zeros[g]
        codes[rows] = order[torch.bucketize(scaled.contiguous(), middles)].to(torch.uint8)
    return codes, scales, zeros.to(torch.int32) if zeros is not None and quant.zero == "int" else zeros
