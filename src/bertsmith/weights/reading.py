"""A model folder's config and tensors, checked against each other before anything is allocated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from bertsmith.errors import ModelFolderError
from bertsmith.layers.positions import sinusoidal_table
from bertsmith.log import say
from bertsmith.models.catalog import family
from bertsmith.models.model import ModelConfig
from bertsmith.weights import names
from bertsmith.weights.hub_config import HubConfig
from bertsmith.weights.names import Part, Row
from bertsmith.weights.tensors import TensorFile

# how far a constant may have moved by being stored
_ROUNDING = {"F32": 1e-6, "F16": 1e-3, "BF16": 4e-3}


class ModelFiles:
    """`config.json` and `model.safetensors` of a folder.

    `config` is that of the model with every head the file holds whole; what it holds besides is
    told and left out, unless it belongs to the encoder: that is a `ModelFolderError`. Without
    `heads`, all there is to the file is its encoder and its pooler; without `tell`, nothing is
    told.
    """

    def __init__(self, folder: Path, *, heads: bool, tell: bool = True) -> None:
        self._heads = heads
        self._tell = tell
        self._hub = HubConfig(folder / "config.json")
        self._file = TensorFile(folder / "model.safetensors")
        self._encoder = encoder = self._hub.encoder
        self._family = family(encoder)
        self._layout = names.LAYOUTS[self._family]
        self._stored = self._standard_names()
        blocks = encoder.groups or encoder.layers
        if blocks > len(self._stored):
            self._refuse(f"holds {len(self._stored)} tensors, too few for {blocks} layers")
        every_head = ModelConfig(
            encoder=encoder, masked_lm=True, next_sentence=True, labels=("any",)
        )
        rows = names.rows(every_head)
        parts = self._parts(rows)
        self._tell_unknown({row.hub for row in rows if row.part in parts})
        self.config = ModelConfig(
            encoder=encoder,
            pooler="pooler" in parts,
            masked_lm="masked_lm" in parts,
            next_sentence="next_sentence" in parts,
            labels=self._labels() if "classify" in parts else (),
            classifier_dropout=self._hub.classifier_dropout,
        )
        self._check_shapes()
        self._check_constants()

    def state(self, config: ModelConfig) -> dict[str, Tensor]:
        """The tensors, float32 and by our names, of a model of which the file holds every part."""
        if config.masked_lm:
            self._check_tied()
        constants = self._constants()
        return {
            row.ours: self._file.read(self._stored[row.hub])
            for row in names.rows(config)
            if row.ours not in constants
        }

    def _standard_names(self) -> dict[str, str]:
        """Names in the file by their standard form."""
        stored: dict[str, str] = {}
        for name in self._file.entries:
            standard = names.standard(name, self._family)
            if standard in stored:
                self._refuse(f"holds both {stored[standard]} and {name}")
            stored[standard] = name
        for copy, original in self._layout.tied.items():
            if copy in stored and original not in stored:
                stored[original] = stored[copy]
        return stored

    def _parts(self, rows: list[Row]) -> set[Part]:
        """The parts the file holds whole and we can use; one that it holds half of is an error."""
        constants = self._constants()
        parts: set[Part] = set()
        for part in ("encoder", "pooler", "masked_lm", "next_sentence", "classify"):
            if part in self._unwanted():
                continue
            wanted = [row for row in rows if row.part == part and row.ours not in constants]
            missing = [row.hub for row in wanted if row.hub not in self._stored]
            if missing and (part == "encoder" or len(missing) < len(wanted)):
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                self._refuse(f"lacks the tensor {missing[0]}{more}")
            if not missing:
                parts.add(part)
        if "pooler" not in parts:
            parts -= {"next_sentence", "classify"}
        return parts

    def _unwanted(self) -> set[Part]:
        if not self._heads:
            return {"masked_lm", "next_sentence", "classify"}
        return set() if self._hub.classifies else {"classify"}

    def _labels(self) -> tuple[str, ...]:
        outputs = self._file.entries[self._stored["classifier.bias"]].shape
        if len(outputs) != 1 or outputs[0] < 1:
            self._refuse(f"tensor classifier.bias has the shape {outputs}")
        return self._hub.labels(outputs[0])

    def _tell_unknown(self, known: set[str]) -> None:
        own = f"{self._family}."
        counters = {own + name for name in names.COUNTERS}
        unknown = sorted(set(self._stored) - known - self._layout.tied.keys() - counters)
        inner = [name for name in unknown if name.startswith(own)]
        if inner:
            kind = self._family.upper()
            self._refuse(f"holds {inner[0]}, which {kind} as its config describes it has not")
        if unknown and self._heads and self._tell:
            say(f"{self._file.path}: left out, no head that is known: {', '.join(unknown)[:200]}")

    def _check_shapes(self) -> None:
        for row in names.rows(self.config):
            if row.hub not in self._stored:
                continue
            found = self._file.entries[self._stored[row.hub]].shape
            expected = names.shape(row, self.config)
            if found != expected:
                self._refuse(
                    f"tensor {row.hub} has the shape {found} where config.json asks for {expected}"
                )

    def _constants(self) -> dict[str, str]:
        """Our names of the tensors that the model has as a constant, and the hub's."""
        absent = {names.POSITIONS} if self._encoder.positions != "learned" else set()
        absent |= set() if self._encoder.segments else {names.SEGMENTS}
        return {row.ours: row.hub for row in self._layout.table if row.ours in absent}

    def _check_constants(self) -> None:
        """Positions and segments that some other tool has trained since are no constants more."""
        for ours, hub in self._constants().items():
            if hub not in self._stored:
                continue
            table = self._file.read(self._stored[hub])
            constant = torch.zeros_like(table)
            if ours == names.POSITIONS and self._encoder.positions == "sinusoidal":
                constant = sinusoidal_table(*table.shape)
            rounding = _ROUNDING[self._file.entries[self._stored[hub]].kind]
            if (table - constant).abs().max() > rounding:
                if self._tell:
                    say(f"{self._file.path}: {hub} was trained; it is loaded as learned")
                if ours == names.POSITIONS:
                    self._encoder = dataclasses.replace(self._encoder, positions="learned")
                else:
                    self._encoder = dataclasses.replace(self._encoder, segments=len(table))
        self.config = dataclasses.replace(self.config, encoder=self._encoder)

    def _check_tied(self) -> None:
        for copy, original in self._layout.tied.items():
            if copy in self._stored and self._stored[copy] != self._stored[original]:
                pair = [self._file.read(self._stored[name]) for name in (copy, original)]
                if not torch.equal(*pair):
                    self._refuse(f"{copy} differs from {original}; only tied ones can be followed")

    def _refuse(self, what: str) -> NoReturn:
        raise ModelFolderError(
            what, where=self._file.path, remedy="weights and config.json must be of one model"
        )
