"""The striped partition: equal runs of weight tiles for all CTAs, crossing column borders.

Tiles are counted down the columns: tile t is k tile t % k_tiles of output column t // k_tiles; CTA b owns tiles
[b*stripe, (b+1)*stripe). A column that several CTAs share is summed by the last of them to arrive (reduction fp32).
"""

from __future__ import annotations

from dataclasses import dataclass

from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.errors import DispatchError

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Partition:
    """Work division of one launch; the names are those of ``GemmParams``.

    Attributes:
        k_tiles: weight tiles in an output column.
        n_tiles: output columns side by side.
        columns: all output columns (n_tiles for every m_tile rows).
        stripe: tiles of one CTA.
        grid: CTAs launched; each has at least one tile.
        slot_floats: fp32 values of one partial-tile slot; a launch may use ``2 * grid`` slots.
    """

    k_tiles: int
    n_tiles: int
    columns: int
    stripe: int
    grid: int
    slot_floats: int

    @property
    def tiles(self) -> int:
        """All tiles of the launch."""
        return self.columns * self.k_tiles

    @property
    def shared_columns(self) -> bool:
        """Whether any column is shared by CTAs, so that partial tiles and counters are used."""
        return self.stripe % self.k_tiles != 0

    @property
    def partial_floats(self) -> int:
        """fp32 values that ``GemmParams.partial`` must have room for."""
        return 2 * self.grid * self.slot_floats if self.shared_columns else 0

    def slices(self, cta: int) -> list[tuple[int, int, int]]:
        """The (column, first k tile, end k tile) pieces of a CTA, in its order."""
        tile, end, pieces = cta * self.stripe, min((cta + 1) * self.stripe, self.tiles), []
        while tile < end:
            column, first = divmod(tile, self.k_tiles)
            count = min(self.k_tiles - first, end - tile)
            pieces.append((column, first, first + count))
            tile += count
        return pieces

    def sharers(self, column: int) -> tuple[int, int]:
        """First and last CTA that own tiles of a column."""
        return column * self.k_tiles // self.stripe, ((column + 1) * self.k_tiles - 1) // self.stripe


def slot_floats(config: KernelConfig) -> int:
    """fp32 values of one partial-tile slot: 8 for each thread and work item of the epilogue (8 columns of a row)."""
    block_rows = 8 if config.m_tile == 8 else 16
    passes = -(-block_rows * config.thread_n // 8 // config.threads)
    return config.m_tile // block_rows * passes * config.threads * 8


def partition(m: int, k_pad: int, n_pad: int, config: KernelConfig, grid: int, min_stripe: int = 1) -> Partition:
    """Divide a product among at most ``grid`` CTAs.

    Args:
        m: rows; at least 1.
        k_pad, n_pad: padded weight sizes, multiples of the config's thread_k and thread_n.
        grid: CTAs to use at most.
        min_stripe: tiles a CTA gets at least (fewer CTAs for small products).

    Raises:
        DispatchError: the product has more tiles than the kernel's 32-bit indices count.
    """
    k_tiles, n_tiles = k_pad // config.thread_k, n_pad // config.thread_n
    columns = n_tiles * -(-m // config.m_tile)
    tiles = columns * k_tiles
    if max(tiles, m + config.m_tile) > _INT32_MAX:
        raise DispatchError(
            f"M={m}, K={k_pad}, N={n_pad} make {tiles} tiles; {config.name} counts rows and tiles up to {_INT32_MAX}",
            "split the rows into several calls",
        )
    stripe = max(-(-tiles // max(grid, 1)), min(min_stripe, tiles))
    return Partition(k_tiles, n_tiles, columns, stripe, -(-tiles // stripe), slot_floats(config))
