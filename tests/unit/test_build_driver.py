"""Builds with a fake nvcc: what is compiled, kept, published, and said (case K8)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_tools import FAKE_TEMPLATES, NAME, NAMES, ROOT, Quiet, compiled, fake_build, fake_nvcc

from marlin_gen.build import built_kernels, built_names, load_module
from marlin_gen.build.cleaning import clean
from marlin_gen.build.driver import build
from marlin_gen.build.modules import load
from marlin_gen.build.paths import CacheError, Store
from marlin_gen.build.request import Request
from marlin_gen.config import KernelConfig, parse_arch_list
from marlin_gen.errors import ConfigError, DispatchError, ToolchainError, VerifyError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAKE_NVCC_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("MARLIN_GEN_CACHE", str(tmp_path / "out"))
    return tmp_path


def test_build_makes_a_module_and_its_record(folder: Path) -> None:
    outcome = fake_build(folder, *NAMES)
    assert list(outcome.compiled) == sorted(NAMES) == sorted(compiled(folder))
    record = outcome.manifest.kernels[0]
    assert (record.registers, record.spill_stores, record.spill_loads) == (42, 8, 16)
    assert record.seconds > 0
    rows = load_module().rows()
    assert [row.name for row in rows] == sorted(NAMES) == built_names()
    assert [row.shared_bytes for row in rows] == [k.record.shared_bytes for k in built_kernels()]
    for name in NAMES:
        assert f"// {name}\n" in (folder / "out" / name / "kernel.cu").read_text()
    assert list((folder / "out" / "work").iterdir()) == []
    assert {p.name for p in built_kernels()[0].object_dir.iterdir()} == {"kernel.o", "kernel.cu", "ptxas.txt", "object.json"}


def test_nothing_changed_compiles_and_links_nothing(folder: Path) -> None:
    first = fake_build(folder, *NAMES)
    module = folder / "out" / "modules" / first.manifest.module
    stamp = module.stat().st_mtime_ns
    again = fake_build(folder, *reversed(NAMES), NAMES[0])  # another order, a duplicate
    assert again.compiled == ()
    assert again.manifest == first.manifest
    assert module.stat().st_mtime_ns == stamp
    assert len(compiled(folder)) == len(NAMES)


def test_one_byte_of_a_template_rebuilds_and_a_touch_does_not(folder: Path) -> None:
    overlay = folder / "overlay"
    shutil.copytree(ROOT / "templates" / "kernel", overlay / "kernel")
    fake_build(folder, NAME, templates=(str(overlay),))
    changed = overlay / "kernel" / "marlin" / "kernel.cu.j2"
    os.utime(changed)
    assert fake_build(folder, NAME, templates=(str(overlay),)).compiled == ()
    changed.write_text(changed.read_text().replace("who am I", "who am I?"))
    os.utime(changed, (1_000_000_000, 1_000_000_000))  # 2001
    assert fake_build(folder, NAME, templates=(str(overlay),)).compiled == (NAME,)
    changed.write_text(changed.read_text().replace("who am I?", "who am I"))
    assert fake_build(folder, NAME, templates=(str(overlay),)).compiled == ()  # the first object is still there


def test_a_header_ptx_the_arch_and_the_compiler_each_compile_anew(folder: Path) -> None:
    fake_build(folder, NAME)
    overlay = folder / "overlay" / "device"
    overlay.mkdir(parents=True)
    (overlay / "mma.cuh").write_text((ROOT / "templates" / "device" / "mma.cuh").read_text() + "\n")
    assert fake_build(folder, NAME, templates=(str(overlay.parent),)).compiled == (NAME,)
    with_ptx = fake_build(folder, NAME, archs=tuple(parse_arch_list("9.0+PTX")))
    assert with_ptx.compiled == (NAME,)
    assert with_ptx.manifest.kernels[0].ptx
    (older,) = fake_build(folder, NAME, archs=tuple(parse_arch_list("8.0"))).compiled
    assert KernelConfig.from_name(older).arch == "sm_80"
    newer = fake_build(folder, NAME, nvcc=fake_nvcc(folder / "newer", "13.1"))
    assert (newer.compiled, newer.manifest.nvcc) == ((NAME,), "13.1")


def test_eight_processes_with_a_cold_cache_compile_each_kernel_once(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fake_tools import fake_build; "
        "print(len(fake_build(Path(sys.argv[1]), *sys.argv[2:]).manifest.kernels))"
    )
    fake_nvcc(folder / "bin")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"}
    command = [sys.executable, "-c", code, str(folder), *NAMES[:2]]
    processes = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.strip() == "2"
    assert sorted(compiled(folder)) == sorted(NAMES[:2])


def test_one_failure_of_five_names_it_and_keeps_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVCC_FAIL", "_m48")
    with pytest.raises(ToolchainError) as caught:
        fake_build(folder, *NAMES)
    text = str(caught.value)
    assert f"kernel {NAMES[2]}: exit code 2" in text
    assert 'kernel.cu(7): error: identifier "mma_f17" is undefined' in text
    assert not any(name in text for name in NAMES if name != NAMES[2])
    assert "4 other kernel(s) are compiled and kept" in text
    assert list((folder / "out" / "modules").iterdir()) == []
    with pytest.raises(DispatchError, match="no kernels are built"):
        built_names()
    monkeypatch.delenv("FAKE_NVCC_FAIL")
    assert fake_build(folder, *NAMES).compiled == (NAMES[2],)


def test_a_failure_leaves_the_module_in_use_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "layers.toml"
    table = '[[kernels]]\narch = "sm_90"\na_dtype = "f16"\nquant = "u4b8"\ntile = [128, 64]\ngroup_size = 128\nstages = 4\n'
    file.write_text(table + "m_tile = 16\n")
    before = fake_build(folder, str(file)).manifest
    file.write_text(table + "m_tile = [16, 32]\n")
    monkeypatch.setenv("FAKE_NVCC_FAIL", "_m32")
    with pytest.raises(ToolchainError):
        fake_build(folder, str(file))
    assert [k.manifest for k in built_kernels()] == [before]
    assert len(load_module().rows()) == 1


def test_a_killed_compiler_is_probably_out_of_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVCC_KILL", "_m32")
    with pytest.raises(ToolchainError, match=r"exit code 137[\s\S]*probably for lack of memory.*MAX_JOBS=1"):
        fake_build(folder, *NAMES[:2])


@pytest.mark.parametrize("damage", [b"", os.urandom(5000)])
def test_a_damaged_object_is_compiled_again(folder: Path, damage: bytes) -> None:
    outcome = fake_build(folder, *NAMES[:2])
    (built_kernels()[0].object_dir / "kernel.o").write_bytes(damage)
    (folder / "out" / "modules" / outcome.manifest.module).unlink()
    assert fake_build(folder, *NAMES[:2]).compiled == (outcome.manifest.kernels[0].name,)
    assert len(load_module().rows()) == 2


@pytest.mark.parametrize("damage", [b"", os.urandom(5000)])
def test_a_damaged_module_is_an_error_that_names_it_and_is_linked_again(folder: Path, damage: bytes) -> None:
    outcome = fake_build(folder, NAME)
    path = folder / "out" / "modules" / outcome.manifest.module
    path.unlink()  # this process has the file mapped: writing into it would damage what runs
    path.write_bytes(damage)
    with pytest.raises(CacheError, match=path.name) as caught:
        load_module()
    assert f"marlin-gen build` (a set again: --configs SET): --configs {NAME}" in caught.value.hint
    again = fake_build(folder, NAME)
    assert again.compiled == ()  # the object is whole
    assert len(load(Store(folder / "out"), again.manifest).rows()) == 1


def test_a_damaged_record_is_made_again(folder: Path) -> None:
    fake_build(folder, NAME)
    record = folder / "out" / "modules" / f"{NAME}.json"
    whole = json.loads(record.read_text())
    wrong_types = [{**whole, "serial": "1"}, {**whole, "kernels": [{**whole["kernels"][0], "registers": None}]}]
    for text in ("", "{", "[]", '{"kernels": [{"name": 1}]}', *map(json.dumps, wrong_types)):
        record.write_text(text)
        assert built_kernels() == []
        fake_build(folder, NAME)
        assert built_names() == [NAME]


def test_a_compiler_that_writes_nothing_is_found_out(folder: Path) -> None:
    nvcc = Path(fake_nvcc(folder / "bin"))
    nvcc.write_text(nvcc.read_text().replace('g++ -x c++ -fPIC -c - -o "$out"', 'cat >/dev/null; : >"$out"'))
    with pytest.raises(ToolchainError):
        fake_build(folder, NAME, nvcc=str(nvcc))
    assert built_kernels() == []


def test_sets_are_merged_and_the_newer_module_serves_a_kernel(folder: Path) -> None:
    fake_build(folder, *NAMES[:2])
    fake_build(folder, *NAMES[1:3])
    assert built_names() == sorted(NAMES[:3])
    places = {k.record.name: k.manifest.set for k in built_kernels()}
    assert places[NAMES[1]] == "+".join(sorted(NAMES[1:3]))
    module = load_module()
    assert [row.name for row in module.rows()] == sorted(NAMES[:3])
    for index, row in enumerate(module.rows()):
        assert module.occupancy(index) == len(row.name)
        assert module.launch(index) is None
    fake_build(folder, *NAMES[:2])  # nothing to do, but the newest word
    assert {k.record.name: k.manifest.set for k in built_kernels()}[NAMES[1]] == "+".join(sorted(NAMES[:2]))


def test_a_module_of_another_version_or_python_is_not_used(folder: Path) -> None:
    fake_build(folder, NAME)
    record = folder / "out" / "modules" / f"{NAME}.json"
    facts = json.loads(record.read_text())
    for key in ("contract", "abi"):
        record.write_text(json.dumps(facts | {key: "other"}))
        with pytest.raises(DispatchError, match="another version of marlin-gen or for another Python"):
            load_module()
    assert fake_build(folder, NAME).compiled == ()
    assert built_names() == [NAME]


def test_a_wrong_kernel_is_not_put_to_use(folder: Path) -> None:
    overlay = folder / "overlay" / "quant"
    overlay.mkdir(parents=True)
    text = (ROOT / "templates" / "quant" / "u4b8.cuh.j2").read_text()
    assert "0x64086408u" in text
    (overlay / "u4b8.cuh.j2").write_text(text.replace("0x64086408u", "0x64096409u"))  # a bias of 9
    with pytest.raises(VerifyError, match=rf"found 1 kernel\(s\) wrong:\n  {NAME}: "):
        fake_build(folder, NAME, verify="sample", templates=(str(overlay.parent),))
    assert built_kernels() == []


def test_verified_kernels_are_remembered(folder: Path) -> None:
    assert fake_build(folder, *NAMES[:2]).verified == frozenset()
    request = Request(tuple(NAMES[:2]), template_dirs=(str(FAKE_TEMPLATES),), nvcc=fake_nvcc(folder / "bin"), verify="sample")
    first, second = Quiet(), Quiet()
    assert build(request, Store(folder / "out"), first).verified == {NAMES[0]}  # one kind, the smallest tile
    assert [what for _, _, what in first.steps] == [f"verify {NAMES[0]}", "verified"]
    assert build(request, Store(folder / "out"), second).verified == {NAMES[0]}
    assert second.steps == []


def test_another_build_under_way_is_waited_for(folder: Path) -> None:
    fake_build(folder, NAME)
    events = Quiet()
    lock = os.open(folder / "out" / ".lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.5, os.close, [lock]).start()
    request = Request((NAME,), template_dirs=(str(FAKE_TEMPLATES),), nvcc=fake_nvcc(folder / "bin"))
    build(request, Store(folder / "out"), events)
    assert events.notes == [f"waiting for another build in {folder / 'out'}"]


def test_a_folder_with_a_space_and_an_umlaut(folder: Path) -> None:
    odd = folder / "mit Lücke $HOME 'x'"
    assert fake_build(odd, NAME).compiled == (NAME,)
    assert len(load(Store(odd / "out"), fake_build(odd, NAME).manifest).rows()) == 1


def test_stale_work_of_a_killed_build_is_removed(folder: Path) -> None:
    stale = folder / "out" / "work" / "tmpdead"
    stale.mkdir(parents=True)
    fake_build(folder, NAME)
    assert not stale.exists()


def test_clean_keeps_what_is_in_use(folder: Path) -> None:
    out = folder / "out"
    fake_build(folder, *NAMES[:2])
    fake_build(folder, *NAMES[:2], nvcc=fake_nvcc(folder / "newer", "13.1"))
    (out / "README.md").write_text("kept")
    (out / "notes").mkdir()
    assert clean(Store(out)) > 0
    assert len(list((out / "objects").iterdir())) == 2
    assert len(list((out / "modules").iterdir())) == 2
    assert len(load_module().rows()) == 2
    clean(Store(out), everything=True)
    assert sorted(p.name for p in out.iterdir()) == [".lock", "README.md", "modules", "notes", "objects", "work"]
    assert not any(list((out / folder).iterdir()) for folder in ("modules", "objects", "work"))
    assert built_kernels() == []
    assert clean(Store(folder / "nowhere")) == 0


def test_clean_leaves_what_no_build_made(tmp_path: Path) -> None:
    """A wrong --out: a project with folders of the same names."""
    files = [tmp_path / name for name in ("objects/ab/1", "modules/data.json", "work/thesis.tex", "simulator/plane.c", "src/a.c")]
    for path in files:
        path.parent.mkdir(parents=True)
        path.write_text("dear")
    assert clean(Store(tmp_path), everything=True) == 0
    assert all(path.read_text() == "dear" for path in files)


def test_no_configs_and_many(folder: Path) -> None:
    empty = folder / "empty.toml"
    empty.write_text("")
    with pytest.raises(ConfigError, match="names no kernel"):
        fake_build(folder, str(empty))
    many = [f"marlin_{d}_{q}_m{m}n64k128_g{g}_s{s}_sm90" for d in ("f16", "bf16") for q in ("u4", "u4b8") for m in (8, 16, 32)
            for g in (32, 64, 128) for s in (2, 4)]  # fmt: skip
    outcome = fake_build(folder, *many, *many[:5], jobs=8)
    assert [k.name for k in outcome.manifest.kernels] == sorted(many)
    assert len(outcome.manifest.module) < 200
