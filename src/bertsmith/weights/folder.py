"""Model folders in the hub's layout: ours load in `transformers`, those it saved load here."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from bertsmith.core.errors import ConfigError, ModelFolderError, TrainingDiverged
from bertsmith.core.files import read_json, unreadable, write_json
from bertsmith.core.ownership import aside_path, new_folder
from bertsmith.core.printable import shell_word
from bertsmith.network.config import HEADS, ModelConfig, Predicts
from bertsmith.network.encoder import FixedTable, sinusoidal_table
from bertsmith.network.model import Model, build_model, empty_modules
from bertsmith.tokens.folder.files import TOKENIZER_FILES
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import is_placeholder
from bertsmith.weights import names
from bertsmith.weights.config_json import PROMPTS_FILE, architecture, heads_of, hub_config
from bertsmith.weights.formats.catalog import FORMATS, format_of
from bertsmith.weights.formats.format import POSITIONS, SEGMENTS, Part, Row
from bertsmith.weights.reading import ModelFiles
from bertsmith.weights.tensors import (
    INDEX_FILE,
    WEIGHTS_FILE,
    StoredTensor,
    all_finite,
    shard_names,
    write_tensors,
)
from bertsmith.weights.wrappers import ADAPTER_FILE

P = TypeVar("P")


CONFIG_FILE, CARD_FILE = "config.json", "README.md"
_READ = frozenset((CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE, *TOKENIZER_FILES))
_REPLACEABLE = _READ | {CARD_FILE, ".gitattributes", "training_args.bin"}
_OF_OPENVINO = frozenset(("openvino_model.bin", "openvino_model.xml"))
_EXPORTED = ("model.onnx", "openvino_model.xml", "model.pt2", "onnx/model.onnx")
_PICKLED = frozenset((".bin", ".pt", ".pth", ".ckpt", ".pkl"))
_NUMBERED = re.compile(r"checkpoint-(\d{1,9})", re.ASCII).fullmatch
# tables of the hub are often rounded up to a multiple of 8, 64 or 128 rows
_MAX_SPARE_ROWS = 127


def save_model(
    folder: Path, model: Model, tokenizer: Tokenizer, *, card: str = "", longest: int | None = None
) -> None:
    """Write config.json, model.safetensors, the tokenizer's files and README.md, all or nothing.

    The tokenizer keeps `longest` tokens of a text, None for as many as texts were cut to in
    fine-tuning, or else as the model reads. A model folder of that name is replaced.
    `ModelFolderError` if the folder holds anything else, `ConfigError` if vocabulary and positions
    do not fit, `TrainingDiverged` if a weight is not finite, `DiskError` if it cannot be written.
    The files are a pure function of what is saved.
    """
    config = model.config
    assert tokenizer.size <= config.encoder.vocabulary
    offset = config.encoder.position_offset
    if _counts_positions(config) and offset != tokenizer.pad_id + 1:
        raise ConfigError(
            f"position_offset is {offset} where the vocabulary's padding has the id "
            f"{tokenizer.pad_id}",
            remedy=f"set it to {tokenizer.pad_id + 1}: transformers counts positions from there",
        )
    tensors = _on_disk(model)
    _check_finite(tensors, folder)
    with new_folder(folder, replaces=_check_replaceable) as fresh:
        encoder = config.encoder
        segments = encoder.segments > 1 and tokenizer.segments
        kept = min(longest or config.truncated_to or encoder.longest, encoder.longest)
        tokenizer.save(fresh, longest=kept, segments=segments)
        ends = (tokenizer.cls_id, tokenizer.sep_id)
        write_json(fresh / CONFIG_FILE, hub_config(config, pad_id=tokenizer.pad_id, ends=ends))
        if card:
            (fresh / CARD_FILE).write_text(card, encoding="utf-8")
        # transformers asks for the format
        write_tensors(fresh / WEIGHTS_FILE, tensors, {"format": "pt"})


def _check_replaceable(folder: Path) -> None:
    """Raise `ModelFolderError` for what is no folder, or holds anything but a model."""
    if folder.exists() and not folder.is_dir():
        raise ModelFolderError("is a file", where=folder, remedy="name a folder")
    foreign = (
        sorted(
            path.name
            for path in folder.iterdir()
            if path.name not in _REPLACEABLE or (path.is_dir() and not path.is_symlink())
        )
        if folder.is_dir()
        else []
    )
    if foreign:
        raise ModelFolderError(
            f"would be replaced, but holds {foreign[0]!r}, which is not part of a model",
            where=folder,
            remedy="name another folder",
        )


def load_model(folder: Path) -> tuple[Model, Tokenizer]:
    """Return the model and the tokenizer of a folder, in evaluation mode, on the CPU, in float32.

    The heads are those the file holds. Raises `ModelFolderError` for a folder that is no model, is
    damaged, is pickled or describes what we cannot compute; `VocabularyError` for its vocabulary.
    """
    return load_prepared(folder, StoredModel.whole)


class StoredModel:
    """A model whose weights are still in their file: those of its blocks, and the others.

    Blocks are packed as they are read, a few rows at a time: new memory for all of their weights
    would take longer than reading them.
    """

    def __init__(self, files: ModelFiles, config: ModelConfig, heads: Collection[Part]) -> None:
        self._files = files
        self._blocks: dict[int, list[Row]] = {}
        self._others: list[Row] = []
        for row in files.rows(config, heads):
            number = names.block_of(row.ours)
            (self._others if number is None else self._blocks.setdefault(number, [])).append(row)
        self.model = _empty_model(config)

    def read_others(self) -> None:
        """Load all weights of the model but those of its blocks."""
        _load_state(self.model, self._files.read(self._others), blocks=False)

    def locate_block(self, number: int) -> dict[str, StoredTensor]:
        """Return the places of a block's weights, by their names in the block."""
        located = self._files.locate(self._blocks[number])
        return {name.removeprefix(_prefix(number)): tensor for name, tensor in located.items()}

    def whole(self) -> Model:
        """Return the model with the weights of all blocks."""
        for number, rows in self._blocks.items():
            state = self._files.read(rows)
            weights = {name.removeprefix(_prefix(number)): state[name] for name in state}
            self.model.encoder.blocks[number].load_state_dict(weights, assign=True)
        return self.model


def _prefix(number: int) -> str:
    return f"encoder.blocks.{number}."


def load_prepared(folder: Path, prepare: Callable[[StoredModel], P]) -> tuple[P, Tokenizer]:
    """Return what `prepare` makes of the model of a folder, and the tokenizer.

    The tokenizer is read beside that: reading and packing weights are waits for the disk and for
    native code. Raises what `load_model` and `prepare` raise.
    """
    files = _files(folder, heads=True)
    config = files.config
    # before there is another thread, since both are in Python
    stored = StoredModel(files, config, names.parts(config))
    with ThreadPoolExecutor(max_workers=1) as beside:
        tokenizer = beside.submit(copy_context().run, _tokenizer, folder, config)
        stored.read_others()
        prepared = prepare(stored)
    return prepared, tokenizer.result()


def start_from(
    folder: Path, *, predicts: Predicts = "class", labels: tuple[str, ...] = (), seed: int = 0
) -> tuple[Model, Tokenizer]:
    """Return a folder's encoder under a new head, with the folder's pooler if the head reads one.

    `labels` name the classes, numbers or tags that it is to predict. The head, and the pooler where
    the folder has none, are a pure function of the seed. Raises what `load_model` raises.
    """
    files, tokenizer = _open(folder, heads=False)
    wanted = files.config.with_head(predicts, labels)
    state = _fresh_heads(wanted, seed) | files.read(files.rows(wanted, ()))
    return _assemble(wanted, state), tokenizer


def read_config(folder: Path) -> ModelConfig:
    """Return the config of the model that `load_model` would load; few weights are read for it."""
    return _files(folder, heads=True, report=False).config


def load_as(folder: Path, config: ModelConfig, *, seed: int = 0) -> tuple[Model, Tokenizer]:
    """Return a folder's encoder under the pooler and the heads that `config` asks for.

    Those the folder lacks are a pure function of the seed, as those of a new model start. The
    encoder's config is the folder's but for the dropout. Raises what `load_model` raises.
    """
    files, tokenizer = _open(folder, heads=True)
    has = files.config
    common = set(names.parts(config) & names.parts(has))
    if (config.predicts, config.labels) != (has.predicts, has.labels):
        common -= set(HEADS.values())
    state = _fresh_heads(config, seed) | files.read(files.rows(config, common))
    return _assemble(config, state), tokenizer


def _open(folder: Path, *, heads: bool) -> tuple[ModelFiles, Tokenizer]:
    files = _files(folder, heads=heads)
    return files, _tokenizer(folder, files.config)


def _tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    rows = config.encoder.vocabulary
    if not 0 <= rows - tokenizer.size <= _MAX_SPARE_ROWS:
        forgotten = rows < tokenizer.size and tokenizer.rules.added is not None
        raise ModelFolderError(
            f"its vocabulary has {tokenizer.size} pieces, its token table {rows} rows",
            where=folder,
            remedy="call resize_token_embeddings(len(tokenizer)) where the tokens were added"
            if forgotten
            else "vocabulary and weights must be of one model",
        )
    counted_from = config.encoder.position_offset - 1
    # a token of that id, be it [CLS] or [UNK], has the position of padding in transformers
    occurs = counted_from in range(tokenizer.size) and not is_placeholder(
        tokenizer.vocabulary[counted_from]
    )
    if _counts_positions(config) and counted_from != tokenizer.pad_id and occurs:
        raise ModelFolderError(
            f"pad_token_id is {counted_from}, by which transformers counts positions, where the "
            f"vocabulary's padding has the id {tokenizer.pad_id}",
            where=folder / CONFIG_FILE,
            remedy="vocabulary and weights must be of one model",
        )
    return tokenizer


def _counts_positions(config: ModelConfig) -> bool:
    """Return whether `transformers` counts the positions of a model from its padding id."""
    return "position_offset" in FORMATS[format_of(config)].needs


def _files(folder: Path, *, heads: bool, report: bool = True) -> ModelFiles:
    try:
        _check_place(folder)
    except OSError as error:
        raise unreadable(ModelFolderError, error, folder) from error
    except RuntimeError as error:
        # links that lead in a circle, before Python 3.13
        raise ModelFolderError(f"cannot be read: {error}", where=folder) from error
    return ModelFiles(folder, heads=heads, report=report)


def _missing(folder: Path) -> ModelFolderError:
    """Return the error for a folder that is not there, or no longer."""
    if (aside := aside_path(folder.resolve())).is_dir():
        return ModelFolderError(
            "saving was interrupted", where=folder, remedy=f"rename {aside} to it"
        )
    return ModelFolderError("no such folder", where=folder, remedy="name a model folder")


def _check_place(folder: Path) -> None:
    """Check that there is a folder with the two files, none of them a link that leads elsewhere."""
    if not folder.exists():
        raise _missing(folder)
    inside = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    has_weights = any((folder / name).exists() for name in (WEIGHTS_FILE, INDEX_FILE))
    _refuse_other_kinds(folder, inside, has_weights=has_weights)
    for name, exists in (
        (CONFIG_FILE, (folder / CONFIG_FILE).exists()),
        (WEIGHTS_FILE, has_weights),
    ):
        if not exists:
            remedy = f"name {model_inside(folder) or 'another'}"
            if name == WEIGHTS_FILE and any(path.suffix == ".safetensors" for path in inside):
                remedy = (
                    f"make a model folder of it with: bertsmith convert {shell_word(folder)} OUT"
                )
            raise ModelFolderError(
                f"is not a model folder: it has no {name}", where=folder, remedy=remedy
            )
    for path in inside:
        if path.name in _READ or path.name == PROMPTS_FILE:
            check_file(path, folder.resolve())
    for name in shard_names(folder):
        check_file(folder / name, folder.resolve())


def model_inside(folder: Path) -> Path | None:
    """Return the model folder in what people have at hand, the newest one; None without any.

    These are the folders of a run, of a Trainer of transformers, and of a model in the hub's cache.
    """
    places = [folder / "model"]
    with suppress(OSError, ValueError):
        numbered = {match[1]: path for path in folder.iterdir() if (match := _NUMBERED(path.name))}
        places += [numbered[number] for number in sorted(numbered, key=int, reverse=True)]
        places.append(folder / "snapshots" / (folder / "refs" / "main").read_text("utf-8").strip())
    return next((place for place in places if (place / CONFIG_FILE).exists()), None)


def _refuse_other_kinds(folder: Path, inside: Sequence[Path], *, has_weights: bool) -> None:
    """Raise `ModelFolderError` for what people have instead of a model folder."""
    if (folder / ADAPTER_FILE).is_file() and not has_weights:
        raise ModelFolderError(
            "holds an adapter, which is added to a model",
            where=folder,
            remedy="merge it into its model (merge_and_unload of peft), and save that",
        )
    if (folder / "store.json").is_file() and not (folder / CONFIG_FILE).exists():
        remedy = "name a model folder; `bertsmith pretrain` makes one of a store"
        raise ModelFolderError("is a token store, not a model folder", where=folder, remedy=remedy)
    pickled = [
        path for path in inside if _PICKLED & set(path.suffixes) and path.name not in _OF_OPENVINO
    ]
    if pickled and not has_weights:
        raise ModelFolderError(
            "holds pickled weights, which can run code when they are opened",
            where=pickled[0],
            remedy="make safetensors of them with: bertsmith convert",
        )
    exported = [name for name in _EXPORTED if (folder / name).is_file()]
    if exported and not has_weights:
        raise ModelFolderError(
            f"holds a model for another runtime, {exported[0]}",
            where=folder,
            remedy="name the model folder that it was exported from",
        )
    if not folder.is_dir():
        raise ModelFolderError("is a file", where=folder, remedy="name the model folder it is in")


def check_file(path: Path, folder: Path) -> None:
    """Check that a path is a file in a folder, or a link to one in the hub's cache beside it.

    `folder` is resolved. Raises `ModelFolderError`.
    """
    target = path.resolve()
    # in the hub's cache the files of a snapshot are links into a folder of blobs
    candidate_folders = (folder, folder.parent.parent / "blobs")
    if not any(target.is_relative_to(home) for home in candidate_folders):
        raise ModelFolderError(
            "is a link that leads out of the folder", where=path, remedy="put the file itself there"
        )
    if not target.is_file():
        problem = "is not a file" if target.exists() else "is missing"
        raise ModelFolderError(problem, where=path, remedy="fetch the folder again")


def _on_disk(model: Model) -> dict[str, Tensor]:
    """Return all tensors of a model as float32 by the hub's names, with positions and segments."""
    config, state = model.config, model.state_dict()
    # a bare encoder is saved without the prefix, as transformers does
    form = format_of(config)
    bare = form != "bertsmith" and not heads_of(architecture(config), config.encoder.family)
    prefix = FORMATS[form].prefix if bare else ""
    tensors: dict[str, Tensor] = {}
    for row in names.rows(config):
        size = names.shape(row, config)
        if row.ours in state:
            tensor = state[row.ours]
        elif row.ours == POSITIONS and config.encoder.positions == "sinusoidal":
            tensor = sinusoidal_table(*size)
        else:
            assert row.ours in (POSITIONS, SEGMENTS)
            tensor = torch.zeros(size)
        name, part = row.hub.removeprefix(prefix), tensor.float().cpu()
        tensors[name] = part if row.place[0] == 0 else torch.cat([tensors[name], part])
    return tensors


def _check_finite(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Raise `TrainingDiverged` for weights that `load_model` would refuse."""
    for name, tensor in tensors.items():
        if not all_finite(tensor):
            raise TrainingDiverged(
                f"the model was not saved: its tensor {name} contains values that are not finite",
                where=folder,
                remedy="train again with a lower learning rate or a longer warm-up, in another "
                "--out",
            )


def _assemble(config: ModelConfig, state: Mapping[str, Tensor]) -> Model:
    """Return a model of a state."""
    model = _empty_model(config)
    _load_state(model, state)
    return model


def _empty_model(config: ModelConfig) -> Model:
    """Return a model in evaluation mode whose tensors have shapes alone."""
    with empty_modules():
        return Model(config).eval()


def _load_state(model: Model, state: Mapping[str, Tensor], *, blocks: bool = True) -> None:
    """Load the tensors of a model, among which those of the blocks may be missing."""
    lacking, unknown = model.load_state_dict(state, strict=blocks, assign=True)
    assert not unknown
    assert all(names.block_of(name) is not None for name in lacking)
    for part in model.modules():
        if isinstance(part, FixedTable):
            part.weight = sinusoidal_table(*part.weight.shape)


def _fresh_heads(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Return new weights of the pooler and the heads, as those of a new model start."""
    # drawn with an encoder as small as can be under them: theirs would take seconds to draw
    small = dataclasses.replace(
        config.encoder, vocabulary=1, layers=1, groups=None, feed_forward=1, longest=1
    )
    state = build_model(dataclasses.replace(config, encoder=small), seed=seed).state_dict()
    if config.masked_lm:
        state["heads.masked_lm.bias"] = torch.zeros(config.encoder.vocabulary)
    return {name: value for name, value in state.items() if not name.startswith("encoder.")}


QUANTIZED_FILE = "bertsmith_quantized.json"


def write_quantized(folder: Path, measured: Mapping[str, Any]) -> None:
    """Record in a folder that is being made that it is to be opened in int8, and why.

    `transformers` ignores the file; the weights are those of the model that the folder is made of.
    """
    data = {"precision": "int8", "measured": measured}
    text = json.dumps(data, indent=1, ensure_ascii=False)
    (folder / QUANTIZED_FILE).write_text(f"{text}\n", encoding="utf-8")


def quantized_precision(folder: Path) -> Literal["int8"] | None:
    """Return the precision that a folder is to be opened in, None where it does not say.

    Raises `ModelFolderError` for a file that cannot be understood.
    """
    path = folder / QUANTIZED_FILE
    if not path.is_file():
        return None
    result = read_json(path, ModelFolderError, largest=2**20)
    if result.get("precision") != "int8":
        raise ModelFolderError(
            "does not say precision int8", where=path, remedy="delete it, or run quantize again"
        )
    return "int8"
