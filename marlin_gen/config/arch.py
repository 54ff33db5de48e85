"""GPU architectures: limits (CUDA programming guide, "Technical Specifications per Compute Capability") and their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marlin_gen.errors import ConfigError, UnknownNameError


@dataclass(frozen=True)
class Arch:
    """One real architecture, e.g. ``sm_90``.

    Attributes:
        name: nvcc's name, ``sm_90``; a trailing ``a`` selects architecture-specific instructions.
        capability: compute capability as (major, minor).
        shared_per_cta: most dynamic shared memory of a CTA, bytes (opt-in limit).
        shared_per_sm: shared memory of an SM, bytes; each resident CTA takes its own and 1 KiB.
        threads_per_sm: most resident threads of an SM.
        evict_first: whether weights carry the L2 evict_first hint by default.
    """

    name: str
    capability: tuple[int, int]
    shared_per_cta: int
    shared_per_sm: int
    threads_per_sm: int
    evict_first: bool

    @property
    def number(self) -> str:
        """The part of the name after ``sm_``."""
        return self.name[3:]

    @property
    def gencode(self) -> str:
        """nvcc's target for native code of this architecture only."""
        return f"arch=compute_{self.number},code={self.name}"

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether native code of this architecture runs on a device: same major number, minor not newer."""
        if self.name.endswith("a"):
            return self.capability == capability
        return self.capability[0] == capability[0] and self.capability[1] <= capability[1]


_KIB = 1024
# evict_first gives 1 to 4 % on an H200 (docs/measurements/marlin.md); it is not measured on the last two.
ARCHS: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        Arch("sm_80", (8, 0), 163 * _KIB, 164 * _KIB, 2048, True),
        Arch("sm_86", (8, 6), 99 * _KIB, 100 * _KIB, 1536, True),
        Arch("sm_87", (8, 7), 163 * _KIB, 164 * _KIB, 1536, True),
        Arch("sm_89", (8, 9), 99 * _KIB, 100 * _KIB, 1536, True),
        Arch("sm_90", (9, 0), 227 * _KIB, 228 * _KIB, 2048, True),
        Arch("sm_90a", (9, 0), 227 * _KIB, 228 * _KIB, 2048, True),
        Arch("sm_100", (10, 0), 227 * _KIB, 228 * _KIB, 2048, False),
        Arch("sm_120", (12, 0), 99 * _KIB, 100 * _KIB, 1536, False),
    )
}
REGISTERS_PER_SM = 65536
SHARED_RESERVED_PER_CTA = _KIB


def parse_arch(text: str) -> Arch:
    """Read one architecture name: ``sm_90``, ``90``, ``9.0``, ``9.0a``.

    Raises:
        UnknownNameError: the name is not a known architecture.
    """
    match = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)(a?)", text.strip())
    name = f"sm_{match[1]}{match[2]}{match[3]}" if match else ""
    if name not in ARCHS:
        raise UnknownNameError(f"unknown architecture {text!r}", f"choose from {', '.join(ARCHS)} (also written 8.0, 9.0, 9.0a)")
    return ARCHS[name]


def parse_arch_list(text: str) -> list[tuple[Arch, bool]]:
    """Read a list such as ``"8.0+PTX;9.0"`` or ``"sm_80,sm_90"`` into (architecture, embed PTX too) pairs.

    Raises:
        ConfigError: the list is empty or names an unknown architecture.
    """
    items = [item.strip() for item in re.split(r"[;,\s]+", text) if item.strip()]
    if not items:
        raise ConfigError("the architecture list is empty", "give for instance --arch 9.0 or --arch '8.0;9.0+PTX'")
    result: dict[str, tuple[Arch, bool]] = {}
    for item in items:
        base, plus, ptx = item.partition("+")
        if plus and ptx.upper() != "PTX":
            raise ConfigError(f"unknown architecture {item!r}", "only '+PTX' may follow an architecture")
        arch = parse_arch(base)
        result[arch.name] = (arch, bool(plus) or result.get(arch.name, (arch, False))[1])
    return list(result.values())
