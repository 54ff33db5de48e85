"""Every planted fault is found, and named with the line that makes it. ``// <-`` marks that line in a body."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from marlin_gen.errors import ToolchainError
from marlin_gen.simulate import Buffer, simulate

if TYPE_CHECKING:
    from conftest import Lab

_START = """
const uint32_t s = shared_base();
const int t = thread_index();
"""
_COPY = """
cp_async16<0>(s + 16 * t, at(p.a, 16 * t), true);
cp_async_commit();
"""

CASES = {
    "missing cp_async_wait": ("read in flight", 32, _COPY + "cta_sync(); lds32<0>(s + 16 * t);  // <-"),
    "wait for too few groups": (
        "read in flight", 32, _COPY + "cp_async16<512>(s + 16 * t, p.a, true); cp_async_commit(); cp_async_wait<1>();\n"
        "lds32<0>(s + 16 * t);\nlds32<512>(s + 16 * t);  // <-",
    ),
    "a copy that no commit closed": (
        "read in flight", 32, "cp_async16<0>(s + 16 * t, p.a, true); cp_async_wait<0>();\nlds32<0>(s + 16 * t);  // <-",
    ),
    "write to bytes in flight": ("write in flight", 32, _COPY + "sts32<0>(s + 16 * t, 1);  // <-"),
    "copy onto a copy": ("write in flight", 32, _COPY + "cp_async16<0>(s + 16 * t, p.a, true);  // <-"),
    "wait, but no barrier": (
        "missing barrier", 64, _COPY + "cta_sync(); cp_async_wait<0>();\nlds32<0>(s + 16 * (t ^ 1));  // <-",
    ),
    "read after write": ("missing barrier", 64, "sts32<0>(s + 4 * t, t);\nlds32<0>(s + 4 * (t ^ 1));  // <-"),
    "write after read": (
        "missing barrier", 64, "sts32<0>(s + 4 * t, t); cta_sync();\nlds32<0>(s + 4 * (t ^ 32));\n"
        "sts32<0>(s + 4 * t, t);  // <-",
    ),
    "write after write": ("missing barrier", 64, "sts32<0>(s + 4 * (t / 2), t);  // <-"),
    "copy after read": (
        "missing barrier", 64, "sts_f32x4<0>(s + 16 * t, F4{}); cta_sync();\nlds32<0>(s + 16 * (t ^ 32));\n"
        "cp_async16<0>(s + 16 * t, p.a, true);  // <-",
    ),
    "uninitialised shared memory": ("uninitialised read", 32, "lds32<0>(s + 4 * t);  // <-"),
    "shared out of range": ("out of range", 32, "sts32<4096>(s + 4 * t, t);  // <-"),
    "below shared memory": ("out of range", 32, "sts32<-4>(s + 4 * t, t);  // <-"),
    "shared misaligned": ("misaligned", 32, "sts_f32x4<8>(s + 16 * t, F4{});  // <-"),
    "global out of range": ("out of range", 32, "ldg128(at(p.a, 16 * (t + 225)));  // <-"),
    "before a buffer": ("out of range", 32, "ldg16(at(p.a, -2));  // <-"),
    "null pointer": ("out of range", 32, "ldg16(p.bias);  // <-"),
    "copy out of range": ("out of range", 32, "cp_async16<0>(s + 16 * t, at(p.a, 4096), true);  // <-"),
    "global misaligned": ("misaligned", 32, "ldg128(at(p.a, 16 * t + 8));  // <-"),
    "copy misaligned": ("misaligned", 32, "cp_async16_zfill<0>(s + 16 * t, at(p.a, 8), true, true);  // <-"),
    "write to an input": ("access mode", 32, "stg16(const_cast<void*>(p.a), 1);  // <-"),
    "read of an output": ("access mode", 32, "ldg16_coherent(p.c);  // <-"),
    "barrier in one branch": ("divergent barrier", 64, "if (t < 32) cta_sync();\nelse\n  cta_sync();  // <-"),
    "barrier that some skip": ("deadlock", 64, "if (t < 32) cta_sync();  // <-"),
    "collective that some skip": ("deadlock", 32, "sts_f32x4<0>(s + 16 * t, F4{});\nif (t) ldmatrix_x2<0>(s);  // <-"),
    "collectives in two branches": (
        "divergence", 32, "F4 c{};\nif (t < 16) mma_f16(c, U4{}, FragB{});\nelse mma_f16(c, U4{}, FragB{});  // <-",
    ),
    "a turn that never comes": ("deadlock", 32, "wait_for_turn(p.counters, 1);  // <-"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fault_is_found_and_named(lab: Lab, case: str) -> None:
    kind, threads, body = CASES[case]
    found = lab.faults(_START + body, threads=threads, more=[Buffer("counters", np.zeros(4, np.uint32), "rw")])
    assert (kind, lab.line("// <-")) in found


CLEAN = {
    "copy, wait, barrier": _COPY + "cp_async_wait<0>(); cta_sync(); lds32<0>(s + 16 * (t ^ 1));",
    "own copy needs no barrier": _COPY + "cp_async_wait<0>(); lds128<0>(s + 16 * t);",
    "older group landed": _COPY
    + "cp_async16<2048>(s + 16 * t, p.a, true); cp_async_commit(); cp_async_wait<1>(); lds32<0>(s + 16 * t);",
    "empty groups count": _COPY + "cp_async_commit(); cp_async_commit(); cp_async_wait<2>(); lds32<0>(s + 16 * t);",
    "zero-filled copy reads nothing": "cp_async16_zfill<0>(s + 16 * t, nullptr, true, false); cp_async_commit();\n"
    "cp_async_wait<0>(); lds32<12>(s + 16 * t);",
    "several readers, barrier, writer": "sts32<0>(s + 4 * t, t); cta_sync(); lds32<0>(s); cta_sync(); sts32<0>(s + 4 * t, t);",
}


@pytest.mark.parametrize("case", CLEAN)
def test_right_code_is_silent(lab: Lab, case: str) -> None:
    assert lab.faults(_START + CLEAN[case], threads=64) == []


def test_poison_reaches_the_result(lab: Lab) -> None:
    c = np.zeros(64, np.uint16)
    body = _START + "const uint32_t v = lds32<0>(s + 4 * t);\nstg16(at(p.c, 2 * t), v);"
    lab.run(body, np.zeros(8, np.uint16), c)
    assert (c[:32] == 0xFFFF).all()  # a NaN in every type


def test_rows_apart_are_checked(lab: Lab) -> None:
    a = np.zeros((4, 16), np.uint16)[:, :8]
    body = "ldg128(at(p.a, 32));\nldg128(at(p.a, 16));  // <-"
    result = lab.run(body, a, np.zeros(2, np.uint16))
    assert [(f.kind, f.line) for f in result.faults] == [("out of range", lab.line("// <-"))]
    assert "between its rows" in result.faults[0].detail


def test_lost_and_doubled_output(lab: Lab) -> None:
    c = np.zeros((4, 16), np.uint16)
    out = Buffer("c", c[:, :8], "w", initialised=False, write_once=True)
    store = "if (t < 4) stg128(at(p.c, 32 * %s), U4{});  // <-"
    assert lab.run(_START + store % "t", c, c, out).faults == ()
    doubled, lost = lab.run(_START + store % "(t / 2)", c, c, out).faults
    assert (doubled.kind, doubled.line, doubled.thread, doubled.text) == (
        "doubled output",
        lab.line("// <-"),
        1,
        (store % "(t / 2)"),
    )
    assert (lost.kind, lost.line, lost.count) == ("lost output", 0, 16)
    assert "the first is [2, 0]" in lost.detail


_PARTIAL = """
const int t = thread_index(), b = block_index();
const uint32_t s = shared_base();
float* const mine = p.partial + (b * 64 + t) * 4;
stg_partial(mine, F4{1.f, 2.f, 3.f, 4.f});
fence_gpu();   // every thread its own
cta_sync();    // all have
if (t == 0) sts32<0>(s, atomic_inc_wrap(p.counters, block_count() - 1));
cta_sync();    // all know
if (lds32<0>(s) == block_count() - 1) {
  fence_gpu();
  float sum = 0;
  for (int x = 0; x < block_count(); ++x) sum += ldg_partial(p.partial + (x * 64 + (t ^ 1)) * 4).w;  // <-
  stg16(at(p.c, 2 * t), f16::pack(sum, 0));
}
"""
_MUTATIONS = {
    "no fence": ("fence_gpu();   // every thread its own\n", ""),
    "fence after the atomic": ("fence_gpu();   // every thread its own\ncta_sync();    // all have\n", "cta_sync();\n"),
    "no barrier before the atomic": ("cta_sync();    // all have\n", ""),
    "no atomic": ("atomic_inc_wrap(p.counters, block_count() - 1)", "b"),
}


def _arrivals(lab: Lab, body: str, order: str, seed: int = 0) -> tuple[list[tuple[str, int]], list[float], int]:
    partial, counters, c = np.zeros((4, 64, 4), np.float32), np.zeros(1, np.uint32), np.zeros(64, np.float16)
    more = [Buffer("partial", partial, "rw", initialised=False), Buffer("counters", counters, "rw")]
    out = Buffer("c", c, "w", initialised=False, write_once=True)
    result = lab.run(body, np.zeros(8, np.uint16), c, out, *more, grid=4, threads=64, order=order, seed=seed)
    return [(f.kind, f.line) for f in result.faults], c.tolist(), int(counters[0])


@pytest.mark.parametrize("order", ["index", "reversed", "shuffled"])
def test_last_arriver_sums(lab: Lab, order: str) -> None:
    for seed in range(4 if order == "shuffled" else 1):
        assert _arrivals(lab, _PARTIAL, order, seed) == ([], [16.0] * 64, 0)


@pytest.mark.parametrize(
    ("name", "order"),
    # without the atomic CTA 3 sums whatever it finds; run first, it finds nothing written
    [(name, order) for name in _MUTATIONS for order in ("index", "reversed") if (name, order) != ("no atomic", "reversed")],
)
def test_missing_order_between_ctas(lab: Lab, name: str, order: str) -> None:
    old, new = _MUTATIONS[name]
    assert old in _PARTIAL
    found, _, _ = _arrivals(lab, _PARTIAL.replace(old, new), order)
    assert ("missing fence", lab.line("// <-")) in found


def test_missing_barrier_before_reading_a_mates_global_write(lab: Lab) -> None:
    body = _START + "stg_partial(p.partial + 4 * t, F4{});\nldg_partial(p.partial + 4 * (t ^ 32));  // <-"
    found = lab.faults(body, threads=64, more=[Buffer("partial", np.zeros(256, np.float32), "rw")])
    assert found == [("missing barrier", lab.line("// <-"))]


def test_read_only_load_of_what_the_launch_wrote(lab: Lab) -> None:
    body = _START + "stg_partial(p.partial + 4 * t, F4{});\nldg128(p.partial + 4 * t);  // <-"
    found = lab.faults(body, more=[Buffer("partial", np.zeros(128, np.float32), "rw")])
    assert found == [("stale read", lab.line("// <-"))]


_CHAIN = """
const int t = thread_index(), b = block_index();
if (t == 0) wait_for_turn(p.counters, b);
cta_sync();
uint32_t v = 0;
if (b > 0) v = ldg16_coherent(at(p.c, 2 * t));
stg16(at(p.c, 2 * t), v + b + 1);  // <-
cta_sync();
if (t == 0) pass_turn(p.counters, b + 1);
"""


@pytest.mark.parametrize("order", ["index", "reversed", "shuffled"])
def test_turns(lab: Lab, order: str) -> None:
    c = np.zeros(32, np.uint16)
    out, counters = Buffer("c", c, "rw", initialised=False), Buffer("counters", np.zeros(1, np.uint32), "rw")
    assert lab.run(_CHAIN, c, c, out, counters, grid=4, order=order).faults == ()
    assert (c == 10).all()
    counters.array[:] = 0
    late = _CHAIN.replace("cta_sync();\nif (t == 0) pass", "if (t == 0) pass")
    result = lab.run(late, c, c, out, counters, grid=4, order=order)
    assert "missing fence" in {fault.kind for fault in result.faults}


def test_atomic_additions(lab: Lab) -> None:
    partial, counters = np.zeros(4, np.float32), np.zeros(1, np.uint32)
    body = """
    const int t = thread_index();
    red_add_f32(p.partial, 1.f);
    fence_gpu();
    cta_sync();
    const uint32_t before = t == 0 ? atomic_inc_wrap(p.counters, block_count() - 1) : 0;
    fence_gpu();
    if (before == block_count() - 1) stg16(p.c, ldg_partial(p.partial).x);  // <-"""
    c = np.zeros(1, np.uint16)
    more = [Buffer("partial", partial, "rw"), Buffer("counters", counters, "rw")]
    assert lab.run(body, c, c, *more, grid=3).faults == ()
    assert (c[0], counters[0]) == (96, 0)
    found = lab.run(body.replace("fence_gpu();\n    cta_sync();", "cta_sync();"), c, c, *more, grid=3).faults
    assert [(f.kind, f.line) for f in found] == [("missing fence", lab.line("// <-"))]


def test_bank_conflicts_are_counted(lab: Lab) -> None:
    fill = _START + "for (int i = t; i < 256; i += 32) sts_f32x4<0>(s + 16 * i, F4{});\ncta_sync();\n"

    def conflict(access: str) -> list[tuple[str, int, int]]:
        result = lab.run(f"{fill}{access};  // <-", np.zeros(8, np.uint16), np.zeros(2, np.uint16))
        assert result.faults == ()
        assert all(c.line == lab.line("// <-") for c in result.conflicts)
        return [(c.op, c.wavefronts, c.minimum) for c in result.conflicts]

    assert conflict("lds32<0>(s + 4 * t)") == []
    assert conflict("lds32<0>(s)") == []  # one word for all
    assert conflict("lds32<0>(s + 8 * t)") == [("lds32", 2, 1)]
    assert conflict("lds32<0>(s + 128 * t)") == [("lds32", 32, 1)]
    assert conflict("lds64<0>(s + 8 * t)") == []
    assert conflict("lds64<0>(s + 16 * t)") == [("lds64", 4, 2)]
    assert conflict("lds128<0>(s + 16 * t)") == []
    assert conflict("lds128<0>(s + 32 * t)") == [("lds128", 8, 4)]
    assert conflict("if (t % 2) lds32<0>(s + 64 * t)") == [("lds32", 16, 1)]
    assert conflict("ldmatrix_x4<0>(s + 16 * t)") == []
    assert conflict("ldmatrix_x4<0>(s + t % 16 * 128 + t / 16 * 16)") == [("ldmatrix_x4", 32, 4)]
    assert conflict("ldmatrix_x4<0>(s + t % 16 * 128 + (t / 16 ^ t % 8) * 16)") == []
    assert conflict("for (int i = 0; i < 3; ++i) lds32<0>(s + 4 * t + 128 * i)") == []


def test_faults_are_collected_once_a_line_and_up_to_a_limit(lab: Lab) -> None:
    body = _START + "\n".join(f"lds32<{4 * i}>(s + 128 * t);" for i in range(8))
    result = lab.run(body, np.zeros(8, np.uint16), np.zeros(2, np.uint16), max_faults=5)
    assert (len(result.faults), result.completed) == (5, False)
    once = lab.run(_START + "lds32<0>(s + 128 * t);", np.zeros(8, np.uint16), np.zeros(2, np.uint16))
    assert ([fault.count for fault in once.faults], once.completed) == ([32], True)


def test_endless_launch_is_stopped(lab: Lab) -> None:
    assert lab.faults("for (;;) ldg16(p.a);", max_steps=10_000) == [("runaway", 0)]


def test_a_kernel_that_does_not_compile(lab: Lab) -> None:
    with pytest.raises(ToolchainError, match=r"kernel\.cu:11"):
        lab.faults("no_such_function();")


def test_no_compiler(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match="no-such-compiler is not on PATH") as caught:
        simulate("", "kernel", [], {}, grid=1, threads=32, shared_bytes=0, cache_dir=cache_dir)
    assert "apt install" in caught.value.hint


def test_impossible_launch(cache_dir: Path) -> None:
    with pytest.raises(ValueError, match="48 threads"):
        simulate("", "kernel", [], {}, grid=1, threads=48, shared_bytes=0, cache_dir=cache_dir)


def test_fibers_of_other_processors(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ -DMG_SIM_UCONTEXT")
    assert _arrivals(lab, _PARTIAL, "shuffled") == ([], [16.0] * 64, 0)
