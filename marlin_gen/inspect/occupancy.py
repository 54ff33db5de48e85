"""How many CTAs of a kernel fit on an SM, from the compiler's numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

from marlin_gen.config.arch import REGISTERS_PER_SM, SHARED_RESERVED_PER_CTA, Arch
from marlin_gen.layout.fragments import LANES

_REGISTER_UNIT = 256  # registers are given to a warp in portions of this
_WARP_UNIT = 4  # an SM's registers lie in four parts, a warp's in one of them
_SHARED_UNIT = 128
_MAX_CTAS = {(8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24, (9, 0): 32, (10, 0): 32, (12, 0): 24}


@dataclass(frozen=True)
class Occupancy:
    """CTAs that an SM can hold at once.

    Attributes:
        limits: CTAs that each resource would allow: ``threads``, ``registers``, ``shared``, ``slots``.
        warps: resident warps with that many CTAs; ``share`` of the most that an SM can hold, 0 to 1.
    """

    limits: dict[str, int]
    warps: int
    share: float

    @property
    def ctas(self) -> int:
        return min(self.limits.values())

    @property
    def bound_by(self) -> str:
        """The resource that runs out first."""
        return min(self.limits, key=lambda name: self.limits[name])


def occupancy(arch: Arch, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """CTAs on an SM.

    Args:
        threads: of a CTA. registers: of a thread. shared_bytes: of a CTA, static and dynamic together.
    """
    warps = -(-threads // LANES)
    of_warp = _round_up(registers * LANES, _REGISTER_UNIT)
    shared = _round_up(shared_bytes + SHARED_RESERVED_PER_CTA, _SHARED_UNIT)
    limits = {
        "threads": arch.threads_per_sm // (warps * LANES),
        "registers": REGISTERS_PER_SM // of_warp // _WARP_UNIT * _WARP_UNIT // warps if registers else _MAX_CTAS[arch.capability],
        "shared": arch.shared_per_sm // shared,
        "slots": _MAX_CTAS[arch.capability],
    }
    resident = min(limits.values()) * warps
    return Occupancy(limits, resident, resident * LANES / arch.threads_per_sm)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
