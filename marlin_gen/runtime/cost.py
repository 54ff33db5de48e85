"""What a launch will cost: a model with few constants a GPU class, used to choose kernel and grid.

One CTA works through ``stripe`` tiles. A tile takes, all CTAs of its SM together, the longer of
    issue    its tensor-core work and its dequantisation, slower with few warps on the SM,
    supply   its bytes through the SM's share of L2,
and a part of the shorter, since the two overlap but not wholly; never less than the latency of global memory divided by the
stages in flight, and what of its own issue a CTA cannot hide behind its loads. Every slice of an output column adds an
epilogue. The launch takes about the longer of that and of all bytes once through DRAM, its fixed cost, and, where CTAs
share columns, the exchange of partial tiles; then, too, the CTAs are at different depths of K, and find less of each other's
operands in L2.
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
        exposed: part of a tile's issue that one CTA alone does not overlap with its own loads.
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
    exposed: float
    ragged: float
    epilogue: float
    epilogue_value: float
    share: float
    share_value: float


# Hopper: constants chosen so that the launch the model picks is the fastest as often as can be, over 2764 launches of 31 kernels
# on an H200 (six layers, M = 1 to 1024; docs/measurements/marlin.md): 0.8 % slower than the best (geometric mean), 6 % at
# worst. They rank; as times they are 14 % off. Ampere: data sheets, and Hopper's latencies.
MODELS: dict[int, GpuModel] = {
    8: GpuModel(1.6e6, 4.2e4, 2.5e6, 1e5, 0.6, 2.0, 1.8, 0.4, 0.8, 0.024, 1.2, 9e-5, 0.5, 3e-4),
    9: GpuModel(6.43e6, 4.87e4, 9.91e6, 1.43e5, 0.524, 0.504, 1.37, 0.185, 0.903, 0.0305, 1.18, 1.53e-4, 0.0, 3.08e-4),
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
    tile = max(
        residents * (max(issue, supply) + gpu.overlap * min(issue, supply)),
        gpu.latency / (config.stages - 1) + gpu.exposed * issue,
    )
    tile *= 1 + gpu.ragged * part.shared_columns
    slices = -(-part.stripe // part.k_tiles) + part.shared_columns
    busy = part.stripe * tile + slices * (gpu.epilogue + tile_values * gpu.epilogue_value)
    if part.shared_columns:
        sharers = min(-(-part.k_tiles // part.stripe) + 1, part.grid)
        busy += gpu.share + sharers * tile_values * gpu.share_value
    dram = (k_pad * n_pad * (bits / 8 + 2 / group) + 2 * m * (k_pad + n_pad)) / gpu.dram_bytes
    return gpu.launch + float((busy**4 + dram**4) ** 0.25)  # a smooth maximum: never a tie between launches
