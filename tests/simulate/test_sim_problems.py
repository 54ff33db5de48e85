"""What a wrong result is called."""

from __future__ import annotations

import numpy as np
import pytest

from marlin_gen.config import KernelConfig
from marlin_gen.emit import Templates
from marlin_gen.quant import load_quant
from marlin_gen.simulate import problems


@pytest.mark.parametrize("name", ["marlin_f16_u4b8_m16n64k128_g64_s4_sm90", "marlin_f16_u4_m16n64k128_gch_s4_sm90"])
def test_a_wrong_weight_is_named_by_its_code(name):
    config = KernelConfig.from_name(name)
    problem = problems.identity(config, load_quant(config.quant, Templates()), 64, 128, np.random.default_rng(0))
    assert problems.difference(problem, problem.expected) == ""
    k, column = (int(i) for i in np.argwhere(problem.codes == 9)[0])
    got = problem.expected.copy()
    got[k, column] += 1
    said = problems.difference(problem, got)
    assert said.startswith(f"1 of {got.size} results are wrong; C[{k}, {column}] is ")
    assert "(code 9" in said and ("with zero point" in said) == (problem.zeros is not None)
