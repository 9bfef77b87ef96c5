"""Terms of an objective: one forward for all of them, and what they own is trained beside."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Loss, Objective, Term, TokenTerm
from bertsmith.objectives.pretraining import MaskedLM
from bounds import close_losses
from families import ENCODERS


class Kept(Term):
    """Keeps what it was given; the loss is a sum of what it reads."""

    def __init__(self, reads: Taps) -> None:
        self.reads = reads
        self.given: list[Encoded] = []

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        self.given.append(encoded)
        total = torch.stack([state.sum() for state in encoded.states.values()]).sum()
        return Loss(sum=total, count=len(target), correct=torch.tensor(0))


class KeptAtTokens(Kept, TokenTerm):
    """The same for the last layer at the target alone."""


def batch(*names: str) -> Batch:
    ids = np.random.default_rng(1).integers(5, 99, 20)
    target = Target(positions=torch.tensor([3, 11]), labels=torch.tensor([7, 8]))
    return pack([ids], [ids * 0], dict.fromkeys(names, target))


def test_the_encoder_runs_once_with_all_that_terms_read() -> None:
    first, second = Kept(Taps(states=frozenset({1}))), Kept(Taps(states=frozenset({0, 2})))
    absent = Kept(Taps(weights=frozenset({1})))
    model = build_model(ModelConfig(encoder=ENCODERS["bert"]), seed=1)
    ran: list[Tensor] = []
    model.encoder.embeddings.register_forward_hook(lambda _, __, made: ran.append(made))
    Objective({"first": first, "second": second, "absent": absent})(model, batch("first", "second"))
    assert len(ran) == 1
    assert not absent.given
    (one,), (other,) = first.given, second.given
    assert one is other
    assert set(one.states) == {0, 1, 2}
    assert not one.weights
    assert one.last.shape == (20, 32)


def test_a_term_that_reads_all_tokens_gives_all_to_the_others() -> None:
    taps = Taps(states=frozenset({1}))
    everywhere, somewhere = Kept(taps), KeptAtTokens(taps)
    model = build_model(ModelConfig(encoder=ENCODERS["bert"]), seed=1)
    objective = Objective({"everywhere": everywhere, "somewhere": somewhere})
    objective(model, batch("everywhere", "somewhere"))
    objective(model, batch("somewhere"))
    whole, part = somewhere.given
    assert whole.selected is None
    assert part.selected is not None
    assert part.selected.tolist() == [3, 11]
    assert part.last.shape == (2, 32)
    assert part.states[1].shape == (20, 32)


def test_a_tap_beside_it_leaves_a_loss_as_it_is() -> None:
    encoder = dataclasses.replace(ENCODERS["bert"], dropout=0.0, attention_dropout=0.0)
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=1).train()
    alone = Objective({"masked_lm": MaskedLM()})(model, batch("masked_lm"))
    taps = Taps(states=frozenset({0, 1}), qkv=frozenset({2}), weights=frozenset({1}))
    beside = Objective({"masked_lm": MaskedLM(), "kept": KeptAtTokens(taps)})
    both = beside(model, batch("masked_lm", "kept"))
    close_losses(both.parts["masked_lm"].sum, alone.parts["masked_lm"].sum)
