"""The student: its size, the teacher's layers that it starts from, and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.core.errors import ConfigError, ModelFolderError, RunFolderError
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoder import Embeddings
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil.config import StartLayers, StudentConfig
from bertsmith.recipes.pretrain.starting import has_position_columns, start_from_rows, token_columns
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, start_from
from bertsmith.weights.versions import FolderVersion

_BLOCKS = "encoder.blocks."


def student_encoder(
    teacher: EncoderConfig, layers: int, width: int, config: StudentConfig
) -> EncoderConfig:
    """Return the encoder of a student of a size, wired as its teacher's.

    Raises `ConfigError` for a size that it cannot have.
    """
    if teacher.groups is not None and layers % teacher.groups:
        raise ConfigError(
            f"--student has {counted(layers, 'layer')}, and the teacher's layers share the weights "
            f"of {teacher.groups}",
            remedy="give a multiple of them",
        )
    alike = width == teacher.hidden
    heads = config.heads or _heads(teacher, width)
    if width % heads:
        raise ConfigError(
            f"a student {width} wide cannot have {counted(heads, 'head')}",
            remedy="give another width, or --heads that divide it",
        )
    feed_forward = config.feed_forward or (teacher.feed_forward if alike else 4 * width)
    return replace(teacher, layers=layers, hidden=width, heads=heads, feed_forward=feed_forward)


def _heads(teacher: EncoderConfig, width: int) -> int:
    """Return the teacher's number of heads where it divides the width, else heads of its width."""
    if width % teacher.heads == 0:
        return teacher.heads
    size = teacher.hidden // teacher.heads
    return max(1, width // size) if width % size == 0 else teacher.heads


def can_take_layers(student: EncoderConfig, teacher: EncoderConfig) -> bool:
    """Return whether a teacher's layers fit into a student."""
    sizes = ("hidden", "heads", "feed_forward")
    return all(getattr(student, size) == getattr(teacher, size) for size in sizes)


def chosen_layers(teacher: int, student: int, start: StartLayers) -> tuple[int, ...]:
    """Return the teacher's layers, from 1, that a student's layers start from; () for none.

    Alternate layers of 12 are 1, 3, 5, 8, 10 and 12 for 6, those of DistilBERT (Sanh et al. 2019,
    section 2), and uniform ones 2, 4, ..., 12, those that TinyBERT's layers follow (Jiao et al.
    2020, section 3.1).
    """
    if start == "new" or student > teacher:
        return ()
    if start == "bottom":
        return tuple(range(1, student + 1))
    if start == "uniform":
        return followed_layers(teacher, student)
    if student == 1:
        return (1,)
    step = (teacher - 1) / (student - 1)
    return tuple(1 + round(number * step) for number in range(student))


def followed_layers(teacher: int, student: int) -> tuple[int, ...]:
    """Return the teacher's layer, from 1, that each layer of a student follows, uniformly."""
    return tuple(-(-number * teacher // student) for number in range(1, student + 1))


def check_start(
    run: Path,
    earlier: Mapping[str, Any],
    student: ModelConfig,
    layers: Sequence[int],
    *,
    token_table: bool,
) -> None:
    """Raise `RunFolderError` if the same student of an earlier run started from other weights.

    `earlier` are the settings of that run, in the folder `run`.
    """
    begun = _describe_start(earlier)
    start = _describe_start({"layers": list(layers), "token_table": token_table})
    if begun == start or ModelConfig.from_dict(earlier["student"]) != student:
        return
    raise RunFolderError(
        f"belongs to a run with another --start: its students began from {begun}, now from {start}",
        where=run,
        remedy="choose another --out, or give the --start that run was begun with",
    )


def _describe_start(settings: Mapping[str, Any]) -> str:
    """Describe the start of a run's student."""
    if layers := settings.get("layers"):
        numbers = ", ".join(map(str, layers))
        return f"the teacher's layer{'s' if len(layers) > 1 else ''} {numbers}"
    table = settings.get("token_table")
    return "the teacher's token table" if table else "random weights"


@torch.no_grad()
def take_layers(student: Model, teacher: Model, layers: Sequence[int]) -> None:
    """Copy the teacher's embeddings, heads and some layers to a student that is as wide.

    `layers` are those of the teacher, from 1, one for each of the student's. What the student lacks
    is left out; a teacher's first segment, which most texts are, is added to the positions of a
    student without segments.
    """
    state, states = student.state_dict(), teacher.state_dict()
    blocks, depths = len(teacher.encoder.blocks), len(student.encoder.blocks)
    depth, of_student = teacher.config.encoder.layers, student.config.encoder.layers
    new_state: dict[str, Tensor] = {}
    for name, value in state.items():
        source = name
        if name.startswith(_BLOCKS):
            number, _, rest = name.removeprefix(_BLOCKS).partition(".")
            first_layer = int(number) * of_student // depths
            block = (layers[first_layer] - 1) * blocks // depth
            source = f"{_BLOCKS}{block}.{rest}"
        if source in states and states[source].shape == value.shape:
            new_state[name] = states[source]
    positions, segments = "encoder.embeddings.positions.weight", teacher.encoder.embeddings.segments
    if (
        student.encoder.embeddings.segments is None
        and segments is not None
        and positions in new_state
    ):
        new_state[positions] = new_state[positions] + segments.weight[0]
    student.load_state_dict(new_state, strict=False)


def can_take_token_table(student: EncoderConfig) -> bool:
    """Return whether a student of another width has room for its teacher's token table."""
    return student.embedding is not None or has_position_columns(student)


@torch.no_grad()
def take_token_table(student: Model, teacher: Model, *, mask_id: int, seed: int) -> None:
    """Initialise the token tables of a student of another width from its teacher's.

    The rows are the principal components of the teacher's token table, all of one length and turned
    at random: the large components are spread over all columns, which Adam treats alike. Positions
    start as sinusoids in columns of their own, with heads of the first layer that look at
    neighbours, as in a model pre-trained by `quick` (recipes/pretrain/starting.py). A student
    whose tables are as narrow as its teacher's, as of an ALBERT, takes all of them as they are; one
    without learned positions, or without room for them, stays as it is.
    """
    if student.config.encoder.embedding is not None:
        _take_tables(student.encoder.embeddings, teacher.encoder.embeddings)
        return
    if not has_position_columns(student.config.encoder):
        return
    width = token_columns(student.encoder)
    table = teacher.encoder.embeddings.tokens.weight.double().cpu()
    centred = table - table.mean(0)
    # the largest last
    directions = torch.linalg.eigh(centred.T @ centred)[1].flip(1)[:, :width]
    rows = nn.functional.normalize(centred @ directions, dim=1) * width**0.5
    generator = torch.Generator().manual_seed(int(stream(Purpose.TEACHER_ROWS, seed)))
    rotation = torch.linalg.qr(torch.randn(width, width, generator=generator))[0].double()
    every = torch.ones(len(rows), dtype=torch.bool)
    rows = (rows @ rotation[: rows.shape[1]]).float()
    start_from_rows(student.encoder, rows, every, mask_id=mask_id)


def _take_tables(student: Embeddings, teacher: Embeddings) -> None:
    """Give a student its teacher's tables, and their norm; not what brings them to the states."""
    state = teacher.state_dict()
    tables = {name: result for name, result in state.items() if not name.startswith("widen.")}
    student.load_state_dict(tables, strict=False)


@dataclass(frozen=True, kw_only=True)
class NewStudent:
    """A picklable function from a seed to a student of a task, before it is taught.

    `config` has the head of the teacher's; `layers` are the teacher's that it starts from, () for
    none, and `token_table` states that it starts from the teacher's token table, made narrower;
    `folder` is a student that was taught before, whose encoder it takes instead. The outputs of a
    teacher of numbers are brought to the units of training by `mean` and `spread`. `versions` are
    those of the folders that are read, which must not change.
    """

    teacher: Path
    config: ModelConfig
    layers: tuple[int, ...]
    device: torch.device
    token_table: bool = False
    folder: Path | None = None
    mean: float = 0.0
    spread: float = 1.0
    versions: tuple[FolderVersion, ...] = ()

    def __call__(self, seed: int) -> Model:
        """Return the student of a seed; raises `ModelFolderError`."""
        model = self._made(seed)
        # else seeds would begin from different models
        self.check_versions()
        return model

    def check_versions(self) -> None:
        """Raise `ModelFolderError` for a folder that has another version by now."""
        for version in self.versions:
            version.check()

    def _made(self, seed: int) -> Model:
        assert self.config.predicts is not None
        if self.folder is not None:
            predicts, labels = self.config.predicts, self.config.labels
            model, _ = start_from(self.folder, predicts=predicts, labels=labels, seed=seed)
            return model.to(self.device)
        model = build_model(self.config, seed=seed)
        if self.layers:
            take_layers(model, load_model(self.teacher)[0], self.layers)
            self._rescale(model)
        if self.token_table:
            teacher, tokenizer = load_model(self.teacher)
            take_token_table(model, teacher, mask_id=tokenizer.mask_id, seed=seed)
        return model.to(self.device)

    @torch.no_grad()
    def _rescale(self, model: Model) -> None:
        """Make the head give numbers in the units of training."""
        if self.config.predicts == "number":
            model.get_parameter("heads.classify.weight").div_(self.spread)
            model.get_parameter("heads.classify.bias").sub_(self.mean).div_(self.spread)

    def dropped(self) -> Model | None:
        """Return the teacher with layers dropped, untrained; None where it starts from none."""
        if not self.layers:
            return None
        return replace(self, mean=0.0, spread=1.0)(0).eval()


def check_vocabulary(student: Path, teacher: Path) -> None:
    """Raise `ModelFolderError` for a student whose vocabulary is not the teacher's."""
    if Tokenizer.load(student).fingerprint != Tokenizer.load(teacher).fingerprint:
        raise ModelFolderError(
            f"has another vocabulary than the teacher in {teacher}",
            where=student,
            remedy="distil it from a teacher with the same one",
        )
