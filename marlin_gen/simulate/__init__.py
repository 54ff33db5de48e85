"""Runs emitted kernels on the CPU and reports what the hardware would not forgive: see docs/simulator.md."""

from marlin_gen.simulate.simulator import ORDERS, Buffer, Conflict, Fault, SimResult, simulate
from marlin_gen.simulate.verify import Finding, Run, VerifyReport, default_runs, verify

__all__ = [
    "ORDERS", "Buffer", "Conflict", "Fault", "Finding", "Run", "SimResult", "VerifyReport",
    "default_runs", "simulate", "verify",
]  # fmt: skip
