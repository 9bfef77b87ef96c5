"""A model folder's config and tensors, checked against each other before anything is allocated."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Set
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.printable import shell_word
from bertsmith.network.config import (
    HEADS,
    READS_SEQUENCE,
    EncoderConfig,
    HeadName,
    ModelConfig,
    Predicts,
)
from bertsmith.network.encoder import sinusoidal_table
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.heads import PRETRAINING_HEADS
from bertsmith.weights import names
from bertsmith.weights.config_json import HubConfig
from bertsmith.weights.formats.catalog import FORMATS, FormatName
from bertsmith.weights.formats.format import POSITIONS, SEGMENTS, Part, Row
from bertsmith.weights.tensors import StoredTensor, Weights
from bertsmith.weights.wrappers import ADAPTER_FILE, adapter_in, unwrapped

# how far a sinusoid may have moved by being stored
_ROUNDING = {"F32": 1e-6, "F64": 1e-6, "F16": 1e-3, "BF16": 4e-3}

_MAX_TENSORS = 20_000

# positions whose table is made where the file has none, so that no config asks for terabytes
_MAX_CREATED_POSITIONS = 2**13


class ModelFiles:
    """`config.json` and the weights of a folder.

    `config` is that of the model with every head that the file holds whole. Other tensors, and
    incomplete heads that its config names, are reported and left out, unless they belong to the
    encoder: that is a `ModelFolderError`. Without `heads`, only encoder and pooler are read;
    without `report`, nothing is reported.
    """

    def __init__(self, folder: Path, *, heads: bool, report: bool = True) -> None:
        self._heads = heads
        self._report = report
        self._hub = HubConfig(folder / "config.json")
        self._weights = Weights(folder)
        self._encoder = encoder = self._hub.encoder
        self._format: FormatName = "bertsmith" if self._hub.is_own else encoder.family
        self._layout = FORMATS[self._format]
        self._stored = self._standard_names()
        blocks = encoder.groups or encoder.layers
        if not blocks <= len(self._stored) <= _MAX_TENSORS:
            self._refuse(f"holds {len(self._stored):,} tensors, which no {blocks} layers have")
        parts = self._parts()
        self._report_unknown(parts)
        self.config = self._config(parts)
        for row in self._rows_of(self.config):
            if row.hub in self._stored:
                self._check_shape(row, self.config)
        self._encoder = self._with_trained_tables()
        tied = self.config.masked_lm and self._is_tied()
        self.config = dataclasses.replace(self.config, encoder=self._encoder, masked_lm=tied)
        self._report_first_token()
        self._report_others()

    def rows(self, config: ModelConfig, heads: Collection[Part]) -> list[Row]:
        """Return the rows of those tensors of a model that the file holds, checked.

        The encoder's, the pooler's, and those of the heads named.
        """
        constants = self._constants()
        rows = [
            row
            for row in self._rows_of(config)
            if row.hub in self._stored and row.ours not in constants
            if not row.ours.startswith("heads.") or row.ours.split(".")[1] in heads
        ]
        for row in rows:
            self._check_shape(row, config)
        self._check_memory(sum(math.prod(names.shape(row, config)) for row in rows))
        self._report_rounded(rows)
        return rows

    def read(self, rows: Collection[Row]) -> dict[str, Tensor]:
        """Return tensors in float32 by our names, as `Weights.read_many` reads them."""
        wanted: dict[str, list[Row]] = {}
        for row in rows:
            wanted.setdefault(self._stored[row.hub], []).append(row)
        state: dict[str, Tensor] = {}
        for name, tensor in self._weights.read_many(wanted):
            state |= {row.ours: _part(row, tensor) for row in wanted[name]}
        return {row.ours: state[row.ours] for row in rows}

    def locate(self, rows: Collection[Row]) -> dict[str, StoredTensor]:
        """Return by our names where tensors are, as `TensorFile.locate` does."""
        return {row.ours: self._weights.locate(self._stored[row.hub], row.place) for row in rows}

    def _report_first_token(self) -> None:
        """Report a head that always gives the same answer, as `transformers` computes it."""
        config = self.config
        reads_one = config.head in READS_SEQUENCE or config.next_sentence
        if (
            self._report
            and reads_one
            and config.encoder.causal
            and config.encoder.pooled == "first"
        ):
            say(
                f"{self._weights.path}: the model reads from left to right, and its head reads the "
                "first token, as in transformers: it gives the same answer for every text"
            )

    def _report_others(self) -> None:
        """Report what another program has put beside the model, or changed without it."""
        if not self._report:
            return
        adapter = self._hub.path.with_name(ADAPTER_FILE)
        if adapter.exists():
            say(f"{adapter}: the adapter is not added to the model beside it: merge it into that")
        if self._heads and (thresholds := self._hub.saved_again()):
            say(
                f"{self._hub.path}: transformers has saved the model again; if it was trained, "
                f"remove what was chosen for its earlier weights: {', '.join(thresholds)}"
            )

    def _report_rounded(self, rows: Collection[Row]) -> None:
        """Report weights that are more precise than the computation."""
        doubles = sum(self._weights.entries[self._stored[row.hub]].kind == "F64" for row in rows)
        if doubles and self._report:
            say(f"{self._weights.path}: {doubles} tensors of float64 are rounded to float32")

    def _check_memory(self, values: int) -> None:
        """A file may have holes and be larger than the disk."""
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if 4 * values > room:
            self._refuse(
                f"needs {4 * values / 2**30:,.1f} GiB of memory where this machine has "
                f"{room / 2**30:,.1f}"
            )

    def _config(self, parts: Set[Part]) -> ModelConfig:
        """Return the config of a model of these parts."""
        predicts: Predicts | None = None
        labels: tuple[str, ...] = ()
        head = next((head for head in HEADS.values() if head in parts), None)
        if head is not None:
            outputs = self._outputs(head)
            predicts = self._hub.predicts(head, outputs)
            labels = self._hub.labels(outputs) if head in ("classify", "tag") else ()
        rows = names.rows_of(self._encoder, parts, self._format)
        answering = self._hub.answering(predicts)
        answering |= {name: name in parts for name in PRETRAINING_HEADS}
        return ModelConfig(
            encoder=self._encoder,
            pooler=any(row.ours.startswith("pooler.") for row in rows),
            predicts=predicts,
            labels=labels,
            classifier_dropout=self._hub.classifier_dropout,
            **answering,
        )

    def _outputs(self, head: HeadName) -> int:
        """Return outputs of a head, by its biases."""
        bias = next(row.hub for row in self._rows(head) if row.ours == f"heads.{head}.bias")
        shape = self._weights.entries[self._stored[bias]].shape
        if len(shape) != 1 or shape[0] < 1:
            self._refuse(f"tensor {bias} has the shape {shape}")
        return shape[0]

    def _standard_names(self) -> dict[str, str]:
        """Return names in the file by their standard form."""
        stored: dict[str, str] = {}
        for name in self._weights.entries:
            standard = names.standard(name, self._format)
            if standard in stored:
                self._refuse(f"holds both {stored[standard]} and {name}")
            stored[standard] = name
        for copy, original in self._layout.tied.items():
            if copy in stored and original not in stored:
                stored[original] = stored[copy]
        return stored

    def _parts(self) -> set[Part]:
        """Return the parts that the file holds whole and we can use; half of one is an error."""
        missing = {part: self._missing(part) for part in self._looked_for()}
        parts = {part for part, lacking in missing.items() if not lacking}
        rows = names.rows_of(self._encoder, parts, self._format)
        if not any(row.ours.startswith("pooler.") for row in rows):
            parts -= {"next_sentence", *READS_SEQUENCE}
        self._report_missing(parts)
        return parts

    def _looked_for(self) -> list[Part]:
        """Return the parts that the family has and that the file may hold."""
        heads: list[Part] = list(PRETRAINING_HEADS)
        if self._layout.one_head:
            heads = [head for head in heads if head in self._hub.heads]
        heads += [head for head in dict.fromkeys(HEADS.values()) if head in self._hub.heads]
        wanted: list[Part] = ["encoder", "pooler", *(heads if self._heads else ())]
        of_heads = FAMILIES[self._encoder.family].pooler != "encoder"
        if not self._heads and self._format == "bertsmith" and of_heads:
            # as in the formats of their families
            wanted.remove("pooler")
        return [part for part in wanted if self._rows(part)]

    def _missing(self, part: Part) -> list[str]:
        """Return tensors that a part lacks: none or all, but for a head that no class names."""
        constants = self._constants()
        wanted = [row.hub for row in self._rows(part) if row.ours not in constants]
        missing = [name for name in wanted if name not in self._stored]
        # no class was named, and heads of several kinds share names
        guessed = part in HEADS.values() and not self._hub.architecture
        if missing and not guessed and (part == "encoder" or len(missing) < len(wanted)):
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            self._refuse(f"lacks the tensor {missing[0]}{more}", self._unwrapping())
        return missing

    def _report_missing(self, parts: set[Part]) -> None:
        """Report heads that config.json names and that are not available."""
        lacking = [head for head in self._hub.heads if head not in parts]
        if self._heads and self._report and self._hub.architecture and lacking:
            say(
                f"{self._weights.path}: left out, as their weights or the pooler's are missing: "
                f"{', '.join(lacking)} of {self._hub.architecture}"
            )

    def _report_unknown(self, parts: set[Part]) -> None:
        """Report tensors that are not used; refuse those that would change the encoder."""
        used = {row.hub for row in names.rows_of(self._encoder, parts, self._format)}
        known = {row.hub for part in self._looked_for() for row in self._rows(part)}
        own = self._layout.prefix
        counters = {own + name for name in names.COUNTERS}
        unknown = sorted(set(self._stored) - used - self._layout.tied.keys() - counters)
        inner = [name for name in unknown if name.startswith(own) and name not in known]
        if inner:
            kind = self._format.upper()
            merging = "merge the adapter into the weights first (merge_and_unload of peft)"
            self._refuse(
                f"holds {inner[0]}, which {kind} as its config describes it has not",
                merging if adapter_in(inner) else "",
            )
        if unknown and self._heads and self._report:
            named = ", ".join(unknown)[:200]
            if not self._hub.architecture:
                named += '; name the class that has it under "architectures" in config.json'
            say(f"{self._weights.path}: left out, as nothing here uses it: {named}")

    def _rows(self, part: Part) -> tuple[Row, ...]:
        return names.rows_of(self._encoder, {part}, self._format)

    def _rows_of(self, config: ModelConfig) -> tuple[Row, ...]:
        """Return the rows of a model in this file, whatever format it would be saved in."""
        return names.rows_of(config.encoder, names.parts(config), self._format)

    def _check_shape(self, row: Row, config: ModelConfig) -> None:
        result = self._weights.entries[self._stored[row.hub]].shape
        expected = names.shape_in_file(row, config)
        if result != expected:
            self._refuse(
                f"tensor {row.hub} has the shape {result} where config.json asks for {expected}"
            )

    def _constants(self) -> dict[str, str]:
        """Return our names of the tensors that the model has as a constant, and the hub's."""
        absent = {POSITIONS} if self._encoder.positions != "learned" else set()
        absent |= set() if self._encoder.segments else {SEGMENTS}
        return {row.ours: row.hub for row in self._rows("encoder") if row.ours in absent}

    def _with_trained_tables(self) -> EncoderConfig:
        """Return the encoder in which positions and segments that were trained are no constants."""
        encoder = self._encoder
        for ours, hub in self._constants().items():
            if hub not in self._stored:
                made = ours == POSITIONS and encoder.positions == "sinusoidal"
                rows = encoder.longest + encoder.position_offset
                if made and rows > _MAX_CREATED_POSITIONS:
                    self._refuse(f"lacks the tensor {hub} of {rows:,} positions")
                continue
            table = self._weights.read(self._stored[hub])
            # zeros are stored as they are
            constant, rounding = torch.zeros_like(table), 0.0
            if ours == POSITIONS and encoder.positions == "sinusoidal":
                constant = sinusoidal_table(*table.shape)
                rounding = _ROUNDING[self._weights.entries[self._stored[hub]].kind]
            if (table - constant).abs().max() > rounding:
                if self._report:
                    say(f"{self._weights.path}: {hub} was trained; it is loaded as learned")
                if ours == POSITIONS:
                    encoder = dataclasses.replace(encoder, positions="learned")
                else:
                    encoder = dataclasses.replace(encoder, segments=len(table))
        return encoder

    def _is_tied(self) -> bool:
        """Return whether all copies equal the tensors they are tied to; report one that does not.

        Only the masked-LM head has such copies, and whatever needs no such head works without.
        """
        for copy, original in self._layout.tied.items():
            if self._stored.get(copy, "") in ("", self._stored[original]):
                continue
            entries = [self._weights.entries[self._stored[name]] for name in (copy, original)]
            same = entries[0].shape == entries[1].shape and torch.equal(
                *(self._weights.read(self._stored[name]) for name in (copy, original))
            )
            if not same:
                if self._report:
                    say(
                        f"{self._weights.path}: the masked-LM head is left out, as {copy} differs "
                        f"from {original}: only a decoder tied to the token embeddings is computed"
                    )
                return False
        return True

    def _unwrapping(self) -> str:
        """Return what helps where a program put something around the names of tensors, else ""."""
        names = unwrapped(self._weights.entries)
        if all(name == inner for name, inner in names.items()):
            return ""
        command = f"bertsmith convert {shell_word(self._hub.path.parent)} OUT"
        return f"restore the names of its tensors with: {command}"

    def _refuse(self, problem: str, remedy: str = "") -> NoReturn:
        raise ModelFolderError(
            problem,
            where=self._weights.path,
            remedy=remedy or "weights and config.json must be of one model",
        )


def _part(row: Row, tensor: Tensor) -> Tensor:
    """Return the tensor of a row, a copy where it is a part of one in the file."""
    number, count = row.place
    return tensor if count == 1 else tensor.chunk(count)[number].clone()
