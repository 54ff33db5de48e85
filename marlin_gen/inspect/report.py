"""A report on one kernel: everything known of it without running it, as records; the views print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from marlin_gen.build.paths import Store
from marlin_gen.config.arch import parse_arch
from marlin_gen.inspect import artifacts
from marlin_gen.inspect.artifacts import Artifacts
from marlin_gen.inspect.counts import Count
from marlin_gen.inspect.lints import ERROR, Lint, Subject, lint
from marlin_gen.inspect.loops import Loop
from marlin_gen.inspect.occupancy import Occupancy, occupancy
from marlin_gen.inspect.phases import Phase, mix
from marlin_gen.inspect.ptxas import KernelUsage
from marlin_gen.layout.fragments import LANES

DEQUANT_SECTION = "quant type"
"""How the banner of a kernel's dequantisation begins."""


@dataclass(frozen=True)
class PhaseMix:
    """Instructions of a phase of the source.

    Attributes:
        title, level, first, last: as in Phase; level 0 for what belongs to none.
        instructions: number of those that can run. mix: the same by family.
    """

    title: str
    level: int
    first: int
    last: int
    instructions: int
    mix: dict[str, int]


@dataclass(frozen=True)
class LoopFacts:
    """The main loop: one revolution of the ring, straight through.

    Attributes:
        instructions, blocks, matrix: of the loop: all, basic blocks, those of the tensor cores.
        longest_stretch: most instructions in a row without one of the tensor cores.
        stretch_lines: first and last line of the source in that stretch.
        mix: instructions by family.
        per_8_weights: instructions that a lane executes for 8 weights; None without a plan.
        dequant_per_8_weights: those of them that come from the quant type, scales included.
    """

    instructions: int
    blocks: int
    matrix: int
    longest_stretch: int
    stretch_lines: tuple[int, int] | None
    mix: dict[str, int]
    per_8_weights: float | None
    dequant_per_8_weights: float | None


@dataclass(frozen=True)
class Report:
    """What is known of a kernel. ``to_dict`` gives all but the code itself."""

    subject: Subject

    @property
    def kernel(self) -> Artifacts:
        return self.subject.kernel

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def arch(self) -> str:
        return self.kernel.sass.arch

    @property
    def usage(self) -> KernelUsage | None:
        """Registers, spills and memory as ptxas reports them; None where its words are not kept."""
        return self.subject.usage

    @property
    def counts(self) -> list[Count]:
        """Instruction counts beside those that the plan expects."""
        return self.subject.counts

    @cached_property
    def lints(self) -> list[Lint]:
        """Findings, the worst first."""
        return lint(self.subject)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(found.severity == ERROR for found in self.lints)

    @cached_property
    def by_phase(self) -> dict[Phase | None, list[int]]:
        """Places in the list of instructions, by innermost phase."""
        found: dict[Phase | None, list[int]] = {}
        for index, instruction in enumerate(self.kernel.sass.instructions):
            found.setdefault(self.subject.source.phase_of(instruction), []).append(index)
        return found

    @cached_property
    def phases(self) -> list[PhaseMix]:
        """Instruction mix of every phase that has code; one of level 1 includes those of level 2 in it."""
        rows = []
        for phase in self.subject.source.phases:
            inside = [
                i for p, found in self.by_phase.items() if p and phase.first <= p.first and p.last <= phase.last for i in found
            ]
            if inside:
                rows.append(self._mixed(phase.title, phase.level, phase.first, phase.last, inside))
        if rest := self.by_phase.get(None):
            rows.append(self._mixed("elsewhere", 0, 0, 0, rest))
        return rows

    def _mixed(self, title: str, level: int, first: int, last: int, places: list[int]) -> PhaseMix:
        found = mix(self.kernel.sass.instructions[i] for i in places)
        return PhaseMix(title, level, first, last, found.total(), _sorted(found))

    @cached_property
    def loop(self) -> LoopFacts | None:
        """The main loop; None if no loop holds tensor-core instructions."""
        return self._loop_facts(self.subject.loop) if self.subject.loop else None

    def _loop_facts(self, loop: Loop) -> LoopFacts:
        source, found = self.subject.source, mix(loop.instructions)
        stretch = loop.longest_stretch
        lines = [line for i in stretch if (line := source.line_of(i)) is not None]
        helpers = (source.helper_of(i) for i in loop.instructions if not i.never)
        dequant = sum(helper is not None and helper.title.startswith(DEQUANT_SECTION) for helper in helpers)
        plan = self.kernel.plan
        eights = plan.weights_per_revolution / LANES / 8 if plan else None
        return LoopFacts(
            found.total(), loop.blocks, loop.matrix, len(stretch), (lines[0], lines[-1]) if lines else None, _sorted(found),
            found.total() / eights if eights else None, dequant / eights if eights else None,
        )  # fmt: skip

    @cached_property
    def occupancy(self) -> Occupancy | None:
        """CTAs on an SM; None without a plan or ptxas's numbers."""
        if self.usage is None or self.kernel.plan is None:
            return None
        plan = self.kernel.plan
        return occupancy(parse_arch(self.arch), plan.config.threads, self.usage.registers, plan.shared_bytes + self.usage.shared)

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values, for JSON."""
        kernel, held = self.kernel, self.occupancy
        return {
            "name": self.name,
            "arch": self.arch,
            "origin": kernel.origin,
            "notes": list(kernel.notes),
            "ok": self.ok,
            "usage": asdict(self.usage) if self.usage else None,
            "instructions": kernel.sass.counts.total(),
            "code_bytes": kernel.sass.bytes,
            "cubin_bytes": kernel.cubin_bytes,
            "occupancy": {**asdict(held), "ctas": held.ctas, "bound_by": held.bound_by} if held else None,
            "plan": [list(row) for row in kernel.plan.describe()] if kernel.plan else None,
            "shared": [asdict(region) for region in kernel.plan.shared.values()] if kernel.plan else None,
            "counts": [{**asdict(c), "exact": c.exact} for c in self.counts],
            "loop": asdict(self.loop) if self.loop else None,
            "phases": [asdict(p) for p in self.phases],
            "opcodes": dict(kernel.sass.counts.most_common()),
            "lints": [asdict(found) for found in self.lints],
        }


def inspect_kernel(
    target: str | Path, store: Store | None = None, template_dirs: Sequence[str] = (), nvcc: str | None = None
) -> Report:
    """Report on a kernel.

    Args:
        target: a kernel's name; a cubin or an object file; or a folder that holds ``kernel.cubin``, as ``objects/<key>`` does.
        store, template_dirs, nvcc: where kernels are built, and how this one is compiled if it is not.

    Raises:
        ConfigError: there is no such kernel.
        ToolchainError: nvdisasm or nvcc is missing or failed, or the file is not what it should be.
    """
    path = Path(target)
    if path.is_dir() and (path / "kernel.cubin").is_file():
        return Report(Subject(artifacts.of_folder(path)))
    if isinstance(target, Path) or path.is_file():
        return Report(Subject(artifacts.of_binary(path)))
    return Report(Subject(artifacts.of_kernel(target, store, template_dirs, nvcc)))


def _sorted(found: Counter[str]) -> dict[str, int]:
    return dict(found.most_common())
