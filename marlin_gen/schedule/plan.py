"""KernelPlan: everything a template prints, computed and checked: tiles, shared-memory map, copies, counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from marlin_gen.config.arch import SHARED_RESERVED_PER_CTA, parse_arch
from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.config.rules import check, check_plan
from marlin_gen.layout.fragments import LANES
from marlin_gen.layout.swizzle import CHUNK_BYTES, chunk_position
from marlin_gen.quant.quant_type import QuantType
from marlin_gen.schedule.copies import CopyPlan
from marlin_gen.schedule.partition import slot_floats
from marlin_gen.schedule.tiles import WARP_N, Tiles

_FLOAT = 4
_FLAG_BYTES = 16  # one word that tells a CTA whether it arrived last


@dataclass(frozen=True)
class Region:
    """A named part of shared memory.

    Attributes:
        offset, bytes: place and size; ``stage_bytes`` of a ring slot, or 0 for a region that is no ring.
    """

    name: str
    offset: int
    bytes: int
    stage_bytes: int


@dataclass(frozen=True)
class TreeRound:
    """One round of the k-warp tree: warp rows half..2*half-1 put, warp rows 0..half-1 take and add.

    Attributes:
        put_slot, take_slot: slot minus warp row, for the writing and the reading side.
    """

    half: int
    put_slot: int
    take_slot: int


@dataclass(frozen=True)
class KernelPlan(Tiles):
    """Derived facts of one config. ``KernelPlan.create`` is the only way to make one."""

    @classmethod
    def create(cls, config: KernelConfig, quant: QuantType) -> KernelPlan:
        """Check every rule and derive the plan.

        Raises:
            ConfigError: the config breaks rules; the message lists all of them.
        """
        check(config)
        plan = cls(config, quant)
        check_plan(plan)
        plan.self_check()
        return plan

    # ---- shared memory ----
    @property
    def reduce_pad(self) -> int:
        """fp32 values between rows of the epilogue's tile: 8 (4 transposed) makes its stores free of bank conflicts."""
        return 4 if self.transposed else 8

    @property
    def reduce_row_bytes(self) -> int:
        return (self.config.thread_n + self.reduce_pad) * _FLOAT

    @property
    def tree_slot_bytes(self) -> int:
        """One warp row's accumulators of a block of rows, or the finished block with its padding, whichever is larger."""
        return max(self._tree_bytes, self.block_rows * self.reduce_row_bytes)

    @property
    def _tree_bytes(self) -> int:
        return self.warps_n * self.n_tiles * LANES * 16

    @property
    def reduce_block_bytes(self) -> int:
        """Epilogue space of one block of rows: its slots, of which the last never holds finished rows."""
        return (self.tree_slots - 1) * self.tree_slot_bytes + (self._tree_bytes if self.tree_slots > 1 else self.tree_slot_bytes)

    @property
    def tree_slots(self) -> int:
        """Slots of a block in the k-warp tree; slot 0 is free for the finished rows when the last round has been read."""
        return max(2, self.warps_k // 2) if self.warps_k > 1 else 1

    @property
    def tree_rounds(self) -> tuple[TreeRound, ...]:
        """Rounds of the tree: half of the remaining warp rows hand their sums to the other half.

        After the first round a warp row writes where it has just read, so one barrier a round is enough.
        """
        rounds, half = [], self.warps_k // 2
        while half:
            first = half == self.warps_k // 2
            shift = (half if self.warps_k > 2 else 0) if first else 0
            rounds.append(TreeRound(half, put_slot=-shift, take_slot=half - shift))
            half //= 2
        return tuple(rounds)

    @cached_property
    def reduce_blocks(self) -> int:
        """Blocks of rows that the epilogue handles between two barriers: as many as shared memory allows."""
        arch, ring = parse_arch(self.config.arch), sum(self._ring_bytes.values()) + 1024
        room = min(arch.shared_per_cta, arch.shared_per_sm // self.config.ctas - SHARED_RESERVED_PER_CTA) - ring
        return max(1, min(self.m_blocks, room // self.reduce_block_bytes))

    @property
    def reduce_passes(self) -> tuple[tuple[int, ...], ...]:
        """Blocks of each pass of the epilogue."""
        blocks, step = range(self.m_blocks), self.reduce_blocks
        return tuple(tuple(blocks[i : i + step]) for i in range(0, self.m_blocks, step))

    @property
    def _ring_bytes(self) -> dict[str, int]:
        slots = {"a": self.config.m_tile * self.a_row_bytes, "b": self.config.thread_k // 16 * self.b_row_bytes}
        slots |= dict.fromkeys(self.scale_vectors, self.scale_rows * self.scale_row_bytes)
        return {name: self.config.stages * size for name, size in slots.items()}

    @cached_property
    def shared(self) -> dict[str, Region]:
        """The shared-memory map: rings of activations, weights and scales, then the epilogue's space."""
        regions, offset = {}, 0
        sizes = [(name, size, size // self.config.stages) for name, size in self._ring_bytes.items()]
        sizes += [("reduce", self.reduce_blocks * self.reduce_block_bytes, 0), ("flag", _FLAG_BYTES, 0)]
        for name, size, stage in sizes:
            regions[name] = Region(name, offset, size, stage)
            offset = -(-(offset + size) // 128) * 128
        return regions

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a CTA, bytes."""
        last = self.shared["flag"]
        return last.offset + last.bytes

    # ---- copies ---------------------------------------------------------------------------------------------------
    @property
    def a_copy(self) -> CopyPlan:
        """Activations of a stage: m_tile rows of thread_k."""
        return CopyPlan(self.config.m_tile, self.a_row_bytes, self.config.threads)

    @property
    def b_copy(self) -> CopyPlan:
        """Weights of a stage: thread_k/16 rows of blocks."""
        return CopyPlan(self.config.thread_k // 16, self.b_row_bytes, self.config.threads)

    @property
    def s_copy(self) -> CopyPlan:
        """Scales (or zero points) of a stage."""
        return CopyPlan(self.scale_rows, self.scale_row_bytes, self.config.threads)

    @property
    def items(self) -> CopyPlan:
        """The epilogue's work items: 8 columns of one row of a block, 32 bytes of fp32."""
        return CopyPlan(self.block_rows, self.config.thread_n * CHUNK_BYTES // 8, self.config.threads)

    @property
    def slot_floats(self) -> int:
        """fp32 values of one partial-tile slot in global memory."""
        return slot_floats(self.config)

    # ---- numbers --------------------------------------------------------------------------------------------------
    @property
    def register_estimate(self) -> int:
        """Registers of a thread: accumulators, two fragment buffers, two dequantised columns, and addresses.

        Addresses take about 44 (measured: the emitted kernels use 40 to 50); a launch bound makes the compiler recompute
        some of them, down to about 20 without spilling.
        """
        accumulators = 4 * self.m_blocks * self.n_tiles
        activations = 2 * (2 if self.transposed else 4) * self.m_blocks
        weights = 2 * 4 * self.lane_planes + 2 * 4
        addresses = 44 if self.config.ctas == 1 else 20
        return accumulators + activations + weights + 2 * 4 * len(self.scale_vectors) + addresses

    @property
    def weights_per_revolution(self) -> int:
        """Weights that one warp dequantises in one revolution of the ring."""
        return self.config.stages * self.k_subtiles * 16 * WARP_N

    def expected_counts(self) -> dict[str, int]:
        """PTX instructions of the emitted kernel (SASS has the same numbers of HMMA, LDSM and LDGSTS)."""
        c, steps = self.config, self.config.stages * self.k_subtiles
        copies = self.a_copy.passes + self.b_copy.passes + len(self.scale_vectors) * self.s_copy.passes
        passes = len(self.reduce_passes)
        epilogue = passes * (len(self.tree_rounds) + 2) - 1
        return {
            "mma.sync": steps * self.m_blocks * self.n_tiles,
            "ldmatrix": (steps + 1) * self.m_blocks,
            "cp.async": (2 * c.stages - 1) * copies,
            "cp.async.commit_group": 2 * c.stages - 1,
            "cp.async.wait_group": c.stages + 2,
            "bar.sync": c.stages + 2 + epilogue + 2,
        }

    def describe(self) -> list[tuple[str, str]]:
        """The plan in words, as (subject, text) pairs: the emitted header and reports print them."""
        c = self.config
        product = "weights as A (n16 x k16), tokens as B" if self.transposed else "tokens as A (m16 x k16), weights as B"
        warps = f"{self.warps} warps = {self.warps_n} along n x {self.warps_k} along k"
        rows = [
            ("CTA tile", f"{c.m_tile} x {c.thread_n} (m x n), k {c.thread_k}; {warps}"),
            ("warp tile", f"{c.m_tile} x {WARP_N}, {self.k_subtiles} k-subtile(s) of 16 a stage; {product}"),
            ("ring", f"{c.stages} stages"),
        ]
        rows += [
            (f"shared {r.name}", f"{r.offset:6d} + {r.bytes} bytes{f' ({c.stages} x {r.stage_bytes})' if r.stage_bytes else ''}")
            for r in self.shared.values()
        ]
        rows.append(("shared total", f"{self.shared_bytes} bytes"))
        rows.append(("instructions", ", ".join(f"{n} {name}" for name, n in self.expected_counts().items())))
        return rows

    def self_check(self) -> None:
        """Assert what the templates rely on; a failure is a fault of marlin-gen, not of the user."""
        end = 0
        for region in self.shared.values():
            assert region.offset >= end and region.offset % 16 == 0, f"shared-memory map overlaps at {region.name}"
            end = region.offset + region.bytes
        for copy in (self.a_copy, self.b_copy):
            assert copy.pass_rows * copy.passes >= copy.rows, "copies do not cover a tile"
        # one literal serves every pass of the activation copy: its row advance keeps the swizzle
        assert self.a_copy.passes == 1 or self.a_copy.pass_rows % 8 == 0, "the swizzle changes between passes"
        row_chunks = self.a_row_bytes // CHUNK_BYTES
        for row in range(self.config.m_tile):
            assert sorted(chunk_position(row, j, self.config.swizzle) for j in range(row_chunks)) == list(range(row_chunks))
        if self.grouped and self.scale_rows > 1:
            for sub in range(self.k_subtiles):
                for wk in range(self.warps_k):
                    assert self.scale_row(sub, wk) == self.scale_row(sub) + self.scale_row(0, wk), "scale rows are not additive"
