"""Differences between two stores of built kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from marlin_gen.build.manifest import EXT_SUFFIX, KernelRecord, Manifest
from marlin_gen.build.paths import Store
from marlin_gen.inspect.diff_trees import diff_trees

RECORD = KernelRecord(
    name="", arch="sm_90", threads=256, shared_bytes=1000, m_tile=16, thread_n=64, thread_k=128, object="", ptx=False,
    registers=100, spill_stores=0, spill_loads=0, bytes=5000, seconds=1.0,
)  # fmt: skip
PTX = ".target sm_90\n.visible .entry {}()\n{{\n\tbar.sync 0;\n{}\tret;\n}}\n"


def put(
    root: Path, name: str, key: str, text: str, set_name: str = "set", serial: int = 1, more: str = "", registers: int = 100
) -> None:
    """A store with one more kernel, in a set of its own unless named."""
    store = Store(root)
    store.modules.mkdir(parents=True, exist_ok=True)
    (store.objects / key).mkdir(parents=True, exist_ok=True)
    (store.objects / key / "kernel.cu").write_text(text)
    (store.objects / key / "kernel.ptx").write_text(PTX.format(name, more))
    record = replace(RECORD, name=name, object=key, registers=registers)
    # the contract is that of another version: what is built need not be usable here to be compared
    Manifest(f"{set_name}-{name}", "m.so", 1, "0", "0", "other", EXT_SUFFIX, "13.0", serial, (record,)).write(store)


def test_stores(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    put(a, "gone", "k0", "x\n")
    put(a, "same", "k1", "x\n")
    put(a, "headers", "k2", "x\n")
    put(a, "edited", "k3", "x\ny\n")
    put(b, "same", "k1", "x\n")
    put(b, "headers", "k9", "x\n", more="\tbar.sync 0;\n")
    put(b, "edited", "k8", "x\nz\nw\n", registers=104)
    put(b, "new", "k7", "x\n")
    found = diff_trees(a, b)
    assert {row.name: row.status for row in found.rows} == {
        "gone": "removed", "same": "same", "headers": "rebuilt", "edited": "changed", "new": "added",
    }  # fmt: skip
    edited, headers = (next(row for row in found.rows if row.name == name) for name in ("edited", "headers"))
    assert (edited.lines, edited.registers, edited.shared) == ((2, 1), (100, 104), (1000, 1000))
    assert headers.ptx == (2, 3)
    text = found.to_text()
    assert "100 → 104" in text
    assert "same " not in text.splitlines()[1]
    assert text.splitlines()[-1] == "5 kernel(s): 1 added, 1 removed, 1 changed, 1 rebuilt, 1 same"
    assert "| edited | changed | +2 -1 | 100 → 104 |" in found.to_markdown()
    assert {row["name"] for row in found.to_dict()["rows"]} == {"gone", "same", "headers", "edited", "new"}


def test_the_newest_of_two_sets_counts(tmp_path: Path) -> None:
    put(tmp_path / "a", "kernel", "k1", "old\n", "first", serial=1)
    put(tmp_path / "a", "kernel", "k2", "new\n", "second", serial=2)
    put(tmp_path / "b", "kernel", "k2", "new\n")
    assert [row.status for row in diff_trees(tmp_path / "a", tmp_path / "b").rows] == ["same"]
    assert diff_trees(tmp_path / "a", tmp_path / "b").to_text() == "1 kernel(s): 1 same\n"
