"""How a quantised encoder is judged: sentences, bars, comparison of embeddings, and the error of single products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from marlin_gen import PackedWeight, unpack

# Two by two the same thing said differently; otherwise about different things.
SENTENCES = (
    "A man is playing a guitar on the stage of a small club.",
    "Someone performs music on a guitar in front of a small audience.",
    "The stock market fell sharply after the central bank raised interest rates.",
    "Share prices dropped when interest rates were increased by the central bank.",
    "The cat slept on the warm windowsill all afternoon.",
    "All afternoon a kitten was napping in the sun by the window.",
    "How do I reset the password of my email account?",
    "I forgot the password for my mail and need a new one.",
    "Marie Curie received the Nobel Prize in both physics and chemistry.",
    "Curie is the only person to win Nobel prizes in two different sciences.",
    "Heavy rain flooded the streets of the old town overnight.",
    "The historic centre was under water this morning after a night of storms.",
)

# The trained model gives every paraphrase of SENTENCES a cosine of at least 0.504 and every other pair at most 0.242. While no
# pair's cosine changes by half of that gap, every paraphrase stays above every other pair.
MAX_SHIFT = 0.13

# Cosine between a sentence's embeddings with 4-bit and with trained weights. Rounding to nearest gives 0.940 at worst with groups
# of 128, 0.950 with 64; three bits with groups of 64 give 0.80, so that a kernel that loses one bit of its weights falls below.
MIN_COSINE = 0.93

# Of the 66 pairs' cosines, most of which are unrelated sentences that differ by little. Rounding to nearest gives 0.943 to 0.980.
MIN_RANK_CORRELATION = 0.92

# Of one product against float64 over the dequantised weights: mean |difference| / mean |result|, 1.8e-4 of which is the result's
# rounding to fp16, or 1.4e-3 to bf16. This is the kernel's own error; what quantisation costs is in the bars above.
MAX_PRODUCT_ERROR = {torch.float16: 3e-4, torch.bfloat16: 3e-3}


@dataclass(frozen=True)
class Comparison:
    """Embeddings of the same sentences by two models.

    Attributes:
        cosines: of each sentence's two embeddings, [n].
        pairs: index of both sentences of every pair, [2, n * (n - 1) / 2].
        before, after: cosine of every pair in the first and in the second model.
    """

    cosines: torch.Tensor
    pairs: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor

    @classmethod
    def of(cls, first: torch.Tensor, second: torch.Tensor) -> Comparison:
        """Compare unit embeddings [n, hidden]."""
        first, second = first.double().cpu(), second.double().cpu()
        pairs = torch.triu_indices(len(first), len(first), 1)
        before, after = ((e @ e.T)[pairs[0], pairs[1]] for e in (first, second))
        return cls((first * second).sum(1), pairs, before, after)

    @property
    def shift(self) -> float:
        """The largest change of a pair's cosine."""
        return float((self.before - self.after).abs().max())

    @property
    def rank_correlation(self) -> float:
        """Spearman's, of the pairs' cosines: 1 if both models order all pairs alike."""
        ranks = torch.stack([cosines.argsort().argsort().double() for cosines in (self.before, self.after)])
        return float(torch.corrcoef(ranks)[0, 1])

    def broken_bars(self) -> list[str]:
        """Which bars the second model misses; for SENTENCES with trained weights and 4-bit ones."""
        bars = {
            f"cosine {self.cosines.min():.4f}, not above {MIN_COSINE}": self.cosines.min() > MIN_COSINE,
            f"a pair moved by {self.shift:.3f}, not less than {MAX_SHIFT}": self.shift < MAX_SHIFT,
            f"rank correlation {self.rank_correlation:.3f}, not above {MIN_RANK_CORRELATION}": self.rank_correlation
            > MIN_RANK_CORRELATION,
        }
        return [text for text, kept in bars.items() if not kept]


def exact_product(x: torch.Tensor, packed: PackedWeight) -> torch.Tensor:
    """x [..., K] times a layer in float64, over weights (code - zero point) * scale, rounded once to the activation type."""
    codes, scales, zeros, bias = unpack(packed)
    one_group = packed.group_size == -1
    group = torch.arange(packed.k, device=packed.device) // (packed.k if one_group else packed.group_size)
    zero_points = 8.0 if zeros is None else zeros.double()[group]  # code 8 of u4b8 is 0
    weights = (codes.double() - zero_points) * scales.double()[group]
    if not one_group:  # the scale of a single group multiplies the sum
        weights = weights.to(packed.a_dtype)
    result = x.double() @ weights.double()
    return result if bias is None else result + bias.double()


def watch(layers: Iterable[nn.Module]) -> list[float]:
    """Watch layers that have a ``packed`` weight: the returned list gets the error of every product they compute from now on."""
    errors: list[float] = []

    def measure(layer: Any, inputs: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        exact = exact_product(inputs[0], layer.packed)
        errors.append(float((result.double() - exact).abs().mean() / exact.abs().mean()))

    for layer in layers:
        layer.register_forward_hook(measure)
    return errors
