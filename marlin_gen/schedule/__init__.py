"""How a kernel runs: tiles, shared-memory map, order of steps, expected instruction counts; the striped partition."""

from marlin_gen.schedule.partition import Partition, partition
from marlin_gen.schedule.plan import KernelPlan

__all__ = ["KernelPlan", "Partition", "partition"]
