"""Emitted kernels under inspection: exact counts, no errors, the verbs and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_tools import NAME

from marlin_gen.build.toolchain import find_cxx, find_nvcc
from marlin_gen.cli.inspecting import diff_verb, inspect_verb
from marlin_gen.emit import Templates
from marlin_gen.errors import ToolchainError
from marlin_gen.inspect import report as reports
from marlin_gen.inspect.report import Report, inspect_kernel
from marlin_gen.inspect.tools import find_tool
from marlin_gen.inspect.view_html import to_html

pytestmark = pytest.mark.nvcc

NAMES = (
    "marlin_f16_u4b8_m8n128k128_g128_s4_sm90_t128_c3",
    "marlin_bf16_u4_m16n64k128_g32_s4_sm90",
    "marlin_f16_u4b8_m64n256k64_g128_s4_sm80",
)


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Reports of kernels that are compiled when a test first asks for them, and not taken from any earlier build."""
    try:
        find_nvcc(), find_cxx(), find_tool("nvdisasm")
    except ToolchainError as error:
        pytest.skip(str(error))
    cache = tmp_path_factory.mktemp("cache")

    class Reports(dict[str, Report]):
        def __missing__(self, name: str) -> Report:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("MARLIN_GEN_CACHE", str(cache))
                self[name] = inspect_kernel(name)
            return self[name]

    return Reports()


@pytest.mark.parametrize("name", NAMES)
def test_an_emitted_kernel_is_what_was_planned(name: str, inspected: dict[str, Report]) -> None:
    report = inspected[name]
    assert report.ok, [finding for finding in report.lints if finding.severity == "error"]
    assert report.counts
    assert all(count.exact for count in report.counts if count.binding)
    assert report.loop is not None
    planned = report.kernel.plan.expected_counts() if report.kernel.plan else {}
    assert report.loop.matrix == planned["mma.sync"], "the main loop holds all products"
    assert 1 <= (report.loop.dequant_per_8_weights or 0) < (report.loop.per_8_weights or 0)
    assert report.occupancy is not None
    assert report.occupancy.ctas >= (report.kernel.plan.config.ctas if report.kernel.plan else 1)
    # what is inlined, headers included, is found again in the phase that calls it
    assert sum(p.instructions for p in report.phases if p.level == 0) < 10
    assert next(p for p in report.phases if p.title.startswith("mainloop")).mix["tensor"] == planned["mma.sync"]


def test_the_page_has_every_phase(inspected: dict[str, Report]) -> None:
    report = inspected[NAMES[0]]
    page = to_html(report)
    assert report.name in page
    for phase in ("prologue: who am I", "mainloop: one revolution", "ring slot 3", "drain"):
        assert phase in page
    assert page.count("HMMA.16816") >= 64


def test_the_verbs(inspected: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports.artifacts, "of_kernel", lambda name, *_: inspected[name].kernel)
    runner = CliRunner()

    shown = runner.invoke(inspect_verb, [NAMES[0], "--html", str(tmp_path / "page.html")])
    assert shown.exit_code == 0, shown.output
    assert "no errors found" in shown.output
    assert NAMES[0] in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "createpolicy" in runner.invoke(inspect_verb, [NAMES[0], "--ptx"]).output
    assert "HMMA.16816.F32" in runner.invoke(inspect_verb, [NAMES[0], "--sass"]).output
    assert json.loads(runner.invoke(inspect_verb, [NAMES[0], "--json"]).output)["ok"] is True
    assert runner.invoke(inspect_verb, [NAMES[0], "--json", "--ptx"]).exit_code == 2

    different = runner.invoke(diff_verb, [NAMES[0], NAMES[1]])
    assert different.exit_code == 0, different.output
    assert "registers" in different.output
    assert f"--- before/{NAMES[0]}.cu" in different.output


def test_an_error_is_exit_code_1(tmp_path: Path, inspected: dict[str, Report], monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that makes one product too many: the plan's number and the kernel's disagree."""
    monkeypatch.setenv("MARLIN_GEN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "templates" / "kernel" / "marlin"
    folder.mkdir(parents=True)
    text = Templates().read("kernel/marlin/mainloop.j2")
    line = next(line for line in text.splitlines() if line.startswith("mma_{{ k.a_dtype }}(c_m{{ m }}_n{{ 2 * j }},"))
    (folder / "mainloop.j2").write_text(text.replace(line, f"{line}\n{line}"), encoding="utf-8")
    done = CliRunner().invoke(inspect_verb, [NAME, "--template-dir", str(tmp_path / "templates")])
    assert done.exit_code == 1, done.output
    assert "48 mma.sync, the plan expects 32" in done.output
