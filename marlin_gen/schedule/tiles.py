"""Tiles: how a CTA and its warps divide a tile, and what its rows measure; the part of the plan that needs no map."""

from __future__ import annotations

from dataclasses import dataclass

from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.layout.fragments import LANES
from marlin_gen.quant.quant_type import QuantType

WARP_N = 64
_HALF = 2


@dataclass(frozen=True)
class Tiles:
    """Derived tile facts of one config.

    Attributes:
        config, quant: what they follow from.
    """

    config: KernelConfig
    quant: QuantType

    # ---- tiles ----------------------------------------------------------------------------------------------------
    @property
    def transposed(self) -> bool:
        """Weights as the 16-row operand: token tiles of 8."""
        return self.config.m_tile == 8

    @property
    def grouped(self) -> bool:
        """Scales are applied in the main loop (else once, in the epilogue)."""
        return self.config.group_size != -1

    @property
    def warps(self) -> int:
        return self.config.threads // LANES

    @property
    def warps_n(self) -> int:
        """Warps side by side, 64 columns each."""
        return self.config.thread_n // WARP_N

    @property
    def warps_k(self) -> int:
        """Warps that share an output tile and divide its k-subtiles."""
        return self.warps // self.warps_n

    @property
    def k_subtiles(self) -> int:
        """k16 steps of a warp in one stage."""
        return self.config.thread_k // 16 // self.warps_k

    @property
    def block_rows(self) -> int:
        """Rows of one accumulator block: 16, or 8 transposed."""
        return 8 if self.transposed else 16

    @property
    def m_blocks(self) -> int:
        return self.config.m_tile // self.block_rows

    @property
    def n_tiles(self) -> int:
        """MMA column tiles of a warp: 8 of n8, or 4 of n16 transposed."""
        return 4 if self.transposed else 8

    @property
    def lane_planes(self) -> int:
        """16-byte accesses by which a lane reads its codes of one k-subtile: those of four tiles, four words at a time."""
        return self.quant.tile_words

    # ---- scales ---------------------------------------------------------------------------------------------------
    @property
    def scale_rows(self) -> int:
        """Scale rows that one stage needs."""
        return max(1, self.config.thread_k // self.config.group_size) if self.grouped else 0

    @property
    def stages_per_group(self) -> int:
        """Successive k tiles that read the same scale row."""
        return max(1, self.config.group_size // self.config.thread_k)

    def scale_row(self, subtile: int, warp_k: int = 0) -> int:
        """Scale row inside a stage for k-subtile ``subtile`` of warp row ``warp_k``."""
        return (subtile * self.warps_k + warp_k) * 16 // self.config.group_size if self.scale_rows > 1 else 0

    @property
    def scale_operands(self) -> tuple[tuple[str, str], ...]:
        """Operands that the ring carries per group, as (prefix in the kernel, field of GemmParams)."""
        operands = (("s", "scales"), ("z", "zeros"))
        return operands[: 2 if self.quant.has_zero else 1] if self.grouped else ()

    @property
    def scale_vectors(self) -> tuple[str, ...]:
        """Prefixes of ``scale_operands``."""
        return tuple(prefix for prefix, _ in self.scale_operands)

    @property
    def scale_loads(self) -> tuple[int, ...]:
        """k-subtiles at which a warp reads scales: all, or the first where they are hoisted and stay the same."""
        hoisted = self.config.scale_load == "hoist" and self.scale_rows == 1
        return tuple(range(1 if hoisted else self.k_subtiles)) if self.grouped else ()

    # ---- shared memory --------------------------------------------------------------------------------------------
    @property
    def a_row_bytes(self) -> int:
        return self.config.thread_k * _HALF

    @property
    def b_block_bytes(self) -> int:
        """A block of 16 rows and 64 columns, packed."""
        return 16 * WARP_N * self.quant.bits // 8

    @property
    def b_row_bytes(self) -> int:
        """One row of such blocks across the CTA tile."""
        return self.warps_n * self.b_block_bytes

    @property
    def scale_row_bytes(self) -> int:
        return self.config.thread_n * _HALF
