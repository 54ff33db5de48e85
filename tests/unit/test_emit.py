"""Rendering: the same bytes everywhere, and template faults that name their line."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import marlin_gen
from marlin_gen.config import KernelConfig, load_matrix
from marlin_gen.emit import Templates, check_legal, render
from marlin_gen.emit.templates import PACKAGED
from marlin_gen.errors import ConfigError, TemplateError, UnknownNameError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEMPLATES = Templates()
PACKAGE = Path(marlin_gen.__file__).parent
NAMES = (
    "marlin_f16_u4b8_m8n128k128_g128_s4_sm90_t128_c3",
    "marlin_bf16_u4_m16n64k128_g32_s4_sm90",
    "marlin_f16_u4_m64n128k128_gch_s4_sm80_atomic",
    "marlin_bf16_u4b8_m48n128k128_g128_s4_sm90_chain16",
)
CONFIG = KernelConfig.from_name(NAMES[0])
HASHES = """
import hashlib, sys
from marlin_gen.config import KernelConfig
from marlin_gen.emit import Templates, render
templates = Templates()
for name in sys.argv[1:]:
    print(name, hashlib.sha256(render(KernelConfig.from_name(name), templates).text.encode()).hexdigest())
"""


def hashes(names: tuple[str, ...], package: Path = PACKAGE, cwd: Path | None = None, **env: str) -> dict[str, str]:
    """Hashes of kernels rendered by another Python process."""
    words = [sys.executable, "-c", HASHES, *names]
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | {"PYTHONPATH": str(package.parent)} | env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return hashes(NAMES, PYTHONHASHSEED="0")


def test_the_hash_seed_does_not_matter(here: dict[str, str]) -> None:
    assert hashes(NAMES, PYTHONHASHSEED="12345") == here


def test_folder_locale_and_order_do_not_matter(here: dict[str, str], tmp_path: Path) -> None:
    assert hashes(NAMES[::-1], cwd=tmp_path, LC_ALL="tr_TR.UTF-8", PYTHONUTF8="0", TZ="Asia/Tokyo") == here
    assert hashes(NAMES[1:2], cwd=Path("/"), LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0") == {NAMES[1]: here[NAMES[1]]}


def test_the_place_of_the_package_does_not_matter(here: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "an other plaçe"
    shutil.copytree(PACKAGE, place / "marlin_gen", ignore=shutil.ignore_patterns("__pycache__"))
    if not PACKAGED.is_relative_to(PACKAGE):
        shutil.copytree(PACKAGED, place / "templates")
    assert hashes(NAMES, package=place / "marlin_gen", cwd=tmp_path) == here


@pytest.mark.parametrize("name", NAMES)
def test_the_text_says_nothing_of_this_machine_or_day(name: str) -> None:
    text = render(KernelConfig.from_name(name), TEMPLATES).text
    for private in (str(PACKAGE.parent), str(Path.home()), socket.gethostname(), getpass.getuser() + "@"):
        assert private not in text or len(private) < 3
    assert not re.search(r"\b(19|20)\d\d-\d\d-\d\d\b|\d\d:\d\d:\d\d", text)
    assert not re.search(r'[\s"](/[a-z]+){2,}', text), "an absolute path"


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_tidy(name: str) -> None:
    text = render(KernelConfig.from_name(name), TEMPLATES).text
    assert text.endswith("\n") and not text.endswith("\n\n") and "\t" not in text and "\r" not in text and text.isascii()
    assert not re.search(r"[ ]+\n", text), "trailing blanks"
    assert "\n\n\n" not in text
    assert "{{" not in text and "{%" not in text and "{#" not in text
    assert not re.search(r"\b(None|True|False|Undefined)\b", text)


@pytest.mark.parametrize("name", NAMES)
def test_the_header_is_the_config(name: str) -> None:
    """Name, config as TOML, plan, and the command that makes it again."""
    rendered = render(KernelConfig.from_name(name), TEMPLATES)
    head = rendered.text.split("#include", 1)[0]
    lines = [line.removeprefix("//").strip() for line in head.splitlines()]
    assert lines[0] == name == rendered.name
    assert any(f"marlin-gen emit --configs {name}" in line for line in lines)
    assert KernelConfig(**tomllib.loads("\n".join(line for line in lines if re.match(r"[a-z_]+ += ", line)))).name == name
    for subject, said in rendered.plan.describe():
        assert any(line.startswith(subject) and line.endswith(said) for line in lines)
    assert f"void {name}(MG_PARAM GemmParams p)" in rendered.text


def test_inline_ptx_is_only_in_device_headers() -> None:
    for config in load_matrix("gpu-test"):
        assert not re.search(r"\basm\b", render(config, TEMPLATES).text)
    for path in (*PACKAGED.glob("kernel/**/*"), *PACKAGED.glob("quant/*")):
        assert path.is_dir() or not re.search(r"\basm\b", path.read_text())


# ---- faults of templates ----------------------------------------------------------------------------------------------


def copied(folder: Path, name: str, old: str, new: str) -> tuple[Templates, Path, int]:
    """A --template-dir with one packaged template changed in one place; its path and the line of the change."""
    text = (PACKAGED / name).read_text()
    assert old in text
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(old, new, 1))
    return Templates([folder]), path, text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("kernel/marlin/kernel.cu.j2", "{{ k.name }}", "{{ k.nam }}", "has no attribute 'nam'"),
        ("kernel/marlin/mainloop.j2", "p.b_row_bytes", "p.b_row_byte", "has no attribute 'b_row_byte'"),
        ("kernel/marlin/copies.j2", "{% if k.swizzle %}", "{% if kk.swizzle %}", "'kk' is undefined"),
        ("kernel/marlin/copies.j2", "k.thread_k // 16", "k.thread_k // 0", "ZeroDivisionError"),
        ("kernel/marlin/epilogue.j2", "p.items.row_chunks", "p.items.guard()", "TypeError"),
        ("kernel/marlin/mainloop.j2", "{% if p.transposed %}", "{% if p.transposed == %}", "unexpected 'end of statement block'"),
        ("kernel/marlin/mainloop.j2", "{% if p.transposed %}", "{% iff p.transposed %}", "unknown tag 'iff'"),
        ("quant/u4b8.cuh.j2", '{% if k.a_dtype == "f16" %}', '{% if k.dtype == "f16" %}', "has no attribute 'dtype'"),
    ],
)
def test_a_fault_of_a_template_names_file_and_line(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    templates, path, line = copied(tmp_path, name, old, new)
    with pytest.raises(TemplateError) as raised:
        render(CONFIG, templates)
    assert raised.value.message.startswith(f"{path}:{line}: ")
    assert said in raised.value.message


def test_a_fault_of_a_packaged_template_is_named_relative_to_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Templates.read
    broken = {"kernel/marlin/mainloop.j2": "{{ nothing }}\n"}
    monkeypatch.setattr(Templates, "read", lambda self, name: broken.get(name) or read(self, name))
    with pytest.raises(
        TemplateError, match=r"^templates/kernel/marlin/kernel\.cu\.j2:\d+: |^templates/kernel/marlin/mainloop\.j2:1: "
    ):
        render(CONFIG, Templates())


@pytest.mark.parametrize("macro", ["constants", "dequant", "scale"])
def test_a_missing_macro_of_a_quant_type_is_named(tmp_path: Path, macro: str) -> None:
    templates, path, _ = copied(tmp_path, "quant/u4b8.cuh.j2", f"macro {macro}(k)", f"macro {macro}_(k)")
    with pytest.raises(
        TemplateError, match=rf"{macro}\(k\) is missing; a quant type defines constants, dequant, scale"
    ) as raised:
        render(CONFIG, templates)
    assert raised.value.message.startswith(f"{path}: ")


def test_a_missing_macro_of_a_kernel_template_is_named(tmp_path: Path) -> None:
    templates, _, _ = copied(tmp_path, "kernel/marlin/copies.j2", "macro fill(", "macro fil(")
    with pytest.raises(TemplateError, match=r"^templates/kernel/marlin/kernel\.cu\.j2:\d+: .*'fill'"):
        render(CONFIG, templates)


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    templates, _, _ = copied(tmp_path, "kernel/marlin/kernel.cu.j2", "kernel/marlin/copies.j2", "kernel/marlin/copy.j2")
    with pytest.raises(TemplateError, match=r"template kernel/marlin/copy\.j2 is in none of "):
        render(CONFIG, templates)


def test_a_missing_template_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"template folder .*nowhere does not exist"):
        Templates([tmp_path / "nowhere"])


def test_the_first_folder_wins(tmp_path: Path) -> None:
    for folder, word in (("one", "first"), ("two", "second")):
        path = tmp_path / folder / "device" / "x.cuh"
        path.parent.mkdir(parents=True)
        path.write_text(word)
    templates = Templates([tmp_path / "one", tmp_path / "two"])
    assert templates.read("device/x.cuh") == "first"
    assert templates.describe("device/x.cuh") == str(tmp_path / "one" / "device" / "x.cuh")
    assert templates.describe("device/mma.cuh") == "templates/device/mma.cuh"
    assert {"device/x.cuh", "device/mma.cuh"} < set(templates.find("device", ".cuh"))


def test_illegal_configs_are_not_rendered() -> None:
    for call in (render, check_legal):
        with pytest.raises(ConfigError, match="m_tile = 24"):
            call(KernelConfig.from_name(NAMES[0].replace("m8", "m24")), Templates())
        with pytest.raises(UnknownNameError, match="unknown quant type 'u5'"):
            call(KernelConfig.from_name(NAMES[0].replace("u4b8", "u5")), Templates())
