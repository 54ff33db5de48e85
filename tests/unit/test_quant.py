"""Quant types: heads, values of codes, and a new type made of nothing but a template."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlin_gen.config import KernelConfig
from marlin_gen.emit import Templates, render
from marlin_gen.errors import ConfigError, TemplateError, ToolchainError, UnknownNameError
from marlin_gen.layout.fragments import weight_element
from marlin_gen.quant import load_quant, quant_names, skeleton
from marlin_gen.quant.quant_type import CODES_PER_LANE
from marlin_gen.simulate import verify

PACKAGED = Templates()
NAME = "marlin_{dtype}_{quant}_m16n128k128_g128_s4_sm90"

# Signed 4 bit, two's complement: with the sign bit flipped it is u4b8.
S4 = """{#-
name = "s4"
summary = "4 bit signed, two's complement"
bits = 4
slots = [0, 16, 4, 20, 8, 24, 12, 28]
MEANING
zero = "none"
a_dtypes = ["f16", "bf16"]
-#}
{% import "quant/u4b8.cuh.j2" as base %}
{% macro constants(k) %}
constexpr uint32_t kSigns = 0x88888888u;
{{ base.constants(k) }}
{% endmacro %}
{% macro dequant(k) %}
const uint32_t offset[1] = {q[0] ^ kSigns};
{{ base.dequant(k) | replace("q[0]", "offset[0]") }}
{% endmacro %}
{% macro scale(k) %}
{{ base.scale(k) }}
{% endmacro %}
"""
S4_VALUE = 'value = "q - 16*(q > 7)"'
S4_TABLE = "table = [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1]"

HEAD = {
    "name": '"t"', "summary": '"a test"', "bits": "4", "slots": "[0, 16, 4, 20, 8, 24, 12, 28]", "value": '"q - 8"',
    "zero": '"none"', "a_dtypes": '["f16"]',
}  # fmt: skip
MACROS = "{% macro constants(k) %}{% endmacro %}{% macro dequant(k) %}{% endmacro %}{% macro scale(k) %}{% endmacro %}\n"


def tree(folder: Path, name: str, text: str) -> Templates:
    """A --template-dir with one quant type."""
    (folder / "quant").mkdir(exist_ok=True)
    (folder / "quant" / f"{name}.cuh.j2").write_text(text)
    return Templates([folder])


def head(**changes: str | None) -> str:
    fields = HEAD | changes
    return "{#-\n" + "".join(f"{key} = {value}\n" for key, value in fields.items() if value is not None) + "-#}\n" + MACROS


# ---- heads ------------------------------------------------------------------------------------------------------------


def test_a_right_head(tmp_path: Path) -> None:
    quant = load_quant("t", tree(tmp_path, "t", head()))
    assert (quant.bits, quant.codes, quant.tile_words, quant.has_zero) == (4, 16, 1, False)
    assert quant.source == str(tmp_path / "quant" / "t.cuh.j2")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({key: None}, f"{key} is missing") for key in HEAD if key not in ("value",)),
        ({"colour": '"red"'}, "unknown key 'colour'; keys are name, summary"),
        ({"bits": '"4"'}, "bits must be of type int, not str"),
        ({"bits": "true"}, "bits must be of type int, not bool"),
        ({"slots": '"0,16"'}, "slots must be of type list, not str"),
        ({"summary": "1"}, "summary must be of type str, not int"),
        ({"slots": '[0, 16, 4, 20, 8, 24, 12, "28"]'}, "slots holds '28', which is not of type int"),
        ({"slots": "[0, 16, 4, 20, 8, 24, 12, 28.0]"}, "slots holds 28.0"),
        ({"value": None, "table": "[" + "'x'," * 16 + "]"}, "table holds 'x', which is not of type int or float"),
        ({"value": None, "table": "[" + "[1]," * 16 + "]"}, "table holds [1]"),
        ({"a_dtypes": '["f16", 1]'}, "a_dtypes holds 1"),
        ({"group_sizes": '["32"]'}, "group_sizes holds '32'"),
        ({"bits": "3"}, "bits = 3, but packed layouts exist for 4 and 8 bits"),
        ({"slots": "[0, 16, 4, 20, 8, 24, 12]"}, "slots must be 8 different bit offsets"),
        ({"slots": "[0, 16, 4, 20, 8, 24, 12, 12]"}, "slots must be 8 different bit offsets"),
        ({"slots": "[0, 16, 4, 20, 8, 24, 12, 30]"}, "slots [30] do not lie on multiples of 4"),
        ({"slots": "[0, 16, 4, 20, 8, 24, -4, 32]"}, "slots [-4, 32] do not lie"),
        ({"bits": "8"}, "slots [4, 20, 12, 28] do not lie on multiples of 8 inside 2 word(s)"),
        ({"value": '"q - z"'}, "value = 'q - z' cannot be evaluated: name 'z' is not defined"),
        ({"value": '"q -"'}, "cannot be evaluated: invalid syntax"),
        ({"value": "\"__import__('os')\""}, "cannot be evaluated"),
        ({"value": '"8"'}, "value = '8' does not depend on q"),
        ({"value": '"z"', "zero": '"int"'}, "value = 'z' does not depend on q"),
        ({"value": None}, "give either value"),
        ({"table": "[" + "0," * 16 + "]"}, "give either value"),
        ({"value": None, "table": "[0, 1]"}, "table has 2 values; 4 bits have 16 codes"),
        ({"value": None, "table": "[" + "0," * 16 + "]", "zero": '"int"'}, "a table leaves no place for zero points"),
        ({"zero": '"maybe"'}, "zero = 'maybe' is none of none, int, float"),
        ({"a_dtypes": '["f16", "f32"]'}, "a_dtypes ['f32'] are unknown"),
        ({"name": '"other"'}, "name is 'other' but the file is named 't'"),
    ],
)  # fmt: skip
def test_a_malformed_head_is_reported_with_its_file(tmp_path: Path, changes: dict[str, str | None], said: str) -> None:
    with pytest.raises(TemplateError) as raised:
        load_quant("t", tree(tmp_path, "t", head(**changes)))
    assert raised.value.message.startswith(f"{tmp_path / 'quant' / 't.cuh.j2'}: head of quant type t: ")
    assert said in raised.value.message


def test_all_faults_of_a_head_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(TemplateError) as raised:
        load_quant("t", tree(tmp_path, "t", head(name='"u"', bits="5", zero='"x"', a_dtypes='["f8"]')))
    assert all(said in raised.value.message for said in ("'u'", "bits = 5", "zero = 'x'", "['f8']"))


@pytest.mark.parametrize("name", ["T", "my_type", "ü4"])
def test_names_that_do_not_fit_a_kernel_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(TemplateError, match="must be lower-case letters and digits"):
        load_quant(name, tree(tmp_path, name, head(name=f'"{name}"')))


@pytest.mark.parametrize(("broken", "line"), [("bits = = 4", 4), ("bits", 4), ("bits = 4\nbits = 4", 5), ('bits = "4', 4)])
def test_a_head_that_is_no_toml_is_reported_with_its_line(tmp_path: Path, broken: str, line: int) -> None:
    text = head().replace("bits = 4", broken)
    with pytest.raises(TemplateError) as raised:
        load_quant("t", tree(tmp_path, "t", text))
    assert raised.value.message.startswith(f"{tmp_path / 'quant' / 't.cuh.j2'}:{line}: ")


@pytest.mark.parametrize("text", ["", MACROS, "# bits = 4\n" + head(), "{# never closed\n"])
def test_a_file_without_a_head(tmp_path: Path, text: str) -> None:
    with pytest.raises(TemplateError, match=r"t\.cuh\.j2:1: a quant type begins with a TOML head"):
        load_quant("t", tree(tmp_path, "t", text))


@pytest.mark.parametrize("bits", ["1" * 5000, "[" * 3000])
def test_a_head_that_the_toml_reader_gives_up_on(tmp_path: Path, bits: str) -> None:
    with pytest.raises(TemplateError, match=r"t\.cuh\.j2:\d+: "):
        load_quant("t", tree(tmp_path, "t", head(bits=bits)))


def test_a_file_that_is_no_utf8(tmp_path: Path) -> None:
    templates = tree(tmp_path, "t", head())
    (tmp_path / "quant" / "t.cuh.j2").write_bytes(head().encode() + "ü".encode("latin-1"))
    with pytest.raises(TemplateError, match=r"t\.cuh\.j2: .*utf-8"):
        load_quant("t", templates)


def test_an_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown quant type 'u5'") as raised:
        load_quant("u5", PACKAGED)
    assert "u4, u4b8" in raised.value.hint and "marlin-gen new-quant u5" in raised.value.hint


# ---- values of codes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", quant_names(PACKAGED))
def test_packaged_types_keep_the_contract(name: str) -> None:
    quant = load_quant(name, PACKAGED)
    assert quant.name == name and quant.summary and quant.a_dtypes and quant.source == f"templates/quant/{name}.cuh.j2"
    codes = np.arange(quant.codes, dtype=np.uint8)
    values = quant.decode(codes, np.zeros(1) if quant.has_zero else None)
    assert values.dtype == np.float64 and values.shape == codes.shape and np.isfinite(values).all()
    assert len(set(values)) == quant.codes


def test_values_of_the_packaged_types() -> None:
    codes = np.arange(16, dtype=np.uint8)
    assert (load_quant("u4b8", PACKAGED).decode(codes) == np.arange(-8, 8)).all()
    for zero in range(16):
        assert (load_quant("u4", PACKAGED).decode(codes, np.asarray(zero)) == np.arange(16.0) - zero).all()


def test_zero_points_broadcast_over_rows() -> None:
    quant = load_quant("u4", PACKAGED)
    q, z = np.arange(12).reshape(4, 3), np.array([[1, 5, 9]])
    assert (quant.decode(q, z) == q - z).all()


@pytest.mark.parametrize("name", quant_names(PACKAGED))
def test_slots_interleave_so_that_the_halves_of_a_pair_are_16_bits_apart(name: str) -> None:
    """Dequantisation by masks turns one word into pairs: both codes of a pair lie in the same place of the two half words."""
    quant = load_quant(name, PACKAGED)
    assert len(quant.slots) == CODES_PER_LANE
    if quant.bits == 4:
        for index in range(0, CODES_PER_LANE, 2):
            (k_low, n_low), (k_high, n_high) = weight_element(0, index), weight_element(0, index + 1)
            assert (k_high, n_high) == (k_low + 1, n_low)
            assert quant.slots[index + 1] == quant.slots[index] + 16


# ---- a type by a template alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("meaning", [S4_VALUE, S4_TABLE], ids=["value", "table"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_signed_type_is_one_file(tmp_path: Path, meaning: str, dtype: str) -> None:
    templates = tree(tmp_path, "s4", S4.replace("MEANING", meaning))
    assert quant_names(templates) == sorted([*quant_names(PACKAGED), "s4"])
    expected = np.array([q - 16 * (q > 7) for q in range(16)])
    assert (load_quant("s4", templates).decode(np.arange(16)) == expected).all()
    rendered = render(KernelConfig.from_name(NAME.format(dtype=dtype, quant="s4")), templates)
    assert "const uint32_t offset[1] = {q[0] ^ kSigns};" in rendered.text
    assert "lop3<0xea>(offset[0], kLowNibble, kExponent)" in rendered.text
    assert "quant/s4.cuh.j2" in rendered.text and str(tmp_path) not in rendered.text


def test_the_signed_type_computes_the_right_product(tmp_path: Path) -> None:
    """Integer-exact and identity products of the emitted kernel, run on the CPU."""
    templates = tree(tmp_path, "s4", S4.replace("MEANING", S4_VALUE))
    rendered = render(KernelConfig.from_name("marlin_f16_s4_m8n64k64_g64_s2_sm80_t64"), templates)
    try:
        report = verify(rendered, templates=templates, quick=True)
    except ToolchainError as error:
        pytest.skip(str(error))
    assert report.ok, [str(finding) for finding in report.findings]
    assert any("integer" in run for run in report.runs) and any("identity" in run for run in report.runs)


def test_a_template_folder_may_replace_a_packaged_type(tmp_path: Path) -> None:
    templates = tree(tmp_path, "u4b8", PACKAGED.read("quant/u4b8.cuh.j2").replace("1032 = 1024 + 8", "replaced"))
    assert "// replaced" in render(KernelConfig.from_name(NAME.format(dtype="f16", quant="u4b8")), templates).text


def test_a_type_may_serve_one_dtype_and_some_groups(tmp_path: Path) -> None:
    templates = tree(tmp_path, "t", head(group_sizes="[32, -1]"))
    with pytest.raises(ConfigError, match="quant type t does not serve a_dtype bf16"):
        render(KernelConfig.from_name(NAME.format(dtype="bf16", quant="t").replace("g128", "g32")), templates)
    with pytest.raises(ConfigError, match="quant type t has no group size 128"):
        render(KernelConfig.from_name(NAME.format(dtype="f16", quant="t")), templates)
    assert render(KernelConfig.from_name(NAME.format(dtype="f16", quant="t").replace("g128", "gch")), templates)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_skeleton_loads_and_renders(tmp_path: Path, dtype: str) -> None:
    templates = tree(tmp_path, "new4", skeleton("new4", PACKAGED))
    quant, base = load_quant("new4", templates), load_quant("u4b8", PACKAGED)
    assert (quant.bits, quant.slots, quant.value, quant.a_dtypes) == (base.bits, base.slots, base.value, base.a_dtypes)
    text = render(KernelConfig.from_name(NAME.format(dtype=dtype, quant="new4")), templates).text
    assert text.replace("new4", "u4b8") == render(KernelConfig.from_name(NAME.format(dtype=dtype, quant="u4b8")), PACKAGED).text


@pytest.mark.parametrize("name", ["", "S4", "my_type", "ü4", "a b", "s-4", "../s4"])
def test_a_skeleton_needs_a_name_that_fits(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a quant type"):
        skeleton(name, PACKAGED)
