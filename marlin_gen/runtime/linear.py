"""``MarlinLinear``: a linear layer whose weights are packed; a drop-in for ``nn.Linear`` in inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from marlin_gen.errors import LayoutError
from marlin_gen.layout import PackedShape
from marlin_gen.quant import QuantType
from marlin_gen.runtime.meta import decode_meta, encode_meta
from marlin_gen.runtime.ops import as_packed, product
from marlin_gen.runtime.packed import PackedWeight, pack
from marlin_gen.runtime.plans import prepare
from marlin_gen.runtime.quants import normal_group, quant_type
from marlin_gen.runtime.rounding import round_to_nearest
from marlin_gen.runtime.values import DTYPE_NAMES, activation_dtype

_META = "_extra_state"


class MarlinLinear(torch.nn.Module):
    """A linear layer with packed weights. ``from_linear`` and ``from_packed`` are the usual ways to make one.

    The state dict holds the packed tensors and their sizes; it does not depend on which kernels are built. ``half()``,
    ``bfloat16()``, ``to(dtype)`` and loading a state of the other dtype round scales and bias; values that would become
    infinite, and other dtypes, are refused.

    Args:
        in_features, out_features: K and N.
        quant: quant type.
        group_size: k rows that share a scale; -1 for all.
        bias: whether there is one.
        dtype: of activations and results.
        device: where the (zeroed) weights are made, to be filled by ``load_state_dict``.

    Raises:
        LayoutError: K, N and the group size make no layer, or the quant type does not serve the dtype.
        DispatchError: on a GPU, no built kernel can serve the layer.
    """

    qweight: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    bias: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        quant: str | QuantType = "u4b8",
        group_size: int = 128,
        bias: bool = True,
        dtype: torch.dtype = torch.float16,
        device: torch.device | str | None = None,
    ) -> None:
        kind = quant_type(quant)
        activation_dtype(dtype, kind)
        shape = PackedShape(in_features, out_features, normal_group(in_features, group_size, kind))
        words = torch.zeros(shape.words(kind.bits), dtype=torch.int32, device=device)
        scales = torch.zeros((shape.groups_pad, shape.n_pad), dtype=dtype, device=device)
        zeros = scales.clone() if kind.has_zero else None
        added = torch.zeros(shape.n_pad, dtype=dtype, device=device) if bias else None
        self._take(PackedWeight(words, scales, zeros, added, in_features, out_features, shape.group_size, kind.name))

    @classmethod
    def from_packed(cls, packed: PackedWeight) -> MarlinLinear:
        """A layer around packed weights; tensors are shared, not copied.

        Raises:
            DispatchError: the weights are on a GPU for which no built kernel can serve the layer.
        """
        layer = cls.__new__(cls)
        layer._take(packed)
        return layer

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, quant: str | QuantType = "u4b8", group_size: int = 128, dtype: torch.dtype | None = None
    ) -> MarlinLinear:
        """Quantise a linear layer by rounding to the nearest code, each group scaled to its own range.

        Args:
            linear: the layer, on any device.
            quant, group_size: as for ``pack``.
            dtype: of activations and results; the layer's own if not given (fp16 for an fp32 layer).
        """
        dtype = dtype or (linear.weight.dtype if linear.weight.dtype in DTYPE_NAMES else torch.float16)
        bias = None if linear.bias is None else linear.bias.detach()
        codes, scales, zeros = round_to_nearest(linear.weight.detach().T, quant_type(quant), group_size, dtype)
        return cls.from_packed(pack(codes, scales, zeros, quant=quant, group_size=group_size, bias=bias))

    @property
    def in_features(self) -> int:
        return self.k

    @property
    def out_features(self) -> int:
        return self.n

    @property
    def packed(self) -> PackedWeight:
        """The weights as a record, sharing the layer's tensors."""
        return as_packed(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., K] to [..., N]; errors as for ``gemm``."""
        return product(x, self)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.k}, out_features={self.n}, bias={self.bias is not None}"
        return f"{sizes}, quant={self.quant}, group_size={self.group_size}, dtype={self.scales.dtype}"

    def _take(self, packed: PackedWeight) -> None:
        super().__init__()
        self.k, self.n, self.group_size, self.quant = packed.k, packed.n, packed.group_size, packed.quant
        for name in ("qweight", "scales", "zeros", "bias"):
            self.register_buffer(name, getattr(packed, name))
        prepare(self)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> MarlinLinear:
        dtype = fn(torch.empty(0, dtype=self.scales.dtype, device=self.scales.device)).dtype
        if dtype not in DTYPE_NAMES:
            raise LayoutError(f"a MarlinLinear cannot become {dtype}", "activations and scales are float16 or bfloat16")
        activation_dtype(dtype, quant_type(self.quant))
        if dtype != self.scales.dtype:
            _check_fits(self._buffers, "", dtype)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        prepare(self)
        return self

    def get_extra_state(self) -> torch.Tensor:
        """Sizes, quant type and layout version, as a tensor."""
        return encode_meta(self)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Nothing: the state was checked before any tensor was loaded."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local: dict[str, Any], *args: Any) -> None:
        if prefix + _META in state_dict:
            meta = decode_meta(state_dict[prefix + _META])
            mine = decode_meta(encode_meta(self))
            if meta != mine:
                name = prefix.rstrip(".") or "this layer"
                raise LayoutError(f"the state of {name} is {meta}; the layer is {mine}", "make the layer with the state's sizes")
        if not local.get("assign_to_params_buffers"):
            _check_fits(state_dict, prefix, self.scales.dtype)
        super()._load_from_state_dict(state_dict, prefix, local, *args)


def _check_fits(tensors: Mapping[str, Any], prefix: str, dtype: torch.dtype) -> None:
    """Refuse scales, zero points or a bias, under ``prefix`` in ``tensors``, that become infinite in ``dtype``."""
    for name in ("scales", "zeros", "bias"):
        found = tensors.get(prefix + name)
        if not isinstance(found, torch.Tensor) or found.dtype == dtype or found.is_meta:
            continue
        if not bool(torch.isfinite(found.to(dtype)).all()):
            raise LayoutError(f"{prefix}{name} of {found.dtype} do not fit {dtype}", f"keep the layer in {found.dtype}")
