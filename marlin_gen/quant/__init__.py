"""Quant types: one file each in ``templates/quant``, described by the TOML head of that file."""

from marlin_gen.quant.discovery import load_quant, quant_names
from marlin_gen.quant.quant_type import QuantType
from marlin_gen.quant.skeleton import skeleton

__all__ = ["QuantType", "load_quant", "quant_names", "skeleton"]
