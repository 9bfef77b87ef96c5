"""Pseudo-log-likelihoods a second, beside a loop of transformers over single masks.

python benchmarks/pseudo_likelihood.py MODEL TEXTS [--texts 40] [--rounds 3]

MODEL is a folder with a masked-LM head, TEXTS a file of one sentence a line. Both sides compute in
fp32 with the same threads, in turns: `bertsmith score` through packed batches in which the last
layer works for the masked places alone and only these are projected to the vocabulary, transformers
one sequence at a time as the method is usually written, and in padded batches of 32. Correctness:
the scores agree within 1e-5 x max(1, largest value).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import bertsmith


def main() -> None:
    """Print seconds, ratios and the largest difference, the last line as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    lines = asked.file.read_text(encoding="utf-8").splitlines()
    texts = [line for line in lines if line.strip()][: asked.texts]
    ours = bertsmith.load(asked.model, precision="fp32")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(asked.model).eval()
    encoded = [
        [ours.tokenizer.cls_id, *ids.tolist(), ours.tokenizer.sep_id]
        for ids in ours.tokenizer.encode(texts)
    ]
    mask = ours.tokenizer.mask_id
    sides: dict[str, Callable[[], list[float]]] = {
        "bertsmith": lambda: [item["score"] for item in ours.score(texts)],
        "transformers": lambda: [_score(theirs, ids, mask, 1) for ids in encoded],
        "transformers, batches of 32": lambda: [_score(theirs, ids, mask, 32) for ids in encoded],
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    scores: dict[str, list[float]] = {}
    for _ in range(asked.rounds):
        for name, run in sides.items():
            began = time.perf_counter()
            scores[name] = run()
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(second) for name, second in seconds.items()}
    pairs = zip(scores["bertsmith"], scores["transformers"], strict=True)
    apart = max(abs(one - other) / max(1.0, abs(other)) for one, other in pairs)
    tokens = sum(len(ids) - 2 for ids in encoded)
    print(f"{len(texts)} texts, {tokens} tokens, {torch.get_num_threads()} threads")
    for name, median in medians.items():
        ratio = median / medians["bertsmith"]
        print(f"{name:<30} {median:8.2f} s  {tokens / median:8,.0f} tokens/s  {ratio:5.1f} x")
    print(f"scores are apart by {apart:.1e} at most")
    print(json.dumps({"seconds": medians, "apart": apart, "tokens": tokens}))


@torch.no_grad()
def _score(model: Any, ids: list[int], mask: int, batch: int) -> float:  # noqa: ANN401
    """Return the pseudo-log-likelihood of a sequence, so many masked copies at a time."""
    places = list(range(1, len(ids) - 1))
    total = 0.0
    for begin in range(0, len(places), batch):
        part = places[begin : begin + batch]
        copies = torch.tensor(ids).repeat(len(part), 1)
        rows = torch.arange(len(part))
        copies[rows, part] = mask
        shares = model(copies).logits[rows, part].log_softmax(-1)
        total += float(shares[rows, [ids[place] for place in part]].sum())
    return total


if __name__ == "__main__":
    main()
