"""The teacher: what it gives for rows of a training, computed or read from the disk.

The same rows come again in every epoch and for every seed, so what the teacher gives is kept in a
folder whose name is the hash of the teacher, the rows and what is read of it:

    CACHE/HASH/teacher_logits.npy, teacher_state_6.npy, ...   flat arrays, unit after unit
    CACHE/HASH/rows.json                                      the shape of each array
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples, evaluation_batches, pack_examples
from bertsmith.core.errors import RunFolderError
from bertsmith.core.files import file_hash, read_json, write_json, writing
from bertsmith.core.log import progress, say
from bertsmith.core.ownership import new_folder
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.objectives.distillation import (
    KINDS,
    LOGITS,
    Answer,
    head_logits,
    state_name,
    taught_values,
    vectors_name,
)
from bertsmith.recipes.resources import gigabytes
from bertsmith.weights.folder import CONFIG_FILE, load_model
from bertsmith.weights.tensors import weights_hash

Outputs = dict[str, Tensor]

_SHAPES = "rows.json"
_MAX_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class TeacherOutputs:
    """The outputs of a teacher that are read: taps of its encoder, and its answers if named."""

    taps: Taps
    answer: Answer | None
    precision: Precision


def outputs_of(teacher: Model, batch: Batch, outputs: TeacherOutputs) -> Outputs:
    """Return a teacher's outputs for a batch, by the names that terms read."""
    with forward_only(teacher, outputs.precision):
        encoded = teacher.encoder(batch, taps=outputs.taps)
        result = taught_values(encoded)
        if outputs.answer is not None:
            target = next(iter(batch.targets.values()))
            result[LOGITS] = head_logits(outputs.answer, teacher, encoded, batch, target).float()
    return result


@dataclass
class TeacherRows:
    """The outputs of a teacher for units of the training rows.

    Sent to the processes that train: they open the arrays, or the teacher, when first asked.
    """

    folder: Path
    """Folder of the teacher."""
    rows: EncodedExamples
    outputs: TeacherOutputs
    device: torch.device
    kept: Path | None = None
    """Folder of arrays, None where the teacher runs for each batch."""
    _opened: dict[str, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what was opened."""
        return {**vars(self), "_opened": {}}

    def of(self, units: NDArray[np.int64]) -> Outputs:
        """Return the teacher's outputs for some units, in their order."""
        if self.kept is None:
            batch = pack_examples(self.rows, units).to(self.device)
            return outputs_of(self._teacher(), batch, self.outputs)
        return {
            name: torch.from_numpy(
                np.concatenate([array[begin[unit] : begin[unit + 1]] for unit in units.tolist()])
            )
            for name, (array, begin) in self._arrays().items()
        }

    def _teacher(self) -> Model:
        if "teacher" not in self._opened:
            self._opened["teacher"] = load_model(self.folder)[0].to(self.device)
        teacher: Model = self._opened["teacher"]
        return teacher

    def _arrays(self) -> dict[str, tuple[NDArray[np.float32], list[int]]]:
        if not self._opened:
            assert self.kept is not None
            for name, counts in rows_of_units(self.rows, self.outputs).items():
                array = np.load(self.kept / f"{name}.npy", mmap_mode="r")
                self._opened[name] = array, [0, *np.cumsum(counts).tolist()]
        return self._opened

    def keep(self, cache: Path, max_gigabytes: float) -> TeacherRows:
        """Return the same with arrays on the disk, made now unless they are there.

        Where they would take more than `max_gigabytes` gigabytes, the teacher computes every batch.
        """
        counts, shapes = rows_of_units(self.rows, self.outputs), self._shapes()
        need = 4 * sum(int(counts[name].sum()) * math.prod(shapes[name]) for name in shapes)
        if need > max_gigabytes * 1e9:
            if max_gigabytes:
                say(
                    f"the teacher's outputs would take {gigabytes(need)} of disk: they are "
                    "computed for every batch (--cache-gigabytes)"
                )
            return self
        arrays_folder = cache / self._key()
        if not _is_whole(arrays_folder):
            if arrays_folder.exists():
                say(f"{arrays_folder}: is damaged: the teacher's outputs are computed again")
            cache.mkdir(parents=True, exist_ok=True)
            self._write(arrays_folder)
        return TeacherRows(self.folder, self.rows, self.outputs, self.device, arrays_folder)

    def _key(self) -> str:
        """Return the hash of the teacher, the rows, and what is read."""
        digest = hashlib.sha256(weights_hash(self.folder).encode())
        # the same weights compute something else with another number of heads, say
        digest.update(file_hash(self.folder / CONFIG_FILE).encode())
        for part in (
            *self.rows.ids,
            *self.rows.segments,
            self.rows.starts,
            *(self.rows.positions or ()),
        ):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(repr((names_of(self.outputs), self.outputs.precision)).encode())
        digest.update(f"{torch.get_num_threads()} {self.device.type}".encode())
        return digest.hexdigest()[:32]

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of a row of each array."""
        config = self._teacher().config
        encoder, shapes = config.encoder, dict[str, tuple[int, ...]]()
        for name in names_of(self.outputs):
            if name == LOGITS:
                shapes[name] = (config.outputs,)
            elif name.startswith("teacher_state"):
                shapes[name] = (encoder.hidden,)
            else:
                shapes[name] = (encoder.heads, encoder.hidden // encoder.heads)
        return shapes

    def _write(self, folder: Path) -> None:
        counts, teacher = rows_of_units(self.rows, self.outputs), self._teacher()
        with (
            writing(folder, then="give the same command again"),
            new_folder(folder, replaces=lambda damaged: None) as fresh,
            progress("the teacher", len(self.rows), "examples") as bar,
        ):
            begins = {name: np.append(0, np.cumsum(rows)) for name, rows in counts.items()}
            arrays = {
                name: _new_array(fresh / f"{name}.npy", (int(counts[name].sum()), *shape))
                for name, shape in self._shapes().items()
            }
            for units, batch in evaluation_batches(self.rows):
                batch_outputs = outputs_of(teacher, batch.to(self.device), self.outputs)
                for name, array in arrays.items():
                    numbers, begin = batch_outputs[name].float().cpu().numpy(), begins[name]
                    parts = np.split(numbers, np.cumsum(counts[name][units])[:-1])
                    for unit, part in zip(units.tolist(), parts, strict=True):
                        array[begin[unit] : begin[unit + 1]] = part
                bar.advance(len(units))
            for array in arrays.values():
                array.flush()
            shapes_written = {name: list(item.shape) for name, item in arrays.items()}
            write_json(fresh / _SHAPES, shapes_written)
        self._opened.clear()


def _new_array(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.float32]]:
    """Return a new array that is mapped to a file, whose place on the disk is taken already.

    Without, the disk that is full when a page of it is first written would end the process: SIGBUS.
    """
    array = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _is_whole(folder: Path) -> bool:
    """Return whether a folder of arrays is there, and each has the size that it was written in."""
    try:
        shapes = read_json(folder / _SHAPES, RunFolderError, largest=_MAX_BYTES)
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in shapes}
    except (OSError, ValueError, EOFError):
        return False
    return all(list(array.shape) == shapes[name] for name, array in arrays.items())


def names_of(outputs: TeacherOutputs) -> list[str]:
    """Return the names of what is read of a teacher."""
    names = [state_name(layer) for layer in sorted(outputs.taps.states)]
    names += [vectors_name(kind, layer) for layer in sorted(outputs.taps.qkv) for kind in KINDS]
    return names + [LOGITS] * (outputs.answer is not None)


def rows_of_units(rows: EncodedExamples, outputs: TeacherOutputs) -> dict[str, NDArray[np.int64]]:
    """Return the rows that each unit has in the array of each name: of tokens, or of answers."""
    tokens = rows.lengths
    logits = np.ones(len(rows), np.int64)
    if outputs.answer == "span":
        logits = tokens
    elif outputs.answer == "choice":
        logits = np.diff(rows.starts)
    elif outputs.answer == "tags":
        assert rows.positions is not None
        logits = np.array([len(position) for position in rows.positions], np.int64)
    return {name: logits if name == LOGITS else tokens for name in names_of(outputs)}
