"""Emitted kernels on the CPU: right as they are, and told apart from kernels with one thing broken."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from marlin_gen.config import KernelConfig
from marlin_gen.emit import Rendered, Templates, render
from marlin_gen.errors import VerifyError
from marlin_gen.simulate import VerifyReport, verify

TEMPLATES = Templates()
NAMES = [
    "marlin_f16_u4b8_m16n128k128_g128_s4_sm90",
    "marlin_bf16_u4b8_m8n128k128_g64_s4_sm80",
    "marlin_f16_u4_m64n256k64_gch_s4_sm80",
    "marlin_bf16_u4_m32n64k128_g32_s4_sm90_t128",
    "marlin_f16_u4b8_m16n128k128_g128_s4_sm90_hoist_atomic",
    "marlin_f16_u4b8_m16n128k128_g128_s4_sm90_chain16",
    "marlin_f16_u4b8_m16n128k128_g128_s4_sm90_noswz",
]


@pytest.mark.parametrize("name", NAMES)
def test_emitted_kernel_is_right(name: str, cache_dir: Path) -> None:
    report = verify(render(KernelConfig.from_name(name), TEMPLATES), cache_dir=cache_dir)
    assert report.ok, "\n".join(map(str, report.findings))
    assert len(report.runs) == 10
    report.check()


@pytest.mark.parametrize("group", [256, 512])
def test_groups_deeper_than_the_products_of_verify(group: int, cache_dir: Path) -> None:
    name = f"marlin_f16_u4_m16n64k64_g{group}_s2_sm80_t64"
    report = verify(render(KernelConfig.from_name(name), TEMPLATES), cache_dir=cache_dir)
    assert report.ok, "\n".join(map(str, report.findings))


@pytest.mark.parametrize("suffix", [".so", ".o"])
@pytest.mark.parametrize("damage", [b"", b"\x7fELF" + bytes(5000)])
def test_a_damaged_file_of_the_cache_is_compiled_again(suffix: str, damage: bytes, tmp_path: Path) -> None:
    rendered = render(KernelConfig.from_name("marlin_f16_u4b8_m8n64k64_gch_s2_sm80_t64"), TEMPLATES)
    assert verify(rendered, cache_dir=tmp_path, quick=True).ok
    for path in tmp_path.glob("*.so" if suffix == ".so" else "*"):
        path.unlink()  # this process has the library mapped: writing into it would damage what runs
        path.write_bytes(damage)
    assert verify(rendered, cache_dir=tmp_path, quick=True).ok


def test_conflicts_without_swizzle_are_reported_but_expected(cache_dir: Path) -> None:
    name = "marlin_f16_u4b8_m16n128k128_g128_s4_sm90"
    with_swizzle, without = (
        verify(render(KernelConfig.from_name(n), TEMPLATES), cache_dir=cache_dir, quick=True) for n in (name, name + "_noswz")
    )
    assert not any(op.startswith("ldmatrix") for _, op in with_swizzle.conflicts)
    conflicts = [c for (_, op), c in without.conflicts.items() if op == "ldmatrix_x4"]
    assert conflicts
    assert all(c.wavefronts == 8 * c.minimum for c in conflicts)
    assert without.ok


# name: (pattern, replacement, expected kind, what the text of its line contains)
MUTATIONS = {
    "no wait for the first stage": (r"cp_async_wait<\d>\(\);", "", "read in flight", "ldmatrix_x4"),
    "one group too few waited for": (r"cp_async_wait<2>", "cp_async_wait<3>", "read in flight", "ldmatrix_x4"),
    "no barrier after the wait": (r"(cp_async_wait<2>\(\);\s*)cta_sync\(\);", r"\1", "missing barrier", "ldmatrix_x4"),
    "no barrier between epilogue and exchange": (r"(cta_sync\(\);\s*)(F4 v_m0_i0_lo)", r"\2", "missing barrier", "lds_f32x4"),
    "no fence before the counter": (
        r"fence_gpu\(\);(\s*sts32<\d+>\(shared, atomic_inc)", r"\1", "missing fence", "ldg_partial",
    ),
    "no barrier before the counter": (
        r"cta_sync\(\);(\s*if \(thread == 0\) \{.*\n\s*fence_gpu)", r"\1", "missing fence", "ldg_partial",
    ),
    "arrivals counted past the last": (r"(p\.counters \+ first, )", r"\g<1>1 + ", "counters left", ""),
    "a tile of the stripe left out": (r"tile \+ p\.stripe;", "tile + p.stripe - 1;", "lost output", ""),
    "a stripe done twice": (r"block_index\(\) \* p\.stripe", "block_index() / 2 * p.stripe", "lost output", ""),
    "a row beyond M read": (r"m0 \+ a_row \+ 0 < p\.m", "true", "out of range", "cp_async16"),
    "weights from past the end": (r"(b_get = at\(p\.b, )", r"\g<1>64 + ", "out of range", "cp_async16"),
    "weights misaligned": (r"(b_get = at\(p\.b, )", r"\g<1>8 + ", "misaligned", "cp_async16"),
    "wrong fragment": (r"ldmatrix_x4<4096>", "ldmatrix_x4<4352>", "wrong result", ""),
    "fragment from an empty slot": (r"lds128<16384>", "lds128<40960>", "uninitialised read", "lds128"),
    "a column beyond N written": (r"left = p\.n - n;", "left = p.n - n + 1;", "out of range", "stg16"),
    "wrong dequantisation": ("0x64086408u", "0x64076407u", "wrong result", ""),
    "scales of another column": (r"group \* 16;", "(group ^ 1) * 16;", "wrong result", ""),
    "swizzle left out on both sides": (r" \^ \(a_(frag_)?row & 7\)", "", "bank conflict", "ldmatrix_x4"),
}  # fmt: skip


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    return render(KernelConfig.from_name(NAMES[0]), TEMPLATES)


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_found(name: str, rendered: Rendered, cache_dir: Path) -> None:
    pattern, new, kind, line_holds = MUTATIONS[name]
    text, made = re.subn(pattern, new, rendered.text, count=0 if kind == "bank conflict" else 1)
    assert made, "the emitted text has changed: adapt the mutation"
    report = verify(replace(rendered, text=text), cache_dir=cache_dir, quick=True)
    with pytest.raises(VerifyError, match=rendered.name):
        report.check()
    assert _found(report, text, kind, line_holds), "\n".join(map(str, report.findings)) or "nothing found"


def _found(report: VerifyReport, text: str, kind: str, line_holds: str) -> bool:
    lines = ["", *text.splitlines()]
    return any(f.kind == kind and line_holds in lines[f.line] for f in report.findings)
