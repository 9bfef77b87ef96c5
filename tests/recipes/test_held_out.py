from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Loss, Losses
from bertsmith.recipes.pretrain.report import evaluate_objective


class FakeObjective:
    """Counts the targets' labels; remembers in what state it found the model."""

    def __init__(self) -> None:
        self.states: set[tuple[bool, bool]] = set()
        self.formats: set[torch.dtype] = set()

    def __call__(self, model: Model, batch: Batch) -> Losses:
        self.states.add((model.training, torch.is_grad_enabled()))
        self.formats.add((torch.ones(1, 12) @ torch.ones(12, 1)).dtype)
        labels = batch.targets["classify"].labels
        part = Loss(sum=labels.float().sum(), count=len(labels), correct=(labels == 3).sum())
        nothing = Loss(sum=torch.zeros(()), count=0, correct=torch.zeros(()))
        return Losses(parts={"classify": part, "nothing": nothing})


@pytest.fixture
def model() -> Model:
    encoder = EncoderConfig(vocabulary=17, hidden=12, layers=1, heads=3, feed_forward=20)
    return build_model(ModelConfig(encoder=encoder), seed=1)


def batch_of(labels: list[int]) -> Batch:
    target = Target(positions=torch.arange(len(labels)), labels=torch.tensor(labels))
    return pack([np.arange(5)], [np.zeros(5, np.int64)], {"classify": target})


def test_figures_are_means_over_targets_not_over_batches(model: Model) -> None:
    figures = evaluate_objective(model, FakeObjective(), [batch_of([3, 1, 2]), batch_of([3])])
    assert figures == {
        "classify_loss": 9 / 4,
        "classify_accuracy": 2 / 4,
        "classify_count": 4,
    }


def test_the_model_is_evaluated_without_dropout_and_gradients_and_put_back(model: Model) -> None:
    for training in (True, False):
        objective = FakeObjective()
        model.train(training)
        evaluate_objective(model, objective, [batch_of([1])])
        assert objective.states == {(False, False)}
        assert model.training == training


def test_precision_is_as_asked_for(model: Model) -> None:
    full, half = FakeObjective(), FakeObjective()
    evaluate_objective(model, full, [batch_of([1])])
    evaluate_objective(model, half, [batch_of([1])], precision="bf16")
    assert (full.formats, half.formats) == ({torch.float32}, {torch.bfloat16})
