"""Every command and every snippet of the README and the docs is run as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from marlin_gen.config import load_matrix
from marlin_gen.emit import Templates, check_legal

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
KERNEL = "marlin_f16_u4b8_m16n64k128_g128_s8_sm90"  # the one that the pages name


def blocks(language):
    """(page, line, text) of all fenced blocks of a language."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found.append((page.name, text[: match.start()].count("\n") + 2, match[1]))
    return found


def scripts():
    """Blocks of commands: those of one block may build on each other."""
    for page, line, text in blocks("sh"):
        words = [shlex.split(command, comments=True) for command in text.splitlines()]
        yield pytest.param([w for w in words if w], id=f"{page}:{line}")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with a cache in which one kernel is built, and an environment that uses it."""
    folder = tmp_path_factory.mktemp("docs")
    env = os.environ | {"MARLIN_GEN_CACHE": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    run([sys.executable, "-m", "marlin_gen", "build", "--configs", KERNEL, "--verify", "none"], folder, env)
    return folder, env


def run(words, folder, env):
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{shlex.join(words)} exits with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("script", list(scripts()))
def test_commands(script, workplace):
    folder, env = workplace
    for words in script:
        assert words[0] in ("marlin-gen", "pytest"), "say in this test how such a command is to be run"
        program = {"marlin-gen": ["-m", "marlin_gen"], "pytest": ["-m", "pytest", "--collect-only", "-q"]}[words[0]]
        run([sys.executable, *program, *words[1:]], ROOT if words[0] == "pytest" else folder, env)


@pytest.mark.parametrize("page, line, text", blocks("python"))
def test_snippet(page, line, text, workplace):
    folder, env = workplace
    run([sys.executable, "-c", text], folder, env)


@pytest.mark.parametrize("page, line, text", blocks("toml"))
def test_matrix(page, line, text, tmp_path):
    path = tmp_path / "layers.toml"
    path.write_text(text)
    templates = Templates()
    assert load_matrix(str(path), legal=lambda config: check_legal(config, templates))


def test_make_targets():
    """The README's first commands are targets of the Makefile, and CI runs both."""
    opening = re.search(r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    named = re.findall(r"^make (\w+)", opening, re.MULTILINE)
    assert named == ["build", "test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text()
    assert all(name in targets and f"make {name}" in ci for name in named)


def test_links():
    """Relative links of the pages lead somewhere."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
