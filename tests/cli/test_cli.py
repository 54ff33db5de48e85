"""The program as a user meets it: help, verbs, messages, exit codes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from fake_tools import FAKE_TEMPLATES, NAME, NAMES, ROOT, fake_nvcc, marlin_gen

from marlin_gen.cli.main import VERBS
from marlin_gen.config import KernelConfig
from marlin_gen.emit import Templates, render

MATRIX = """[[kernels]]
arch = "sm_90"
a_dtype = "f16"
quant = "u4b8"
m_tile = [16, 32]
tile = [128, 64]
group_size = 128
stages = 4
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fake nvcc, ``bin/nvcc``, and two kernels built with it, ``out``."""
    folder = tmp_path_factory.mktemp("cli")
    done = marlin_gen(*_build(folder, *NAMES[:2]), MARLIN_GEN_CACHE=str(folder / "out"))
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def _build(folder: Path, *sources: str) -> list[str]:
    words = ["build", "--nvcc", fake_nvcc(folder / "bin"), "--template-dir", str(FAKE_TEMPLATES), "--no-verify"]
    return [*words, *(word for source in sources for word in ("--configs", source))]


def _error(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """What a failed call said; it must be a message, never a traceback."""
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr


# ---- help -----------------------------------------------------------------------------------------------------------


def test_help_leads_a_newcomer() -> None:
    done = marlin_gen("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    assert "First steps:" in done.stdout
    assert marlin_gen("--version").stdout.startswith("marlin-gen, version ")


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("env", "clean")])
def test_help_of_a_verb_has_an_example(verb: str) -> None:
    done = marlin_gen(verb, "-h")
    assert done.returncode == 0, done.stderr
    assert "Example" in done.stdout
    assert f"marlin-gen {verb}" in done.stdout


def test_wrong_usage_is_exit_code_2() -> None:
    assert "no such verb: 'buidl'. Did you mean 'build'?" in _error(marlin_gen("buidl"), 2)
    assert "No such option" in _error(marlin_gen("list", "--nmaes"), 2)
    assert "Missing argument" in _error(marlin_gen("explain", "16"), 2)
    assert "'many' is not a valid integer" in _error(marlin_gen("explain", "many", "1", "1"), 2)


# ---- build ----------------------------------------------------------------------------------------------------------


def test_build_prints_a_table(built: Path) -> None:
    lines = (built / "said").read_text().splitlines()
    assert lines[0].split() == ["kernel", "registers", "spills", "shared", "seconds", "object", "verified"]
    name, registers, spills, shared, seconds, size, unit, verified = lines[1].split()
    assert (name, registers, spills, unit, verified) == (NAMES[0], "42", "24", "kB", "no")
    assert int(shared) > 10_000
    assert float(seconds) >= 0
    assert int(size) >= 1
    assert lines[3] == "2 kernel(s) for sm_90 (--arch chooses others): 2 compiled, 0 kept"
    assert lines[4].startswith(f"module: {built / 'out' / 'modules'}")


def test_building_again_does_nothing_and_is_quick(built: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = marlin_gen(*_build(built, *NAMES[:2]), MARLIN_GEN_CACHE=str(built / "out"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "nothing to compile" in done.stdout
    assert done.stderr == ""
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_progress_is_told_without_a_terminal(tmp_path: Path) -> None:
    done = marlin_gen(*_build(tmp_path, NAME), "--out", str(tmp_path / "out"))
    assert f"[1/4] kernel {NAME}" in done.stderr or f"kernel {NAME}" in done.stderr
    assert "[4/4] module" in done.stderr


@pytest.mark.parametrize(
    ("arch", "message"),
    [("99", "unknown architecture '99'"), ("", "the architecture list is empty"), ("9.0+SASS", "unknown architecture '9.0+SASS'"),
     ("8.0;sm_1", "unknown architecture 'sm_1'")],
)  # fmt: skip
def test_a_bad_arch_is_refused_before_anything_runs(arch: str, message: str, tmp_path: Path) -> None:
    said = _error(marlin_gen("build", "--arch", arch, "--nvcc", "/no/such/nvcc", "--out", str(tmp_path / "out")))
    assert said.startswith(f"error: {message}\nhint: ")
    assert not (tmp_path / "out").exists()


def test_an_arch_list_replaces_that_of_the_configs(tmp_path: Path) -> None:
    done = marlin_gen(*_build(tmp_path, NAME), "--arch", "8.0;sm_90a", "--out", str(tmp_path / "out"))
    assert "2 kernel(s) for sm_80, sm_90a: 2 compiled" in done.stdout, done.stderr
    facts = json.loads(marlin_gen("list", "--json", "--out", str(tmp_path / "out")).stdout)
    assert [fact["arch"] for fact in facts] == ["sm_80", "sm_90a"]


def test_a_config_file_and_its_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "layers.toml"
    file.write_text(MATRIX.replace("stages", "stagse"))
    assert f"error: {file}:8: unknown key 'stagse'" in _error(marlin_gen("build", "--configs", str(file)))
    file.write_text(MATRIX.replace("stages = 4", "stages = 1"))
    assert "stages = 1 is not from 2 to 8" in _error(marlin_gen("emit", "--configs", str(file), "--out", str(tmp_path / "x")))
    assert not (tmp_path / "x").exists()
    assert "sets: default" in _error(marlin_gen("build", "--configs", "no-such-set"))


def test_a_failing_compiler_and_the_others_kept(tmp_path: Path) -> None:
    words = [*_build(tmp_path, *NAMES), "--out", str(tmp_path / "out")]
    said = _error(marlin_gen(*words, FAKE_NVCC_FAIL="_m64"))
    assert f"kernel {NAMES[3]}: exit code 2" in said
    assert "hint: 4 other kernel(s) are compiled and kept" in said
    assert "1 compiled, 4 kept" in marlin_gen(*words).stdout


def test_no_tools(tmp_path: Path) -> None:
    clean = {"PATH": "/nonexistent", "CUDA_HOME": "", "CUDA_PATH": "", "MARLIN_GEN_CACHE": str(tmp_path / "out")}
    said = _error(marlin_gen("build", **clean))
    assert said.startswith("error: no nvcc")
    assert "marlin-gen[cuda]" in said
    nvcc = fake_nvcc(tmp_path / "bin")
    assert _error(marlin_gen("build", "--nvcc", nvcc, **clean)).startswith("error: no C++ compiler")
    said = _error(marlin_gen("build", "--nvcc", nvcc, **clean | {"PATH": os.environ["PATH"], "MAX_JOBS": "all"}))
    assert said.startswith("error: MAX_JOBS='all'")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = _error(marlin_gen(*_build(tmp_path, NAME), "--out", str(tmp_path / "file" / "out")))
    assert f"error: cannot write to {tmp_path / 'file' / 'out'}" in said
    assert "MARLIN_GEN_CACHE" in said


# ---- list, clean, emit ----------------------------------------------------------------------------------------------


def test_list(built: Path, tmp_path: Path) -> None:
    cache = str(built / "out")
    table = marlin_gen("list", MARLIN_GEN_CACHE=cache).stdout.splitlines()
    assert table[0].split() == ["kernel", "registers", "spills", "shared", "object", "verified"]
    assert [line.split()[0] for line in table[1:3]] == NAMES[:2]
    assert table[3] == "2 kernel(s), for sm_90"
    assert marlin_gen("list", "--names", "--out", cache).stdout.split() == NAMES[:2]
    facts = json.loads(marlin_gen("list", "--json", MARLIN_GEN_CACHE=cache).stdout)
    assert facts[0]["name"] == NAMES[0]
    assert (facts[0]["registers"], facts[0]["verified"], facts[0]["set"]) == (42, False, "+".join(sorted(NAMES[:2])))
    none = marlin_gen("list", MARLIN_GEN_CACHE=str(tmp_path))
    assert none.returncode == 0
    assert none.stdout == f"no kernels are built in {tmp_path}; `marlin-gen build` builds the default set\n"


def test_list_is_light_and_quick(built: Path) -> None:
    code = (
        "import sys; sys.argv = ['marlin-gen', 'list']\n"
        "from marlin_gen.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as done: code = done.code\n"
        "heavy = [m for m in ('torch', 'numpy', 'jinja2', 'rich', 'pybind11', 'subprocess') if m in sys.modules]\n"
        "sys.exit(f'{code} {heavy}')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MARLIN_GEN_CACHE": str(built / "out")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr == "0 []\n"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3  # 0.1 s alone on a machine


def test_a_closed_pipe_is_no_fault(built: Path) -> None:
    command = f"{sys.executable} -m marlin_gen list --json | head -n 1"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MARLIN_GEN_CACHE": str(built / "out")}
    done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_clean(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert marlin_gen(*_build(tmp_path, NAME), "--out", str(out)).returncode == 0
    assert "freed" in marlin_gen("clean", "--out", str(out)).stdout
    assert marlin_gen("list", "--names", "--out", str(out)).stdout == f"{NAME}\n"
    assert "freed" in marlin_gen("clean", "--all", "--out", str(out)).stdout
    assert marlin_gen("list", "--names", "--out", str(out)).stdout == ""


def test_emit_writes_sources_that_are_the_renderers(tmp_path: Path) -> None:
    done = marlin_gen("emit", "--configs", NAME, "--configs", NAMES[1], "--out", "out", cwd=tmp_path)
    paths = [tmp_path / line for line in done.stdout.splitlines()]
    assert [path.parent.name for path in paths] == NAMES[:2]
    assert paths[0].read_text(encoding="utf-8") == render(KernelConfig.from_name(NAME), Templates()).text


def test_without_a_home(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "MARLIN_GEN_CACHE", "XDG_CACHE_HOME")}
    code = "from marlin_gen.build import paths; paths.checkout = lambda: None; print(paths.default_store())"
    env |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": "/proc/none"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    spare = tmp_path / f"marlin-gen-{os.getuid()}"
    assert f"/proc/none/marlin-gen cannot be written; building in {spare}" in done.stdout, done.stderr


# ---- verify, explain, new-quant, env ----------------------------------------------------------------------------------


def test_explain(built: Path, tmp_path: Path) -> None:
    env = {"MARLIN_GEN_CACHE": str(built / "out")}
    done = marlin_gen("explain", "16", "8192", "8192", "--arch", "9.0", **env)
    assert done.returncode == 0, done.stderr
    assert f"* {NAMES[0]}" in done.stdout
    answer = json.loads(marlin_gen("explain", "16", "8192", "8192", "--arch", "9.0", "--json", **env).stdout)
    assert answer["chosen"] == NAMES[0]
    refused = marlin_gen("explain", "16", "8192", "8192", "--arch", "8.0", **env)
    assert refused.returncode == 1
    assert "sm_90 code does not run on compute capability 8.0" in refused.stdout
    file = tmp_path / "layers.toml"
    file.write_text(MATRIX)
    planned = marlin_gen("explain", "32", "4096", "4096", "--arch", "9.0", "--configs", str(file), MARLIN_GEN_CACHE=str(tmp_path))
    assert f"* {NAMES[1]}" in planned.stdout, planned.stderr
    nothing = _error(marlin_gen("explain", "32", "4096", "4096", "--arch", "9.0", MARLIN_GEN_CACHE=str(tmp_path)))
    assert "no kernels are built" in nothing
    assert "marlin-gen build" in nothing
    assert "M=0" in _error(marlin_gen("explain", "0", "64", "128", **env))


def test_verify_marks_a_built_kernel_and_finds_a_wrong_one(tmp_path: Path) -> None:
    env = {"MARLIN_GEN_CACHE": str(tmp_path / "out")}
    assert marlin_gen(*_build(tmp_path, NAME), **env).returncode == 0
    done = marlin_gen("verify", NAME, "--quick", **env)
    assert done.stdout == f"{NAME}: 2 launches, nothing wrong\n", done.stderr
    assert json.loads(marlin_gen("list", "--json", **env).stdout)[0]["verified"]
    overlay = tmp_path / "overlay" / "quant"
    overlay.mkdir(parents=True)
    text = Templates().read("quant/u4b8.cuh.j2")
    (overlay / "u4b8.cuh.j2").write_text(text.replace("0x64086408u", "0x64096409u"))
    said = _error(marlin_gen("verify", NAME, "--quick", "--template-dir", str(overlay.parent), **env))
    assert said.startswith(f"\nerror: {NAME}: ") or f"error: {NAME}: " in said
    assert "C[" in said


def test_new_quant_writes_a_type_that_works(tmp_path: Path) -> None:
    done = marlin_gen("new-quant", "s4x", "--template-dir", "mine", cwd=tmp_path)
    assert done.stdout == "mine/quant/s4x.cuh.j2\n"
    name = NAME.replace("u4b8", "s4x")
    emitted = marlin_gen("emit", "--configs", name, "--template-dir", "mine", "--out", "x", cwd=tmp_path)
    assert emitted.stdout == f"x/{name}/kernel.cu\n", emitted.stderr
    assert "exists already" in _error(marlin_gen("new-quant", "s4x", "--template-dir", "mine", cwd=tmp_path))
    assert "cannot name a quant type" in _error(marlin_gen("new-quant", "S-4", cwd=tmp_path))
    hidden = _error(marlin_gen("new-quant", "u4", "--template-dir", "mine", cwd=tmp_path))
    assert "packaged quant type" in hidden and not (tmp_path / "mine" / "quant" / "u4.cuh.j2").exists()
    assert marlin_gen("new-quant", "s4y", cwd=tmp_path).stdout == "s4y.cuh.j2\n"


def test_a_template_error_shows_file_and_line(tmp_path: Path) -> None:
    overlay = tmp_path / "mine" / "quant"
    overlay.mkdir(parents=True)
    text = Templates().read("quant/u4b8.cuh.j2")
    path = overlay / "u4b8.cuh.j2"
    path.write_text(text.replace("{% macro scale(k) %}", "{% macro scale(k) %}\n{{ k.a_dtyp }}"))
    line = path.read_text().splitlines().index("{{ k.a_dtyp }}") + 1
    said = _error(marlin_gen("emit", "--configs", NAME, "--template-dir", "mine", "--out", "x", cwd=tmp_path))
    assert f"u4b8.cuh.j2:{line}: " in said


def test_env_tells_what_is_missing(tmp_path: Path) -> None:
    done = marlin_gen("env", PATH="/nonexistent", CUDA_HOME="", CUDA_PATH="", MARLIN_GEN_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "missing: no C++ compiler" in lines["c++"]
    assert "apt install g++" in lines["c++"]
    assert "missing" in lines["gpu"]
    assert str(tmp_path) in lines["built"]
    assert "default" in lines["config"]
    assert "13.0" in marlin_gen("env", "--nvcc", fake_nvcc(tmp_path)).stdout


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in marlin_gen("--debug", "build", "--arch", "99").stderr
