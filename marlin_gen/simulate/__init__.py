"""Runs emitted kernels on the CPU and reports what the hardware would not forgive: see docs/simulator.md."""

from marlin_gen.simulate.simulator import ORDERS, Buffer, Conflict, Fault, SimResult, simulate

__all__ = ["ORDERS", "Buffer", "Conflict", "Fault", "SimResult", "simulate"]
