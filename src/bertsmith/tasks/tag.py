"""A tag for each word: entities, parts of speech."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.fitting import encode_pair
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import tag_probabilities
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.entities import EntityScores, score_entities, scores_by_type
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.words import Tag as TagObjective
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Evidence, Room, Scores, Task
from bertsmith.tasks.weighing import LabelLoss, balanced_weights
from bertsmith.tasks.whole_texts import count_labels, order_labels
from bertsmith.tasks.windows import WindowedExamples, window_of
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.conll import joining_sign, read_tagged, tag_scheme
from bertsmith.text.examples.formats.conll_columns import has_names
from bertsmith.text.examples.formats.tag_tables import described_tag_table, recognise_tag_table
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.examples.recognising import columns_of_tags
from bertsmith.text.examples.tagged import Entity, Tagged, entities_of, names_entities, words_of
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import DELIMITED, JSON, TABLES
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import Encoding


def raw_text(example: Example) -> Tagged:
    """Return a text as a row without tags, a document of its own."""
    return Tagged(
        text=example.text,
        words=words_of(example.text),
        tags=None,
        entities=None,
        document=example.line,
        source=example.source,
        line=example.line,
    )


Words = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WordWindows(WindowedExamples):
    """Windows with the numbers of the `words` (places,) that are asked at their places.

    `shared` names, by row, the words inside a piece that begins with the word before them.
    """

    words: list[Words]
    shared: list[tuple[int, list[int]]]


def word_windows(
    tokenizer: Tokenizer,
    rows: Sequence[Tagged],
    tags: Sequence[Sequence[int]] | None,
    room: Room,
) -> WordWindows:
    """The windows of some rows, with the numbers of their words' `tags` if they are given.

    A word without any piece, of signs that the tokenizer drops, is asked nowhere.
    """
    ids, segments, owners, begins = [], [], [], []
    places, words, labels, long = [], [], [], []
    shared: list[tuple[int, list[int]]] = []
    inner = room.longest - 2
    for number, row in enumerate(rows):
        encoded = tokenizer.encode_spans(row.text)
        first, inside = _first_pieces(encoded, row)
        if inside:
            shared.append((number, inside))
        asked = np.flatnonzero(first >= 0)
        at = first[asked]
        starts, window = window_of(len(encoded), inner, room.overlap)
        for which, start in enumerate(starts):
            sequence, segment = encode_pair(
                tokenizer, encoded.ids[start : start + inner], None, longest=room.longest
            )
            here = slice(*np.searchsorted(at, (start, start + inner)).tolist())
            own = asked[here][window[at[here]] == which]
            ids.append(sequence)
            segments.append(segment)
            owners.append(number)
            begins.append(start)
            places.append((first[own] - start + 1).astype(np.int64))
            words.append(own.astype(np.int64))
            long.append(len(starts) > 1)
            if tags is not None:
                labels.append(np.array(tags[number], np.int64)[own])
    count = len(ids)
    return WordWindows(
        ids=ids,
        segments=segments,
        starts=np.arange(count + 1),
        cut=np.zeros(count, bool),
        long=np.array(long, bool),
        target="tag",
        labels=labels if tags is not None else None,
        places=places,
        rows=np.array(owners, np.int64),
        begins=np.array(begins, np.int64),
        offsets=np.ones(count, np.int64),
        words=words,
        shared=shared,
    )


def _first_pieces(encoded: Encoding, row: Tagged) -> tuple[NDArray[np.int64], list[int]]:
    """The first piece of each word (words,), -1 for none, and the words inside an earlier piece."""
    first = np.full(len(row.words), -1, np.int64)
    if not len(encoded) or not len(row.words):
        return first, []
    starts = np.array([start for start, _ in row.words])
    ends = np.array([end for _, end in row.words])
    # a piece may begin with a blank before the word, or be empty in the text
    piece = np.searchsorted(encoded.ends, starts, side="right")
    there = piece < len(encoded)
    there[there] = encoded.starts[piece[there]] < ends[there]
    first[there] = piece[there]
    inside = [
        word for word in range(1, len(first)) if first[word] >= 0 and first[word] == first[word - 1]
    ]
    first[inside] = -1
    return first, inside


@dataclass(frozen=True, slots=True)
class TagAnswer:
    """A row with a tag for each word, and how sure the model is of each, (words,)."""

    row: Tagged
    tags: tuple[str, ...]
    probabilities: NDArray[np.float32]


class Tag(Task[Tagged]):
    """Answers are tags; evidence counts of entities (true, found, right) and words (all, right)."""

    called: ClassVar = "tag"
    outputs: ClassVar = staticmethod(tag_probabilities)
    predicts: ClassVar = "tags"
    title: ClassVar = "Tagging"
    weighs: ClassVar = True
    unit: ClassVar = "sentences"
    fits: ClassVar = False

    def read(self, file: Path, reading: Reading, *, labelled: bool) -> Iterator[Tagged]:
        """Sentences with tags."""
        return read_tagged(
            file,
            reading.tags,
            need_tags=labelled,
            bad=reading.bad_rows,
            table=reading.columns,
        )

    def settled(self, file: Path, reading: Reading) -> Reading:
        """Return the reading with the tags as they are, where those of a file have no scheme."""
        if tag_scheme(file, reading.tags, reading.columns) != "plain":
            return reading
        return reading.settled(tags=replace(reading.tags, scheme="plain"))

    def reads_lines(self, file: str, reading: Reading) -> bool:
        """Tell whether it is standard input or a .txt, of raw texts."""
        path, tags = Path(file), reading.tags
        if file == "-" or kind_of(path) != ".txt" or tags.layout == "columns":
            return file == "-"
        # words with their tags would be taken for the text
        joined = joining_sign(path, tags, reading.columns.encoding) is not None
        return not joined and columns_of_tags(path, reading.columns) is None

    def of_text(self, example: Example) -> Tagged:
        """Return a raw text with its words."""
        return raw_text(example)

    def asked(self, file: Path, reading: Reading) -> Iterator[Tagged]:
        """Yield the raw texts of a table, or sentences in columns."""
        kind, tags = kind_of(file), reading.tags
        known = tags.layout != "auto" or tags.sign or _words_in_rows(file, reading)
        if kind in TABLES and kind not in JSON and not known:
            rows = read_examples(file, reading.columns, need_label=False, bad=reading.bad_rows)
            return map(raw_text, rows)
        return self.read(file, reading, labelled=False)

    def row_a_record(self, file: Path, reading: Reading) -> bool:
        """Tell whether each row of a table is one text."""
        return not _words_in_rows(file, reading)

    def labels(self, rows: Sequence[Tagged], known: Sequence[str]) -> tuple[str, ...]:
        """The tags in the order that the model will keep."""
        labels = order_labels((tag for row in rows for tag in row.tags or ()), known)
        if len(labels) < 2:
            raise ExampleError(
                f"has one tag only, {', '.join(labels)}",
                where=rows[0].source,
                remedy="give sentences with two tags or more, or name their column: --tags.tag",
            )
        return labels

    def check(
        self, train: Sequence[Tagged], dev: Sequence[Tagged], labels: tuple[str, ...]
    ) -> None:
        """Every tag to be measured must be one that is learned."""
        known = set(labels)
        for row in dev:
            for tag in row.tags or ():
                if tag not in known:
                    raise ExampleError(
                        f"unknown tag {tag!r}",
                        where=row.source,
                        line=row.line,
                        remedy=f"the training sentences have {', '.join(labels[:20])}",
                    )

    def labels_of(self, row: Tagged) -> tuple[str, ...]:
        """Its tags."""
        return row.tags or ()

    def identity(self, row: Tagged) -> Hashable:
        """Copies of a sentence stay on one side."""
        return row.text

    def characters(self, row: Tagged) -> int:
        """Those of the text."""
        return len(row.text)

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Tagged],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A window a unit; each word is asked in one window, at its first piece."""
        number = {label: index for index, label in enumerate(labels)}
        tags = [[number[tag] for tag in row.tags or ()] for row in rows] if labelled else None
        return word_windows(tokenizer, rows, tags, room)

    def objective(
        self, rows: Sequence[Tagged], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Cross-entropy of each word."""
        weights: tuple[float, ...] = ()
        if settings.class_weights == "balanced":
            number = {label: index for index, label in enumerate(labels)}
            tags = [number[tag] for row in rows for tag in row.tags or ()]
            weights = balanced_weights(np.array(tags, np.int64), len(labels))
        term = TagObjective(smoothing=settings.smoothing, weights=weights)
        return Objective(terms={"tag": term})

    def decode(
        self,
        rows: Sequence[Tagged],
        encoded: EncodedExamples,
        outputs: Outputs,
        labels: tuple[str, ...],
    ) -> Sequence[Any]:
        """Return the likeliest tags; a word without a piece of its own goes on with the last."""
        assert isinstance(encoded, WordWindows)
        outside = "O" if "O" in labels else labels[0]
        tags = [[outside] * len(row.words) for row in rows]
        sure = [np.zeros(len(row.words), np.float32) for row in rows]
        for unit, shares in enumerate(outputs):
            row = int(encoded.rows[unit])
            for word, share in zip(encoded.words[unit].tolist(), shares, strict=True):
                best = int(share.argmax())
                tags[row][word], sure[row][word] = labels[best], share[best]
        for row, words in encoded.shared:
            for word in words:
                tags[row][word] = _gone_on(tags[row][word - 1])
                sure[row][word] = sure[row][word - 1]
        return [
            TagAnswer(row, tuple(own), shares)
            for row, own, shares in zip(rows, tags, sure, strict=True)
        ]

    def evidence(
        self, rows: Sequence[Tagged], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """Counts of each sentence."""
        found, entities = [], names_entities(labels)
        for row, answer in zip(rows, answers, strict=True):
            assert row.tags is not None
            right = sum(one == other for one, other in zip(row.tags, answer.tags, strict=True))
            counts = (0, 0, 0)
            if entities:
                said = entities_of(row.words, answer.tags)
                scores = score_entities([_true_entities(row)], [said])
                counts = scores.true, scores.found, scores.right
            found.append((*counts, len(row.tags), right))
        return np.array(found, np.float64)

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """F1, precision and recall of entities as conlleval has them, and words right.

        Of tags that say no entities, words right alone.
        """
        true, found, right, words, words_right = map(int, evidence.sum(0).tolist())
        accuracy = {"accuracy": words_right / max(words, 1)}
        if not names_entities(labels):
            return accuracy
        entities = EntityScores(true=true, found=found, right=right)
        scores = {"f1": entities.f1, "precision": entities.precision, "recall": entities.recall}
        return scores | accuracy

    def scores_by_type(
        self, rows: Sequence[Tagged], answers: Sequence[TagAnswer]
    ) -> dict[str, EntityScores]:
        """Return the scores of each type of entity."""
        said = [entities_of(answer.row.words, answer.tags) for answer in answers]
        return scores_by_type([_true_entities(row) for row in rows], said)

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """Entities with their characters, or the tags of words where these say no entities."""
        row: Tagged = answer.row
        words = [row.text[start:end] for start, end in row.words]
        if not names_entities(labels):
            pairs = zip(words, answer.tags, strict=True)
            return {"words": [{"word": word, "tag": tag} for word, tag in pairs]}
        begins = np.array([start for start, _ in row.words], np.int64)
        entities = []
        for entity in entities_of(row.words, answer.tags):
            inside = slice(*np.searchsorted(begins, (entity.start, entity.end)).tolist())
            entities.append(
                {
                    "start": entity.start,
                    "end": entity.end,
                    "label": entity.label,
                    "text": row.text[entity.start : entity.end],
                    "probability": round(float(answer.probabilities[inside].min()), 6),
                }
            )
        sure = float(answer.probabilities.min()) if len(answer.probabilities) else 1.0
        return {"entities": entities, "probability": round(sure, 6)}

    def lines(
        self,
        row: Tagged,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """The text, and below it its entities; or its words with their tags."""
        if not names_entities(labels):
            yield " ".join(f"{each['word']}/{each['tag']}" for each in record["words"])
            return
        yield brief(row.text)
        for each in record["entities"]:
            place = f"{each['start']}-{each['end']}"
            yield f"    {place:>11}  {each['label']}  {brief(each['text'])}"

    def shown(self, row: Tagged) -> dict[str, Any]:
        """The text."""
        return {"text": row.text}

    def layout(self, file: Path, reading: Reading) -> str:
        """Return the columns of words and tags, and how the tags are read."""
        scheme = tag_scheme(file, reading.tags, reading.columns)
        how = "tags as they are" if scheme == "plain" else f"entities in {scheme.upper()}"
        if sign := joining_sign(file, reading.tags, reading.columns.encoding):
            return f"sentences of word{sign}TAG: {how}"
        if kind_of(file) in JSON:
            return f"{kind_of(file)[1:].upper()}: {how}"
        if kind_of(file) == ".conllu":
            return f"CoNLL-U: {how}"
        if kind_of(file) in DELIMITED:
            return f"{described_tag_table(file, reading.columns, reading.tags)}; {how}"
        columns = (reading.tags.word, reading.tags.tag)
        word, tag = ("the last column" if each == -1 else f"column {each}" for each in columns)
        named = " below their names" if has_names(file, reading.columns.encoding) else ""
        return f"columns{named}: word is {word}, tag is {tag}, {how}"

    def parts(self, row: Tagged) -> dict[str, str]:
        """Return the words, each with its tag."""
        words = [row.text[start:end] for start, end in row.words]
        tagged = [f"{word}/{tag}" for word, tag in zip(words, row.tags or (), strict=False)]
        return {"words/tags": " ".join(tagged)}

    def truth(self, row: Tagged) -> str:
        """Its entities, or its tags."""
        if row.entities is None:
            return " ".join(row.tags or ())
        return ", ".join(f"{row.text[e.start : e.end]} {e.label}" for e in row.entities) or "-"

    def said(self, record: dict[str, Any]) -> str:
        """The entities or tags said."""
        if "words" in record:
            return " ".join(each["tag"] for each in record["words"])
        return ", ".join(f"{e['text']} {e['label']}" for e in record["entities"]) or "-"

    def right(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Sentences whose entities are all right, and no others are said; or all of whose words."""
        if evidence[:, :2].any():
            return np.ptp(evidence[:, :3], axis=1) == 0  # type: ignore[no-any-return]
        return evidence[:, 3] == evidence[:, 4]  # type: ignore[no-any-return]

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether one tag is predicted for all words."""
        return len({tag for answer in answers for tag in answer.tags}) <= 1

    def describe(self, rows: Sequence[Tagged], labels: tuple[str, ...]) -> str:
        """Words, and entities by label."""
        words = sum(len(row.words) for row in rows)
        if not names_entities(labels):
            return f"{words:,} words, {len(labels)} tags"
        found = Counter(entity.label for row in rows for entity in _true_entities(row))
        kinds = tuple(sorted(found))
        return f"{words:,} words; {count_labels(found.elements(), kinds) or 'no entities'}"

    def majority_baseline(
        self, train: Sequence[Tagged], dev: Sequence[Tagged], labels: tuple[str, ...]
    ) -> tuple[str, float] | None:
        """Each word's commonest tag in train, and the commonest of all for words not in train."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row in train:
            for (start, end), tag in zip(row.words, row.tags or (), strict=True):
                counts[row.text[start:end]][tag] += 1
        every = sum(counts.values(), Counter[str]())
        best = {word: each.most_common(1)[0][0] for word, each in counts.items()}
        usual = every.most_common(1)[0][0]
        said = [
            TagAnswer(
                row,
                tuple(best.get(row.text[start:end], usual) for start, end in row.words),
                np.ones(len(row.words), np.float32),
            )
            for row in dev
        ]
        scores = self.scores(self.evidence(dev, said, labels), labels)
        return "saying each word's commonest tag", next(iter(scores.values()))


def _true_entities(row: Tagged) -> tuple[Entity, ...]:
    """Return the entities of a labelled row, of its tags where they were read as they are."""
    return entities_of(row.words, row.tags or ()) if row.entities is None else row.entities


def _words_in_rows(file: Path, reading: Reading) -> bool:
    """Return whether a table has a word per row, where it may also have a text per row."""
    if reading.tags.layout == "columns" and kind_of(file) in DELIMITED:
        return True
    found = recognise_tag_table(file, reading.columns, reading.tags, need_tags=False)
    return found is not None


def _gone_on(tag: str) -> str:
    """The tag of what goes on with a word of some tag."""
    return f"I{tag[1:]}" if tag == "B" or tag.startswith("B-") else tag
