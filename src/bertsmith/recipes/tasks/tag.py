"""A tag for each word: entities, parts of speech."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.errors import ExampleError
from bertsmith.evaluation.entities import EntityScores, score_entities, scores_by_type
from bertsmith.inference.tag import tag_probabilities
from bertsmith.models.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tag import Tag as TagObjective
from bertsmith.recipes.reading import Reading
from bertsmith.recipes.tasks.raw_texts import raw_text
from bertsmith.recipes.tasks.task import Evidence, Room, Scores, Task
from bertsmith.recipes.tasks.weighing import LabelLoss, balanced_weights
from bertsmith.recipes.tasks.whole_texts import count_labels, order_labels
from bertsmith.recipes.tasks.word_windows import WordWindows, word_windows
from bertsmith.text.conll import read_tagged, tag_scheme
from bertsmith.text.conll_columns import has_names
from bertsmith.text.example import Example
from bertsmith.text.examples import read_examples
from bertsmith.text.joined_tags import joining_sign
from bertsmith.text.opening import kind_of
from bertsmith.text.recognising import columns_of_tags
from bertsmith.text.schemes import names_entities
from bertsmith.text.tables import DELIMITED, JSON, TABLES
from bertsmith.text.tag_tables import described_tag_table, recognise_tag_table
from bertsmith.text.tagged import Entity, Tagged, entities_of
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TagAnswer:
    """A row with a tag for each word, and how sure the model is of each, (words,)."""

    row: Tagged
    tags: tuple[str, ...]
    probabilities: NDArray[np.float32]


class Tag(Task[Tagged]):
    """Answers are tags; evidence counts of entities (true, found, right) and words (all, right)."""

    called: ClassVar = "tag"
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
        return Objective(terms={"tag": term}, at_targets=frozenset({"tag"}))

    def answers(
        self, model: Model, encoded: EncodedExamples, rows: Sequence[Tagged]
    ) -> Sequence[Any]:
        """The likeliest tag of each word; one without a piece of its own goes on with the last."""
        assert isinstance(encoded, WordWindows)
        labels = np.array(model.config.labels, object)
        outside = "O" if "O" in model.config.labels else str(labels[0])
        tags = [[outside] * len(row.words) for row in rows]
        sure = [np.zeros(len(row.words), np.float32) for row in rows]
        for unit, shares in enumerate(tag_probabilities(model, encoded)):
            row = int(encoded.rows[unit])
            for word, share in zip(encoded.words[unit].tolist(), shares, strict=True):
                best = int(share.argmax())
                tags[row][word], sure[row][word] = str(labels[best]), share[best]
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
        """Whether one tag is said of all words."""
        return len({tag for answer in answers for tag in answer.tags}) <= 1

    def describe(self, rows: Sequence[Tagged], labels: tuple[str, ...]) -> str:
        """Words, and entities by label."""
        words = sum(len(row.words) for row in rows)
        if not names_entities(labels):
            return f"{words:,} words, {len(labels)} tags"
        found = Counter(entity.label for row in rows for entity in _true_entities(row))
        kinds = tuple(sorted(found))
        return f"{words:,} words; {count_labels(found.elements(), kinds) or 'no entities'}"

    def floor(
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
    """Whether a table has a word a row, where it may also have a text a row."""
    if reading.tags.layout == "columns" and kind_of(file) in DELIMITED:
        return True
    found = recognise_tag_table(file, reading.columns, reading.tags, need_tags=False)
    return found is not None


def _gone_on(tag: str) -> str:
    """The tag of what goes on with a word of some tag."""
    return f"I{tag[1:]}" if tag == "B" or tag.startswith("B-") else tag
