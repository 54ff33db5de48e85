"""PackedWeight: a layer's weights in the layout that kernels read; ``pack`` makes one and ``unpack`` is its inverse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch

from marlin_gen.errors import LayoutError
from marlin_gen.layout import TILE_K, PackedShape, pack_codes, permute_scales, unpack_codes, unpermute_scales
from marlin_gen.quant import QuantType
from marlin_gen.runtime.meta import LAYOUT, LAYOUT_VERSION, check_layout, decode_meta, encode_meta
from marlin_gen.runtime.plans import prepare
from marlin_gen.runtime.quants import normal_group, quant_type
from marlin_gen.runtime.values import DTYPE_NAMES, activation_dtype, code_values

_CODE_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# Codes packed at a time: cache-sized on the CPU; on a GPU the temporaries are 1/16 byte a code.
_CHUNK_CODES = {"cpu": 1 << 20, "cuda": 1 << 26}


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """Weights [K, N] of one layer, packed. Every tile configuration reads the same bytes.

    Attributes:
        qweight: int32 [k_pad * n_pad * bits / 32], see ``marlin_gen.layout.packing``.
        scales: fp16 or bf16 [groups_pad, n_pad]; permuted when grouped, natural order for one group. Its dtype is the
            dtype of activations and results.
        zeros: zero points as ``scales`` in dtype and shape, always permuted; None for a type without.
        bias: [n_pad] of the same dtype in natural order, or None.
        k, n: true sizes.
        group_size: rows that share a scale; -1 for all.
        quant: name of the quant type.
        layout, version: name and version of the layout.

    Raises:
        LayoutError: tensors and sizes do not belong together.
    """

    qweight: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    bias: torch.Tensor | None
    k: int
    n: int
    group_size: int
    quant: str
    layout: str = LAYOUT
    version: int = LAYOUT_VERSION

    def __post_init__(self) -> None:
        check_layout(self.layout, self.version)
        shape, quant = self.shape, quant_type(self.quant)
        activation_dtype(self.scales.dtype, quant)
        grid = (shape.groups_pad, shape.n_pad)
        _check_tensor("qweight", self.qweight, (shape.words(quant.bits),), torch.int32, self.qweight.device)
        _check_tensor("scales", self.scales, grid, self.scales.dtype, self.qweight.device)
        if quant.has_zero != (self.zeros is not None):
            raise LayoutError(f"quant type {quant.name} {'needs' if quant.has_zero else 'has no'} zero points")
        if self.zeros is not None:
            _check_tensor("zeros", self.zeros, grid, self.scales.dtype, self.qweight.device)
        if self.bias is not None:
            _check_tensor("bias", self.bias, (shape.n_pad,), self.scales.dtype, self.qweight.device)

    @property
    def shape(self) -> PackedShape:
        """True and padded sizes."""
        return PackedShape(self.k, self.n, self.group_size)

    @property
    def a_dtype(self) -> torch.dtype:
        """Dtype of activations and results."""
        return self.scales.dtype

    @property
    def device(self) -> torch.device:
        """Where all tensors are."""
        return self.qweight.device

    def to(self, device: torch.device | str | int) -> PackedWeight:
        """The same weights on another device.

        Raises:
            DispatchError: the device is a GPU for which no built kernel can serve the layer.
        """
        tensors: dict[str, Any] = {name: None if t is None else t.to(device) for name, t in self._tensors()}
        moved = replace(self, **tensors)
        prepare(moved)
        return moved

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Tensors only, ``meta`` (sizes, quant type, layout version) among them; ``from_state_dict`` is the inverse."""
        return {name: t for name, t in self._tensors() if t is not None} | {"meta": encode_meta(self)}

    @classmethod
    def from_state_dict(cls, state: dict[str, torch.Tensor]) -> PackedWeight:
        """Weights from what ``state_dict`` gave.

        Raises:
            LayoutError: the state is of another layout version, or its tensors do not fit its sizes.
        """
        if not {"qweight", "scales", "meta"} <= state.keys():
            raise LayoutError(f"a packed state has qweight, scales and meta, not {', '.join(state)}")
        return cls(state["qweight"], state["scales"], state.get("zeros"), state.get("bias"), **decode_meta(state["meta"]))

    def dequantize(self) -> torch.Tensor:
        """Weights [K, N] in ``a_dtype``, rounded once from the exact ``value * scale`` as grouped kernels do.

        (Kernels of a single group multiply the fp32 sum by the scale instead and do not round here.)
        """
        codes, scales, zeros, _ = unpack(self)
        quant, group = quant_type(self.quant), self.k // scales.shape[0]
        result = torch.empty((self.k, self.n), dtype=self.a_dtype, device=self.device)
        for g in range(scales.shape[0]):
            rows = slice(g * group, (g + 1) * group)
            values = code_values(quant, codes[rows], None if zeros is None else zeros[g])
            result[rows] = values.to(self.a_dtype).float() * scales[g].float()
        return result

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        return ((name, getattr(self, name)) for name in ("qweight", "scales", "zeros", "bias"))

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedWeight, tuple(getattr(self, f.name) for f in fields(self))  # checks run again


class Unpacked(NamedTuple):
    """What ``pack`` was given.

    Attributes:
        codes: uint8 [K, N].
        scales: [K/g, N] in the activation dtype.
        zeros: int32 (or activation dtype, for float zero points) [K/g, N], or None.
        bias: [N] in the activation dtype, or None.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    bias: torch.Tensor | None


def pack(
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    *,
    quant: str | QuantType = "u4b8",
    group_size: int = 128,
    bias: torch.Tensor | None = None,
    a_dtype: str | torch.dtype | None = None,
) -> PackedWeight:
    """Pack quantised weights for the kernels. No temporary grows with K*N beyond 1/8 of the packed size.

    Args:
        codes: [K, N], any signed integer dtype or uint8, values 0 .. 2^bits - 1, one code an element.
        scales: [K/g, N], fp16 or bf16; also fp32 if ``a_dtype`` is given.
        zeros: zero points [K/g, N]: integers 0 .. 2^bits, or floats, as the quant type says; None for a type without.
        quant: quant type, by name or as a ``QuantType`` of other template folders.
        group_size: k rows that share a scale; -1 (or K) for all.
        bias: [N], or None.
        a_dtype: dtype of activations and results; that of ``scales`` if not given. Scales, float zeros and bias are
            rounded to it.

    Raises:
        LayoutError: a tensor has a wrong shape, dtype, device or value, or the group size does not divide K.
        DispatchError: the tensors are on a GPU for which no built kernel can serve the layer.
    """
    if isinstance(codes, PackedWeight):
        raise LayoutError("pack was given a PackedWeight: its weights are packed already", "use it as it is, or unpack it first")
    kind = quant_type(quant)
    if codes.dim() != 2 or codes.dtype not in _CODE_DTYPES:
        raise LayoutError(
            f"codes are {codes.dtype} {list(codes.shape)}; expected integers [K, N], one code an element",
            "a one-dimensional int32 tensor is packed already; unpack words of checkpoints first",
        )
    k, n = codes.shape
    shape = PackedShape(k, n, normal_group(k, group_size, kind))
    rows, device = (shape.groups, n), codes.device
    _check_scales(scales, rows, group_size, shape, a_dtype)
    dtype = activation_dtype(scales.dtype if a_dtype is None else a_dtype, kind)
    for name, tensor, want in (("scales", scales, rows), ("zeros", zeros, rows), ("bias", bias, (n,))):
        if tensor is not None and (tuple(tensor.shape) != want or tensor.device != device):
            raise LayoutError(f"{name} are {list(tensor.shape)} on {tensor.device}; expected {list(want)} on {device} as codes")
    packed = PackedWeight(
        qweight=_packed_codes(codes, shape, kind),
        scales=_packed_rows("scales", scales, shape, dtype, permuted=shape.group_size != -1),
        zeros=_packed_zeros(zeros, shape, kind, dtype),
        bias=None if bias is None else _padded("bias", bias[None], 1, shape.n_pad, dtype)[0],
        k=k, n=n, group_size=shape.group_size, quant=kind.name,
    )  # fmt: skip
    prepare(packed)
    return packed


def unpack(packed: PackedWeight) -> Unpacked:
    """Codes, scales, zero points and bias, exactly as ``pack`` was given them (rounded to the activation dtype)."""
    shape, quant = packed.shape, quant_type(packed.quant)
    codes = torch.empty((shape.k_pad, shape.n_pad), dtype=torch.uint8, device=packed.device)
    unpack_codes(packed.qweight, codes, shape, quant)

    def natural(rows: torch.Tensor, permuted: bool) -> torch.Tensor:
        out = torch.empty_like(rows)
        if permuted:
            unpermute_scales(rows, out)
        return (out if permuted else rows)[: shape.groups, : packed.n].clone()

    zeros = None if packed.zeros is None else natural(packed.zeros, True)
    return Unpacked(
        codes[: packed.k, : packed.n],
        natural(packed.scales, packed.group_size != -1),
        zeros.to(torch.int32) if zeros is not None and quant.zero == "int" else zeros,
        None if packed.bias is None else packed.bias[: packed.n].clone(),
    )


def _check_tensor(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise LayoutError(
            f"{name} of packed weights is {tensor.dtype} {list(tensor.shape)}; expected {dtype} {list(shape)}",
            "make packed weights with marlin_gen.pack",
        )
    if tensor.device != device:
        raise LayoutError(f"{name} is on {tensor.device}, qweight on {device}", "move all tensors to one device")
    if not tensor.is_contiguous():
        raise LayoutError(f"{name} of packed weights is not contiguous (strides {tensor.stride()})", "use .contiguous()")


def _check_scales(
    scales: torch.Tensor, rows: tuple[int, int], group_size: int, shape: PackedShape, a_dtype: str | torch.dtype | None
) -> None:
    if scales.dtype not in DTYPE_NAMES and not (scales.dtype == torch.float32 and a_dtype is not None):
        raise LayoutError(f"scales are {scales.dtype}; expected float16 or bfloat16", "give a_dtype to round float32 scales")
    found = tuple(scales.shape)
    if found == rows:
        return
    message = f"scales are {list(found)}; group size {group_size} of weights [K={shape.k}, N={shape.n}] needs {list(rows)}"
    if found == rows[::-1]:
        raise LayoutError(message + ": they look transposed", "give scales [K/g, N]")
    if len(found) == 2 and found[1] == shape.n and found[0] and shape.k % found[0] == 0:
        raise LayoutError(message, f"these scales belong to group size {shape.k // found[0]}")
    raise LayoutError(message, "one row of scales for every group of k rows")


def _packed_codes(codes: torch.Tensor, shape: PackedShape, quant: QuantType) -> torch.Tensor:
    low, high = (int(v) for v in torch.aminmax(codes))
    if low < 0 or high >= quant.codes:
        raise LayoutError(
            f"codes reach from {low} to {high}; {quant.name} has 0 to {quant.codes - 1}",
            "give one code an element: words of GPTQ, AWQ or Marlin checkpoints hold several",
        )
    out = torch.zeros(shape.words(quant.bits), dtype=torch.int32, device=codes.device)
    whole = shape.k // TILE_K * TILE_K
    step = max(_CHUNK_CODES.get(codes.device.type, 1 << 20) // shape.n // TILE_K, 1) * TILE_K
    for first in range(0, whole, step):
        pack_codes(codes[first : min(first + step, whole)], out, shape, quant, first)
    if whole < shape.k:  # the last tile is filled up with code 0: activations beyond K are zeros
        last = torch.zeros((TILE_K, shape.n), dtype=codes.dtype, device=codes.device)
        last[: shape.k - whole] = codes[whole:]
        pack_codes(last, out, shape, quant, whole)
    return out


def _packed_zeros(zeros: torch.Tensor | None, shape: PackedShape, quant: QuantType, dtype: torch.dtype) -> torch.Tensor | None:
    if quant.has_zero != (zeros is not None):
        raise LayoutError(f"quant type {quant.name} {'needs' if quant.has_zero else 'has no'} zero points", quant.summary)
    if zeros is None:
        return None
    if quant.zero == "int":
        if zeros.dtype not in _CODE_DTYPES:
            raise LayoutError(f"zeros are {zeros.dtype}; {quant.name} has integer zero points")
        low, high = (int(v) for v in torch.aminmax(zeros))
        if low < 0 or high > quant.codes:
            raise LayoutError(f"zeros reach from {low} to {high}; {quant.name} has 0 to {quant.codes}")
    elif not zeros.is_floating_point():
        raise LayoutError(f"zeros are {zeros.dtype}; {quant.name} has floating-point zero points")
    return _packed_rows("zeros", zeros, shape, dtype, permuted=True)


def _packed_rows(name: str, rows: torch.Tensor, shape: PackedShape, dtype: torch.dtype, permuted: bool) -> torch.Tensor:
    padded = _padded(name, rows, shape.groups_pad, shape.n_pad, dtype)
    if not permuted:
        return padded
    out = torch.empty_like(padded)
    permute_scales(padded, out)
    return out


def _padded(name: str, rows: torch.Tensor, height: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    padded = torch.zeros((height, width), dtype=dtype, device=rows.device)
    padded[: rows.shape[0], : rows.shape[1]] = rows
    if not bool(torch.isfinite(padded).all()):
        raise LayoutError(f"{name} contain NaN or infinity in {dtype}", "check the checkpoint, or use bfloat16 for large values")
    return padded
