"""What is emitted, against what was emitted when somebody last read the diff.

``pytest tests/golden --update-golden`` writes all of it anew; it is refused where CI is set.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from marlin_gen.config import KernelConfig, load_matrix
from marlin_gen.emit import Templates, check_legal, render
from marlin_gen.quant import load_quant
from marlin_gen.schedule import KernelPlan

HERE = Path(__file__).parent
TEMPLATES = Templates()
KERNELS = (
    "marlin_f16_u4b8_m64n256k64_g128_s4_sm80",  # the article's
    "marlin_f16_u4b8_m8n128k128_g128_s4_sm90_t128_c3",  # transposed, small CTAs
    "marlin_bf16_u4_m16n64k128_g32_s4_sm90",  # zero points, several scale rows a stage, eight warps along K
    "marlin_f16_u4_m16n128k128_gch_s4_sm90_atomic",  # one scale a column, atomics
    "marlin_bf16_u4b8_m16n128k128_g128_s4_sm90_chain16",  # the article's chain
    "marlin_f16_u4b8_m48n64k64_g64_s2_sm80_t128_noef_noswz_hoist",  # every ablation
)
PLANS = "default"  # plans of this set
HASHES = "full"  # hashes of this set
ADVICE = "if the change is wanted: pytest tests/golden --update-golden, and read the diff"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes the file."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing; {ADVICE}"
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), f"{path.name} differs; {ADVICE}"

    return check


def legal(config: KernelConfig) -> None:
    check_legal(config, TEMPLATES)


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_of_a_kernel(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(HERE / "kernels" / f"{name}.cu", render(KernelConfig.from_name(name), TEMPLATES).text)


def test_no_kernel_is_kept_that_no_test_reads(request: pytest.FixtureRequest) -> None:
    orphans = [path for path in sorted((HERE / "kernels").iterdir()) if path.name not in {f"{name}.cu" for name in KERNELS}]
    if request.config.getoption("--update-golden"):
        for path in orphans:
            path.unlink()
    else:
        assert not orphans, f"golden files without a test; {ADVICE}"


def test_plans(golden: Callable[[Path, str], None]) -> None:
    sections = []
    for config in load_matrix(PLANS, legal=legal):
        plan = KernelPlan.create(config, load_quant(config.quant, TEMPLATES))
        rows = "".join(f"  {subject:14} {text}\n" for subject, text in plan.describe())
        sections.append(f"{config.name}\n{rows}  {'registers':14} about {plan.register_estimate}\n")
    golden(HERE / "plans.txt", "\n".join(sections))


def test_every_kernel_of_the_full_set_is_emitted_as_before(golden: Callable[[Path, str], None]) -> None:
    configs = load_matrix(HASHES, legal=legal)
    begin = time.process_time()
    hashes = {config.name: hashlib.sha256(render(config, TEMPLATES).text.encode()).hexdigest() for config in configs}
    assert time.process_time() - begin < 10, "emitting the full set has become slow"
    assert len(set(hashes.values())) == len(configs), "two configs are emitted as the same text"
    golden(HERE / "hashes.json", json.dumps(hashes, indent=0, sort_keys=True) + "\n")


def test_updating_is_refused_in_ci() -> None:
    command = [sys.executable, "-m", "pytest", "--update-golden", "--collect-only", "-q", "-p", "no:cacheprovider", str(HERE)]
    done = subprocess.run(command, env=os.environ | {"CI": "true"}, capture_output=True, text=True, cwd=HERE.parent.parent)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--update-golden is refused where CI is set" in done.stderr
