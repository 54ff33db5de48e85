"""Config files: what they name, and what is said of a wrong one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from marlin_gen.config import KernelConfig, config_sets, load_matrix
from marlin_gen.emit import Templates, check_legal
from marlin_gen.errors import ConfigError, UnknownNameError

TEMPLATES = Templates()
FIELDS = {
    "arch": '"sm_90"', "a_dtype": '"f16"', "quant": '"u4b8"', "m_tile": "16", "tile": "[128, 128]", "group_size": "128",
    "stages": "4",
}  # fmt: skip
NAME = "marlin_f16_u4b8_m16n128k128_g128_s4_sm90"


def legal(config: KernelConfig) -> None:
    check_legal(config, TEMPLATES)


def table(**changes: str | None) -> str:
    """A [[kernels]] table: a legal kernel with some fields written otherwise, or left out."""
    fields = FIELDS | changes
    return "[[kernels]]\n" + "".join(f"{key} = {value}\n" for key, value in fields.items() if value is not None)


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str | bytes, archs: tuple[str, ...] = ()) -> list[str]:
        path = tmp_path / "m.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return [config.name for config in load_matrix(str(path), archs, legal)]

    return load


def test_a_table_names_one_kernel(load) -> None:
    assert load(table()) == [NAME]


def test_a_table_names_the_product_of_its_axes(load) -> None:
    names = load(table(a_dtype='["f16", "bf16"]', m_tile="[8, 16, 64]", tile="[[128, 64], [64, 256]]", group_size="[-1, 128]"))
    expected = {
        f"marlin_{dtype}_u4b8_m{m}{tile}_g{group}_s4_sm90"
        for dtype in ("f16", "bf16")
        for m in (8, 16, 64)
        for tile in ("n64k128", "n256k64")
        for group in ("ch", "128")
    }
    assert len(names) == 24 and set(names) == expected


def test_every_field_may_be_an_axis_or_a_value(load) -> None:
    extras = {
        "family": '"marlin"', "threads": "[128, 256]", "ctas": "1", "evict_first": "[true, false]", "swizzle": "[true, false]",
        "scale_load": '["reload", "hoist"]', "reduction": '["fp32", "chain16", "atomic"]',
    }  # fmt: skip
    names = load(table(**extras))
    assert len(names) == 2 * 2 * 2 * 2 * 3
    assert {KernelConfig.from_name(name).reduction for name in names} == {"fp32", "chain16", "atomic"}


def test_duplicates_are_one_kernel_and_the_order_does_not_matter(load) -> None:
    tables = [table(), table(m_tile="[16, 8]"), table(arch='["9.0", "sm_90"]'), table(evict_first="true"), table(threads="256")]
    names = load("".join(tables))
    assert names == [NAME, NAME.replace("m16", "m8")] == sorted(names)
    random.Random(1).shuffle(tables)
    reversed_fields = ["[[kernels]]\n" + "".join(reversed(t.splitlines(keepends=True)[1:])) for t in tables]
    assert load("".join(reversed_fields)) == names


def test_two_hundred_kernels(load) -> None:
    axes = {
        "arch": '["8.0", "9.0"]', "a_dtype": '["f16", "bf16"]', "m_tile": "[8, 16, 32, 48, 64]",
        "group_size": "[-1, 16, 32, 64, 128]", "tile": "[[128, 64], [128, 128]]",
    }  # fmt: skip
    names = load(table(**axes))
    assert len(names) == len(set(names)) == 200


def test_illegal_kernels_are_reported_together(load) -> None:
    with pytest.raises(ConfigError, match=r"2 illegal config\(s\)") as raised:
        load(table(m_tile="[16, 24]", skip_illegal="false") + table(group_size="[128, 40]"))
    assert "m_tile = 24" in raised.value.message and "group_size = 40" in raised.value.message
    assert "m.toml" in raised.value.message


def test_skip_illegal_leaves_them_out(load) -> None:
    assert load(table(m_tile="[16, 24, 96]", group_size="[128, 40]", skip_illegal="true")) == [NAME]


def test_skip_illegal_leaves_out_only_its_own_table(load) -> None:
    with pytest.raises(ConfigError, match="m_tile = 24"):
        load(table(m_tile="[16, 96]", skip_illegal="true") + table(m_tile="24"))


@pytest.mark.parametrize(
    ("field", "values", "named"),
    [
        ("quant", '["u4b8", "u4b9"]', "'u4b9'"), ("a_dtype", '["f16", "fp16"]', "'fp16'"), ("arch", '["9.0", "99"]', "'99'"),
        ("reduction", '["fp32", "fp23"]', "'fp23'"), ("scale_load", '["reload", "load"]', "'load'"),
        ("family", '["marlin", "merlin"]', "'merlin'"),
    ],
)  # fmt: skip
def test_skip_illegal_does_not_hide_a_misspelt_name(load, field: str, values: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(table(**{field: values, "skip_illegal": "true"}))


def test_no_legal_kernel(load) -> None:
    with pytest.raises(ConfigError, match="names no legal kernel"):
        load(table(m_tile="[24, 96]", skip_illegal="true"))


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "kernels = []\n", "kernels = 3\n", "kernels = [1, 2]\n", "[kernels]\n" + table()[12:]]
)
def test_no_kernel(load, text: str) -> None:
    with pytest.raises(ConfigError, match="names no kernel") as raised:
        load(text)
    assert "[[kernels]]" in raised.value.hint


@pytest.mark.parametrize("key", ["m_tyle", "group", "thread_n", "Stages", "stage", '"skip illegal"'])
def test_an_unknown_key_is_named_with_its_line(load, key: str) -> None:
    text = table() + "\n" + table(**{key: "4"}) + "# stage, m_tyle, group\n" + table()
    line = text.splitlines().index(f"{key} = 4") + 1
    with pytest.raises(ConfigError) as raised:
        load(text)
    assert f"m.toml:{line}: unknown key {key.strip(chr(34))!r} in table 2 of [[kernels]]" in raised.value.message
    assert "m_tile" in raised.value.hint and "tile" in raised.value.hint


def test_an_unknown_table_is_named_with_its_line(load) -> None:
    with pytest.raises(ConfigError, match=r"m\.toml:10: unknown key 'kernel'"):
        load(table() + "\n" + table().replace("[[kernels]]", "[[kernel]]"))


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_a_missing_field_is_named(load, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"table 2 of \[\[kernels\]\] lacks {field}"):
        load(table() + table(**{field: None}))


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("m_tile", '"16"', "int"), ("m_tile", "16.0", "int"), ("m_tile", "true", "int"), ("stages", "[4, [5]]", "int"),
        ("quant", "4", "str"),
        ("arch", "90", "str"), ("swizzle", "1", "bool"), ("evict_first", '"yes"', "bool"), ("skip_illegal", '"no"', "bool"),
        ("skip_illegal", "[true, false]", "bool"), ("tile", '[128, "128"]', "int"), ("group_size", "{a = 1}", "int"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named_with_its_line(load, field: str, value: str, wanted: str) -> None:
    text = table() + table(**{field: value})
    line = 8 + [row.partition(" ")[0] for row in text.splitlines()[8:]].index(field) + 1
    with pytest.raises(ConfigError, match=rf"m\.toml:{line}: {field} = .* is not of type {wanted}"):
        load(text)


@pytest.mark.parametrize("value", ["5", '"128x128"', "[128]", "[128, 128, 4]", "[[128, 128], [64]]"])
def test_a_wrong_tile(load, value: str) -> None:
    with pytest.raises(ConfigError, match=r"m\.toml:6: tile = .* in table 1") as raised:
        load(table(tile=value))
    assert raised.value.hint == "a tile is [thread_k, thread_n]"


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_an_empty_axis(load, field: str) -> None:
    line = 2 + list(FIELDS).index(field)
    with pytest.raises(ConfigError, match=rf"m\.toml:{line}: {field} = \[\] names no kernel"):
        load(table(**{field: "[]"}))


def test_an_unknown_architecture_is_named_with_its_line(load) -> None:
    with pytest.raises(UnknownNameError, match=r"m\.toml:10: unknown architecture 'sm_99'"):
        load(table() + table(arch='["sm_90", "sm_99"]'))


@pytest.mark.parametrize(
    "text",
    ["[[kernels]\n", b"\xff\xfe[[kernels]]\n", "m_tile = \n", "a = 1\na = 2\n", f"a = {'1' * 5000}\n", f"a = {'[' * 3000}\n"],
)
def test_a_file_that_is_no_toml(load, text: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"m\.toml: "):
        load(text)


def test_archs_replace_those_of_a_file(load) -> None:
    assert load(table(), ("8.0", "sm_90")) == [NAME.replace("sm90", "sm80"), NAME]
    assert load(table(arch=None), ("8.0",)) == [NAME.replace("sm90", "sm80")]
    with pytest.raises(UnknownNameError, match="^unknown architecture '99'"):
        load(table(), ("99",))


def test_archs_replace_that_of_a_name_and_its_default_hint() -> None:
    assert [c.name for c in load_matrix(NAME, ["sm_80", "sm_100"])] == [NAME.replace("90", "100"), NAME.replace("90", "80")]
    assert load_matrix(NAME + "_noef", ["sm_100"])[0].name == NAME.replace("90", "100")


def test_a_kernel_name_is_a_source() -> None:
    assert load_matrix(NAME, legal=legal) == [KernelConfig.from_name(NAME)]
    with pytest.raises(ConfigError, match="m_tile = 24"):
        load_matrix(NAME.replace("m16", "m24"), legal=legal)
    for wrong in (NAME.replace("_s4", ""), NAME.replace("m16", "m" + "1" * 5000)):
        with pytest.raises(ConfigError, match="is not a kernel name"):
            load_matrix(wrong)


def test_unknown_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nosuch'") as raised:
        load_matrix("nosuch")
    assert "default" in raised.value.hint
    with pytest.raises(ConfigError, match="cannot read .*nosuch.toml: No such file"):
        load_matrix(str(tmp_path / "nosuch.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot read .*folder.toml"):
        load_matrix(str(tmp_path / "folder.toml"))
    with pytest.raises(ConfigError, match="null byte"):
        load_matrix("a\0.toml")


@pytest.mark.parametrize("name", sorted(config_sets()))
def test_packaged_sets_are_legal_and_small(name: str) -> None:
    found = load_matrix(name, legal=legal)
    assert found == load_matrix(str(config_sets()[name]), legal=legal)
    assert 0 < len(found) < 1000
    assert [c.name for c in found] == sorted(c.name for c in found)


@pytest.mark.parametrize("name", ["default", "gpu-test"])
def test_sets_without_skip_illegal_name_only_legal_kernels(name: str) -> None:
    assert "skip_illegal" not in config_sets()[name].read_text()


def test_every_packaged_quant_type_and_architecture_of_ampere_and_hopper_is_in_the_default_set() -> None:
    found = load_matrix("default")
    assert {c.quant for c in found} >= {"u4", "u4b8"} and {c.arch for c in found} >= {"sm_80", "sm_90"}
    assert {c.a_dtype for c in found} == {"f16", "bf16"}
