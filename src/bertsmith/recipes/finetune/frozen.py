"""Baselines on what the frozen model gives: static vectors, and linear models on its layers.

Of whole texts they read means over tokens, of tags the first piece of each word, as in fine-tuning.
For tags the mixes of the layers are those of Devlin et al. 2018, table 7: the embeddings, each
layer (the last and the one before it are among them), the sum and the concatenation of the last
four, and a learned weighted sum of all. The paper trains a two-layer BiLSTM on these vectors; here
it is one linear map, so that what a layer holds is not learned again above it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.core.log import progress
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, permutation, random_subset, stream
from bertsmith.network.batch import Batch
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import ScalarMix
from bertsmith.recipes.finetune.baselines import (
    BaselineScores,
    StrengthSelection,
    linear_answers,
    measured_baseline,
    row_groups,
    task_score,
)
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer


def frozen_baselines(
    model: Model, prepared: Prepared, seeds: Sequence[int]
) -> list[BaselineScores]:
    """Return linear models on what a model gives as it is; none for spans and choices.

    Those of tags are trained once per seed, those of whole texts in one way.
    """
    if prepared.task.head == "tags":
        return _word_baselines(model, prepared, seeds)
    if not isinstance(prepared.data.train[0], Example):
        return []
    return [_static_baseline(model, prepared), *_layer_baselines(model, prepared)]


# whole texts

STATIC = "mean static vectors + linear"
# more rows would take minutes per layer, and change little
MAX_ROWS = 5000
FROZEN_STRENGTHS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
_MIX_STEPS, _MIX_RATE = 300, 0.02

Vectors = NDArray[np.float32]


def _static_baseline(model: Model, prepared: Prepared) -> BaselineScores:
    """Return a linear model on the mean of the tokens' rows in the model's own table.

    It ignores the order of the tokens.
    """
    started = time.perf_counter()
    table = model.encoder.embeddings.tokens.weight

    def token_rows(batch: Batch) -> list[Tensor]:
        return [table[batch.ids]]

    sample = _training_sample(prepared)
    (train,), (dev,) = _vectors(model, sample, token_rows)
    detail = f"means of the token table's rows, {_rows_used(sample, prepared)}"
    return _baseline(STATIC, sample, train, dev, started, detail)


def _layer_baselines(model: Model, prepared: Prepared) -> list[BaselineScores]:
    """Return linear models on each layer of the frozen encoder, and on a learned mix of them.

    Vectors are means over tokens.
    """
    started = time.perf_counter()
    sample = _training_sample(prepared)
    taps = Taps(states=frozenset(range(model.config.encoder.layers + 1)))

    def states(batch: Batch) -> Iterable[Tensor]:
        return model.encoder(batch, taps=taps).states.values()  # type: ignore[no-any-return]

    with progress("frozen layers", None):
        train, dev = _vectors(model, sample, states)
        detail = f"means over tokens, {_rows_used(sample, prepared)}"
        names = [f"frozen, layer {n}" if n else "frozen, embeddings" for n in range(len(train))]
        baselines = []
        for name, one, other in zip(names, train, dev, strict=True):
            baselines.append(_baseline(name, sample, one, other, started, detail))
            started = time.perf_counter()
        scaled = [_standardised(*layer) for layer in zip(train, dev, strict=True)]
        weights = _mix(sample, [layer for layer, _ in scaled])
        mixed = [
            sum(w * x for w, x in zip(weights, side, strict=True))
            for side in zip(*scaled, strict=True)
        ]
    name, detail = "frozen, mix of the layers", f"{detail}; {_listed(weights)}"
    last = _baseline(name, sample, mixed[0], mixed[1], started, detail)
    return [*baselines, replace(last, shares=tuple(weights))]


def _listed(shares: Sequence[float]) -> str:
    return f"shares of the layers: {', '.join(f'{share:.2f}' for share in shares)}"


def _training_sample(prepared: Prepared) -> Prepared:
    """Return the rows with at most `MAX_ROWS` of those for training, a fixed sample."""
    count = len(prepared.train)
    if count <= MAX_ROWS:
        return prepared
    return prepared.fewer(random_subset(count, MAX_ROWS, stream(Purpose.FROZEN_ROWS)))


def _rows_used(sample: Prepared, prepared: Prepared) -> str:
    return f"from {len(sample.train):,} of {counted(len(prepared.train), 'example')}"


def _baseline(
    name: str,
    sample: Prepared,
    train: Any,  # noqa: ANN401
    dev: Any,  # noqa: ANN401
    started: float,
    detail: str,
) -> BaselineScores:
    features, dev_features = _standardised(train, dev)
    outputs, truths = max(len(sample.data.labels), 1), np.asarray(sample.train.labels)
    selection = StrengthSelection(score=task_score(sample), groups=row_groups(sample))
    answers, _ = linear_answers(
        sample.task.head, features, truths, dev_features, outputs, FROZEN_STRENGTHS, selection
    )
    return measured_baseline(name, sample, answers, started, detail)


def _standardised(train: Any, dev: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return both parts, standardised by the mean and deviation of each feature in train."""
    centre, spread = train.mean(0), train.std(0) + 1e-6
    return (train - centre) / spread, (dev - centre) / spread


def _vectors(model: Model, prepared: Prepared, states_of: Any) -> list[list[Vectors]]:  # noqa: ANN401
    """Return for train and dev the means (units, width) over tokens of each tensor.

    `states_of` returns the tensors for a batch. For a pair, both means, their absolute difference
    and their product, concatenated.
    """
    paired = prepared.data.train[0].text_pair is not None
    with forward_only(model, "fp32"):
        return [
            _means(model, part, states_of, prepared.tokenizer if paired else None)
            for part in (prepared.train, prepared.dev)
        ]


def _means(
    model: Model,
    examples: EncodedExamples,
    states_of: Any,  # noqa: ANN401
    tokenizer_of_pairs: Tokenizer | None,
) -> list[Vectors]:
    means: list[Vectors] = []
    for units, packed in evaluation_batches(examples):
        batch = packed.to(model.device)
        sizes = np.diff(examples.starts)[units]
        owner = torch.arange(len(units)).repeat_interleave(torch.from_numpy(sizes))
        tokens = owner.repeat_interleave(torch.tensor(batch.lengths)).to(model.device)
        second = None if tokenizer_of_pairs is None else second_texts(batch, tokenizer_of_pairs)
        for number, states in enumerate(states_of(batch)):
            vectors = _pooled(states.float(), tokens, second, len(units))
            if number == len(means):
                means.append(np.empty((len(examples), vectors.shape[1]), np.float32))
            means[number][units] = vectors.cpu().numpy()
    return means


def second_texts(batch: Batch, tokenizer: Tokenizer) -> Tensor:
    """Mark the tokens (tokens,) of the second texts of pairs, by segment or after the separators.

    Tokenizers such as RoBERTa's have no segments.
    """
    if tokenizer.segments:
        return batch.segments == 1
    ends = (batch.ids == tokenizer.sep_id).long()
    before = ends.cumsum(0) - ends
    starts = torch.arange(batch.tokens, device=batch.ids.device) - batch.positions
    return before - before[starts] >= tokenizer.separators


def _pooled(states: Tensor, owner: Tensor, second: Tensor | None, units: int) -> Tensor:
    def mean(mask: Tensor) -> Tensor:
        sums = states.new_zeros(units, states.shape[1])
        sums = sums.index_add(0, owner[mask], states[mask])
        return sums / owner[mask].bincount(minlength=units)[:, None].clamp(min=1)

    if second is None:
        return mean(torch.ones_like(owner, dtype=torch.bool))
    one, other = mean(~second), mean(second)
    return torch.cat([one, other, (one - other).abs(), one * other], 1)


def _new_head(width: int, outputs: int) -> nn.Linear:
    """Return a linear layer as torch makes one, drawn by a generator of its own."""
    generator = torch.Generator().manual_seed(int(stream(Purpose.LAYER_MIX)))
    head: nn.Linear = nn.utils.skip_init(nn.Linear, width, outputs)
    nn.init.kaiming_uniform_(head.weight, a=math.sqrt(5), generator=generator)
    nn.init.uniform_(head.bias, -(width**-0.5), width**-0.5, generator=generator)
    return head


def _mix(prepared: Prepared, layers: Sequence[Vectors]) -> list[float]:
    """Return the weights of the layers in a mix learned with a linear model (Peters et al. 2018).

    Layers are standardised already, as in their mix; numbers are standardised here.
    """
    states = [torch.from_numpy(layer) for layer in layers]
    outputs = max(len(prepared.data.labels), 1)
    mix, head = ScalarMix(len(states)), _new_head(states[0].shape[1], outputs)
    optimiser = torch.optim.AdamW([*mix.parameters(), *head.parameters()], lr=_MIX_RATE)
    truths = np.asarray(prepared.train.labels)
    if prepared.task.head == "number":
        truths = (truths - truths.mean()) / (truths.std() or 1.0)
    targets = torch.from_numpy(truths)
    for _ in range(_MIX_STEPS):
        predictions = head(mix(states))
        if prepared.task.head == "class":
            loss = F.cross_entropy(predictions, targets)
        elif prepared.task.head == "classes":
            loss = F.binary_cross_entropy_with_logits(predictions, targets.float())
        else:
            loss = F.mse_loss(predictions[:, 0], targets.float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return mix.scores.detach().softmax(0).tolist()


# tags

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


def _word_baselines(model: Model, prepared: Prepared, seeds: Sequence[int]) -> list[BaselineScores]:
    """Return linear models on each mix of the frozen layers, one per seed.

    A seed draws the training rows, where not all fit, and the order of their words.
    """
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
        yield _score_words(name, mix, prepared, answers, started, detail)
        started = time.perf_counter()


def _join_seeds(baselines: Sequence[BaselineScores]) -> BaselineScores:
    """Join what the seeds of one mix scored."""
    first = baselines[0]
    shares: tuple[float, ...] = ()
    detail = first.detail
    if first.shares:
        shares = tuple(np.mean([baseline.shares for baseline in baselines], axis=0).tolist())
        detail += f"; {_listed(shares)}"
    return replace(
        first,
        scores=tuple(baseline.scores[0] for baseline in baselines),
        seconds=sum(baseline.seconds for baseline in baselines) / len(baselines),
        evidences=tuple(baseline.evidences[0] for baseline in baselines),
        shares=shares,
        detail=detail,
    )


def _score_words(
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
            token_indices = torch.from_numpy(tokens).to(model.device)
            word_indices = torch.from_numpy(rows)
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
    count = len(targets)
    steps_in_epoch = -(-count // _BATCH)
    epochs = max(_EPOCHS, -(-_MIN_STEPS // steps_in_epoch))
    steps = epochs * steps_in_epoch
    optimiser = torch.optim.Adam([*head.parameters(), *mix.parameters()], lr=_RATE)
    decay = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    for epoch in range(epochs):
        order = permutation(count, stream(Purpose.WORD_ORDER, seed, epoch))
        for batch in torch.from_numpy(order).split(_BATCH):
            vectors = mix((states[:, batch].float() - scale[0]) / scale[1])
            loss = F.cross_entropy(head(vectors), targets[batch])
            loss = loss + head.weight.square().sum() / (2 * _STRENGTH * count)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            decay.step()
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
