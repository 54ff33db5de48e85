"""Kernel names are identities; architecture names and lists."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marlin_gen.config import ARCHS, KernelConfig, config_sets, load_matrix, parse_arch_list
from marlin_gen.config.arch import parse_arch
from marlin_gen.config.kernel_config import A_DTYPES, REDUCTIONS, SCALE_LOADS
from marlin_gen.errors import ConfigError, UnknownNameError

NAME = "marlin_f16_u4b8_m16n128k128_g128_s4_sm90"

sizes = st.integers(0, 4096)
configs = st.builds(
    KernelConfig,
    arch=st.sampled_from(sorted(ARCHS)),
    a_dtype=st.sampled_from(A_DTYPES),
    quant=st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True),
    m_tile=sizes,
    thread_n=sizes,
    thread_k=sizes,
    group_size=st.one_of(st.just(-1), sizes),
    stages=sizes,
    family=st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True),
    threads=sizes,
    ctas=sizes,
    evict_first=st.one_of(st.none(), st.booleans()),
    swizzle=st.booleans(),
    scale_load=st.sampled_from(SCALE_LOADS),
    reduction=st.sampled_from(REDUCTIONS),
)


@given(configs)
def test_name_round_trip_of_any_config(config: KernelConfig) -> None:
    assert KernelConfig.from_name(config.name) == config


@pytest.mark.parametrize("name", sorted(config_sets()))
def test_every_name_of_a_set_gives_its_config_back(name: str) -> None:
    found = load_matrix(name)
    assert [KernelConfig.from_name(config.name) for config in found] == found
    assert len({config.name for config in found}) == len(found)


def test_each_field_is_part_of_the_name() -> None:
    config = KernelConfig.from_name(NAME)
    other = {
        "arch": "sm_80", "a_dtype": "bf16", "quant": "u4", "m_tile": 8, "thread_n": 64, "thread_k": 64, "group_size": -1,
        "stages": 5, "family": "other", "threads": 128, "ctas": 2, "evict_first": False, "swizzle": False, "scale_load": "hoist",
        "reduction": "chain16",
    }  # fmt: skip
    assert set(other) == set(config.as_dict())
    names = {dataclasses.replace(config, **{field: value}).name for field, value in other.items()}
    assert len(names | {NAME}) == len(other) + 1


@pytest.mark.parametrize("arch", sorted(ARCHS))
def test_the_hint_is_named_only_where_it_is_not_the_default(arch: str) -> None:
    base = dataclasses.replace(KernelConfig.from_name(NAME), arch=arch, evict_first=None)
    assert base.evict_first is ARCHS[arch].evict_first
    assert base.name.endswith(f"_sm{arch[3:]}")
    other = dataclasses.replace(base, evict_first=not base.evict_first)
    assert other.name == base.name + ("_ef" if other.evict_first else "_noef")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (NAME + "_t256", NAME),
        (NAME + "_c1", NAME),
        (NAME + "_ef", NAME),
        (NAME.replace("m16", "m016"), NAME),
        (NAME.replace("_s4", "_s04") + "_c2", NAME + "_c2"),
    ],
)
def test_other_spellings_are_refused_with_the_canonical_one(written: str, canonical: str) -> None:
    with pytest.raises(ConfigError, match="not the canonical name") as raised:
        KernelConfig.from_name(written)
    assert raised.value.hint == f"write {canonical}"


@pytest.mark.parametrize(
    "text",
    [
        "", "marlin", NAME + " ", NAME + "\n", NAME.upper(), NAME.replace("_g128", ""), NAME.replace("f16", "f32"),
        NAME + "_c2_t128", NAME + "_hoist_noswz", NAME + "_tree", NAME.replace("g128", "g-1"), "../" + NAME,
    ],
)  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a kernel name"):
        KernelConfig.from_name(text)


def test_a_name_of_an_unknown_architecture() -> None:
    with pytest.raises(UnknownNameError, match="unknown architecture 'sm_99'"):
        KernelConfig.from_name(NAME.replace("sm90", "sm99"))


def test_a_config_is_immutable_and_hashable() -> None:
    config = KernelConfig.from_name(NAME)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.stages = 3  # type: ignore[misc]
    assert {config: 1}[KernelConfig.from_name(NAME)] == 1


@pytest.mark.parametrize("text", ["sm_90", "sm90", "90", "9.0", " 9.0 "])
def test_spellings_of_an_architecture(text: str) -> None:
    assert parse_arch(text).name == "sm_90"
    assert dataclasses.replace(KernelConfig.from_name(NAME), arch=text).name == NAME


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.0", [("sm_80", False)]),
        ("9.0", [("sm_90", False)]),
        ("8.0;9.0", [("sm_80", False), ("sm_90", False)]),
        ("8.0+PTX;9.0", [("sm_80", True), ("sm_90", False)]),
        ("9.0a", [("sm_90a", False)]),
        ("sm_80, sm_90", [("sm_80", False), ("sm_90", False)]),
        ("10.0 12.0+ptx", [("sm_100", False), ("sm_120", True)]),
        ("9.0;9.0+PTX;sm_90", [("sm_90", True)]),
    ],
)
def test_architecture_lists(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(arch.name, ptx) for arch, ptx in parse_arch_list(text)] == expected


@pytest.mark.parametrize("text", ["99", "9", "9.0b", "sm_", "native", "9.0+SASS", "9.0+", "+PTX", "8.0;99"])
def test_bad_architectures_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="unknown architecture") as raised:
        parse_arch_list(text)
    assert repr(text.split(";")[-1].split("+PTX")[0]) in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("text", ["", " ", ";", ", ;"])
def test_an_empty_architecture_list(text: str) -> None:
    with pytest.raises(ConfigError, match="the architecture list is empty") as raised:
        parse_arch_list(text)
    assert "--arch" in raised.value.hint


def test_limits_of_architectures() -> None:
    """CUDA programming guide, technical specifications per compute capability."""
    per_cta = {name: arch.shared_per_cta // 1024 for name, arch in ARCHS.items()}
    assert per_cta == {
        "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_89": 99, "sm_90": 227, "sm_90a": 227, "sm_100": 227, "sm_120": 99,
    }  # fmt: skip
    for name, arch in ARCHS.items():
        assert arch.shared_per_sm == arch.shared_per_cta + 1024
        assert f"sm_{arch.capability[0]}{arch.capability[1]}" == name.rstrip("a")
        assert arch.gencode == f"arch=compute_{name[3:]},code={name}"


@pytest.mark.parametrize(
    ("name", "capability", "runs"),
    [
        ("sm_80", (8, 0), True), ("sm_80", (8, 6), True), ("sm_86", (8, 0), False), ("sm_80", (9, 0), False),
        ("sm_90", (9, 0), True), ("sm_90a", (9, 0), True), ("sm_90a", (9, 1), False), ("sm_90", (10, 0), False),
    ],
)  # fmt: skip
def test_native_code_runs_on_its_major_number_and_newer_minors(name: str, capability: tuple[int, int], runs: bool) -> None:
    assert ARCHS[name].runs_on(capability) is runs
