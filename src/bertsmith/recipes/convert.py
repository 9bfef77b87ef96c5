"""Conversion of other model formats to model folders, and of those to Google's checkpoints.

bertsmith convert uncased_L-2_H-128_A-2 bert-tiny
bertsmith convert bert-tiny checkpoint --to tensorflow
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from bertsmith.core import VERSION
from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.core.files import name_is_taken, write_json
from bertsmith.core.log import say
from bertsmith.core.ownership import new_folder, staging_folder
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, stream
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.batch import Batch, pack
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import Dense
from bertsmith.recipes.config import ConvertConfig
from bertsmith.reports.model_card import base_of, head_of, written
from bertsmith.weights import names
from bertsmith.weights.conversion.fairseq import find_fairseq, read_fairseq
from bertsmith.weights.conversion.google import (
    WRITTEN,
    find_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from bertsmith.weights.conversion.pickled import find_pickled, read_pickled, unpickle
from bertsmith.weights.conversion.staging import (
    Change,
    TensorChange,
    TensorChanges,
    vocabulary_above,
)
from bertsmith.weights.conversion.variants import (
    find_safetensors,
    is_wrapped,
    read_safetensors,
    recognised,
)
from bertsmith.weights.folder import load_model, model_inside, read_config, save_model
from bertsmith.weights.formats.catalog import FORMATS, format_of
from bertsmith.weights.sentence_folder import (
    SentenceSettings,
    dense_folders,
    read_sentence_folder,
    write_sentence_files,
)
from bertsmith.weights.tensors import INDEX_FILE, WEIGHTS_FILE, Weights

_LENGTHS = (3, 17, 64, 128)


def largest_differences(one: Model, other: Model) -> dict[str, float]:
    """Return the largest absolute differences of hidden states and of outputs of shared heads.

    Both models read the same fixed ids, in sequences of several lengths; float32.
    """
    batch = _sample_batch(one, other)
    first_answers, second_answers = _answers(one, batch), _answers(other, batch)
    return {
        name: float((first_answers[name] - second_answers[name]).abs().max())
        for name in first_answers
        if name in second_answers and first_answers[name].shape == second_answers[name].shape
    }


def _answers(model: Model, batch: Batch) -> dict[str, Tensor]:
    with forward_only(model, "fp32"):
        encoded = model.encoder(batch)
        outputs = {"hidden states": encoded.last}
        if "masked_lm" in model.heads:
            outputs["masked tokens"] = model.masked_lm(encoded.last)
        if "replaced_tokens" in model.heads:
            outputs["replaced tokens"] = model.replaced_tokens(encoded.last)
        if "next_sentence" in model.heads:
            outputs["next sentence"] = model.next_sentence(encoded, batch)
        if "classify" in model.heads:
            outputs["classes"] = model.classify(encoded, batch)
        if "tag" in model.heads:
            outputs["tags"] = model.tag(encoded.last)
        if "span" in model.heads:
            outputs["spans"] = model.span(encoded.last)
        if "choose" in model.heads:
            outputs["choices"] = model.choose(encoded, batch)
    return outputs


def _sample_batch(one: Model, other: Model) -> Batch:
    """Return some sequences, the second half of each in the second segment."""
    configs = [model.config.encoder for model in (one, other)]
    longest = min(config.longest for config in configs)
    vocabulary = min(config.vocabulary for config in configs)
    several = all(config.segments != 1 for config in configs)
    random = np.random.default_rng(int(stream(Purpose.AGREEMENT)))
    lengths = [min(length, longest) for length in _LENGTHS]
    ids = [random.integers(0, vocabulary, length) for length in lengths]
    segments = [np.arange(length) * 2 // length * several for length in lengths]
    return pack(ids, segments)


REPORT_FILE = "conversion.json"

_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The tensors of a converted model, and the differences from a reference model."""

    source: Path
    folder: Path
    kind: str
    """Description of the source."""
    moves: TensorChanges
    differences: Mapping[str, float] = field(default_factory=dict)
    """Largest difference from the reference by output; empty without one."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "source": self.source.resolve().name,
            "kind": self.kind,
            "tensors": [asdict(move) for move in self.moves.done],
            "dropped": self.moves.dropped,
            "largest_differences": dict(self.differences),
            "bertsmith": VERSION,
        }


def convert(config: ConvertConfig) -> Conversion:
    """Convert a model into a new folder, with a report in it; returns the content of the report.

    `reference` is a folder of the same model, whose outputs for some fixed ids are compared. Raises
    `ModelFolderError` for what cannot be read or must not be, and other `UserError` children.
    """
    out, reference = config.out, config.reference
    if name_is_taken(out):
        raise ModelFolderError("exists already", where=out, remedy="choose another folder")
    source = model_folder(config.source, "conversion")
    if not source.exists() and find_checkpoint(source) is None:
        raise ModelFolderError("no such file or folder", where=source)
    make = _to_tensorflow if config.to == "tensorflow" else _to_bertsmith
    with new_folder(out) as fresh, staging_folder(out) as staged:
        kind, moves, description = make(source, fresh, staged)
        differences = {} if reference is None else _compared(description, model_folder(reference))
        result = Conversion(
            source=source, folder=out, kind=kind, moves=moves, differences=differences
        )
        write_json(fresh / REPORT_FILE, result.to_dict(), in_ascii=False)
    for line in describe(result):
        say(line)
    return result


def describe(result: Conversion) -> list[str]:
    """Return a few lines on a model's tensors."""
    changes = Counter(move.change for move in result.moves.done)
    counts = ", ".join(
        f"{changes[change]} {change}" for change in sorted(changes) if change != "same"
    )
    lines = [
        f"{result.source} is {result.kind}: {counted(len(result.moves.done), 'tensor')} "
        "carried over"
        + (f" ({counts})" if counts else "")
        + f", {len(result.moves.dropped)} dropped"
    ]
    reasons: dict[str, list[str]] = {}
    for name, reason in result.moves.dropped.items():
        reasons.setdefault(reason, []).append(name)
    for reason, dropped in reasons.items():
        more = f" and {len(dropped) - _SHOWN} more" if len(dropped) > _SHOWN else ""
        lines.append(f"dropped, {reason}: {', '.join(dropped[:_SHOWN])}{more}")
    lines += [
        f"largest difference from the reference, {what}: {value:.2g}"
        for what, value in result.differences.items()
    ]
    return [*lines, f"saved in {result.folder}; {REPORT_FILE} lists every tensor"]


def _to_bertsmith(source: Path, fresh: Path, staged: Path) -> tuple[str, TensorChanges, Path]:
    """Convert the checkpoint of another program into a model folder."""
    layers = staged / "layers"
    layers.mkdir()
    unpickled = partial(_unpickled_layer, source, layers)
    sentences = read_sentence_folder(source, unpickled=unpickled) if source.is_dir() else None
    kind, moves = _read(
        sentences.network if sentences else source, staged, incomplete=any(layers.iterdir())
    )
    with _named_after(source, staged):
        model, tokenizer = load_model(staged)
    card = _card(source, kind, model)
    save_model(fresh, model, tokenizer, card=card, longest=tokenizer.longest)
    moves = moves.then(_loaded(staged, fresh, model))
    if sentences:
        write_sentence_files(fresh, sentences, model.config.encoder)
        moves.done += _layers_after_pooling(source, fresh, sentences)
    return kind, moves, fresh


def _layers_after_pooling(
    source: Path, fresh: Path, settings: SentenceSettings
) -> list[TensorChange]:
    """Return the tensors of the layers after pooling, each in the folder of its module."""
    layers = [layer for layer in settings.after if isinstance(layer, Dense)]
    folders = zip(dense_folders(source), dense_folders(fresh), layers, strict=True)
    return [
        TensorChange(
            source=f"{old}/linear.{name}",
            target=f"{new}/linear.{name}",
            change="same" if old == new else "renamed",
        )
        for old, new, layer in folders
        for name in (["weight"] if layer.bias is None else ["weight", "bias"])
    ]


def _unpickled_layer(source: Path, layers: Path, pickled: Path) -> Path:
    """Write the pickled weights of a layer after pooling as safetensors, and return that file."""
    out = layers / f"{pickled.parent.name}.safetensors"
    unpickle([pickled], out, home=source)
    return out


def _to_tensorflow(source: Path, fresh: Path, staged: Path) -> tuple[str, TensorChanges, Path]:
    """Convert a model folder into a checkpoint, which is read back as a check."""
    model, tokenizer = load_model(source)
    save_model(staged / "hub", model, tokenizer)
    moves = _loaded(source, staged / "hub", model)
    with _named_after(source, staged):
        moves = moves.then(write_checkpoint(staged / "hub", fresh))
    (staged / "back").mkdir()
    read_checkpoint(fresh / WRITTEN, staged / "back")
    return "a model folder", moves, staged / "back"


def _read(source: Path, staged: Path, *, incomplete: bool) -> tuple[str, TensorChanges]:
    """Return a description of a source; write it in the hub's layout to a folder.

    A model folder is converted only if it is `incomplete` (a layer after its encoder is pickled),
    or other programs have put something around the names of its weights.
    """
    checkpoint = find_checkpoint(source)
    if checkpoint is not None:
        return "a TensorFlow checkpoint", read_checkpoint(checkpoint, staged)
    fairseq = find_fairseq(source)
    if fairseq is not None:
        return "a checkpoint of fairseq", read_fairseq(fairseq, staged)
    is_model_folder = source.is_dir() and any(
        (source / name).exists() for name in (WEIGHTS_FILE, INDEX_FILE)
    )
    files = [] if is_model_folder else find_pickled(source)
    if files:
        return "pickled weights", read_pickled(files, staged)
    files = find_safetensors(source)
    if is_model_folder and not (incomplete or vocabulary_above(source) or is_wrapped(source)):
        # its architecture must be known before it is called usable
        read_config(source)
        raise ModelFolderError(
            "is already a model folder", where=source, remedy="use it as it is, or --to tensorflow"
        )
    if files:
        return "safetensors", read_safetensors(files, staged)
    if (recognised_source := recognised(source)) is not None:
        path, kind = recognised_source
        raise ModelFolderError(f"is {kind.problem}", where=path, remedy=kind.remedy)
    inner = model_inside(source) if source.is_dir() else None
    raise ModelFolderError(
        "holds no weights of a known kind",
        where=source,
        remedy="bertsmith convert --help lists the formats" if inner is None else f"name {inner}",
    )


def _loaded(folder: Path, saved: Path, model: Model) -> TensorChanges:
    """Return the changes to a folder's tensors when its model was loaded and saved."""
    kind = format_of(model.config)
    tied, moves = FORMATS[kind].tied, TensorChanges()
    targets = {names.standard(name, kind): name for name in Weights(saved).entries}
    for name in Weights(folder).entries:
        standard = names.standard(name, kind)
        target = targets.get(standard)
        if target is not None:
            change: Change = "same" if name == target else "renamed"
            moves.done.append(TensorChange(source=name, target=target, change=change))
        elif standard in tied:
            moves.dropped[name] = "a copy of another"
        elif standard.removeprefix(f"{kind}.") in names.COUNTERS:
            moves.dropped[name] = "a constant"
        else:
            moves.dropped[name] = "no head that is known"
    return moves


def _compared(made: Path, reference: Path) -> dict[str, float]:
    model, reference_model = load_model(made)[0], load_model(reference)[0]
    if model.config.encoder.vocabulary != reference_model.config.encoder.vocabulary:
        raise ModelFolderError(
            f"has {reference_model.config.encoder.vocabulary} token vectors, the model converted "
            f"{model.config.encoder.vocabulary}",
            where=reference,
            remedy="the reference must be the same model",
        )
    return largest_differences(model, reference_model)


@contextmanager
def _named_after(source: Path, staged: Path) -> Iterator[None]:
    """Name the user's source in errors that name the temporary folder."""
    try:
        yield
    except (ModelFolderError, VocabularyError) as error:
        if error.where is None or not Path(error.where).is_relative_to(staged):
            raise
        raise type(error)(
            error.problem, where=source, line=error.line, remedy=error.remedy
        ) from error


def _card(source: Path, kind: str, model: Model) -> str:
    name = origin(source) or source.resolve().name
    head = written(head_of(model.config, base=base_of(source) if source.is_dir() else None))
    return f"""{head}# {name}

Converted by bertsmith {VERSION} from {kind}; {REPORT_FILE} lists for every tensor where it went.
"""
