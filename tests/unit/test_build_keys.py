"""Keys are functions of contents alone (case K8)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_tools import NAME, NAMES, ROOT

from marlin_gen.build import commands, keys
from marlin_gen.build.paths import TEMPLATES
from marlin_gen.build.toolchain import Toolchain
from marlin_gen.config.arch import ARCHS
from marlin_gen.emit import Templates
from marlin_gen.emit.templates import PACKAGED

TOOLS = Toolchain("/somewhere/nvcc", "/somewhere/ninja", ("g++",), "release 13.0, V13.0.88", "g++ 12.2", (13, 0))
_PROGRAM = """
import sys
from marlin_gen.build import commands, keys
from marlin_gen.build.toolchain import Toolchain
from marlin_gen.config import KernelConfig
from marlin_gen.config.arch import parse_arch
from marlin_gen.emit import Templates, render
tools = Toolchain(sys.argv[1], "ninja", ("g++",), "release 13.0, V13.0.88", "g++ 12.2", (13, 0))
templates = Templates()
headers = keys.folder_texts(templates, ("device", "host"))
for name in sys.argv[2:]:
    text = render(KernelConfig.from_name(name), templates).text
    print(name, commands.kernel_key(text, parse_arch("9.0"), False, headers, tools), keys.digest([text]))
print("inputs", commands.input_key(sys.argv[2:], keys.template_digest(templates), keys.generator_digest(), tools))
"""


def _lines(root: Path, seed: str, nvcc: str, names: list[str]) -> set[str]:
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _PROGRAM, nvcc, *names]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_another_process_order_and_install_path_give_the_same_keys_and_text(tmp_path: Path) -> None:
    copy = tmp_path / "ander swo ü"
    for folder in ("marlin_gen", "templates"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    here = _lines(ROOT, "1", "/a/nvcc", NAMES)
    assert len(here) == len(NAMES) + 1
    assert _lines(copy, "2", "/b/nvcc", NAMES[::-1]) == here
    # the wheel's layout: templates inside the package
    (copy / "templates").rename(copy / "marlin_gen" / "_templates")
    assert _lines(copy, "3", "/b/nvcc", NAMES) == here


def _key(text: str = "text", arch: str = "sm_90", ptx: bool = False, header: str = "h", tools: Toolchain = TOOLS) -> str:
    return commands.kernel_key(text, ARCHS[arch], ptx, {"device/a.cuh": header}, tools)


def test_everything_that_decides_the_object_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [
        _key(text="texu"), _key(arch="sm_80"), _key(arch="sm_90a"), _key(ptx=True), _key(header="i"),
        _key(tools=replace(TOOLS, nvcc_version="release 13.0, V13.0.89")), _key(tools=replace(TOOLS, cxx_version="g++ 13")),
        _key(tools=replace(TOOLS, cxx=("g++", "-m64"))),
    ]  # fmt: skip
    monkeypatch.setattr(commands, "_KERNEL", (*commands._KERNEL, "--fmad=false"))
    changed.append(_key())
    monkeypatch.undo()
    monkeypatch.setattr(commands, "__version__", "0.1.1")
    changed.append(_key())
    monkeypatch.undo()
    assert len({_key(), *changed}) == len(changed) + 1
    assert _key(tools=replace(TOOLS, nvcc="/elsewhere/nvcc", ninja="other")) == _key()


def test_lengths_keep_parts_apart() -> None:
    assert keys.digest(["ab", "c"]) != keys.digest(["a", "bc"])
    assert keys.digest([]) != keys.digest([""])


def test_template_digest_sees_every_file_and_no_time(tmp_path: Path) -> None:
    copy = tmp_path / "templates"
    shutil.copytree(TEMPLATES, copy)
    before = keys.template_digest(Templates([copy]))
    assert before == keys.template_digest(Templates())
    for path in sorted(p for p in copy.rglob("*") if p.is_file() and "sim" not in p.parts):
        text = path.read_bytes()
        path.write_bytes(text + b" ")
        os.utime(path, (0, 0))
        assert keys.template_digest(Templates([copy])) != before, path
        path.write_bytes(text)
    assert keys.template_digest(Templates([copy])) == before


def test_the_quick_way_to_the_templates_is_the_emit_rooms() -> None:
    assert TEMPLATES == PACKAGED


def test_flags_keep_numbers_exact() -> None:
    words = " ".join(commands.kernel_edge(NAME, ARCHS["sm_90"], False, TOOLS).command)
    assert "fast_math" not in words
    assert "ftz" not in words
    assert "-lineinfo" in words


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_native_code_for_each_arch_and_ptx_only_when_asked(arch: str) -> None:
    number = arch[3:]
    assert commands.gencode(ARCHS[arch], False) == ("-gencode", f"arch=compute_{number},code={arch}")
    assert commands.gencode(ARCHS[arch], True)[2:] == ("-gencode", f"arch=compute_{number},code=compute_{number}")
