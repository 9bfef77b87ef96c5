"""Rows to teach with beside the labelled ones: copies of these, and texts that nobody has labelled.

The student learns the teacher's answers to them as it does those to labelled rows: both make the
transfer set larger (Hinton et al. 2015, section 2).

In copies some words are replaced (Jiao et al. 2020, section 3.2). A word of one piece is replaced
by one of those that a masked LM finds likeliest in its place, any other word by one of those whose
static vectors, rows of the teacher's token table, are nearest. The masked LM reads one copy of the
text for each word, many in a batch. Candidates are found once for all copies.

Texts without labels are answered by the teacher; where a method also learns labels, the answer is
the label.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, stream, uniform
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.prepared import prepare_model
from bertsmith.network.config import Preprocessing
from bertsmith.network.model import Model
from bertsmith.recipes.distil.config import TeachingConfig
from bertsmith.recipes.finetune.inputs import MOST, LabelledData, Prepared, prepare
from bertsmith.recipes.predict.rows import asked_of_task, beside_labelled_rows, reading_as_trained
from bertsmith.tasks.answering import TaskAnswering, task_predictor
from bertsmith.tasks.config import Reading
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.example import Example, Kind, label_of
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import TABLES
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, read_config

CANDIDATES, REPLACED = 15, 0.4
"""Words to choose from, and the probability that a word is replaced (algorithm 1)."""
# words whose nearest ones are looked for at once
_AT_ONCE = 256
# the answers of a record that are labels, by the head that gives them
_NAMES = {"class": "label", "classes": "labels", "number": "number"}


def check_masked_lm(folder: Path) -> None:
    """Raise `ModelFolderError` for a folder without a masked-LM head."""
    config = read_config(folder)
    if not config.masked_lm or config.encoder.causal:
        raise ModelFolderError(
            "has no masked-LM head to replace words with",
            where=folder,
            remedy="name a pre-trained model, or leave --augment-with out",
        )


@dataclass(frozen=True, kw_only=True)
class Augmenter:
    """Replaces words of texts; a pure function of its settings and of the texts."""

    teacher: Model
    tokenizer: Tokenizer
    masked_lm: Path | None
    """Folder of the masked LM, None for static vectors alone."""
    seed: int

    def copies(self, rows: Sequence[Example], count: int) -> list[Example]:
        """Return the rows and `count` copies of each; raises `ConfigError` for other rows."""
        if not isinstance(rows[0], Example):
            raise ConfigError("--augment is for whole texts and pairs", remedy="leave it out")
        began = time.perf_counter()
        texts = sorted({text for row in rows for text in (row.text, row.text_pair) if text})
        words = {text: text.split(" ") for text in texts}
        lettered = {w for each in words.values() for w in each if any(map(str.isalpha, w))}
        near = self._near(sorted(lettered))
        likely = self._likely(texts, words)
        choices = {
            text: [likely.get((text, place)) or near.get(word, []) for place, word in enumerate(w)]
            for text, w in words.items()
        }
        made = list(rows)
        for copy in range(count):
            for number, row in enumerate(rows):
                key = stream(Purpose.AUGMENTATION, self.seed, copy, number)
                parts = [
                    text and _replaced(words[text], choices[text], int(key) + part)
                    for part, text in enumerate((row.text, row.text_pair))
                ]
                made.append(replace(row, text=parts[0] or row.text, text_pair=parts[1]))
        what = "static vectors" if self.masked_lm is None else "masked LM and static vectors"
        say(
            f"augmented: {counted(len(made) - len(rows), 'copy', 'copies')} of "
            f"{counted(len(rows), 'example')} in {time.perf_counter() - began:.1f} s, "
            f"{len(likely):,} words masked ({what})"
        )
        return made

    @torch.no_grad()
    def _near(self, words: Sequence[str]) -> dict[str, list[str]]:
        """Return the words of one piece whose static vectors are nearest to that of each word."""
        table = F.normalize(self.teacher.encoder.embeddings.tokens.weight.detach().float())
        whole = torch.from_numpy(whole_words(self.tokenizer))
        pieces, found = self.tokenizer.encode(list(words)), dict[str, list[str]]()
        held = [number for number, ids in enumerate(pieces) if len(ids)]
        for begin in range(0, len(held), _AT_ONCE):
            part = held[begin : begin + _AT_ONCE]
            means = torch.stack(
                [table[torch.from_numpy(pieces[n].astype(np.int64))].mean(0) for n in part]
            )
            best = (means @ table[whole].T).topk(min(CANDIDATES + 1, len(whole))).indices
            for number, places in zip(part, best.tolist(), strict=True):
                names = [self.tokenizer.vocabulary[int(whole[place])] for place in places]
                found[words[number]] = _others(names, words[number])
        return found

    def _likely(
        self, texts: Sequence[str], words: dict[str, list[str]]
    ) -> dict[tuple[str, int], list[str]]:
        """Return the likeliest words in the place of each word of one piece, by text and place."""
        if self.masked_lm is None:
            return {}
        model, tokenizer = load_model(self.masked_lm)
        asked, masked, at = self._masked(texts, words, tokenizer, model.config.encoder.longest)
        engine = prepare_model(model, EngineConfig())
        examples = EncodedExamples.of(masked, [np.zeros(len(each), np.int8) for each in masked])
        unwanted = torch.ones(tokenizer.size, dtype=torch.bool)
        unwanted[torch.from_numpy(whole_words(tokenizer))] = False
        most = min(CANDIDATES + 1, int((~unwanted).sum()))
        found: dict[tuple[str, int], list[str]] = {}
        with progress("replacing words", len(masked), "words") as bar:
            for units, batch in engine.forward.batches(engine.model, examples):
                places = batch.starts + torch.tensor([at[unit] for unit in units.tolist()])
                hidden = engine.model.encoder(batch, at=places).last
                logits = engine.model.masked_lm(hidden)[:, : tokenizer.size].float()
                best = logits.masked_fill_(unwanted, -torch.inf).topk(most).indices
                for unit, row in zip(units.tolist(), best.tolist(), strict=True):
                    text, place = asked[unit]
                    names = [tokenizer.vocabulary[each] for each in row]
                    found[asked[unit]] = _others(names, words[text][place])
                bar.advance(len(units))
        return found

    def _masked(
        self, texts: Sequence[str], words: dict[str, list[str]], tokenizer: Tokenizer, longest: int
    ) -> tuple[list[tuple[str, int]], list[NDArray[np.int32]], list[int]]:
        """Return the words that are masked, the ids of a text for each, and where the mask is."""
        asked, masked, at = list[tuple[str, int]](), list[NDArray[np.int32]](), list[int]()
        for text in texts:
            pieces = tokenizer.encode(words[text])
            ids = np.concatenate([tokenizer.begin, *pieces, tokenizer.end]).astype(np.int32)
            if len(ids) > longest:
                continue
            place = len(tokenizer.begin)
            for number, own in enumerate(pieces):
                if len(own) == 1 and words[text][number].isalpha():
                    hidden = ids.copy()
                    hidden[place] = tokenizer.mask_id
                    asked.append((text, number))
                    masked.append(hidden)
                    at.append(place)
                place += len(own)
        return asked, masked, at


def whole_words(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the ids of pieces that are words by themselves."""
    ordinary = np.asarray(tokenizer.ordinary_ids)
    whole = ordinary[~tokenizer.continues[ordinary]].tolist()
    return np.array([each for each in whole if tokenizer.vocabulary[each].isalpha()], np.int64)


def _others(names: Sequence[str], word: str) -> list[str]:
    """Return the candidates but for the word itself."""
    return [name for name in names if name != word.lower()][:CANDIDATES]


def _replaced(words: Sequence[str], choices: Sequence[Sequence[str]], key: int) -> str:
    """Return a text with some of its words replaced."""
    places = np.arange(len(words))
    seed = np.uint64(key % 2**64)
    drawn, picked = uniform(seed, 2 * places), uniform(seed, 2 * places + 1)
    return " ".join(
        choices[place][int(picked[place] * len(choices[place]))]
        if choices[place] and drawn[place] < REPLACED
        else words[place]
        for place in places.tolist()
    )


def read_unlabelled(file: Path, data: LabelledData[Any], reading: Reading) -> list[Example]:
    """Return the rows of a file that are neither blank nor labelled already; labels are not read.

    The file, or folder, is read as `predict` does after a training with `reading`: a table with the
    columns of texts that were named there, if it has them, else by their usual names. Raises
    `ConfigError` for tasks that are not about whole texts, and `ExampleError`.
    """
    if data.task.head not in _NAMES or data.task.name == "rank":
        raise ConfigError(
            "--unlabelled is for classes and numbers of whole texts and pairs",
            remedy="leave it out",
        )
    if not file.exists():
        raise ExampleError("no such file or folder", where=file)
    pairs = data.train[0].text_pair is not None
    with beside_labelled_rows():
        asked = asked_of_task(data.task, str(file), _texts_alone(file, reading), pairs=pairs)
        rows: list[Example] = [each.row for each in asked if each.row is not None]
    known = {data.task.identity(row) for row in (*data.train, *data.dev)}
    kept = [row for row in rows if data.task.identity(row) not in known]
    if not kept:
        raise ExampleError(
            "has no texts that are not among the labelled ones",
            where=file,
            remedy="name another file",
        )
    left_out = len(rows) - len(kept)
    more = f"; {left_out:,} left out that are among the labelled ones" if left_out else ""
    say(f"unlabelled: {counted(len(kept), 'text')} of {file}{more}")
    return kept


def _texts_alone(file: Path, reading: Reading) -> Reading:
    """Return how texts without labels are read, bad rows counted with those of the labelled."""
    named = reading.columns
    header = named.header if kind_of(file) in TABLES else USUAL.header
    trained = Preprocessing(longest=MOST, text_column=named.text, text_pair_column=named.text_pair)
    others = reading.settled(columns=Columns(encoding=named.encoding, header=header))
    return reading_as_trained(others, trained, str(file), labelled=False)


def with_more_rows(
    prepared: Prepared,
    unlabelled: Sequence[Example],
    teaching: TeachingConfig,
    folder: Path,
    device: torch.device,
    seed: int,
) -> Prepared:
    """Return the rows to teach with: copies, and rows without labels, beside the labelled.

    `folder` is that of the teacher.
    """
    teacher, tokenizer = load_model(folder)
    rows = list(prepared.data.train)
    if teaching.augment:
        augmenter = Augmenter(
            teacher=teacher, tokenizer=tokenizer, masked_lm=teaching.augment_with, seed=seed
        )
        rows = augmenter.copies(rows, teaching.augment)
    if unlabelled:
        rows += answered(teacher.to(device), prepared, unlabelled)
    return prepare(replace(prepared.data, train=rows), tokenizer, prepared.room)


@torch.no_grad()
def answered(teacher: Model, prepared: Prepared, rows: Sequence[Example]) -> list[Example]:
    """Return the rows with the teacher's answers as their labels."""
    predictor = task_predictor(prepared.task, teacher, prepared.tokenizer, prepared.room)
    answering, kind = predictor.answering, cast("Kind", prepared.task.head)
    assert isinstance(answering, TaskAnswering)
    found = []
    with progress("the teacher labels", len(rows), "texts") as bar:
        for row, answer in zip(rows, predictor(rows), strict=True):
            record = answering.record(answer)
            label, number, labels = label_of(kind, record[_NAMES[kind]])
            found.append(replace(row, label=label, number=number, labels=labels))
            bar.advance(1)
    return found
