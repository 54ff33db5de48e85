"""What a kernel is specialised for: the config record, architectures, legality rules, TOML matrices."""

from marlin_gen.config.arch import ARCHS, Arch, parse_arch_list
from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.config.matrix import config_sets, load_matrix

__all__ = ["ARCHS", "Arch", "KernelConfig", "config_sets", "load_matrix", "parse_arch_list"]
