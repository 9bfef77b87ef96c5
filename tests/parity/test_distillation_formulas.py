"""Losses and gradients of distillation against formulas written anew on transformers' modules.

Both sides compute in float64. The formulas loop over sequences and heads, as the papers' equations
do, and leave the gradient to autograd.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model
from bertsmith.objectives.distillation import (
    LOGITS,
    HiddenCosine,
    HiddenStates,
    SoftTargets,
    head_logits,
    taught_values,
)
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.token_pairs import AttentionScores, Relations
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights import names
from bertsmith.weights.folder import load_model
from bounds import close_in_float64

LENGTHS = (13, 5, 23, 7, 19)
TEACHER, STUDENT, HEADS = 24, 36, 3
Pair = tuple[Any, Model]


def made(folder: Path, width: int, layers: int, head: type, seed: int, heads: int = HEADS) -> Pair:
    config = BertConfig(
        vocab_size=99, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=37, max_position_embeddings=23, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager", num_labels=5,
        id2label=dict(enumerate("abcde")), label2id={x: n for n, x in enumerate("abcde")},
    )  # fmt: skip
    model = head(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    model.save_pretrained(folder)
    vocabulary = (*SPECIALS, *(f"word{n}" for n in range(94)))
    Tokenizer(vocabulary, BasicRules(lowercase=True)).save(folder)
    return model.double().eval(), load_model(folder)[0].double().eval()


def sequences() -> tuple[Batch, list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(5)
    ids = [torch.randint(5, 99, (n,), generator=generator) for n in LENGTHS]
    kinds = [torch.randint(2, (n,), generator=generator) for n in LENGTHS]
    return pack([x.numpy() for x in ids], [x.numpy() for x in kinds]), ids, kinds


class Inside:
    """All that a model of transformers computes for one sequence."""

    def __init__(self, model: Any, ids: Tensor, kinds: Tensor) -> None:  # noqa: ANN401
        read: list[list[Tensor]] = []
        hooks = []
        for layer in model.bert.encoder.layer:
            own: list[Tensor] = []
            read.append(own)
            part = layer.attention.self
            for linear in (part.query, part.key, part.value):
                hooks.append(
                    linear.register_forward_hook(lambda _, __, out, own=own: own.append(out))
                )
        out = model(input_ids=ids[None], token_type_ids=kinds[None], output_hidden_states=True)
        for hook in hooks:
            hook.remove()
        self.logits = out.logits[0]
        self.states = [hidden_state[0] for hidden_state in out.hidden_states]
        self.qkv = [[item[0] for item in own] for own in read]
        self.heads = model.config.num_attention_heads

    def scores(self, layer: int) -> Tensor:
        query, key, _ = self.qkv[layer - 1]
        size = query.shape[1] // self.heads
        parts = [slice(h * size, (h + 1) * size) for h in range(self.heads)]
        return torch.stack([query[:, p] @ key[:, p].T / size**0.5 for p in parts])


def soft_targets(own: Tensor, taught: Tensor, temperature: float) -> Tensor:
    shares = (taught / temperature).softmax(-1)
    logs = (own / temperature).log_softmax(-1)
    return temperature**2 * (F.kl_div(logs, shares, reduction="sum"))


def relations(own: Inside, taught: Inside, layer: int, of_teacher: int, heads: int) -> Tensor:
    total = torch.zeros(())
    for mine, theirs in zip(own.qkv[layer - 1], taught.qkv[of_teacher - 1], strict=True):
        for head in range(heads):
            logs: list[Tensor] = []
            shares: list[Tensor] = []
            for vectors, found in ((mine, logs), (theirs, shares)):
                size = vectors.shape[1] // heads
                part = vectors[:, head * size : (head + 1) * size]
                found.append((part @ part.T / size**0.5).softmax(-1))
            total = total + F.kl_div(logs[0].log(), shares[0], reduction="sum") / heads
    return total


def gradient(parameter: nn.Parameter) -> Tensor:
    """Zeros where there is none: queries, keys and values are one product here."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


PAIRS = ((0, 0), (1, 2), (2, 4))
HELD = {
    "classes": Target(positions=torch.arange(5), labels=torch.zeros(5).long(), by_sequence=True),
    "tokens": Target(positions=torch.arange(sum(LENGTHS)), labels=torch.zeros(sum(LENGTHS)).long()),
    "masked": Target(positions=torch.tensor([2, 3, 16, 50]), labels=torch.zeros(4).long()),
}
LOSSES = ("soft classes", "soft words", "cosine", "states", "scores", "relations")


def ours(which: str) -> tuple[Any, Target, int]:
    """A term, its target, and the width of its student."""
    layers = tuple(pair for pair in PAIRS if pair[0])
    return {
        "soft classes": (SoftTargets("class", temperature=3.0), HELD["classes"], STUDENT),
        "soft words": (SoftTargets("masked_lm", temperature=2.0), HELD["masked"], STUDENT),
        "cosine": (HiddenCosine(4), HELD["tokens"], TEACHER),
        "states": (
            HiddenStates(PAIRS, widths=(STUDENT, TEACHER), seed=3), HELD["tokens"], STUDENT,
        ),
        "scores": (AttentionScores(layers), HELD["tokens"], STUDENT),
        "relations": (Relations(2, 3, heads=6), HELD["tokens"], STUDENT),
    }[which]  # fmt: skip


def theirs(which: str, own: list[Inside], taught: list[Inside], projection: Any) -> Tensor:  # noqa: ANN401
    rows: dict[str, Callable[[Inside, Inside], Tensor]] = {
        "soft classes": lambda s, t: soft_targets(s.logits, t.logits, 3.0) / len(LENGTHS),
        "cosine": lambda s, t: (
            1 - (s.states[-1] * t.states[-1]).sum(1)
            / s.states[-1].norm(dim=1) / t.states[-1].norm(dim=1)
        ).sum() / sum(LENGTHS),
        "states": lambda s, t: torch.stack([
            F.mse_loss(s.states[a] @ projection.weight.T + projection.bias, t.states[b])
            for a, b in PAIRS
        ]).sum() * len(s.states[0]) / sum(LENGTHS),
        "scores": lambda s, t: torch.stack([
            F.mse_loss(s.scores(a), t.scores(b)) for a, b in PAIRS if a
        ]).sum() * len(s.states[0]) / sum(LENGTHS),
        "relations": lambda s, t: relations(s, t, 2, 3, 6) / sum(LENGTHS),
    }  # fmt: skip
    if which == "soft words":
        at = HELD["masked"].positions
        one, other = (torch.cat([item.logits for item in side])[at] for side in (own, taught))
        return soft_targets(one, other, 2.0) / len(at)
    return torch.stack([rows[which](s, t) for s, t in zip(own, taught, strict=True)]).sum()


@pytest.mark.parametrize("which", LOSSES)
def test_losses_and_gradients_are_those_of_the_papers(which: str, tmp_path: Path) -> None:
    term, target, width = ours(which)
    head = BertForMaskedLM if which == "soft words" else BertForSequenceClassification
    their_teacher, teacher = made(tmp_path / "teacher", TEACHER, 4, head, seed=1)
    their_student, student = made(tmp_path / "student", width, 2, head, seed=2)
    batch, ids, kinds = sequences()
    every = frozenset(range(5))
    with torch.no_grad():
        encoded = teacher.encoder(batch, taps=Taps(states=every, qkv=every - {0}))
        given = taught_values(encoded)
        if which.startswith("soft"):
            answer = "class" if which == "soft classes" else "masked_lm"
            given[LOGITS] = head_logits(answer, teacher, encoded, batch, target)  # type: ignore[arg-type]
        taught = [Inside(their_teacher, *row) for row in zip(ids, kinds, strict=True)]
    batch = dataclasses.replace(batch, targets={"it": target}, given=given)
    objective = Objective({"it": term})
    objective.own.double()
    loss = objective(student, batch).total()
    loss.backward()
    projection = {name: gradient(item) for name, item in objective.own.named_parameters()}

    own = [Inside(their_student, *row) for row in zip(ids, kinds, strict=True)]
    expected = theirs(which, own, taught, term.own)
    objective.own.zero_grad()
    expected.backward()
    assert expected > 0.01
    close_in_float64(loss, expected)
    for name, item in objective.own.named_parameters():
        close_in_float64(projection[name], gradient(item), name)
    mine = dict(student.named_parameters())
    other = dict(their_student.named_parameters())
    compared = 0
    for row in names.rows(student.config):
        wanted = gradient(other[row.hub])
        close_in_float64(gradient(mine[row.ours]), wanted, row.ours)
        compared += int(wanted.abs().max() > 0)
    assert compared > 5
