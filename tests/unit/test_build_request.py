"""Which kernels a request names, above all for architectures of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_tools import NAME

from marlin_gen.build.request import Request
from marlin_gen.config import KernelConfig, parse_arch_list
from marlin_gen.emit import Templates
from marlin_gen.errors import ConfigError

TEMPLATES = Templates()


def _request(*sources: str, archs: str = "") -> Request:
    return Request(sources, tuple(parse_arch_list(archs)) if archs else ())


def _configs(request: Request) -> tuple[list[KernelConfig], list[str]]:
    notes: list[str] = []
    return request.configs(TEMPLATES, notes.append), notes


def test_the_default_set_builds_for_any_arch_asked_for() -> None:
    both, notes = _configs(_request("default"))
    assert {c.arch for c in both} == {"sm_80", "sm_90"}
    assert notes == []
    for arch in ("sm_80", "sm_90"):  # those written for it, no others
        only, notes = _configs(_request("default", archs=arch))
        assert only == [c for c in both if c.arch == arch]
        assert notes == []
    assert _configs(_request("default", archs="8.0;9.0"))[0] == both
    for arch, base in (("sm_86", "sm_80"), ("sm_89", "sm_80"), ("sm_90a", "sm_90"), ("sm_100", "sm_90"), ("sm_120", "sm_90")):
        taken, notes = _configs(_request("default", archs=arch))
        assert {c.arch for c in taken} == {arch}
        left_out = int(notes[0].split()[0]) if notes else 0
        assert len(taken) + left_out == sum(c.arch == base for c in both)
        assert len(taken) > 10


def test_one_kernel_for_another_arch() -> None:
    (config,), _ = _configs(_request(NAME, archs="8.0"))
    assert config.arch == "sm_80"
    wide = "marlin_f16_u4b8_m64n256k128_g128_s3_sm90"
    with pytest.raises(ConfigError, match=r"sm86 breaks[\s\S]*bytes of shared memory; sm_86 has 101376 a CTA"):
        _configs(_request(wide, archs="8.6"))


def test_an_illegal_config_of_a_file_is_an_error_even_if_another_fits(tmp_path: Path) -> None:
    file = tmp_path / "layers.toml"
    fields = ('arch = "sm_86"', 'a_dtype = "f16"', 'quant = "u4b8"', "m_tile = [16, 64]", "tile = [128, 128]", "group_size = 128")
    file.write_text("\n".join(["[[kernels]]", *fields, "stages = 4", ""]))
    with pytest.raises(ConfigError, match=r"layers\.toml: 1 illegal config"):
        _configs(_request(str(file)))


def test_names_do_not_depend_on_order_and_repetition() -> None:
    a, b = _request(NAME, "default", archs="9.0"), _request("default", NAME, NAME, archs="9.0")
    assert a.set_name == b.set_name == f"default+{NAME}"
    assert a.named() == b.named()
    assert _configs(a) == _configs(b)


def test_set_names_are_short_and_distinct() -> None:
    many = [NAME.replace("m16", f"m{m}") for m in (16, 32, 48, 64)]
    names = {Request(tuple(many[:n])).set_name for n in (2, 3, 4)}
    assert len(names) == 3
    assert all(len(name) <= 100 for name in names)
    assert Request(("a/b/layers.toml",)).set_name == "layers"


def test_ptx_is_for_the_arch_it_was_asked_for() -> None:
    request = _request("default", archs="8.0+PTX;9.0")
    assert [request.ptx(arch) for arch in ("sm_80", "sm_90", "sm_86")] == [True, False, False]
