"""Finding tools, jobs, folders (case K9), and reading what a compiler said."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from fake_tools import fake_nvcc

from marlin_gen.build import jobs, paths, toolchain
from marlin_gen.build.failures import failures
from marlin_gen.build.jobs import BYTES_PER_JOB, job_count
from marlin_gen.build.manifest import write_whole
from marlin_gen.build.ninja import Edge, build_file
from marlin_gen.build.paths import CacheError, Store, candidate_roots, default_store
from marlin_gen.config.arch import ARCHS
from marlin_gen.errors import ToolchainError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No CUDA in the environment, nothing on PATH, no Python packages of tools."""
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "MAX_JOBS", "MARLIN_GEN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    return monkeypatch


def test_nvcc_is_looked_for_in_order(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flag, home, path = (fake_nvcc(tmp_path / part / "bin") for part in ("flag", "home", "path"))
    packaged = fake_nvcc(tmp_path / "site" / "nvidia" / "cu13" / "bin")

    class Spec:
        submodule_search_locations = (str(tmp_path / "site" / "nvidia"),)

    bare.setattr(toolchain.importlib.util, "find_spec", lambda name: Spec)
    assert toolchain.find_nvcc() == packaged
    bare.setenv("PATH", str(Path(path).parent))
    assert toolchain.find_nvcc() == path
    bare.setenv("CUDA_PATH", str(tmp_path / "home"))
    assert toolchain.find_nvcc() == home
    bare.setenv("CUDA_HOME", str(tmp_path / "nothing there"))
    assert toolchain.find_nvcc() == home
    assert toolchain.find_nvcc(flag) == flag
    assert toolchain.find_nvcc(str(tmp_path / "flag")) == flag
    assert toolchain.find_nvcc("nvcc") == path
    with pytest.raises(ToolchainError, match=r"--nvcc /no/such is neither nvcc nor a CUDA toolkit's folder"):
        toolchain.find_nvcc("/no/such")


def test_a_missing_tool_is_named_with_a_way_to_get_it(bare: pytest.MonkeyPatch) -> None:
    for find, name, way in (
        (toolchain.find_nvcc, "no nvcc", r"pip install 'marlin-gen\[cuda\]'"),
        (toolchain.find_ninja, "no ninja", "pip install ninja"),
        (toolchain.find_cxx, r"no C\+\+ compiler: g\+\+", r"apt install g\+\+"),
    ):
        with pytest.raises(ToolchainError, match=rf"{name}[\s\S]*{way}"):
            find()
    bare.setenv("CXX", "clang++-99 -O1")
    with pytest.raises(ToolchainError, match=r"CXX='clang\+\+-99 -O1' is not on PATH"):
        toolchain.find_cxx()


@pytest.mark.parametrize("text", ["11.8", "12.4", "12.8", "13.0", "13.5"])
def test_releases_old_and_new_are_used(text: str, tmp_path: Path) -> None:
    found = toolchain.discover(fake_nvcc(tmp_path, text))
    assert ".".join(map(str, found.release)) == text
    assert f"release {text}," in found.nvcc_version


def test_a_release_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"nvcc 11\.4 .* is too old: CUDA 11\.8 or newer"):
        toolchain.discover(fake_nvcc(tmp_path, "11.4"))


def test_an_arch_that_this_nvcc_does_not_know_is_refused(tmp_path: Path) -> None:
    found = toolchain.discover(fake_nvcc(tmp_path, "11.8", "80 86 89 90"))
    found.check_archs([ARCHS["sm_80"], ARCHS["sm_90a"]])
    with pytest.raises(ToolchainError, match=r"nvcc 11\.8 .* cannot compile for sm_120[\s\S]*sm_80, sm_86, sm_89, sm_90;"):
        found.check_archs([ARCHS["sm_90"], ARCHS["sm_120"]])


def test_a_program_that_is_no_nvcc(tmp_path: Path) -> None:
    for body, message in (("echo hello", "says no release"), ("exit 3", "failed with exit code 3")):
        program = tmp_path / "nvcc"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        with pytest.raises(ToolchainError, match=message):
            toolchain.discover(str(program))


def test_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAX_JOBS", raising=False)
    monkeypatch.setattr(jobs, "_cores", lambda: 16)
    monkeypatch.setattr(jobs, "free_memory", lambda: 100 * BYTES_PER_JOB)
    assert job_count() == 16
    monkeypatch.setenv("MAX_JOBS", "3")
    assert job_count() == 3
    assert job_count(7) == 7
    monkeypatch.setattr(jobs, "free_memory", lambda: 2 * BYTES_PER_JOB)
    assert job_count() == 2
    monkeypatch.setattr(jobs, "free_memory", lambda: 0)
    assert job_count() == 1
    for bad in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("MAX_JOBS", bad)
        with pytest.raises(ToolchainError, match="MAX_JOBS"):
            job_count()


def test_limits_of_a_control_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jobs, "_CGROUP", tmp_path)
    for name, text in {"cpu.max": "150000 100000", "memory.max": "3000000000", "memory.current": "1000000000"}.items():
        (tmp_path / name).write_text(text)
    assert jobs.free_memory() == 2_000_000_000
    assert jobs._cores() <= 2
    (tmp_path / "memory.max").write_text("max")
    (tmp_path / "cpu.max").write_text("max 100000")
    assert jobs.free_memory() > 0
    assert jobs._cores() == len(os.sched_getaffinity(0))


def test_where_built_things_go(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert candidate_roots() == [Path(paths.__file__).resolve().parents[2] / "generated"]  # a checkout
    bare.setenv("MARLIN_GEN_CACHE", str(tmp_path / "named"))
    assert candidate_roots() == [tmp_path / "named"]
    bare.delenv("MARLIN_GEN_CACHE")
    bare.setattr(paths, "checkout", lambda: None)
    bare.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bare.setenv("TMPDIR", str(tmp_path))
    assert candidate_roots()[0] == tmp_path / "cache" / "marlin-gen"
    assert default_store() == (Store(tmp_path / "cache" / "marlin-gen"), "")


def test_an_installed_package_falls_back_where_the_cache_cannot_be_written(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spare = tmp_path / "spare"
    bare.setattr(paths, "checkout", lambda: None)
    bare.setattr(paths, "candidate_roots", lambda: [tmp_path / "file" / "cache", spare])
    store, remark = default_store()
    assert store.root == spare
    assert remark == f"{tmp_path / 'file' / 'cache'} cannot be written; building in {spare}"


@pytest.mark.parametrize(
    ("code", "message"), [(errno.EROFS, "cannot write to .*: Read-only file system"), (errno.ENOSPC, "no space left in"),
                          (errno.EACCES, "cannot write to .*: Permission denied")]
)  # fmt: skip
def test_what_a_disk_refuses_is_said(code: int, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(self: Path, *args: object, **more: object) -> None:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setenv("MARLIN_GEN_CACHE", str(tmp_path / "x"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(CacheError, match=rf"{message}[\s\S]*MARLIN_GEN_CACHE"):
            default_store()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", refuse)
        with pytest.raises(CacheError, match=message):
            write_whole(tmp_path / "y", "text")


def test_writing_whole_leaves_equal_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    write_whole(path, "ü\n")
    stamp = path.stat().st_mtime_ns
    write_whole(path, "ü\n")
    assert path.stat().st_mtime_ns == stamp
    write_whole(path, "v\n")
    assert path.read_text(encoding="utf-8") == "v\n"
    assert [p.name for p in path.parent.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("code", "log", "line", "hint"),
    [
        (2, 'ptxas info : x\nk.cu(3): error: "a" is undefined\n\n1 error', 'k.cu(3): error: "a" is undefined', ""),
        (137, "", "", "lack of memory"),
        (9, "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "died due to signal 9", "lack of memory"),
        (1, "g++: fatal error: Killed signal terminated program cc1plus", "Killed signal", "lack of memory"),
        (1, "/tmp/x.s: No space left on device", "No space left", "disk is full"),
        (1, "host_config.h: #error -- unsupported GNU version! gcc versions later than 12", "unsupported GNU", "set CXX"),
        (1, "something odd", "something odd", ""),
    ],
)
def test_why_a_command_failed(code: int, log: str, line: str, hint: str, tmp_path: Path) -> None:
    edge = Edge("k/kernel.o", (), ("nvcc",), "kernel k")
    (tmp_path / "k").mkdir()
    assert failures(tmp_path, [edge]) == []
    (tmp_path / "k" / "kernel.o.exit").write_text(f"{code}\n")
    (tmp_path / "k" / "kernel.o.log").write_text(log)
    (failure,) = failures(tmp_path, [edge])
    assert str(failure).startswith(f"kernel k: exit code {code}")
    assert line in str(failure)
    assert (hint in failure.hint) if hint else not failure.hint


def test_a_full_disk_may_leave_no_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "k.o.exit").write_text("")
    (tmp_path / "k.o.log").write_text("")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 0))  # type: ignore[attr-defined]
    (failure,) = failures(tmp_path, [Edge("k.o", (), ("nvcc",), "kernel k")])
    assert "the disk is full" in failure.hint


def test_build_file_quotes_for_ninja_and_the_shell() -> None:
    text = build_file([Edge("a/k.o", ("a/k.cu",), ("/my tools/$x/nvcc", "-DA='b'"), "kernel a")])
    assert "build a/k.o: run a/k.cu\n" in text
    assert "'/my tools/$$x/nvcc' '-DA='\"'\"'b'\"'\"''" in text
