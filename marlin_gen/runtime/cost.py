"""What a launch will cost: a model with few constants a GPU class, used to choose kernel and grid.

One CTA works through ``stripe`` tiles. A tile takes, all CTAs of its SM together, the longer of
    issue    its tensor-core work and its dequantisation, slower with few warps on the SM,
    supply   its bytes through the SM's share of L2,
and a part of the shorter, since the two overlap but not wholly; never less than the latency of global memory divided by the
stages in flight. Every slice of an output column adds an epilogue. The launch takes the longer of that and of all bytes once
through DRAM, the fixed cost of a launch, and, where CTAs share columns, the exchange of partial tiles; then, too, the CTAs
are at different depths of K, and find less of each other's operands in L2.
"""

from __future__ import annotations

from dataclasses import dataclass

from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.layout import PackedShape
from marlin_gen.schedule import Partition, partition


@dataclass(frozen=True)
class GpuModel:
    """Constants of a GPU class; times in microseconds, rates per microsecond.

    Attributes:
        dram_bytes: DRAM bandwidth of the whole GPU.
        sm_bytes: L2 bandwidth of one SM.
        sm_flops: tensor-core operations of one SM (``mma.sync``, 16 bit).
        sm_weights: weights that one SM dequantises.
        latency: of a global load under load.
        launch: a launch and the first fill of the ring.
        epilogue: one slice's epilogue; ``epilogue_value`` more for each value of its tile.
        starve: warps on an SM at which issue takes twice its best time.
        overlap: part of the shorter of issue and supply that is not hidden behind the longer.
        ragged: loss where columns are shared, so that CTAs run at different depths, as a fraction of a tile's time.
        share: exchange of partial tiles: fence, counter, first read; ``share_value`` more for each value a CTA adds up.
    """

    dram_bytes: float
    sm_bytes: float
    sm_flops: float
    sm_weights: float
    latency: float
    launch: float
    starve: float
    overlap: float
    ragged: float
    epilogue: float
    epilogue_value: float
    share: float
    share_value: float


# Hopper: chosen so that the launch it picks is the fastest one as often as can be, over 1181 launches of 15 kernels on an H200
# (six layers, M = 1 to 1024; docs/measurements/marlin.md): 0.7 % slower than the best (geometric mean), 9 % at worst. Its
# times are within 11 %. Ampere: data sheets, and Hopper's latencies.
MODELS: dict[int, GpuModel] = {
    8: GpuModel(1.6e6, 4.2e4, 2.0e6, 1e5, 0.8, 3.0, 1.2, 0.25, 0.03, 0.9, 2e-5, 0.6, 1e-4),
    9: GpuModel(3.06e6, 5.95e4, 4.33e6, 2.57e5, 0.823, 3.11, 1.19, 0.252, 0.0276, 0.875, 1.86e-5, 0.553, 1.01e-4),
}


def model_for(capability: tuple[int, int]) -> GpuModel:
    """Constants for a compute capability; of the nearest older class where its own is not in the table."""
    return MODELS[max((major for major in MODELS if major <= capability[0]), default=min(MODELS))]


@dataclass(frozen=True)
class Estimate:
    """A partition and the time predicted for it.

    Attributes:
        us: microseconds.
        partition: work division of the launch.
    """

    us: float
    partition: Partition


def estimate(config: KernelConfig, m: int, shape: PackedShape, bits: int, sms: int, gpu: GpuModel) -> Estimate:
    """The best partition of a product for one kernel, and its predicted time.

    Args:
        m, shape: rows, and the weights' sizes.
        bits: of a weight code.
        sms: multiprocessors of the GPU.

    Raises:
        DispatchError: the product has more tiles than a launch can count.
    """
    grid = sms * config.ctas
    parts = [partition(m, shape.k_pad, shape.n_pad, config, grid, stripe) for stripe in _stripes(config, m, shape, grid)]
    return min((Estimate(_time(config, part, m, shape, bits, sms, gpu), part) for part in parts), key=lambda e: e.us)


def _stripes(config: KernelConfig, m: int, shape: PackedShape, grid: int) -> set[int]:
    """Stripes worth trying: all CTAs busy; fewer, with halves, quarters ... of a column each; whole columns."""
    k_tiles = shape.k_pad // config.thread_k
    columns = shape.n_pad // config.thread_n * -(-m // config.m_tile)
    least = -(-columns * k_tiles // grid)
    parts = {-(-k_tiles // 2**i) for i in range(k_tiles.bit_length())}
    return {least, -(-columns // grid) * k_tiles} | {part for part in parts if part > least}


def _time(config: KernelConfig, part: Partition, m: int, shape: PackedShape, bits: int, sms: int, gpu: GpuModel) -> float:
    k_pad, n_pad = shape.k_pad, shape.n_pad
    residents = -(-part.grid // sms)
    weights, tile_values = config.thread_n * config.thread_k, config.m_tile * config.thread_n
    group = config.group_size if config.group_size != -1 else k_pad
    weight_bytes = weights * bits / 8 + 2 * weights / group
    warps = residents * config.threads / 32
    issue = (2 * config.m_tile * weights / gpu.sm_flops + weights / gpu.sm_weights) * (1 + gpu.starve / warps)
    supply = (weight_bytes + 2 * config.m_tile * config.thread_k) / gpu.sm_bytes
    tile = max(residents * (max(issue, supply) + gpu.overlap * min(issue, supply)), gpu.latency / (config.stages - 1))
    tile *= 1 + gpu.ragged * part.shared_columns
    slices = -(-part.stripe // part.k_tiles) + part.shared_columns
    busy = part.stripe * tile + slices * (gpu.epilogue + tile_values * gpu.epilogue_value)
    if part.shared_columns:
        sharers = min(-(-part.k_tiles // part.stripe) + 1, part.grid)
        busy += gpu.share + sharers * tile_values * gpu.share_value
    dram = (k_pad * n_pad * (bits / 8 + 2 / group) + 2 * m * (k_pad + n_pad)) / gpu.dram_bytes
    return gpu.launch + max(busy, dram)
