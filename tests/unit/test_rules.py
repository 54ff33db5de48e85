"""Which kernels are refused, and what is said."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import pytest

from marlin_gen.config import KernelConfig
from marlin_gen.config.rules import PLAN_RULES, RULES
from marlin_gen.emit import Templates
from marlin_gen.errors import ConfigError, UnknownNameError
from marlin_gen.quant import QuantType, load_quant
from marlin_gen.schedule import KernelPlan

BASE = KernelConfig.from_name("marlin_f16_u4b8_m16n128k128_g128_s4_sm90")
U4B8 = load_quant("u4b8", Templates())
FP16_G32 = dataclasses.replace(U4B8, name="only", a_dtypes=("f16",), group_sizes=(32, -1))

# rule -> (changes of the base config that break it alone, the value as the message names it)
BREAKS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "family": [({"family": "merlin"}, "'merlin'")],
    "a_dtype": [({"a_dtype": "f32"}, "'f32'")],
    "scale_load": [({"scale_load": "once"}, "'once'")],
    "reduction": [({"reduction": "tree"}, "'tree'")],
    "threads": [({"threads": t}, f"threads = {t}") for t in (0, 32, 100, 257, 2048)],
    "thread_n": [({"thread_n": n}, f"thread_n = {n}") for n in (0, 32, 96, 192, 512)],
    "thread_k": [({"thread_k": k}, f"thread_k = {k}") for k in (0, 32, 96, 256)],
    "m_tile": [({"m_tile": m}, f"m_tile = {m}") for m in (-16, 0, 1, 4, 12, 24, 40)],
    "warps": [
        ({"threads": 192}, "3 warps along K"),
        ({"threads": 96}, "3 warps do not divide into the 2"),
        ({"threads": 512, "thread_k": 64, "thread_n": 64}, "16 warps along K do not divide the 4"),
        ({"threads": 64, "thread_n": 256, "thread_k": 64}, "2 warps do not divide into the 4"),
    ],
    "copies": [({"threads": 64, "thread_n": 64}, "threads = 64 copy 4 rows of thread_k = 128")],
    "group": [
        *(({"group_size": g}, f"group_size = {g} is not a multiple of 16") for g in (0, -2, 1, 8, 24, 100)),
        ({"group_size": 48}, "group_size = 48 and thread_k = 128"),
        ({"group_size": 192}, "group_size = 192 and thread_k = 128"),
    ],
    "stages": [({"stages": s}, f"stages = {s}") for s in (0, 10)],
    "buffer": [({"stages": 3, "thread_k": 64}, "stages = 3 times 1 k-subtile(s)")],
    "ctas": [({"ctas": c}, f"ctas = {c}") for c in (-1, 0, 9)],
    "quant_dtype": [({"quant": "only", "a_dtype": "bf16", "group_size": -1}, "only does not serve a_dtype bf16")],
    "quant_group": [({"quant": "only"}, "only has no group size 128")],
    "shared": [
        ({"arch": "sm_86", "stages": 8, "thread_n": 256, "m_tile": 8}, "sm_86 has 101376"),
        ({"arch": "sm_89", "stages": 8, "thread_n": 256, "m_tile": 8}, "sm_89 has 101376"),
        ({"arch": "sm_80", "stages": 8, "thread_n": 256, "m_tile": 16}, "sm_80 has 166912"),
        ({"stages": 8, "thread_n": 256, "m_tile": 64}, "sm_90 has 232448"),
    ],
    "residency": [({"ctas": 2, "stages": 8, "thread_n": 256, "threads": 128, "m_tile": 8}, "ctas = 2 need")],
    "registers": [
        *(({"m_tile": m}, f"{r} registers") for m, r in ((80, 268), (96, 308))),
        ({"m_tile": 64, "ctas": 2, "stages": 2, "thread_k": 64}, "256 threads x 2 CTAs leave 128"),
    ],
}  # fmt: skip


def plan(config: KernelConfig) -> KernelPlan:
    quant: QuantType = FP16_G32 if config.quant == "only" else U4B8
    return KernelPlan.create(config, quant)


def broken(config: KernelConfig) -> tuple[list[str], ConfigError]:
    with pytest.raises(ConfigError) as raised:
        plan(config)
    return re.findall(r"^  \[(\w+)\]", raised.value.message, re.MULTILINE), raised.value


def test_the_base_is_legal_and_every_rule_has_a_case() -> None:
    assert plan(BASE).config == BASE
    assert list(BREAKS) == [rule.id for rule in (*RULES, *PLAN_RULES)]


@pytest.mark.parametrize(
    ("rule", "changes", "named"), [(rule, changes, named) for rule, cases in BREAKS.items() for changes, named in cases]
)
def test_a_config_that_breaks_exactly_this_rule(rule: str, changes: dict[str, Any], named: str) -> None:
    config = dataclasses.replace(BASE, evict_first=None, **changes)
    rules, error = broken(config)
    assert rules == [rule]
    assert named in error.message and config.name in error.message and "breaks 1 rule(s)" in error.message
    hint = next(r.hint for r in (*RULES, *PLAN_RULES) if r.id == rule)
    assert f"({hint})" in error.message
    assert isinstance(error, UnknownNameError) == (rule in ("family", "a_dtype", "scale_load", "reduction"))


def test_too_few_stages_are_named_beside_what_follows_from_them() -> None:
    rules, error = broken(dataclasses.replace(BASE, stages=1, thread_k=64))
    assert rules == ["stages", "buffer"] and "stages = 1 is not from 2 to 8" in error.message


def test_all_broken_rules_are_reported_together() -> None:
    rules, error = broken(dataclasses.replace(BASE, a_dtype="f32", m_tile=24, group_size=40, stages=1, ctas=0, threads=192))
    assert rules == ["a_dtype", "m_tile", "warps", "group", "stages", "ctas"]
    assert "breaks 6 rule(s)" in error.message
    rules, _ = broken(dataclasses.replace(BASE, quant="only", a_dtype="bf16", m_tile=96, stages=8, thread_n=256, ctas=2))
    assert rules == ["quant_dtype", "quant_group", "shared", "residency", "registers"]


@pytest.mark.parametrize(("arch", "limit"), [("sm_86", 99), ("sm_89", 99), ("sm_80", 163), ("sm_90", 227)])
def test_the_shared_memory_limit_is_exact(arch: str, limit: int) -> None:
    """Of all ring depths and tiles, those that fit are accepted and the others refused, by the size the plan would have."""
    seen = set()
    base = dataclasses.replace(BASE, arch=arch, evict_first=None)
    widths = ((64, 128), (128, 256), (256, 256))
    for stages, m_tile, (thread_n, threads) in itertools.product(range(2, 9), (8, 16, 48, 64), widths):
        config = dataclasses.replace(base, stages=stages, m_tile=m_tile, thread_n=thread_n, threads=threads)
        size = KernelPlan(config, U4B8).shared_bytes
        try:
            plan(config)
        except ConfigError as error:
            if f"needs {size} bytes of shared memory; {arch} has {limit * 1024} a CTA" in error.message:
                assert size > limit * 1024
                seen.add("refused")
                continue
        assert size <= limit * 1024
        seen.add("accepted")
    assert seen == {"refused", "accepted"}


def test_every_combination_is_either_refused_by_a_rule_or_passes_the_plans_own_checks() -> None:
    legal = 0
    axes = ((64, 128, 192, 256, 512), (64, 128), (64, 128, 256), (8, 16, 48, 80), (-1, 16, 32, 48, 128, 256), (2, 3, 8), (1, 3))
    for threads, thread_k, thread_n, m_tile, group, stages, ctas in itertools.product(*axes):
        config = dataclasses.replace(
            BASE, threads=threads, thread_k=thread_k, thread_n=thread_n, m_tile=m_tile, group_size=group, stages=stages, ctas=ctas
        )
        try:
            plan(config)
            legal += 1
        except ConfigError:
            continue
    assert legal > 500
