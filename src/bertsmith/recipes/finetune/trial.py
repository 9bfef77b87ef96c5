"""A single fine-tuning of a model, shared by all recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples, ExampleBatches
from bertsmith.core.clock import Clock
from bertsmith.core.log import progress
from bertsmith.network.batch import Batch
from bertsmith.network.model import Model
from bertsmith.network.preprocessing import Preprocessing
from bertsmith.objectives.objective import Losses, Objective
from bertsmith.recipes.finetune.labelled import LabelledData
from bertsmith.recipes.finetune.settings import POINTS, FinetuneConfig
from bertsmith.recipes.finetune.starting import prepare_model, trimmed_embeddings
from bertsmith.tasks.task import Measured, Room, Scores, Task, measure
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.conll_columns import USUAL_TAGS
from bertsmith.text.examples.tagged import Tagged
from bertsmith.text.opening import kind_of
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.loop import fit
from bertsmith.training.measuring import Measure
from bertsmith.training.replicas import of_model
from bertsmith.training.run.checkpoints import Checkpoints, State
from bertsmith.training.run.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Rows read and encoded, ready for training and evaluation."""

    data: LabelledData[Any]
    train: EncodedExamples
    dev: EncodedExamples
    tokenizer: Tokenizer
    room: Room

    @property
    def task(self) -> Task[Any]:
        """Return the task."""
        return self.data.task

    def fewer(self, rows: NDArray[np.int64]) -> Prepared:
        """Return a copy with some of the training rows only."""
        train = [self.data.train[row] for row in rows.tolist()]
        data = replace(self.data, train=train)
        return replace(self, data=data, train=_encoded(data, train, self.tokenizer, self.room))


def prepare(data: LabelledData[Any], tokenizer: Tokenizer, room: Room) -> Prepared:
    """Encode rows."""
    with progress("tokenising the examples", None):
        train, dev = (_encoded(data, rows, tokenizer, room) for rows in (data.train, data.dev))
    return Prepared(data=data, train=train, dev=dev, tokenizer=tokenizer, room=room)


def _encoded(
    data: LabelledData[Any], rows: Sequence[Any], tokenizer: Tokenizer, room: Room
) -> EncodedExamples:
    return data.task.encode(tokenizer, rows, data.labels, room, labelled=True)


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a training on dev.

    `scores` are those of the task, the primary one first; `losses` the points (step, mean loss
    since the last point) of training; `seconds` those of training, `elapsed` those on the clock,
    including evaluation; `constant` is true if the model predicts the same for every row: training
    has failed.
    """

    seed: int
    scores: Scores
    constant: bool
    losses: list[tuple[int, float]]
    seconds: float
    tokens: int
    elapsed: float = 0.0

    @property
    def score(self) -> float:
        """Return the primary score."""
        return next(iter(self.scores.values()))

    @property
    def rank(self) -> tuple[float, ...]:
        """Return a sort key, larger for the better trial: the scores in order, then the seed."""
        return (*self.scores.values(), -self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrialResult:
        """Return the result from the values of `to_dict`."""
        losses = [(int(step), float(loss)) for step, loss in data["losses"]]
        return cls(**data | {"losses": losses})


def run_trial(
    make_model: Callable[[int], Model],
    prepared: Prepared,
    config: FinetuneConfig,
    seed: int,
    folder: RunFolder | None = None,
    title: str = "",
) -> tuple[TrialResult, Measured, Model]:
    """Train the model that `make_model` returns for a seed, and evaluate it on dev.

    The seed determines the new weights, the order of the examples and dropout. With a folder, an
    interrupted training resumes; its checkpoints are left to the caller. Raises what `fit` raises.
    """
    data, task = prepared.data, prepared.task
    assert folder is not None or not config.patience
    whole = Clock()
    model = make_model(seed)
    prepare_model(model, config, seed)
    steps = config.epochs * -(-len(prepared.train) // config.batch)
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
    objective = task.objective(data.train, data.labels, config.label_loss)
    watched = _Watched(objective, every=max(1, steps // POINTS))
    # dev has other tokens, so evaluation during training needs the whole token table
    part = (
        nullcontext(prepared.train)
        if config.patience
        else trimmed_embeddings(model, prepared.train)
    )
    with part as examples:
        fitting = Clock()
        state = fit(
            config.fit(steps, seed),
            model,
            watched,
            ExampleBatches(examples, units_per_batch=config.batch, seed=seed),
            measure=_dev_measure(prepared) if config.patience else None,
            folder=folder,
            title=title,
        )
        fitted = fitting.elapsed
    if config.patience:
        assert folder is not None
        _take_best(model, folder, state)
    task.finish(model, data.train)
    with progress(f"{title}: measuring on dev".removeprefix(": "), None):
        found = measure(task, model, prepared.dev, data.dev, data.labels)
    task.tuned(found.evidence).keep(model)
    model.config = replace(model.config, preprocessing=_preprocessing(prepared, config))
    result = TrialResult(
        seed=seed,
        scores=found.scores,
        constant=task.constant(found.answers),
        losses=watched.points() if folder is None else _logged(folder, prepared.train.target),
        seconds=state.seconds,
        tokens=state.tokens,
        # the state includes the time of earlier sessions
        elapsed=state.elapsed + whole.elapsed - fitted,
    )
    return result, found, model


def _preprocessing(prepared: Prepared, config: FinetuneConfig) -> Preprocessing:
    """Return how the rows of a training were read, for the model's folder."""
    first, columns, tags = prepared.data.train[0], config.columns, config.tags
    if isinstance(first, Tagged) and first.entities is None:
        tags = replace(tags, scheme="plain")  # a part of the rows may look like another one
    kept = isinstance(first, Tagged) and tags != USUAL_TAGS
    paired = first.text_pair is not None if isinstance(first, Example) else None
    return Preprocessing(
        longest=prepared.room.longest,
        long=prepared.room.long,
        stride=prepared.room.stride,
        pairs=paired,
        text_column=columns.text,
        text_pair_column=columns.text_pair,
        label_column=columns.label,
        label_until=columns.label_until,
        tags=tags if kept else None,
        tags_kind=kind_of(Path(first.source)) if kept else "",
    )


def _dev_measure(prepared: Prepared) -> Measure:
    """Return a function that scores dev during training; the loss is 1 - primary score."""
    data = prepared.data

    def on_dev(model: Model, stopping: Callable[[], bool]) -> dict[str, float] | None:
        if stopping():
            return None
        scores = measure(data.task, model, prepared.dev, data.dev, data.labels).scores
        return {"dev_loss": 1 - next(iter(scores.values())), **scores}

    return on_dev


def _take_best(model: Model, folder: RunFolder, state: State) -> None:
    """Load the weights that were best on dev."""
    if state.best_step not in (None, state.step):
        checkpoints = Checkpoints(folder.checkpoints, 1, run=folder.identity)
        model.load_state_dict(of_model(checkpoints.best(state).weights))


class _Watched:
    """An objective that records its losses, the only record of a run without a folder."""

    def __init__(self, objective: Objective, every: int) -> None:
        self._objective = objective
        self.own = objective.own
        self._every = every
        self._means: list[Any] = []

    def __call__(self, model: Model, batch: Batch) -> Losses:
        losses = self._objective(model, batch)
        (loss,) = losses.parts.values()
        self._means.append(loss.sum.detach() / loss.count)
        return losses

    def points(self) -> list[tuple[int, float]]:
        """Return means over groups of steps, each at its last step."""
        means = [float(mean) for mean in self._means]
        runs = [means[i : i + self._every] for i in range(0, len(means), self._every)]
        ends = [min((i + 1) * self._every, len(means)) for i in range(len(runs))]
        return [(end, sum(run) / len(run)) for end, run in zip(ends, runs, strict=True)]


def _logged(folder: RunFolder, target: str) -> list[tuple[int, float]]:
    """Return the losses in a folder's log; of repeated steps after a restart, the later ones."""
    key = f"{target}_loss"
    lines = {line["step"]: line for line in folder.log() if key in line}
    return [(step, lines[step][key]) for step in sorted(lines)]
