"""How the threads of a CTA share a tile of 16-byte chunks."""

from __future__ import annotations

from dataclasses import dataclass

from marlin_gen.layout.swizzle import CHUNK_BYTES


@dataclass(frozen=True)
class CopyPlan:
    """Chunks of a tile dealt to threads in order: pass p of thread t takes chunk t + p*threads.

    Attributes:
        rows: rows of the tile.
        row_bytes: bytes of a row, a multiple of 16.
        threads: threads of the CTA.
    """

    rows: int
    row_bytes: int
    threads: int

    @property
    def row_chunks(self) -> int:
        return self.row_bytes // CHUNK_BYTES

    @property
    def chunks(self) -> int:
        return self.rows * self.row_chunks

    @property
    def passes(self) -> int:
        return -(-self.chunks // self.threads)

    @property
    def pass_rows(self) -> int:
        """Rows that one pass of all threads advances."""
        return self.threads // self.row_chunks

    @property
    def pass_bytes(self) -> int:
        return self.threads * CHUNK_BYTES

    def guard(self, index: int) -> int:
        """Threads that take part in pass ``index``; 0 if all do."""
        left = self.chunks - index * self.threads
        return left if left < self.threads else 0
