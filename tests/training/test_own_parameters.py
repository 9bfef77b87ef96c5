"""Parameters that a term owns are trained, clipped, checkpointed and resumed, and never saved."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from bertsmith.batches import DataPosition
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.objective import Loss, Objective, TokenTerm
from bertsmith.objectives.pretraining import NextSentence
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import Checkpoints
from bertsmith.training.distribution import ALONE
from bertsmith.training.gradients import compute_gradient
from bertsmith.training.loop import fit
from bertsmith.training.replicas import Replica, model_weights
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import load_model, save_model
from bounds import close_gradients
from training.test_loop import Method, Stopping, config_of, small_batches, small_model, to_losses

NAME = "objective.masked_lm.weight"


@dataclass(frozen=True)
class Remainders(TokenTerm):
    """Predicts five classes of token ids from the first layer, by a projection of its own."""

    own: nn.Linear
    reads = Taps(states=frozenset({1}))

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        return cross_entropy(self.own(encoded.states[1][target.positions]), target.labels % 5)


def objective(seed: int) -> Objective:
    torch.manual_seed(seed)
    own = nn.Linear(28, 5, bias=False)
    return Objective({"masked_lm": Remainders(own), "next_sentence": NextSentence()})


def own_of(each: Objective) -> torch.Tensor:
    return each.own.get_parameter("masked_lm.weight").detach()


@pytest.mark.parametrize("method", ["adamw", "muon"])
def test_a_projection_is_trained_and_resumed_bit_for_bit(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path, method: Method
) -> None:
    batches, config = small_batches(store, tokenizer), config_of(7, method)
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    for folder in (whole, parts):
        folder.path.mkdir()
    straight, one, before = small_model(tokenizer.size), objective(1), own_of(objective(1))
    fit(config, straight, one, batches, folder=whole)
    assert not torch.equal(own_of(one), before)
    stopping = Stopping(batches, 4, signal.SIGINT)
    with pytest.raises(Interrupted):
        fit(config, small_model(tokenizer.size), objective(1), stopping, folder=parts)
    resumed, other = small_model(tokenizer.size, seed=77), objective(2)
    assert fit(config, resumed, other, batches, folder=parts).step == 7
    assert to_losses(parts) == to_losses(whole)
    assert torch.equal(own_of(other), own_of(one))
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    checkpoint = Checkpoints(whole.checkpoints, run=whole.identity).load()
    assert checkpoint is not None
    assert torch.equal(checkpoint.weights[NAME], own_of(one))
    assert f"{NAME}/exp_avg" in checkpoint.optimiser
    assert model_weights(checkpoint.weights).keys() == straight.state_dict().keys()
    save_model(tmp_path / "model", straight, tokenizer)
    back, _ = load_model(tmp_path / "model")
    assert back.state_dict().keys() == straight.state_dict().keys()


def test_its_gradient_is_clipped_with_the_rest(store: TokenStore, tokenizer: Tokenizer) -> None:
    batch, _ = small_batches(store, tokenizer).next_batch(DataPosition())
    one = objective(1)
    replica = Replica(small_model(tokenizer.size), one, "fp32", ALONE)
    free = compute_gradient(replica, [batch], 1, 0, clip=0.0)
    assert free is not None
    parameters = [*replica.model.parameters(), *one.own.parameters()]
    gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
    total = torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt()
    assert free.norm == pytest.approx(float(total), rel=1e-5)
    replica.trained.zero_grad()
    compute_gradient(replica, [batch], 1, 0, clip=free.norm / 4)
    clipped = one.own.get_parameter("masked_lm.weight").grad
    assert clipped is not None
    close_gradients(clipped, gradients[-1] / 4)
