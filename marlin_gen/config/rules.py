"""Legality rules: which configs can be emitted. All broken rules are reported together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlin_gen.config.arch import REGISTERS_PER_SM, SHARED_RESERVED_PER_CTA, parse_arch
from marlin_gen.config.kernel_config import A_DTYPES, REDUCTIONS, SCALE_LOADS, KernelConfig
from marlin_gen.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from marlin_gen.schedule.plan import KernelPlan

FAMILIES = ("marlin",)
STAGES = range(2, 9)
MAX_REGISTERS = 255


@dataclass(frozen=True)
class Rule:
    """One rule: ``broken`` gives the message for a config that breaks it, else an empty text.

    Attributes:
        names: the rule is about a name that does not exist, not about a combination.
    """

    id: str
    broken: Callable[[KernelConfig], str]
    hint: str
    names: bool = False


@dataclass(frozen=True)
class PlanRule:
    """A rule that needs the plan: sizes in shared memory, registers."""

    id: str
    broken: Callable[[KernelPlan], str]
    hint: str


def _warps(c: KernelConfig) -> str:
    if c.threads % 32 or not 64 <= c.threads <= 1024:
        return f"threads = {c.threads} is not a multiple of 32 from 64 to 1024"
    return ""


def _tile_n(c: KernelConfig) -> str:
    return f"thread_n = {c.thread_n} is not 64, 128 or 256" if c.thread_n not in (64, 128, 256) else ""


def _tile_k(c: KernelConfig) -> str:
    return f"thread_k = {c.thread_k} is not 64 or 128" if c.thread_k not in (64, 128) else ""


def _m_tile(c: KernelConfig) -> str:
    bad = c.m_tile != 8 and (c.m_tile < 16 or c.m_tile % 16)
    return f"m_tile = {c.m_tile} is neither 8 nor a multiple of 16" if bad else ""


def _warps_divide_tile(c: KernelConfig) -> str:
    if _warps(c) or _tile_n(c) or _tile_k(c):
        return ""
    warps, warps_n = c.threads // 32, c.thread_n // 64
    if warps % warps_n:
        return f"{warps} warps do not divide into the {warps_n} of 64 columns that thread_n = {c.thread_n} needs"
    warps_k = warps // warps_n
    if warps_k & (warps_k - 1) or (c.thread_k // 16) % warps_k:
        return f"{warps_k} warps along K do not divide the {c.thread_k // 16} k-subtiles of thread_k = {c.thread_k}"
    return ""


def _copies(c: KernelConfig) -> str:
    if _warps(c) or _tile_n(c) or _tile_k(c) or _warps_divide_tile(c):
        return ""
    rows = c.threads // (c.thread_k // 8)
    return f"threads = {c.threads} copy {rows} rows of thread_k = {c.thread_k} at a time: not a multiple of 8" if rows % 8 else ""


def _group(c: KernelConfig) -> str:
    g = c.group_size
    if g == -1:
        return ""
    if g < 16 or g % 16:
        return f"group_size = {g} is not a multiple of 16"
    if _tile_k(c):
        return ""
    return f"group_size = {g} and thread_k = {c.thread_k}: neither divides the other" if g % c.thread_k and c.thread_k % g else ""


def _stages(c: KernelConfig) -> str:
    return f"stages = {c.stages} is not from {STAGES.start} to {STAGES.stop - 1}" if c.stages not in STAGES else ""


def _register_buffer(c: KernelConfig) -> str:
    if _warps(c) or _tile_n(c) or _tile_k(c) or _warps_divide_tile(c):
        return ""
    subtiles = c.thread_k // 16 // (c.threads // 32 // (c.thread_n // 64))
    if c.stages * subtiles % 2:
        return (
            f"stages = {c.stages} times {subtiles} k-subtile(s) a warp is odd: the register buffers would not return to the first"
        )
    return ""


def _choice(field: str, values: tuple[str, ...]) -> Rule:
    def broken(c: KernelConfig) -> str:
        value = getattr(c, field)
        return f"{field} = {value!r} is none of {', '.join(values)}" if value not in values else ""

    return Rule(field, broken, f"write one of {', '.join(values)}", names=True)


RULES = (
    _choice("family", FAMILIES),
    _choice("a_dtype", A_DTYPES),
    _choice("scale_load", SCALE_LOADS),
    _choice("reduction", REDUCTIONS),
    Rule("threads", _warps, "the kernels are made for 256 threads; 128 is the other useful value"),
    Rule("thread_n", _tile_n, "a warp owns 64 columns; 4 warps side by side are the most"),
    Rule("thread_k", _tile_k, "use 64 or 128"),
    Rule("m_tile", _m_tile, "use 8, 16, 32, 48 or 64"),
    Rule("warps", _warps_divide_tile, "change threads, thread_n or thread_k"),
    Rule("copies", _copies, "the swizzle repeats every 8 rows; use more threads, or thread_k = 64"),
    Rule("group", _group, "use 32, 64, 128 or -1"),
    Rule("stages", _stages, "4 hides the latency of Ampere, 4 to 6 that of Hopper"),
    Rule("buffer", _register_buffer, "use an even number of stages"),
    Rule("ctas", lambda c: "" if 1 <= c.ctas <= 8 else f"ctas = {c.ctas} is not from 1 to 8", "1 or 2 are useful"),
)


def _quant_dtype(p: KernelPlan) -> str:
    if p.config.a_dtype in p.quant.a_dtypes:
        return ""
    return f"quant type {p.quant.name} does not serve a_dtype {p.config.a_dtype}"


def _quant_group(p: KernelPlan) -> str:
    allowed = p.quant.group_sizes
    missing = allowed and p.config.group_size not in allowed
    return f"quant type {p.quant.name} has no group size {p.config.group_size}" if missing else ""


def _shared(p: KernelPlan) -> str:
    limit = parse_arch(p.config.arch).shared_per_cta
    return f"needs {p.shared_bytes} bytes of shared memory; {p.config.arch} has {limit} a CTA" if p.shared_bytes > limit else ""


def _residency(p: KernelPlan) -> str:
    arch = parse_arch(p.config.arch)
    need = p.config.ctas * (p.shared_bytes + SHARED_RESERVED_PER_CTA)
    if need > arch.shared_per_sm and p.config.ctas > 1:
        return f"ctas = {p.config.ctas} need {need} bytes of shared memory; an SM of {arch.name} has {arch.shared_per_sm}"
    return ""


def _registers(p: KernelPlan) -> str:
    limit = min(MAX_REGISTERS, REGISTERS_PER_SM // (p.config.threads * p.config.ctas) // 8 * 8)
    if p.register_estimate > limit:
        residents = f"{p.config.threads} threads x {p.config.ctas} CTAs"
        return f"needs about {p.register_estimate} registers a thread; {residents} leave {limit}"
    return ""


PLAN_RULES = (
    PlanRule("quant_dtype", _quant_dtype, "see the head of the quant type's template"),
    PlanRule("quant_group", _quant_group, "see the head of the quant type's template"),
    PlanRule("shared", _shared, "fewer stages or a smaller tile"),
    PlanRule("residency", _residency, "fewer CTAs an SM, fewer stages or a smaller tile"),
    PlanRule("registers", _registers, "a smaller m_tile or fewer CTAs an SM"),
)


def check(config: KernelConfig) -> None:
    """Raise one ConfigError that lists every rule the config breaks (those that need no plan)."""
    unknown = any(r.names and r.broken(config) for r in RULES)
    _raise(config, [(r.id, r.broken(config), r.hint) for r in RULES], UnknownNameError if unknown else ConfigError)


def check_plan(plan: KernelPlan) -> None:
    """Raise one ConfigError that lists every size rule the plan breaks."""
    _raise(plan.config, [(r.id, r.broken(plan), r.hint) for r in PLAN_RULES], ConfigError)


def _raise(config: KernelConfig, results: list[tuple[str, str, str]], kind: type[ConfigError]) -> None:
    broken = [(rule, message, hint) for rule, message, hint in results if message]
    if broken:
        lines = "".join(f"\n  [{rule}] {message} ({hint})" for rule, message, hint in broken)
        raise kind(f"config {config.name} breaks {len(broken)} rule(s):{lines}")
