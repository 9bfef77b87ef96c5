"""Linear models on a model before it is fine-tuned: on its token table and its layers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.core.log import progress
from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.network.batch import Batch
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import ScalarMix
from bertsmith.recipes.finetune.baselines.linear import linear_answers
from bertsmith.recipes.finetune.baselines.rivals import Rival
from bertsmith.recipes.finetune.trial import Prepared
from bertsmith.text.examples.example import Example

STATIC = "mean static vectors + linear"
# more rows would take minutes per layer, and change little
MOST_ROWS = 5000
_STRENGTHS = (0.01, 0.1, 1.0)
_MIX_STEPS, _MIX_RATE = 300, 0.02

Vectors = NDArray[np.float32]


def static_rival(model: Model, prepared: Prepared) -> Rival | None:
    """Return a linear model on the mean of the tokens' rows in the model's own table.

    It ignores the order of the tokens. None for tasks that are not about whole texts.
    """
    if not _about_texts(prepared):
        return None
    began = time.perf_counter()
    table = model.encoder.embeddings.tokens.weight

    def of(batch: Batch) -> list[Tensor]:
        return [table[batch.ids]]

    known, truths = _known(prepared)
    (train,), (dev,) = (_vectors(model, part, of) for part in (known, prepared.dev))
    detail = f"means of the token table's rows, {_rows_used(known, prepared)}"
    return _rival(STATIC, prepared, train, truths, dev, began, detail, simpler=True)


def frozen_rivals(model: Model, prepared: Prepared) -> list[Rival]:
    """Return linear models on each layer of the frozen encoder, and on a learned mix of them.

    Vectors are means over tokens. Empty for tasks that are not about whole texts.
    """
    if not _about_texts(prepared):
        return []
    began = time.perf_counter()
    known, truths = _known(prepared)
    taps = Taps(states=frozenset(range(model.config.encoder.layers + 1)))

    def states(batch: Batch) -> Iterable[Tensor]:
        return model.encoder(batch, taps=taps).states.values()  # type: ignore[no-any-return]

    with progress("frozen layers", None):
        train, dev = (_vectors(model, part, states) for part in (known, prepared.dev))
        detail = f"means over tokens, {_rows_used(known, prepared)}"
        names = [f"frozen, layer {n}" if n else "frozen, embeddings" for n in range(len(train))]
        rivals = []
        for name, one, other in zip(names, train, dev, strict=True):
            rivals.append(_rival(name, prepared, one, truths, other, began, detail, simpler=True))
            began = time.perf_counter()
        scaled = [_scaled(*layer) for layer in zip(train, dev, strict=True)]
        weights = _mix(prepared, [known for known, _ in scaled], truths)
        mixed = [
            sum(w * x for w, x in zip(weights, side, strict=True))
            for side in zip(*scaled, strict=True)
        ]
    shares = ", ".join(f"{weight:.2f}" for weight in weights)
    name, detail = "frozen, mix of the layers", f"{detail}; shares of the layers: {shares}"
    rivals.append(_rival(name, prepared, mixed[0], truths, mixed[1], began, detail, simpler=True))
    return rivals


def _about_texts(prepared: Prepared) -> bool:
    return isinstance(prepared.data.train[0], Example)


def _known(prepared: Prepared) -> tuple[EncodedExamples, NDArray[Any]]:
    """Return at most `MOST_ROWS` of the training rows, a fixed sample, and their labels."""
    count = len(prepared.train)
    if count > MOST_ROWS:
        chosen = permuted(np.arange(count), count, stream(Purpose.FROZEN_ROWS))[:MOST_ROWS]
        prepared = prepared.fewer(np.sort(chosen))
    return prepared.train, np.asarray(prepared.train.labels)


def _rows_used(known: EncodedExamples, prepared: Prepared) -> str:
    return f"from {len(known):,} of {len(prepared.train):,} examples"


def _rival(
    name: str,
    prepared: Prepared,
    train: Any,  # noqa: ANN401
    truths: NDArray[Any],
    dev: Any,  # noqa: ANN401
    began: float,
    detail: str,
    *,
    simpler: bool,
) -> Rival:
    data, task = prepared.data, prepared.task
    features, asked = _scaled(train, dev)
    answers, _ = linear_answers(
        task.predicts, features, truths, asked, max(len(data.labels), 1), _STRENGTHS
    )
    evidence = task.evidence(data.dev, answers, data.labels)
    return Rival(
        name=name,
        scores=(task.scores(evidence, data.labels),),
        seconds=time.perf_counter() - began,
        simpler=simpler,
        detail=detail,
        evidence=evidence,
    )


def _scaled(train: Any, dev: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return both parts, standardised by the mean and deviation of each feature in train."""
    centre, spread = train.mean(0), train.std(0) + 1e-6
    return (train - centre) / spread, (dev - centre) / spread


def _vectors(model: Model, examples: EncodedExamples, of: Any) -> list[Vectors]:  # noqa: ANN401
    """Return the means (units, width) over tokens of each tensor that `of` returns.

    For a pair, both means, their absolute difference and their product, concatenated.
    """
    means: list[Vectors] = []
    paired = any(segments.any() for segments in examples.segments)
    with forward_only(model, "fp32"):
        for units, packed in evaluation_batches(examples):
            batch = packed.to(model.device)
            sizes = np.diff(examples.starts)[units]
            owner = torch.arange(len(units)).repeat_interleave(torch.from_numpy(sizes))
            tokens = owner.repeat_interleave(torch.tensor(batch.lengths)).to(model.device)
            for number, states in enumerate(of(batch)):
                vectors = _pooled(states.float(), tokens, batch.segments, len(units), paired=paired)
                if number == len(means):
                    means.append(np.empty((len(examples), vectors.shape[1]), np.float32))
                means[number][units] = vectors.cpu().numpy()
    return means


def _pooled(states: Tensor, owner: Tensor, segments: Tensor, units: int, *, paired: bool) -> Tensor:
    def mean(which: Tensor) -> Tensor:
        sums = states.new_zeros(units, states.shape[1])
        sums = sums.index_add(0, owner[which], states[which])
        return sums / owner[which].bincount(minlength=units)[:, None].clamp(min=1)

    if not paired:
        return mean(torch.ones_like(segments, dtype=torch.bool))
    first, second = mean(segments == 0), mean(segments == 1)
    return torch.cat([first, second, (first - second).abs(), first * second], 1)


def _mix(prepared: Prepared, layers: Sequence[Vectors], truths: NDArray[Any]) -> list[float]:
    """Return the weights of the layers in a mix learned with a linear model (Peters et al. 2018).

    Layers are standardised already, as in their mix; numbers are standardised here.
    """
    torch.manual_seed(int(stream(Purpose.LAYER_MIX)))
    states = [torch.from_numpy(layer) for layer in layers]
    outputs = max(len(prepared.data.labels), 1)
    mix, head = ScalarMix(len(states)), torch.nn.Linear(states[0].shape[1], outputs)
    optimiser = torch.optim.AdamW([*mix.parameters(), *head.parameters()], lr=_MIX_RATE)
    if prepared.task.predicts == "number":
        truths = (truths - truths.mean()) / (truths.std() or 1.0)
    wanted = torch.from_numpy(truths)
    for _ in range(_MIX_STEPS):
        predictions = head(mix(states))
        if prepared.task.predicts == "class":
            loss = torch.nn.functional.cross_entropy(predictions, wanted)
        elif prepared.task.predicts == "classes":
            loss = torch.nn.functional.binary_cross_entropy_with_logits(predictions, wanted.float())
        else:
            loss = torch.nn.functional.mse_loss(predictions[:, 0], wanted.float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return mix.scores.detach().softmax(0).tolist()
