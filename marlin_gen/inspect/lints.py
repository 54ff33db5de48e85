"""Lints: what a compiled kernel must not contain, each found in ptxas's report, in the counts or in SASS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from marlin_gen.config.arch import REGISTERS_PER_SM, parse_arch
from marlin_gen.inspect.artifacts import Artifacts
from marlin_gen.inspect.counts import Count, compare
from marlin_gen.inspect.loops import Loop, main_loop
from marlin_gen.inspect.phases import Source
from marlin_gen.inspect.policy import faulting_address, has_policy
from marlin_gen.inspect.ptxas import KernelUsage, PtxasReport, parse_ptxas, warning_code
from marlin_gen.inspect.sass import Instruction

ERROR, WARNING, INFO = "error", "warning", "info"
MAX_REGISTERS = 255
_SERIALISED = "C75"  # advisories that wgmma is made to wait begin so


@dataclass(frozen=True)
class Lint:
    """Something found.

    Attributes:
        id: of the rule, see RULES.
        severity: ``error``, ``warning`` or ``info``.
        line: of the kernel's source, if it belongs to one.
        address: of the first instruction concerned.
        times: how many instructions of that line are concerned.
    """

    id: str
    severity: str
    message: str
    line: int | None = None
    address: int | None = None
    times: int = 1


@dataclass(frozen=True)
class Subject:
    """A kernel with what the rules look at."""

    kernel: Artifacts

    @cached_property
    def source(self) -> Source:
        return Source(self.kernel.source or "")

    @cached_property
    def ptxas(self) -> PtxasReport:
        return parse_ptxas(self.kernel.ptxas or "")

    @cached_property
    def usage(self) -> KernelUsage | None:
        return self.ptxas.of(self.kernel.name, self.kernel.sass.arch) if self.kernel.ptxas is not None else None

    @cached_property
    def loop(self) -> Loop | None:
        return main_loop(self.kernel.sass)

    @cached_property
    def counts(self) -> list[Count]:
        expected = self.kernel.plan.expected_counts() if self.kernel.plan else {}
        return compare(expected, self.kernel.ptx, self.kernel.sass)

    @cached_property
    def all(self) -> list[Instruction]:
        return [i for i in self.kernel.sass.instructions if not i.never]

    @property
    def looped(self) -> list[Instruction]:
        return [i for i in self.loop.instructions if not i.never] if self.loop else []


Found = Iterator[tuple[str, str, Instruction | None]]
"""(severity, message, instruction) of each finding of a rule."""


def count(s: Subject) -> Found:
    """An instruction count is not what the plan expects."""
    for c in s.counts:
        if not c.exact:
            yield ERROR if c.binding else WARNING, f"{c.level}: {c.found} {c.name}, the plan expects {c.expected}", None


def spill(s: Subject) -> Found:
    """Registers are spilled, or a stack frame exists: thread memory, hundreds of cycles away."""
    if s.usage and (s.usage.stack or s.usage.spill_stores or s.usage.spill_loads):
        u = s.usage
        yield ERROR, f"{u.stack} bytes of stack, {u.spill_stores} bytes spilled, {u.spill_loads} bytes read back, a thread", None


def local_memory(s: Subject) -> Found:
    """The code reads or writes local memory (LDL, STL)."""
    yield from ((ERROR, f"local memory: {i}", i) for i in s.all if i.mnemonic in ("LDL", "STL"))


def policy_address(s: Subject) -> Found:
    """A copy with a cache policy whose shared address holds a uniform register: an illegal instruction on sm_90."""
    severity = ERROR if parse_arch(s.kernel.sass.arch).capability >= (9, 0) else WARNING
    for i in (i for i in s.all if faulting_address(i)):
        yield severity, f"uniform register in the address of a copy with a cache policy: {i}", i


def cache_policy(s: Subject) -> Found:
    """Whether copies carry a cache policy; an error where the config says otherwise."""
    used = sum(i.mnemonic == "LDGSTS" and has_policy(i, s.kernel.sass) for i in s.all)
    wanted = s.kernel.plan.config.evict_first if s.kernel.plan else bool(used)
    said = f"a cache policy is {f'used by {used} copies' if used else 'not used'}"
    yield (INFO, said, None) if bool(used) == wanted else (ERROR, f"{said}, but evict_first is {str(wanted).lower()}", None)


def copy_width(s: Subject) -> Found:
    """An asynchronous copy, or a load from global memory in the main loop, of less than 128 bits."""
    for i in s.all:
        if i.mnemonic == "LDGSTS" and "128" not in i.modifiers:
            yield ERROR, f"a copy of less than 128 bits: {i}", i
    for i in s.looped:
        if i.mnemonic in ("LDG", "LD") and "128" not in i.modifiers and "256" not in i.modifiers:
            yield ERROR, f"a global load of less than 128 bits in the main loop: {i}", i


def shared_width(s: Subject) -> Found:
    """A load from shared memory of less than 128 bits in the main loop."""
    yield from ((WARNING, f"less than 128 bits in the main loop: {i}", i) for i in _named(s, "LDS") if "128" not in i.modifiers)


def call_in_loop(s: Subject) -> Found:
    """The main loop calls a subroutine: 64-bit division, for instance."""
    yield from ((ERROR, f"a call in the main loop: {i}", i) for i in s.looped if i.is_call)


def division_in_loop(s: Subject) -> Found:
    """The main loop divides integers by a number unknown at compile time."""
    yield from ((ERROR, f"a division in the main loop: {i}", i) for i in _named(s, "I2F") if "RP" in i.modifiers)


def conversion_in_loop(s: Subject) -> Found:
    """The main loop converts between number formats one by one (quarter rate or less)."""
    found = (i for i in _named(s, "F2F", "I2F", "F2I") if "RP" not in i.modifiers)
    yield from ((WARNING, f"a conversion in the main loop: {i}", i) for i in found)


def predicated_barrier(s: Subject) -> Found:
    """A barrier under a predicate that may differ from thread to thread."""
    found = (i for i in s.all if i.mnemonic == "BAR" and i.guard and not i.guard.lstrip("!").startswith("U"))
    yield from ((WARNING, f"a barrier under a predicate: {i}", i) for i in found)


def narrow_accumulator(s: Subject) -> Found:
    """A matrix instruction accumulates in 16 bits."""
    yield from ((ERROR, f"16-bit accumulators: {i}", i) for i in s.all if i.mnemonic == "HMMA" and "F32" not in i.modifiers)


def flushed_subnormals(s: Subject) -> Found:
    """Arithmetic on pairs of 16-bit floats flushes subnormals: other bits than the reference."""
    found = (i for i in s.all if i.mnemonic in ("HADD2", "HFMA2", "HMUL2") and {"FTZ", "FMZ"} & set(i.modifiers))
    yield from ((ERROR, f"flushes subnormals: {i}", i) for i in found)


def registers(s: Subject) -> Found:
    """As many registers as there are, or more than let the promised CTAs share an SM."""
    if s.usage and s.usage.registers >= MAX_REGISTERS:
        yield WARNING, f"{s.usage.registers} registers: all there are", None
    if s.usage and s.kernel.plan:
        config = s.kernel.plan.config
        bound = REGISTERS_PER_SM // (config.threads * config.ctas)
        if s.usage.registers > bound:
            yield ERROR, f"{s.usage.registers} registers; {config.ctas} CTA(s) on an SM leave {bound}", None


def compiler_warning(s: Subject) -> Found:
    """nvcc or ptxas warns, of serialised wgmma (C75xx) above all."""
    for line in s.ptxas.warnings:
        yield ERROR if warning_code(line).startswith(_SERIALISED) else WARNING, line, None


def main_loop_missing(s: Subject) -> Found:
    """No loop holds tensor-core instructions: the rules about the main loop have nothing to look at."""
    if s.kernel.plan and s.loop is None:
        yield WARNING, "no loop with tensor-core instructions", None


RULES: dict[str, Callable[[Subject], Found]] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        count, spill, local_memory, policy_address, cache_policy, copy_width, shared_width, call_in_loop, division_in_loop,
        conversion_in_loop, predicated_barrier, narrow_accumulator, flushed_subnormals, registers, compiler_warning,
        main_loop_missing,
    )
}  # fmt: skip
"""All rules by id; the docstring of each says what it finds."""


def lint(subject: Subject) -> list[Lint]:
    """Apply all rules: errors first, then warnings, then information; findings of one rule at one line are one."""
    found: dict[tuple[str, object], Lint] = {}
    for name, rule in RULES.items():
        for severity, message, instruction in rule(subject):
            line = subject.source.line_of(instruction) if instruction else None
            address = instruction.address if instruction else None
            key = name, line if line is not None else (address, message)
            before = found.get(key)
            times = before.times + 1 if before else 1
            found[key] = Lint(
                name, severity, before.message if before else message, line, before.address if before else address, times
            )
    return sorted(found.values(), key=lambda f: (ERROR, WARNING, INFO).index(f.severity))


def _named(s: Subject, *mnemonics: str) -> list[Instruction]:
    return [i for i in s.looped if i.mnemonic in mnemonics]
