"""Inspection: parsers on real snippets, every lint on a planted violation, differences, the tools' absence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marlin_gen.config import ARCHS, KernelConfig
from marlin_gen.emit import Templates, render
from marlin_gen.errors import ConfigError, ToolchainError
from marlin_gen.inspect import tools
from marlin_gen.inspect.artifacts import Artifacts
from marlin_gen.inspect.assembly import operands
from marlin_gen.inspect.counts import compare
from marlin_gen.inspect.diff import diff_kernels
from marlin_gen.inspect.diff_trees import diff_trees
from marlin_gen.inspect.lints import RULES, Lint, Subject, lint
from marlin_gen.inspect.loops import main_loop
from marlin_gen.inspect.occupancy import occupancy
from marlin_gen.inspect.phases import Source, category, mix
from marlin_gen.inspect.policy import faulting_address, has_policy
from marlin_gen.inspect.ptx import parse_ptx
from marlin_gen.inspect.ptxas import parse_ptxas
from marlin_gen.inspect.report import Report
from marlin_gen.inspect.sass import Function, parse_sass
from marlin_gen.inspect.view_html import to_html
from marlin_gen.inspect.view_text import to_markdown, to_text

NAME = "marlin_f16_u4b8_m16n64k128_g128_s4_sm90"

PTXAS = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{NAME}' for 'sm_90'
ptxas info    : Function properties for {NAME}
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 118 registers, used 1 barriers, 16 bytes smem, 464 bytes cmem[0]
ptxas info    : Compile time = 201.003 ms
"""
SERIALISED = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ..."

PTX = """.version 9.0
.target sm_90
.address_size 64
.visible .entry kernel(
	.param .align 8 .b8 kernel_param_0[120]
)
.maxntid 256
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<9>;
	.loc	1 100 0
	createpolicy.fractional.L2::evict_first.b64 %rd42, 1.0;
	// begin inline asm
	{.reg .pred p, q; setp.ne.b32 p, %r3, 0; setp.eq.b32 q, %r2, 0; @p cp.async.cg.shared.global [%r1 + 0], [%rd43], 16, q;}
	// end inline asm
	{.reg .pred p; setp.ne.b32 p, %r3, 0; @p cp.async.cg.shared.global.L2::cache_hint [%r1 + 16384], [%rd44], 16, %rd42;}
	cp.async.commit_group;
	cp.async.wait_group 2;
	bar.sync 	0;
$L__BB0_2:
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5 + 0];
	lop3.b32 %r6, %r1, %r2, %r3, 234;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6},
		{%f1, %f2, %f3, %f4};
	@%p1 bra 	$L__BB0_2;
	ret;
}
"""

SOURCE = """// head
// ==== quant type u4: 4 bit ====
MG_DEVICE void dequant() {}
MG_KERNEL(256, 1) void kernel() {
  // ==== prologue: who am I ====
  // ==== mainloop: straight-line code ====
  // ---- ring slot 0 ----
  mma();
  // ---- ring slot 1 ----
  mma();
  // ==== drain ====
}
"""
HEAD = f"""	.target	sm_90
	.section	.text.{NAME},"ax",@progbits
{NAME}:
.text.{NAME}:
"""
LOOP = (
    "S2R R0, SR_TID.X",
    "ULDC.64 UR10, c[0x0][0x208]",
    "UMOV UR8, URZ",
    ".L_x_1:",
    "@P2 LDGSTS.E.BYPASS.128 [R9+0x4000], desc[UR8][R70.64]",
    "@!PT LDS.128 RZ, [RZ]",
    "LOP3.LUT R4, R2.reuse, 0xf000f, R3, 0xea, !PT",
    "HMMA.16816.F32 R36, R60, R80, R36",
    "LDS.128 R4, [R8]",
    "HADD2 R85, R73.H0_H0, 1024, 1024",
    "HMMA.16816.F32 R32, R60, R82, R32",
    "@P1 BRA `(.L_x_1)",
    "EXIT",
)
END = ("BRA `(.L_x_9)", "NOP", "NOP")


def sass_text(words: tuple[str, ...], line: int = 8) -> str:
    """Instructions as nvdisasm prints them, all from one line of the source."""
    text, address = HEAD + f'\t//## File "/tmp/x/kernel.cu", line {line}\n', 0
    for word in words:
        text += f"{word}\n" if word.endswith(":") else f"        /*{address:04x}*/ {word:>40} ;\n"
        address += 0 if word.endswith(":") else 16
    return text


def function(*words: str) -> Function:
    (found,) = parse_sass(sass_text(words))
    return found


def artifacts(*words: str, said: str = "", planned: bool = False, ptx: str = PTX) -> Artifacts:
    text = sass_text(words)
    plan = render(KernelConfig.from_name(NAME), Templates()).plan if planned else None
    return Artifacts(NAME, "a test", parse_sass(text)[0], text, 100, parse_ptx(ptx)[0], ptx, SOURCE, said, plan)


def found(kernel: Artifacts) -> dict[str, Lint]:
    return {finding.id: finding for finding in lint(Subject(kernel))}


# ---- parsers --------------------------------------------------------------------------------------------------------


def test_ptxas_text() -> None:
    report = parse_ptxas(PTXAS + SERIALISED)
    usage = report.of(NAME)
    assert usage is not None
    assert (usage.registers, usage.stack, usage.spill_stores, usage.spill_loads) == (118, 8, 12, 16)
    assert (usage.barriers, usage.shared, usage.constant, usage.arch) == (1, 16, {0: 464}, "sm_90")
    assert report.warnings == (SERIALISED,)
    assert parse_ptxas("").of(NAME) is None


def test_ptx_instructions_are_counted_by_name() -> None:
    (kernel,) = parse_ptx(PTX)
    assert (kernel.name, kernel.arch, kernel.entry) == ("kernel", "sm_90", True)
    assert kernel.count("cp.async") == 2
    for name in ("mma.sync", "ldmatrix", "cp.async.commit_group", "cp.async.wait_group", "bar.sync", "lop3", "createpolicy"):
        assert kernel.count(name) == 1, name
    copy = next(i for i in kernel.instructions if i.opcode.startswith("cp.async.cg"))
    assert (copy.guard, copy.operands) == ("p", ("[%r1 + 0]", "[%rd43]", "16", "q"))


def test_sass_instructions() -> None:
    kernel = function(*LOOP, *END)
    assert (kernel.name, kernel.arch, kernel.labels[".L_x_1"]) == (NAME, "sm_90", 0x30)
    copy = kernel.instructions[3]
    assert (copy.address, copy.guard, copy.mnemonic, copy.modifiers) == (0x30, "P2", "LDGSTS", ("E", "BYPASS", "128"))
    assert copy.operands == ("[R9+0x4000]", "desc[UR8][R70.64]")
    assert copy.place is not None
    assert (copy.place.base, copy.place.line) == ("kernel.cu", 8)
    assert kernel.instructions[5].operands == ("R4", "R2", "0xf000f", "R3", "0xea", "!PT")
    assert kernel.instructions[-1].mnemonic == "EXIT"  # what fills up the last line is left out
    assert kernel.counts["LDS"] == 1  # a load under @!PT never runs


def test_inlined_instructions_belong_to_the_calling_line() -> None:
    chain = '//## File "/i/mma.cuh", line 10 inlined at "/t/kernel.cu", line 3\n//## File "/t/kernel.cu", line 3 inlined at '
    chain += '"/t/kernel.cu", line 10\n//## File "/t/kernel.cu", line 10\n'
    (kernel,) = parse_sass(f"{HEAD}{chain}        /*0000*/    HADD2 R1, R2, R3 ;\n")
    source, (instruction,) = Source(SOURCE), kernel.instructions
    assert source.line_of(instruction) == 10
    phase, helper = source.phase_of(instruction), source.helper_of(instruction)
    assert phase is not None
    assert helper is not None
    assert (phase.title, phase.level, helper.name) == ("ring slot 1", 2, "quant type u4")


def test_operands_are_split_outside_of_brackets() -> None:
    assert operands("{%f1, %f2}, [%r1 + 4, 5], x") == ("{%f1, %f2}", "[%r1 + 4, 5]", "x")


def test_phases_of_an_emitted_kernel() -> None:
    source = Source(render(KernelConfig.from_name(NAME), Templates()).text)
    (loop,) = (phase for phase in source.phases if phase.name == "mainloop")
    slots = [p for p in source.phases if p.level == 2 and loop.first < p.first <= loop.last]
    assert [p.title.partition(",")[0] for p in slots] == [f"ring slot {slot}" for slot in range(4)]
    assert slots[-1].last == loop.last


def test_the_main_loop_and_its_longest_stretch() -> None:
    loop = main_loop(function(*LOOP))
    assert loop is not None
    assert (loop.instructions[0].mnemonic, loop.instructions[-1].mnemonic, loop.matrix) == ("LDGSTS", "BRA", 2)
    assert [i.mnemonic for i in loop.longest_stretch] == ["BRA", "LDGSTS", "LDS", "LOP3"]  # over the loop's end
    assert main_loop(function("HMMA.16816.F32 R0, R4, R8, R0", "EXIT")) is None


def test_families() -> None:
    assert [category(m) for m in ("HMMA", "LDGSTS", "LDSM", "UMOV", "XYZ")] == [
        "tensor", "async copy", "shared load", "uniform", "other",
    ]  # fmt: skip
    assert mix(function(*LOOP).instructions)["tensor"] == 2


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "ctas", "bound"),
    [("sm_90", 256, 113, 51216, 2, "registers"), ("sm_90", 256, 64, 110_000, 2, "shared"), ("sm_86", 256, 32, 1024, 6, "threads"),
     ("sm_90", 128, 255, 0, 2, "registers"), ("sm_90", 32, 16, 0, 32, "slots")],
)  # fmt: skip
def test_occupancy(arch: str, threads: int, registers: int, shared: int, ctas: int, bound: str) -> None:
    held = occupancy(ARCHS[arch], threads, registers, shared)
    assert (held.ctas, held.bound_by) == (ctas, bound)


# ---- lints ----------------------------------------------------------------------------------------------------------


def test_a_clean_kernel_has_no_findings_but_the_cache_policy() -> None:
    findings = lint(Subject(artifacts(*LOOP)))
    assert [(f.id, f.severity) for f in findings] == [("cache-policy", "info")]
    assert "used by 1" in findings[0].message


PLANTED = {
    "local-memory": ("error", "STL [R1+0x4], R3"),
    "copy-width": ("error", "LDGSTS.E.64 [R9+0x4000], desc[UR10][R70.64]"),
    "shared-width": ("warning", "LDS.64 R4, [R8]"),
    "call-in-loop": ("error", "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)"),
    "division-in-loop": ("error", "I2F.RP R6, R11"),
    "conversion-in-loop": ("warning", "F2F.F16.F32 R6, R11"),
    "predicated-barrier": ("warning", "@P1 BAR.SYNC.DEFER_BLOCKING 0x0"),
    "narrow-accumulator": ("error", "HMMA.16816.F16 R36, R60, R80, R36"),
    "flushed-subnormals": ("error", "HADD2.FTZ R85, R73, R74"),
    "policy-address": ("error", "LDGSTS.E.BYPASS.128 [R9+UR4+0x2000], desc[UR8][R70.64]"),
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_violation_is_found_with_its_line(rule: str) -> None:
    severity, planted = PLANTED[rule]
    findings = found(artifacts(*LOOP[:-2], planted, *LOOP[-2:]))
    assert (findings[rule].severity, findings[rule].line) == (severity, 8)
    assert set(findings) <= {rule, "cache-policy"}


def test_findings_in_what_the_compiler_said() -> None:
    findings = found(artifacts(*LOOP, said=PTXAS + SERIALISED))
    assert "12 bytes spilled" in findings["spill"].message
    assert findings["compiler-warning"].severity == "error"
    plenty = PTXAS.replace("118", "255").replace("8 bytes stack", "0 bytes stack").replace("12 bytes", "0 bytes")
    findings = found(artifacts(*LOOP, said=plenty.replace("16 bytes spill", "0 bytes spill") + "x.cu(3): warning #177: unused\n"))
    assert findings["registers"].severity == findings["compiler-warning"].severity == "warning"
    assert "spill" not in findings


def test_numbers_that_are_not_the_plans() -> None:
    findings = [f for f in lint(Subject(artifacts(*LOOP, planned=True))) if f.id == "count"]
    assert "PTX: 1 mma.sync, the plan expects 32" in [f.message for f in findings]
    assert {f.severity for f in findings if "HMMA" in f.message} == {"error"}
    exact = compare({"mma.sync": 1, "cp.async": 2, "cp.async.commit_group": 1}, parse_ptx(PTX)[0], None)
    assert all(count.exact for count in exact)


def test_no_main_loop_is_said() -> None:
    assert "main-loop-missing" in found(artifacts("EXIT", planned=True))


def test_every_rule_is_planted_somewhere_and_says_what_it_finds() -> None:
    elsewhere = {"spill", "registers", "compiler-warning", "count", "main-loop-missing", "cache-policy"}
    assert set(RULES) == set(PLANTED) | elsewhere
    assert all(rule.__doc__ for rule in RULES.values())


def test_a_cache_policy_is_told_from_a_plain_descriptor() -> None:
    plain = LOOP[4].replace("UR8", "UR10")
    kernel = function(*LOOP[:5], plain, plain.replace("[R9+", "[R9+UR4+"), *LOOP[5:])
    hinted, ordinary, uniform = (i for i in kernel.instructions if i.mnemonic == "LDGSTS")
    assert [has_policy(i, kernel) for i in (hinted, ordinary, uniform)] == [True, False, False]
    assert [faulting_address(i) for i in (hinted, ordinary, uniform)] == [False, False, True]


# ---- reports and differences ------------------------------------------------------------------------------------------


def test_the_views_show_everything() -> None:
    report = Report(Subject(artifacts(*LOOP, said=PTXAS, planned=True)))
    assert not report.ok
    text, markdown, page = to_text(report), to_markdown(report), to_html(report)
    for shown in (text, markdown, page):
        assert NAME in shown
        assert "ring slot 0" in shown
        assert "12 bytes spilled" in shown
    assert "prefers-color-scheme: dark" in page
    assert "<details" in page
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is loaded from elsewhere
    facts = json.loads(json.dumps(report.to_dict()))
    assert (facts["ok"], facts["usage"]["registers"], facts["loop"]["matrix"]) == (False, 118, 2)


def test_difference_of_kernels() -> None:
    a, b = (Report(Subject(k)) for k in (artifacts(*LOOP), artifacts(*LOOP[:-2], LOOP[7], *LOOP[-2:], said=PTXAS)))
    different = diff_kernels(a, b)
    assert [(d.name, d.before, d.after, d.change) for d in different.sass] == [("HMMA", 2, 3, "+1")]
    assert not different.same
    assert "HMMA" in different.to_text()
    assert diff_kernels(a, a).same
    assert "no difference" in diff_kernels(a, a).to_text()


def test_difference_of_folders(tmp_path: Path) -> None:
    for folder, texts in {"a": {"k1": "x\n", "k2": "y\n"}, "b": {"k2": "y\nz\n", "k3": "x\n"}}.items():
        for name, text in texts.items():
            (tmp_path / folder / name).mkdir(parents=True)
            (tmp_path / folder / name / "kernel.cu").write_text(text)
    rows = {row.name: (row.status, row.lines) for row in diff_trees(tmp_path / "a", tmp_path / "b").rows}
    assert rows == {"k1": ("removed", (0, 1)), "k2": ("changed", (1, 0)), "k3": ("added", (1, 0))}
    with pytest.raises(ConfigError, match="holds no kernels"):
        diff_trees(tmp_path / "a", tmp_path)


# ---- tools ------------------------------------------------------------------------------------------------------------


def test_a_missing_tool_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(tools, "packaged_tool", lambda name: None)
    with pytest.raises(ToolchainError, match="no nvdisasm") as error:
        tools.find_tool("nvdisasm")
    assert "pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm" in error.value.hint


def test_a_tool_of_the_toolkit_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvdisasm").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "nvdisasm").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert tools.find_tool("nvdisasm") == str(tmp_path / "bin" / "nvdisasm")
