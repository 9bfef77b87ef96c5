"""Linear models of tags on the frozen layers (Devlin et al. 2018, table 7).

The mixes are those of the table: the embeddings, each layer (the last and the one before it are
among them), the sum and the concatenation of the last four, and a learned weighted sum of all. What
is read of a word is its first piece, as in fine-tuning. The paper trains a two-layer BiLSTM on
these vectors; here it is one linear map, so that what a layer holds is not learned again above it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.core.log import progress
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, permutation, random_subset, stream
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import ScalarMix
from bertsmith.recipes.finetune.baselines import BaselineScores, measured_baseline
from bertsmith.recipes.finetune.inputs import Prepared

MIX = "frozen, weighted sum of all layers"
_BYTES = 2**29
_BATCH, _EPOCHS = 256, 10
_RATE = 2e-2
# fewer are not enough to learn from few words, and these not too many for thousands of features
_MIN_STEPS, _STRENGTH = 300, 0.05
_SUMMED = 4


class _LayerSum(nn.Module):
    """Some neighbouring layers added up, or put end to end."""

    def __init__(self, layers: range, *, concatenated: bool = False) -> None:
        super().__init__()
        self.layers, self.concatenated = layers, concatenated

    def forward(self, states: Tensor) -> Tensor:
        """(words, features) of the layers, (layers, words, hidden)."""
        return torch.cat(list(states), -1) if self.concatenated else states.sum(0)


class _LearnedMix(nn.Module):
    """A learned weighted sum of all layers but the embeddings."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = range(1, layers + 1)
        self.mix = ScalarMix(layers)

    def forward(self, states: Tensor) -> Tensor:
        """(words, hidden) of the layers, (layers, words, hidden)."""
        return self.mix(list(states))  # type: ignore[no-any-return]


Mix = _LayerSum | _LearnedMix


def mixes(layers: int) -> dict[str, Mix]:
    """Return the mixes of a model with `layers` layers, by the names of their baselines."""
    result: dict[str, Mix] = {"frozen, embeddings": _LayerSum(range(1))}
    result |= {
        f"frozen, layer {layer}": _LayerSum(range(layer, layer + 1))
        for layer in range(1, layers + 1)
    }
    if layers >= _SUMMED:
        last = range(layers - _SUMMED + 1, layers + 1)
        result["frozen, sum of the last four"] = _LayerSum(last)
        result["frozen, concatenation of the last four"] = _LayerSum(last, concatenated=True)
    result[MIX] = _LearnedMix(layers)
    return result


def frozen_word_baselines(
    model: Model, prepared: Prepared, seeds: Sequence[int]
) -> list[BaselineScores]:
    """Return linear models on each mix of the frozen layers, one per seed.

    A seed draws the training rows, where not all fit, and the order of their words. Empty for tasks
    without tags.
    """
    if prepared.task.head != "tags":
        return []
    fitted: dict[str, list[BaselineScores]] = {}
    with progress("frozen layers", len(seeds) * len(mixes(model.config.encoder.layers))) as bar:
        dev = _states(model, prepared.dev)
        for seed in seeds:
            for baseline in _train_mixes(model, prepared, dev, seed):
                fitted.setdefault(baseline.name, []).append(baseline)
                bar.advance()
    return [_join_seeds(baselines) for baselines in fitted.values()]


def _train_mixes(
    model: Model, prepared: Prepared, dev: Tensor, seed: int
) -> Iterator[BaselineScores]:
    """Train a linear model on each mix with one seed; `dev` is (layers + 1, words, hidden)."""
    layers = model.config.encoder.layers
    started = time.perf_counter()
    sample = _fitting_sample(prepared, 2 * (layers + 1) * model.config.encoder.hidden, seed)
    train = _states(model, sample)
    # a layer at a time: in float32 they are twice the size
    centre = torch.stack([layer.float().mean(0, keepdim=True) for layer in train])
    spread = torch.stack([layer.float().std(0, keepdim=True) for layer in train]) + 1e-6
    targets = torch.from_numpy(np.concatenate(list(sample.labels or [])))
    windows = counted(len(prepared.train), "window")
    detail = f"{counted(len(targets), 'word')} of {len(sample):,} of {windows}"
    for name, mix in mixes(layers).items():
        layer_range = slice(mix.layers.start, mix.layers.stop)
        scale = (centre[layer_range], spread[layer_range])
        head = _fit(mix, train[layer_range], scale, targets, len(prepared.data.labels), seed)
        answers = _predict(mix, head, dev[layer_range], scale)
        yield _baseline(name, mix, prepared, answers, started, detail)
        started = time.perf_counter()


def _join_seeds(baselines: Sequence[BaselineScores]) -> BaselineScores:
    """Join what the seeds of one mix scored."""
    first = baselines[0]
    shares: tuple[float, ...] = ()
    detail = first.detail
    if first.shares:
        shares = tuple(np.mean([baseline.shares for baseline in baselines], axis=0).tolist())
        detail += f"; shares of the layers: {', '.join(f'{share:.2f}' for share in shares)}"
    return replace(
        first,
        scores=tuple(baseline.scores[0] for baseline in baselines),
        seconds=sum(baseline.seconds for baseline in baselines) / len(baselines),
        evidences=tuple(baseline.evidences[0] for baseline in baselines),
        shares=shares,
        detail=detail,
    )


def _baseline(
    name: str,
    mix: Mix,
    prepared: Prepared,
    shares: NDArray[np.float32],
    started: float,
    detail: str,
) -> BaselineScores:
    """Score what a linear model says of the words of dev, (words, labels)."""
    data, dev = prepared.data, prepared.dev
    counts = [len(positions) for positions in dev.positions or ()]
    windows = np.split(shares, np.cumsum(counts)[:-1])
    owners = range(len(dev)) if dev.owners is None else dev.owners.tolist()
    outputs_by_row: list[list[NDArray[np.float32]]] = [[] for _ in data.dev]
    for owner, window in zip(owners, windows, strict=True):
        outputs_by_row[owner].append(window)
    answers = [
        prepared.task.answers.decode(row, sidecar, outputs, data.labels)
        for row, sidecar, outputs in zip(data.dev, dev.sidecar, outputs_by_row, strict=True)
    ]
    learned: tuple[float, ...] = ()
    if isinstance(mix, _LearnedMix):
        learned = tuple(mix.mix.scores.detach().softmax(0).tolist())
    return measured_baseline(name, prepared, answers, started, detail, learned)


def _fitting_sample(prepared: Prepared, size: int, seed: int) -> EncodedExamples:
    """Return a sample of the training rows whose words' vectors, of `size` bytes, fit."""
    train = prepared.train
    words = sum(len(positions) for positions in train.positions or ())
    count = len(prepared.data.train)
    max_rows = count * _BYTES // max(1, size * words)
    if max_rows >= count:
        return train
    key = stream(Purpose.FROZEN_WORDS, seed)
    return prepared.fewer(random_subset(count, max(1, max_rows), key)).train


def _states(model: Model, examples: EncodedExamples) -> Tensor:
    """Return the outputs of all layers at the queried words, (layers + 1, words, hidden)."""
    layers = model.config.encoder.layers
    taps = Taps(states=frozenset(range(layers + 1)))
    positions = examples.positions or ()
    ends = np.cumsum([0, *map(len, positions)])
    shape = (layers + 1, int(ends[-1]), model.config.encoder.hidden)
    states_of_words = torch.empty(shape, dtype=torch.float16)
    with forward_only(model, "fp32"):
        for units, packed in evaluation_batches(examples):
            batch = packed.to(model.device)
            states = model.encoder(batch, taps=taps).states
            begins = batch.offsets.tolist()
            tokens = np.concatenate(
                [begins[n] + positions[u] for n, u in enumerate(units.tolist())]
            )
            rows = np.concatenate([np.arange(ends[u], ends[u + 1]) for u in units.tolist()])
            token_indices, word_indices = (
                torch.from_numpy(tokens).to(model.device),
                torch.from_numpy(rows),
            )
            for layer in range(layers + 1):
                states_of_words[layer, word_indices] = states[layer][token_indices].half().cpu()
    return states_of_words


def _fit(
    mix: Mix, states: Tensor, scale: tuple[Tensor, Tensor], targets: Tensor, labels: int, seed: int
) -> nn.Linear:
    """Train a linear map, and the mix where it has weights, on standardised layers.

    The map is regularised as logistic regression with a C of `_STRENGTH`.
    """
    width = mix(states[:, :1].float()).shape[1]
    head = nn.Linear(width, labels)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimiser = torch.optim.Adam(
        [
            {"params": list(head.parameters()), "lr": _RATE},
            {"params": list(mix.parameters()), "lr": _RATE},
        ]
    )
    count = len(targets)
    steps_in_epoch = -(-count // _BATCH)
    epochs = max(_EPOCHS, -(-_MIN_STEPS // steps_in_epoch))
    steps, step = epochs * steps_in_epoch, 0
    rates = [group["lr"] for group in optimiser.param_groups]
    for epoch in range(epochs):
        order = permutation(count, stream(Purpose.WORD_ORDER, seed, epoch))
        for batch in torch.from_numpy(order).split(_BATCH):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * (1 - step / steps)
            with torch.enable_grad():
                vectors = mix((states[:, batch].float() - scale[0]) / scale[1])
                loss = F.cross_entropy(head(vectors), targets[batch])
                loss = loss + head.weight.square().sum() / (2 * _STRENGTH * count)
                optimiser.zero_grad()
                loss.backward()
            optimiser.step()
            step += 1
    return head


def _predict(
    mix: Mix, head: nn.Linear, states: Tensor, scale: tuple[Tensor, Tensor]
) -> NDArray[np.float32]:
    """Return the probability of each tag of each word, (words, labels)."""
    with torch.no_grad():
        parts = [
            head(mix((part.float() - scale[0]) / scale[1])).softmax(-1)
            for part in states.split(4096, dim=1)
        ]
    probabilities: NDArray[np.float32] = torch.cat(parts).numpy()
    return probabilities
