"""Rows to teach with beside the labelled ones: copies of these, and texts that nobody has labelled.

The student learns the teacher's answers to them as it does those to labelled rows: both make the
transfer set larger (Hinton et al. 2015, section 2).

In copies some words are replaced (Jiao et al. 2020, section 3.2). A word of one piece is replaced
by one of those that a masked LM finds likeliest in its place, any other word by one of those whose
static vectors, rows of the teacher's token table, are nearest. The masked LM reads one copy of the
text for each word, many in a batch. Candidates are found once for all copies.

Texts without labels, sentences without tags and questions without answers are answered by the
teacher; where a method also learns labels, the answer is the label: of a span the best one of all
windows, or none where the teacher doubts that there is one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

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
from bertsmith.network.model import Model
from bertsmith.recipes.distil.config import TeachingConfig
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.recipes.predict.reading import beside_labelled_rows, reading_of_texts
from bertsmith.recipes.predict.rows import task_rows
from bertsmith.tasks.answering import TaskAnswering, task_predictor
from bertsmith.tasks.config import Reading
from bertsmith.tasks.tag import TagAnswer
from bertsmith.tasks.task import Tuned
from bertsmith.text.examples.example import Example, Kind, label_of
from bertsmith.text.examples.formats.choices import Choice
from bertsmith.text.examples.formats.squad import Answer as Span
from bertsmith.text.examples.formats.squad import Question
from bertsmith.text.examples.tagged import Spans, Tagged, words_of
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import Encoding
from bertsmith.weights.folder import load_model, read_config

CANDIDATES, REPLACED = 15, 0.4
"""Words to choose from, and the probability that a word is replaced (algorithm 1)."""
# words whose nearest ones are looked for at once
_AT_ONCE = 256
# the answers of a record that are labels of whole texts, by the head that gives them
_NAMES = {"class": "label", "classes": "labels", "number": "number"}
# what a row without a label is called where it is no text
_UNITS = {"tags": "sentence", "span": "question", "choice": "question"}

Row = TypeVar("Row", Example, Tagged)
Text = tuple[str, Spans]
"""A text, and where its words are in it."""


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

    def copies(self, rows: Sequence[Row], count: int) -> list[Row]:
        """Return the rows and `count` copies of each, with its labels or tags."""
        started = time.perf_counter()
        texts = sorted({text for row in rows for text in _texts_of(row)})
        words = {text: [text[0][start:end] for start, end in text[1]] for text in texts}
        lettered = {w for word in words.values() for w in word if any(map(str.isalpha, w))}
        similar = self._similar_words(sorted(lettered))
        likely = self._likely_words(texts, words)
        choices = {
            text: [own.get(index) or similar.get(word, []) for index, word in enumerate(w)]
            for text, w in words.items()
            # each look-up of a text reads the spans of all of its words
            for own in (likely.get(text, {}),)
        }
        rows_and_copies = list(rows)
        for copy in range(count):
            for number, row in enumerate(rows):
                key = stream(Purpose.AUGMENTATION, self.seed, copy, number)
                parts = [
                    _replaced(text, choices[text], int(key) + part)
                    for part, text in enumerate(_texts_of(row))
                ]
                rows_and_copies.append(_with_texts(row, parts))
        source = "static vectors" if self.masked_lm is None else "masked LM and static vectors"
        say(
            f"augmented: {counted(len(rows_and_copies) - len(rows), 'copy', 'copies')} of "
            f"{counted(len(rows), 'example')} in {time.perf_counter() - started:.1f} s, "
            f"{counted(sum(map(len, likely.values())), 'word')} masked ({source})"
        )
        return rows_and_copies

    @torch.no_grad()
    def _similar_words(self, words: Sequence[str]) -> dict[str, list[str]]:
        """Return the words of one piece whose static vectors are nearest to that of each word."""
        table = F.normalize(self.teacher.encoder.embeddings.tokens.weight.detach().float())
        whole = whole_words(self.tokenizer)
        names, whole_ids = list(whole.values()), torch.tensor(list(whole), dtype=torch.long)
        # as they are written after another word, for vocabularies that tell the two apart
        pieces = self.tokenizer.encode([f" {word}" for word in words])
        similar = dict[str, list[str]]()
        unknown = self.tokenizer.unknown_id
        spelled = [n for n, ids in enumerate(pieces) if len(ids) and unknown not in ids]
        for begin in range(0, len(spelled), _AT_ONCE):
            part = spelled[begin : begin + _AT_ONCE]
            means = torch.stack(
                [table[torch.from_numpy(pieces[n].astype(np.int64))].mean(0) for n in part]
            )
            best = (means @ table[whole_ids].T).topk(min(CANDIDATES + 1, len(whole_ids))).indices
            for number, nearest in zip(part, best.tolist(), strict=True):
                similar[words[number]] = _others([names[n] for n in nearest], words[number])
        return similar

    def _likely_words(
        self, texts: Sequence[Text], words: dict[Text, list[str]]
    ) -> dict[Text, dict[int, list[str]]]:
        """Return the likeliest words in the place of each word of one piece, by text and place."""
        if self.masked_lm is None:
            return {}
        model, tokenizer = load_model(self.masked_lm)
        masked_words, masked, mask_positions = self._masked(
            texts, tokenizer, model.config.encoder.longest
        )
        engine = prepare_model(model, EngineConfig())
        examples = EncodedExamples.of(masked)
        names = whole_words(tokenizer)
        unwanted = torch.ones(tokenizer.size, dtype=torch.bool)
        unwanted[list(names)] = False
        count = min(CANDIDATES + 1, len(names))
        candidates: defaultdict[Text, dict[int, list[str]]] = defaultdict(dict)
        with progress("replacing words", len(masked), "words") as bar:
            for units, batch in engine.forward.batches(engine.model, examples):
                positions = batch.starts + torch.tensor(
                    [mask_positions[unit] for unit in units.tolist()]
                )
                hidden = engine.model.encoder(batch, selected=positions).last
                logits = engine.model.masked_lm(hidden)[:, : tokenizer.size].float()
                best = logits.masked_fill_(unwanted, -torch.inf).topk(count).indices
                for unit, row in zip(units.tolist(), best.tolist(), strict=True):
                    text, word_index = masked_words[unit]
                    likely = [names[item] for item in row]
                    candidates[text][word_index] = _others(likely, words[text][word_index])
                bar.advance(len(units))
        return candidates

    def _masked(
        self, texts: Sequence[Text], tokenizer: Tokenizer, longest: int
    ) -> tuple[list[tuple[Text, int]], list[NDArray[np.int32]], list[int]]:
        """Return the words that are masked, the ids of a text for each, and where the mask is."""
        masked_words: list[tuple[Text, int]] = []
        masked: list[NDArray[np.int32]] = []
        mask_positions: list[int] = []
        for text in texts:
            encoded = tokenizer.encode_spans(text[0])
            ids = np.concatenate([tokenizer.begin, encoded.ids, tokenizer.end]).astype(np.int32)
            if len(ids) > longest:
                continue
            for number, piece in _words_of_one_piece(text, encoded):
                position = len(tokenizer.begin) + piece
                hidden = ids.copy()
                hidden[position] = tokenizer.mask_id
                masked_words.append((text, number))
                masked.append(hidden)
                mask_positions.append(position)
        return masked_words, masked, mask_positions


def _words_of_one_piece(text: Text, encoded: Encoding) -> Iterator[tuple[int, int]]:
    """Yield the words of letters that one piece stands for, and the piece, by their numbers."""
    written, spans = text
    # a piece ends in the word that it belongs to, and may begin with the blank before
    owner = np.searchsorted([end for _, end in spans], encoded.ends - 1, side="right")
    for number, (start, end) in enumerate(spans):
        pieces = np.flatnonzero((owner == number) & (encoded.ends > start))
        if len(pieces) == 1 and written[start:end].isalpha():
            piece = int(pieces[0])
            if not written[encoded.starts[piece] : start].strip():
                yield number, piece


def whole_words(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the pieces that are words by themselves, by id, as they are written in a text."""
    ordinary = np.asarray(tokenizer.ordinary_ids)
    word_starts = ordinary[~tokenizer.continues[ordinary]].tolist()
    written = ((number, tokenizer.decode([number]).strip()) for number in word_starts)
    return {number: word for number, word in written if word.isalpha()}


def _others(names: Sequence[str], word: str) -> list[str]:
    """Return the candidates but for the word itself, in whatever case."""
    return [name for name in names if name.casefold() != word.casefold()][:CANDIDATES]


def _texts_of(row: Example | Tagged) -> list[Text]:
    """Return the texts of a row, one or two, with the spans of their words."""
    if isinstance(row, Tagged):
        return [(row.text, row.words)]
    texts = [text for text in (row.text, row.text_pair) if text is not None]
    return [(text, words_of(text)) for text in texts]


def _with_texts(row: Row, texts: Sequence[Text]) -> Row:
    """Return a row with other texts, of as many words, and its labels or tags."""
    if isinstance(row, Tagged):
        ((text, words),) = texts
        # entities may begin or end inside a word, and tags are what is learned
        return replace(row, text=text, words=words, entities=None)
    pair = texts[1][0] if len(texts) > 1 else None
    return replace(row, text=texts[0][0], text_pair=pair)


def _replaced(text: Text, choices: Sequence[Sequence[str]], key: int) -> Text:
    """Return a text with some of its words replaced."""
    written, spans = text
    word_indices = np.arange(len(spans))
    seed = np.uint64(key % 2**64)
    draws, picked = uniform(seed, 2 * word_indices), uniform(seed, 2 * word_indices + 1)
    parts, words, end, length = list[str](), list[tuple[int, int]](), 0, 0
    for word_index, (start, stop) in enumerate(spans):
        word, replacements = written[start:stop], choices[word_index]
        if replacements and draws[word_index] < REPLACED:
            word = replacements[int(picked[word_index] * len(replacements))]
        begin = length + start - end
        parts += [written[end:start], word]
        words.append((begin, begin + len(word)))
        end, length = stop, begin + len(word)
    return "".join([*parts, written[end:]]), tuple(words)


def check_replaceable(rows: Sequence[object]) -> None:
    """Raise `ConfigError` for rows whose words have no copies: their answers are places in them."""
    if not isinstance(rows[0], Example | Tagged):
        raise ConfigError(
            "--augment is for whole texts, pairs and tagged words", remedy="leave it out"
        )


def read_unlabelled(
    file: Path, data: LabelledData[Any], reading: Reading, labelled: Path
) -> list[Any]:
    """Return the rows of a file that are neither blank nor labelled already; labels are not read.

    The file, or folder, is read as `predict` does after a training with `reading`: with the columns
    of texts, and the layout of words, that were named for the `labelled` file, as far as it has
    them. Raises `ConfigError` for ranking, and `ExampleError`.
    """
    task = data.task
    if task.name == "rank":
        raise ConfigError("--unlabelled is not for ranking", remedy="leave it out")
    if not file.exists():
        raise ExampleError("no such file or folder", where=file)
    first = data.train[0]
    pairs = first.text_pair is not None if isinstance(first, Example) else None
    with beside_labelled_rows():
        reading = reading_of_texts(reading, file, labelled)
        inputs = task_rows(task, str(file), reading, pairs=pairs)
        rows = [request.example for request in inputs if request.example is not None]
    reading.bad_rows.print()
    if not rows:
        raise ExampleError("holds no text", where=file, remedy="name another file")
    unlabelled = _without_labelled(rows, data)
    unit = _UNITS.get(task.head, "text")
    among = "among the labelled ones"
    if task.question_key is not None:
        among += ", or of the same text as one to measure with"
    if not unlabelled:
        raise ExampleError(
            f"has no {unit}s that are not {among}", where=file, remedy="name another file"
        )
    left_out = len(rows) - len(unlabelled)
    more = f"; {left_out:,} left out that are {among}" if left_out else ""
    say(f"unlabelled: {counted(len(unlabelled), unit)} of {file}{more}")
    return unlabelled


def _without_labelled(rows: Sequence[Any], data: LabelledData[Any]) -> list[Any]:
    """Return the rows that ask nothing that a labelled one asks.

    Those that a split would keep beside one to measure with are left out as well.
    """
    identity = data.task.identity
    question_key = data.task.question_key or identity
    trained = {question_key(row) for row in data.train}
    measured = {identity(row) for row in data.dev}
    return [
        row for row in rows if question_key(row) not in trained and identity(row) not in measured
    ]


def with_more_rows(
    prepared: Prepared,
    unlabelled: Sequence[Any],
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
        rows += with_teacher_answers(teacher.to(device), prepared, unlabelled)
    return prepare(replace(prepared.data, train=rows), tokenizer, prepared.limits)


@torch.no_grad()
def with_teacher_answers(teacher: Model, prepared: Prepared, rows: Sequence[Any]) -> list[Any]:
    """Return the rows with the teacher's answers as their labels."""
    predictor = task_predictor(prepared.task, teacher, prepared.tokenizer, prepared.limits)
    answering = predictor.answering
    assert isinstance(answering, TaskAnswering)
    answering = replace(answering, tuned=_tuned_doubt(teacher, prepared))
    labelled = []
    with progress(
        "the teacher labels", len(rows), f"{_UNITS.get(prepared.task.head, 'text')}s"
    ) as bar:
        for row, answer in zip(rows, predictor(rows), strict=True):
            labelled.append(_labelled(row, answer, answering))
            bar.advance(1)
    return labelled


def _tuned_doubt(teacher: Model, prepared: Prepared) -> Tuned:
    """Return the doubt over which a teacher of spans gives no answer.

    A teacher that keeps none is silent where none is likelier, if labelled questions lack answers.
    """
    threshold = teacher.config.no_answer
    if threshold is None and prepared.task.head == "span":
        threshold = None if all(row.answers for row in prepared.data.train) else 0.0
    return Tuned(no_answer=threshold)


def _labelled(row: Any, answer: Any, answering: TaskAnswering) -> Any:  # noqa: ANN401
    """Return a row with an answer as its label, its tags, its span or its option."""
    if isinstance(answer, TagAnswer):
        # words of which no model reads anything have to have some tag
        known = answering.labels
        tags = tuple(tag if tag in known else known[0] for tag in answer.tags)
        return replace(row, tags=tags, entities=None)
    record = answering.record(answer)
    if isinstance(row, Choice):
        return replace(row, label=record["choice"])
    if isinstance(row, Question):
        spans = (Span(record["answer"], record["start"]),) if record["answer"] else ()
        return replace(row, answers=spans, impossible=not spans, plausible=())
    kind = cast("Kind", answering.task.head)
    label, number, labels = label_of(kind, record[_NAMES[kind]])
    return replace(row, label=label, number=number, labels=labels)
