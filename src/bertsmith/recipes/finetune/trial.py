"""A single training of a model on the examples of a task, alone or in a subfolder.

The folder has log.jsonl, checkpoints while it trains, and at the end dev.json (the prediction for
each dev row and how correct it is) and result.json, which marks it as finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.batches import DataPosition
from bertsmith.batches.examples import EncodedExamples, ExampleBatches
from bertsmith.core.clock import Clock
from bertsmith.core.errors import RunFolderError
from bertsmith.core.log import progress, say
from bertsmith.core.streams import Purpose, stream
from bertsmith.evaluation.metrics import format_scores
from bertsmith.evaluation.significance import Clusters
from bertsmith.network.config import ModelConfig, Preprocessing
from bertsmith.network.encoder import Embeddings
from bertsmith.network.model import Model, initialise, scale_residual_outputs
from bertsmith.objectives.objective import Objective
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import Prepared, check_layers
from bertsmith.tasks.answering import measure, task_predictor
from bertsmith.tasks.task import Evidence, Measured, Scores
from bertsmith.text.config import USUAL_TAGS
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.tagged import Tagged
from bertsmith.text.opening import kind_of
from bertsmith.training.checkpoints import Checkpoints, State
from bertsmith.training.config import FitConfig
from bertsmith.training.loading import BatchSource
from bertsmith.training.loop import Session, fit
from bertsmith.training.replicas import model_weights
from bertsmith.training.run_folder import RunFolder, read_record, tensorboard_events, write_record
from bertsmith.training.state import Measure, Measurement
from bertsmith.weights.folder import save_model

# share of all rows; above it, trimming saves little
_MAX_USED_SHARE = 0.7


class _TrimmedTable(nn.Embedding):
    """The rows of a token table that examples use, trained in its place."""

    def __init__(self, embeddings: Embeddings, used: Tensor) -> None:
        rows = embeddings.tokens.weight.detach()[used]
        super().__init__(rows.shape[0], rows.shape[1], _weight=rows)
        # a tuple, as a module would be saved and trained with the model
        self._whole = (embeddings.tokens, embeddings.padding_id)
        self._used = used

    def restore_in(self, embeddings: Embeddings) -> None:
        """Put the whole table back, with what its rows have learned."""
        table, padding_id = self._whole
        with torch.no_grad():
            table.weight[self._used] = self.weight
        embeddings.tokens, embeddings.padding_id = table, padding_id


@contextmanager
def trimmed_embeddings(model: Model, examples: EncodedExamples) -> Iterator[EncodedExamples]:
    """Yield the examples with new ids, for a token table trimmed to the tokens that they use.

    The table is restored afterwards. Nothing is trimmed if most rows are used, if the table is not
    trained, or if another part of the model shares it.
    """
    embeddings = model.encoder.embeddings
    used_ids = np.unique(np.concatenate(examples.ids))
    rows = embeddings.tokens.num_embeddings
    if (
        model.config.masked_lm
        or not embeddings.tokens.weight.requires_grad
        or len(used_ids) > _MAX_USED_SHARE * rows
    ):
        yield examples
        return
    table = _TrimmedTable(embeddings, torch.from_numpy(used_ids.astype(np.int64)).to(model.device))
    new_ids = np.zeros(rows, np.int32)
    new_ids[used_ids] = np.arange(len(used_ids))
    padding_id = embeddings.padding_id
    if padding_id is not None:
        embeddings.padding_id = int(new_ids[padding_id]) if padding_id in used_ids else None
    embeddings.tokens = table
    try:
        yield replace(examples, ids=[new_ids[ids] for ids in examples.ids])
    finally:
        table.restore_in(embeddings)


@contextmanager
def _whole_table(model: Model) -> Iterator[None]:
    """Have the whole token table in the place of a trimmed one, for other tokens."""
    embeddings = model.encoder.embeddings
    table, padding_id = embeddings.tokens, embeddings.padding_id
    if not isinstance(table, _TrimmedTable):
        yield
        return
    table.restore_in(embeddings)
    try:
        yield
    finally:
        embeddings.tokens, embeddings.padding_id = table, padding_id


def prepare_model(model: Model, config: FinetuneSettings, seed: int) -> None:
    """Prepare a model for training; new weights are a pure function of the seed.

    Raises `ConfigError` for more layers than there are.
    """
    check_layers(model.config.encoder, config)
    model.set_dropout(config.dropout)
    if config.reinitialise_layers:
        reinitialise(model, config.reinitialise_layers, seed)
    if config.freeze_layers:
        freeze(model, max(config.freeze_layers, 0))


def reinitialise(model: Model, layers: int, seed: int) -> None:
    """Reinitialise the top layers and the pooler.

    The top of a pre-trained encoder is specific to its objective, and another task may be learned
    faster without it (Zhang et al. 2021, section 4).
    """
    generator = torch.Generator().manual_seed(int(stream(Purpose.REINITIALISED_LAYERS, seed)))
    encoder, blocks = model.config.encoder, model.encoder.blocks
    top_blocks = blocks[len(blocks) - layers :]
    for part in (*top_blocks, model.pooler):
        if part is not None:
            initialise(part, generator, encoder.initial_std)
    scale_residual_outputs(top_blocks, encoder)


def freeze(model: Model, layers: int) -> None:
    """Freeze the embeddings and the given number of layers from the bottom."""
    for part in (model.encoder.embeddings, *list(model.encoder.blocks)[:layers]):
        part.requires_grad_(False)


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a training on dev.

    `scores` are those of the task, the primary one first; `losses` the points (step, mean loss
    since the last point) in the log, if there is one; `seconds` those of training, `elapsed` those
    on the clock, including evaluation; `constant` is true if the model predicts the same for every
    row: training has failed.
    """

    seed: int
    scores: Scores
    constant: bool
    losses: list[tuple[int, float]] = field(repr=False)
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


class Supervision:
    """The targets of a training: by default the labels of its rows.

    Sent to the processes that train, so it must be picklable.
    """

    def fit(self, config: FinetuneSettings, steps: int, seed: int) -> FitConfig:
        """Return the training loop's config for a number of steps."""
        return config.fit(steps, seed)

    def objective(self, prepared: Prepared, config: FinetuneSettings, seed: int) -> Objective:
        """Return the objective, with new parameters of its terms."""
        data = prepared.data
        return prepared.task.learning.objective(data.train, data.labels, config.label_loss)

    def batches(self, batches: ExampleBatches, prepared: Prepared) -> BatchSource:
        """Return the batches, with all that the objective reads beside the labels."""
        return batches

    def enter(self, position: DataPosition, progress: float) -> DataPosition:
        """Return the position to continue from when a share of the steps is done."""
        return position

    def target(self, prepared: Prepared) -> str:
        """Return the name of the loss that a report draws."""
        return prepared.train.target


LABELS = Supervision()


def run_trial(
    make_model: Callable[[int], Model],
    prepared: Prepared,
    config: FinetuneSettings,
    seed: int,
    folder: RunFolder | None = None,
    title: str = "",
    supervision: Supervision = LABELS,
) -> tuple[TrialResult, Measured, Model]:
    """Train the model that `make_model` returns for a seed, and evaluate it on dev.

    The seed determines the new weights, the order of the examples and dropout. With a folder, an
    interrupted training resumes; its checkpoints are left to the caller. Raises what `fit` raises.
    """
    data, task = prepared.data, prepared.task
    assert folder is not None or not config.patience
    total_clock = Clock()
    model = make_model(seed)
    prepare_model(model, config, seed)
    steps = config.chosen_epochs * -(-len(prepared.train) // config.batch_size)
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
    with trimmed_embeddings(model, prepared.train) as examples:
        fit_clock = Clock()
        batches = ExampleBatches(examples, units_per_batch=config.batch_size, seed=seed)
        state = fit(
            supervision.fit(config, steps, seed),
            model,
            supervision.objective(prepared, config, seed),
            supervision.batches(batches, prepared),
            enter=supervision.enter,
            measure=_dev_measure(prepared, config) if config.patience else None,
            folder=folder,
            session=Session(title=title),
        )
        fit_seconds = fit_clock.elapsed
        if folder is not None and config.patience:
            _load_best_weights(model, folder, state)
    task.learning.finish(model, data.train)
    with progress(f"{title}: measuring on dev".removeprefix(": "), None):
        measured = _score_dev(prepared, model, config)
    model.config = _calibrated(model.config, measured, prepared, config)
    target = supervision.target(prepared)
    result = TrialResult(
        seed=seed,
        scores=measured.scores,
        # a single row says nothing of others
        constant=len(data.dev) > 1 and task.measuring.constant(data.dev, measured.answers),
        losses=[] if folder is None else _logged_losses(folder, target),
        seconds=state.seconds,
        tokens=state.tokens,
        # the state includes the time of earlier sessions
        elapsed=state.elapsed + total_clock.elapsed - fit_seconds,
    )
    return result, measured, model


def _calibrated(
    model: ModelConfig, measured: Measured, prepared: Prepared, config: FinetuneSettings
) -> ModelConfig:
    """Return the config of a model with what dev has decided, and with how it reads texts."""
    return replace(
        measured.tuned.kept_in(model),
        conformal=prepared.task.measuring.calibrate(measured.evidence, measured.answers),
        preprocessing=_preprocessing(prepared, config),
    )


def _preprocessing(prepared: Prepared, config: FinetuneSettings) -> Preprocessing:
    """Return the reading of a training's rows, for the model's folder."""
    first, reading = prepared.data.train[0], config.reading
    columns, tags, separator = reading.columns, reading.tags, prepared.data.label_separator
    if isinstance(first, Tagged) and first.entities is None:
        tags = replace(tags, scheme="plain")  # a part of the rows may look like another one
    keeps_tags = isinstance(first, Tagged) and tags != USUAL_TAGS
    paired = first.text_pair is not None if isinstance(first, Example) else None
    return Preprocessing(
        longest=prepared.limits.longest,
        long=prepared.limits.long,
        stride=prepared.limits.stride,
        pairs=paired,
        text_column=columns.text,
        text_pair_column=columns.text_pair,
        label_column=columns.label,
        label_columns=columns.labels,
        label_until=columns.label_until,
        label_separator=columns.label_separator if separator == "|" else separator,
        group_column=columns.group,
        tags=tags if keeps_tags else None,
        tags_kind=kind_of(Path(first.source)) if keeps_tags else "",
    )


def _score_dev(prepared: Prepared, model: Model, config: FinetuneSettings) -> Measured:
    """Score a model on dev, as `evaluate` does."""
    predictor = task_predictor(prepared.task, model, prepared.tokenizer, prepared.limits)
    accuracy = config.target_accuracy
    return measure(predictor, prepared.data.dev, prepared.dev, target_accuracy=accuracy)


def _dev_measure(prepared: Prepared, config: FinetuneSettings) -> Measure:
    """Return a function that scores dev during training; the loss is 1 - primary score."""

    def on_dev(model: Model, stopping: Callable[[], bool]) -> Measurement | None:
        if stopping():
            return None
        # dev has other tokens
        with _whole_table(model):
            scores = _score_dev(prepared, model, config).scores
        loss = 1 - next(iter(scores.values()))
        return Measurement(loss=loss, metrics={"dev_loss": loss, **scores})

    return on_dev


def _load_best_weights(model: Model, folder: RunFolder, state: State) -> None:
    """Load the weights that were best on dev."""
    if state.best_step not in (None, state.step):
        checkpoints = Checkpoints(folder.checkpoints, 1, run=folder.identity)
        model.load_state_dict(model_weights(checkpoints.best(state).weights))


def _logged_losses(folder: RunFolder, target: str) -> list[tuple[int, float]]:
    """Return the losses in a folder's log; of repeated steps after a restart, the later ones."""
    key = f"{target}_loss"
    lines = {line["step"]: line for line in folder.log() if key in line}
    return [(step, lines[step][key]) for step in sorted(lines)]


RESULT, DEV = "result.json", "dev.json"
# classes whose probabilities are kept for each dev row
_KEPT_CLASSES = 5


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of a run: its place in the run's folder, and its inputs."""

    subfolder: str
    title: str
    settings: FinetuneSettings
    seed: int
    make_model: Callable[[int], Model]
    prepared: Prepared
    supervision: Supervision = LABELS


def execute_trial(
    trial: Trial, run: Path, others: Sequence[TrialResult] | None, *, tensorboard: bool = False
) -> TrialResult:
    """Train and evaluate in the folder of a run; resume what was interrupted.

    The model is saved, before the result is, if it is better than those of the `others`. Raises
    what `fit` raises.
    """
    folder = RunFolder(run / trial.subfolder, part_of=RunFolder(run))
    with _tensorboard_log(folder, run) if tensorboard else nullcontext():
        result, measured, model = run_trial(
            trial.make_model, trial.prepared, trial.settings, trial.seed, folder, trial.title,
            trial.supervision,
        )  # fmt: skip
    if others is not None and all(result.rank > other.rank for other in others):
        save_model(folder.model, model, trial.prepared.tokenizer)
    write_record(folder.path / DEV, _dev_record(trial.prepared, measured))
    write_record(folder.path / RESULT, {"run": folder.identity, **result.to_dict()})
    say(f"{trial.title}: {format_scores(result.scores)}, {result.seconds:.1f} s")
    return result


def read_evidence(folder: Path) -> Evidence:
    """Return the evidence for each row of dev, of a training in a folder."""
    return np.array(read_record(folder / DEV)["evidence"], np.float64)


def read_clusters(folder: Path) -> Clusters:
    """Return the rows of dev that belong together, of a training in a folder.

    Raises `RunFolderError` for one that an earlier version has ended, which kept none.
    """
    record = read_record(folder / DEV)
    if "clusters" not in record:
        raise RunFolderError(
            "does not say which rows belong together, as an earlier version wrote it",
            where=folder / DEV,
            remedy="fine-tune again, with another --out",
        )
    return Clusters(record["clusters"])


def read_result(folder: RunFolder) -> TrialResult | None:
    """Return the result of a training, None if it has not ended.

    A result of another run, copied in, is ignored with a message. Raises `RunFolderError`.
    """
    path = folder.path / RESULT
    if not path.exists():
        return None
    content = read_record(path)
    if content.pop("run", None) != folder.identity:
        say(f"{path}: belongs to another run; skipped")
        return None
    return TrialResult.from_dict(content)


def _tensorboard_log(folder: RunFolder, run: Path) -> AbstractContextManager[None]:
    name = folder.path.relative_to(run).as_posix().replace("/", "-")
    return tensorboard_events(folder, run / "tensorboard" / name.removeprefix("seeds-"))


def _dev_record(prepared: Prepared, measured: Measured) -> dict[str, Any]:
    """Return the predictions on dev as plain JSON values."""
    # an answer below the threshold is withheld, and not shown among the mistakes
    record, labels, tuned = prepared.task.answers.record, prepared.data.labels, measured.tuned
    return {
        "answers": [record(answer, labels, _KEPT_CLASSES, tuned) for answer in measured.answers],
        "evidence": measured.evidence.tolist(),
        "clusters": measured.clusters.numbers.tolist(),
    }
