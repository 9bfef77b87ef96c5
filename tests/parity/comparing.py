"""The same sequences for both sides, and how far what they give is apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bertsmith.batches.batch import Batch, pack
from bertsmith.models.model import Model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

BOUND = 1e-5
LENGTHS = (13, 1, 23, 7, 19, 2)
TOKENIZER = Tokenizer((*SPECIALS, *(f"word{n}" for n in range(94))), BasicRules(lowercase=True))
LABELS = ("news", "spam", "ham", "art", "law")


def sequences(vocabulary: int = 99) -> tuple[Batch, dict[str, Tensor]]:
    """The same sequences packed, and padded as transformers wants them."""
    generator = torch.Generator().manual_seed(5)
    shape = (len(LENGTHS), max(LENGTHS))
    ids = torch.randint(5, vocabulary, shape, generator=generator)
    segments = torch.randint(2, shape, generator=generator)
    mask = torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]
    packed = pack(
        [row[:n].numpy() for row, n in zip(ids, LENGTHS, strict=True)],
        [row[:n].numpy() for row, n in zip(segments, LENGTHS, strict=True)],
    )
    return packed, {"input_ids": ids * mask, "token_type_ids": segments, "attention_mask": mask}


def varied(model: Any) -> Any:  # noqa: ANN401
    """A model none of whose weights is what it starts as."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model.eval()


def farthest(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max())


@torch.no_grad()
def compare(ours: Model, theirs: Any, bound: float = BOUND) -> None:  # noqa: ANN401
    """Hidden states of every layer and the logits of every head, at every real token."""
    packed, padded = sequences(ours.config.encoder.vocabulary)
    real = padded["attention_mask"]
    out = theirs(**padded, output_hidden_states=True)
    states = ours.encoder.hidden_states(packed)
    assert len(states) == len(out.hidden_states) == ours.config.encoder.layers + 1
    for mine, other in zip(states, out.hidden_states, strict=True):
        assert farthest(mine, other[real]) < bound
    hidden = states[-1]
    if ours.config.masked_lm:
        logits = getattr(out, "prediction_logits", None)
        logits = out.logits if logits is None else logits
        assert farthest(ours.masked_lm(hidden), logits[real]) < bound
    if ours.config.next_sentence:
        pairs = out.get("sop_logits", out.get("seq_relationship_logits"))
        assert farthest(ours.next_sentence(hidden, packed), pairs) < bound
    if ours.config.labels:
        assert farthest(ours.classify(hidden, packed), out.logits) < bound
    if "pooler_output" in out:
        assert farthest(ours.pooled(hidden, packed), out.pooler_output) < bound
