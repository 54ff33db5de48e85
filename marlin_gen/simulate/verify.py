"""``marlin-gen verify``: an emitted kernel run on the CPU, on products whose result is known."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from marlin_gen.config.kernel_config import KernelConfig
from marlin_gen.emit.render import Rendered
from marlin_gen.emit.templates import Templates
from marlin_gen.errors import VerifyError
from marlin_gen.schedule.partition import partition
from marlin_gen.simulate import problems
from marlin_gen.simulate.formats import to_bits, to_values
from marlin_gen.simulate.problems import Problem
from marlin_gen.simulate.simulator import Buffer, Conflict, SimResult, simulate

CONFLICT_FREE = ("ldmatrix_x2", "ldmatrix_x4", "lds128")  # what the swizzle and the packed layout keep free of conflicts
_ROW = 8  # activations in 16 bytes, to which rows are aligned


@dataclass(frozen=True)
class Run:
    """One launch to make: a product, and how it is divided and ordered."""

    problem: Problem
    grid: int
    order: str = "index"
    seed: int = 0
    c_gap: int = 0  # elements between rows of C

    def __str__(self) -> str:
        return f"{self.problem}, grid {self.grid}, CTAs {self.order}" + (f" by seed {self.seed}" if self.seed else "")


@dataclass(frozen=True)
class Finding:
    """Something wrong with the kernel.

    Attributes:
        kind: kind of a ``Fault``, or ``wrong result``, ``bank conflict``, ``counters left``, ``partial sums left``.
        run: the first launch that showed it.
        line: line of the kernel's text, 0 if it belongs to none.
        detail: what happened, with the line's text.
    """

    kind: str
    run: str
    line: int
    detail: str

    def __str__(self) -> str:
        return f"{self.detail}\n    in: {self.run}"


@dataclass
class VerifyReport:
    """All that ``verify`` saw.

    Attributes:
        name: the kernel.
        findings: one for each kind and line; empty if the kernel is right.
        runs: the launches made.
        conflicts: lines with bank conflicts, those of no consequence included (from the last launch that showed each).
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    conflicts: dict[tuple[int, str], Conflict] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def check(self) -> None:
        """Raise a VerifyError that lists all findings, if there are any."""
        if self.findings:
            text = "".join(f"\n  {finding}" for finding in self.findings)
            raise VerifyError(f"{self.name}: {len(self.findings)} finding(s):{text}", "docs/simulator.md explains every kind")

    def _add(self, finding: Finding) -> None:
        if all((f.kind, f.line) != (finding.kind, finding.line) for f in self.findings):
            self.findings.append(finding)


def verify(
    rendered: Rendered,
    *,
    cache_dir: Path | None = None,
    templates: Templates | None = None,
    quick: bool = False,
    on_run: Callable[[str], None] = lambda _: None,
) -> VerifyReport:
    """Run a kernel on several products, grids and orders of its CTAs, and report every fault and wrong number.

    Args:
        rendered: the kernel, as emitted.
        cache_dir: where compiled kernels are kept; a temporary folder by default.
        templates: tree with the ``sim`` headers; the packaged one by default.
        quick: only the two products that find most.
        on_run: told about each launch before it is made.

    Raises:
        ToolchainError: there is no C++ compiler, or it refused the kernel.
    """
    if cache_dir is None:
        with tempfile.TemporaryDirectory(prefix="marlin-gen-") as folder:
            return verify(rendered, cache_dir=Path(folder), templates=templates, quick=quick, on_run=on_run)
    report = VerifyReport(rendered.name)
    for run in default_runs(rendered, quick):
        on_run(str(run))
        report.runs.append(str(run))
        run_one(rendered, run, report, cache_dir, templates)
    return report


def default_runs(rendered: Rendered, quick: bool = False) -> Iterator[Run]:
    """The launches of ``verify``: shallow and deep, ragged and whole, columns shared by none, two and several CTAs."""
    config, quant = rendered.config, rendered.plan.quant
    rng = np.random.default_rng(0)
    width, tile = config.thread_n, config.thread_k
    deep = _depth(config, (config.stages + 2) * tile + 24)  # the ring comes round, the last tile is ragged
    shallow = _depth(config, 24)  # fewer tiles than stages
    shared = problems.integer(config, quant, config.m_tile + 1, 2 * width - 23, deep, rng)
    yield Run(shared, grid=5, order="shuffled", c_gap=1)
    yield Run(problems.identity(config, quant, width, _depth(config, 128), rng), grid=3, order="reversed")
    if quick:
        return
    yield Run(shared, grid=3, order="index")
    for seed in (1, 2, 3):
        yield Run(shared, grid=7, order="shuffled", seed=seed)
    yield Run(shared, grid=64, order="reversed")
    yield Run(problems.integer(config, quant, 1, width - 5, shallow, rng, bias=True), grid=1)
    yield Run(
        problems.integer(config, quant, config.m_tile, 2 * width, deep, rng, bias=True), grid=2, order="reversed", c_gap=8
    )
    yield Run(problems.random(config, quant, config.m_tile, width, deep, rng), grid=2, order="shuffled")


def _depth(config: KernelConfig, wanted: int) -> int:
    """A K of about ``wanted`` that the group size divides."""
    return wanted if config.group_size == -1 else -(-wanted // config.group_size) * config.group_size


def run_one(
    rendered: Rendered, run: Run, report: VerifyReport, cache_dir: Path, templates: Templates | None = None
) -> SimResult:
    """Make one launch and add what it shows to the report."""
    config, plan, problem = rendered.config, rendered.plan, run.problem
    shape, quant = problem.shape, plan.quant
    parts = partition(problem.m, shape.k_pad, shape.n_pad, config, run.grid)
    lda, ldc = -(-shape.k // _ROW) * _ROW + _ROW, shape.n + run.c_gap
    a = to_bits(config.a_dtype, np.full((problem.m, lda), np.nan))[:, : shape.k]
    a[...] = to_bits(config.a_dtype, problem.a)
    c = np.zeros((problem.m, ldc), np.uint16)[:, : shape.n]
    partial = np.zeros(max(4, parts.partial_floats), np.float32)
    counters = np.zeros(parts.grid, np.uint32)
    chain, atomic = config.reduction == "chain16", config.reduction == "atomic"
    buffers = [
        Buffer("a", a),
        Buffer("b", problems.packed_weights(problem, quant)),
        Buffer("scales", problems.stored_scales(problem, config.a_dtype)),
        Buffer("c", c, "rw" if chain else "w", initialised=False, write_once=not chain),
        Buffer("partial", partial, "rw", initialised=atomic),
        Buffer("counters", counters, "rw"),
    ]
    for name, array in (
        ("zeros", problems.stored_zeros(problem, config.a_dtype)),
        ("bias", problems.stored_bias(problem, config.a_dtype)),
    ):
        if array is not None:
            buffers.append(Buffer(name, array))
    scalars = {
        "lda": lda, "ldc": ldc, "m": problem.m, "n": shape.n, "k": shape.k, "n_pad": shape.n_pad,
        "k_tiles": parts.k_tiles, "n_tiles": parts.n_tiles, "columns": parts.columns, "stripe": parts.stripe,
    }  # fmt: skip
    result = simulate(
        rendered.text, rendered.name, buffers, scalars, grid=parts.grid, threads=config.threads,
        shared_bytes=plan.shared_bytes, cache_dir=cache_dir, templates=templates, order=run.order, seed=run.seed,
    )  # fmt: skip
    where = str(run)
    for fault in result.faults:
        report._add(Finding(fault.kind, where, fault.line, str(fault)))
    for conflict in result.conflicts:
        report.conflicts[conflict.line, conflict.op] = conflict
        if config.swizzle and conflict.op in CONFLICT_FREE:
            report._add(Finding("bank conflict", where, conflict.line, str(conflict)))
    if result.completed:
        if wrong := problems.difference(problem, to_values(config.a_dtype, np.ascontiguousarray(c))):
            report._add(Finding("wrong result", where, 0, wrong))
        if counters.any():
            report._add(
                Finding("counters left", where, 0, "counters are not zero after the launch: the next one would go wrong")
            )
        if atomic and partial.any():
            report._add(
                Finding(
                    "partial sums left", where, 0, "partial sums are not zero after the launch: the next one would go wrong"
                )
            )
    return result
