"""The wheel alone, in an empty environment, working directory /: it holds all templates, and builds a kernel (case K9)."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from fake_tools import ROOT

pytestmark = pytest.mark.nvcc

NAME = "marlin_f16_u4b8_m8n64k128_g128_s2_sm90"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _tracked(*folders: str) -> set[str]:
    """Files that belong to the project, by what git tracks, or by what lies there in an unpacked sdist."""
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return {name for name in done.stdout.split() if (ROOT / name).is_file()}
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}


def test_wheel_and_sdist_are_complete(dist: Path) -> None:
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for name in _tracked("templates"):
        assert f"marlin_gen/_{name}" in packed
    assert _tracked("marlin_gen") <= packed
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert _tracked("templates", "marlin_gen", "tests", "docs") <= sources
    assert {"Makefile", "LICENSE", "README.md", "pyproject.toml", "generated/README.md"} <= sources
    assert not any(name.startswith("generated/") and name != "generated/README.md" for name in sources)


def _installed() -> str:
    """Packages of the environment that runs the tests."""
    listing = [sys.executable, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]
    return subprocess.run(listing, check=True, capture_output=True, text=True).stdout


def test_an_installed_wheel_builds_a_kernel_from_anywhere(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python3*/site-packages"))
    # --python: with --prefix alone pip takes the package out of the environment that runs the tests
    pip = ["-m", "pip", "--python", str(venv), "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    before = _installed()
    subprocess.run([sys.executable, *pip, str(wheel)], check=True)
    assert _installed() == before
    # what the wheel depends on comes from here; an editable install of the checkout must not come with it
    shared = tmp_path / "shared"
    shared.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "marlin" not in path.name and path.suffix != ".pth":
            (shared / path.name).symlink_to(path)
    (packages / "shared.pth").write_text(f"{shared}\n")
    home = tmp_path / "Zuhause ä"
    home.mkdir()
    kept = ("PATH", "CUDA_HOME", "CUDA_PATH", "CXX", "LD_LIBRARY_PATH")
    env = {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": str(home)}
    python = str(venv / "bin" / "python")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-I", *words], cwd="/", env=env, capture_output=True, text=True, check=False)

    where = run("-c", "import marlin_gen; print(marlin_gen.__file__)")
    assert str(packages) in where.stdout, where.stderr
    done = run(str(venv / "bin" / "marlin-gen"), "build", "--configs", NAME, "--verify", "none")
    assert done.returncode == 0, done.stderr
    store = home / ".cache" / "marlin-gen"
    assert (store / NAME / "kernel.cu").is_file()
    listed = run("-m", "marlin_gen", "list", "--names")
    assert listed.stdout == f"{NAME}\n"
    loaded = run("-c", "from marlin_gen.build import load_module; print(load_module().rows()[0].name)")
    assert loaded.stdout == f"{NAME}\n", loaded.stderr
    assert run("-m", "marlin_gen", "build", "--configs", NAME, "--verify", "none").stdout.count("nothing to compile") == 1
