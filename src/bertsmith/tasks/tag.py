"""A tag for each word: entities, parts of speech."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.core.printable import counted
from bertsmith.engine.answers import tag_probabilities
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.spans import EntityScores, score_entities, scores_by_type
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import Tag
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.tasks.labels import balanced_weights, count_labels, order_labels, require_labels
from bertsmith.tasks.task import (
    UNTUNED,
    Answers,
    Brief,
    Evidence,
    Labelling,
    Labels,
    Learning,
    Measuring,
    Presentation,
    Reader,
    Record,
    Right,
    Scoring,
    Task,
    Tuned,
)
from bertsmith.tasks.word_windows import WordWindows, encode_words
from bertsmith.text.examples.detection import columns_of_tags
from bertsmith.text.examples.example import Example, folded
from bertsmith.text.examples.formats.conll import (
    joining_sign,
    read_tagged,
    tag_of_no_entity,
    tag_scheme,
)
from bertsmith.text.examples.formats.conll_columns import has_names
from bertsmith.text.examples.formats.tag_tables import described_tag_table, recognise_tag_table
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.examples.tagged import (
    Entity,
    Tagged,
    entities_of,
    has_tokens,
    in_scheme_of,
    names_entities,
    parted,
    words_of,
)
from bertsmith.text.opening import TEXTS, kind_of
from bertsmith.text.tables import DELIMITED, JSON, KEYED, TABLES


def tags_of(row: Tagged) -> Labels:
    """Return the tags of a row."""
    return row.tags or ()


# reading

# of the words of a file, a share that is more than slips and abbreviations
_MANY_SPLIT = 0.1


def _read(file: Path, reading: Reading, *, labelled: bool) -> Iterator[Tagged]:
    return read_tagged(
        file, reading.tags, need_tags=labelled, bad=reading.bad_rows, table=reading.columns
    )


def _unlabelled(file: Path, reading: Reading) -> Iterator[Tagged]:
    """Yield the raw texts of a table, or sentences in columns."""
    kind, tags = kind_of(file), reading.tags
    laid_out = tags.layout != "auto" or tags.sign or _words_in_rows(file, reading)
    laid_out = laid_out or (kind == ".parquet" and has_tokens(file, reading.columns))
    if kind in TABLES and kind not in JSON and not laid_out:
        rows = read_examples(file, reading.columns, need_label=False, bad=reading.bad_rows)
        return map(raw_text, rows)
    return _read(file, reading, labelled=False)


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
        written=example.written,
    )


def _words_in_rows(file: Path, reading: Reading) -> bool:
    """Return whether a table has a word per row, where it may also have a text per row."""
    columns = reading.columns
    stated = reading.tags.layout == "columns" or None not in (columns.text, columns.group)
    if stated and kind_of(file) in DELIMITED:
        return True
    result = recognise_tag_table(file, reading.columns, reading.tags, need_tags=False)
    return result is not None


def _resolve_reading(file: Path, reading: Reading) -> Reading:
    """Return the reading with the tags as they are, where those of a file have no scheme."""
    if tag_scheme(file, reading.tags, reading.columns) != "plain":
        return reading
    return reading.with_changes(tags=replace(reading.tags, scheme="plain"))


def _reads_lines(file: str, reading: Reading) -> bool:
    """Return whether it is standard input or plain text, a .txt or .log, of raw texts."""
    path, tags = Path(file), reading.tags
    if file == "-" or kind_of(path) not in TEXTS or tags.layout == "columns":
        return file == "-"
    # words with their tags would be taken for the text
    joined = joining_sign(path, tags, reading.columns.encoding) is not None
    return not joined and columns_of_tags(path, reading.columns) is None


def _row_a_record(file: Path, reading: Reading) -> bool:
    """Return whether each row of a table is one text."""
    return not _words_in_rows(file, reading)


def _layout(file: Path, reading: Reading) -> str:
    """Return the columns of words and tags, and how the tags are read."""
    scheme = tag_scheme(file, reading.tags, reading.columns)
    tag_note = f"entities in {scheme.upper()}"
    if scheme == "plain":
        tag_note = "tags as they are"
        if (tag := tag_of_no_entity(file, reading.tags, reading.columns)) is not None:
            tag_note += f", since {tag!r} is no tag of entities (--tags.scheme bio2 names its line)"
    if sign := joining_sign(file, reading.tags, reading.columns.encoding):
        return f"sentences of word{sign}TAG: {tag_note}"
    if kind_of(file) in KEYED:
        return f"{kind_of(file)[1:].upper()}: {tag_note}"
    if kind_of(file) == ".conllu":
        return f"CoNLL-U: {tag_note}"
    if kind_of(file) in DELIMITED:
        return f"{described_tag_table(file, reading.columns, reading.tags)}; {tag_note}"
    columns = (reading.tags.word, reading.tags.tag)
    word, tag = ("the last column" if column == -1 else f"column {column}" for column in columns)
    named = " below their names" if has_names(file, reading.columns.encoding) else ""
    return f"columns{named}: word is {word}, tag is {tag}, {tag_note}"


def _characters(row: Tagged) -> int:
    return len(row.text)


# labels

# tags from which on most have to occur more than once
_MANY_TAGS = 50


def _names(rows: Sequence[Tagged], known: Sequence[str]) -> Labels:
    """Return the tags in the order that the model will keep."""
    labels = order_labels((tag for row in rows for tag in tags_of(row)), known)
    if len(labels) < 2:
        raise ExampleError(
            f"has one tag only, {', '.join(labels)}",
            where=rows[0].source,
            remedy="give sentences with two tags or more, or name their column: --tags.tag",
        )
    _check_tags(rows, labels)
    return labels


def _check_tags(rows: Sequence[Tagged], labels: Labels) -> None:
    """Raise `ExampleError` for tags most of which occur once: these are words."""
    counts = Counter(tag for row in rows for tag in tags_of(row))
    singles = [label for label in labels if counts[label] == 1]
    if len(labels) >= _MANY_TAGS and 2 * len(singles) > len(labels):
        raise ExampleError(
            f"has {len(labels):,} tags, most of them once only, such as {singles[-1][:40]!r}",
            where=rows[0].source,
            remedy="name the columns of words and tags, from 0, as in --tags.word 1 --tags.tag 0",
        )


def _check(train: Sequence[Tagged], dev: Sequence[Tagged], labels: Labels) -> None:
    """Raise `ExampleError` for a tag to be measured that is none of those learned."""
    known = f"the training sentences have {', '.join(labels[:20])}"
    require_labels(dev, tags_of, labels, lambda tag: (f"unknown tag {tag!r}", known))


def _as_labelled(rows: Sequence[Tagged], labels: Labels) -> list[Tagged]:
    """Return rows with the tags of their entities in the scheme of a model's."""
    return [
        row
        if row.tags is None or row.entities is None
        else replace(row, tags=in_scheme_of(labels, row.tags))
        for row in rows
    ]


def _numbers(rows: Sequence[Tagged], labels: Labels) -> list[NDArray[np.int64]]:
    """Return the tag numbers of each row, (words,)."""
    number = {label: index for index, label in enumerate(labels)}
    return [np.array([number[tag] for tag in tags_of(row)], np.int64) for row in rows]


# answers


@dataclass(frozen=True, slots=True)
class TagAnswer:
    """A row with a tag for each word, and how sure the model is of each, (words,).

    NaN for words without any piece, of which the model reads nothing; their tag is "O", or None
    where the labels have no tag for what is nothing.
    """

    row: Tagged
    tags: tuple[str | None, ...]
    probabilities: NDArray[np.float32]

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities that the tags name."""
        return entities_of(self.row.words, [tag or "O" for tag in self.tags])


def _decode(
    row: Tagged,
    sidecar: Any,  # noqa: ANN401
    outputs: Outputs,
    labels: Labels,
) -> TagAnswer:
    """Return the likeliest tags; a word inside a piece continues the one before it.

    Words without a piece continue an entity that goes on after them.
    """
    assert isinstance(sidecar, WordWindows)
    unread = "O" if "O" in labels or names_entities(labels) else None
    tags = [unread] * len(row.words)
    probabilities = np.full(len(row.words), np.nan, np.float32)
    for words, shares in zip(sidecar.words, outputs, strict=True):
        for word, share in zip(words.tolist(), shares, strict=True):
            best = int(share.argmax())
            tags[word], probabilities[word] = labels[best], share[best]
    for word in sidecar.inside:
        # None is the tag of a word without a piece alone, and the one before has this one
        tags[word - 1 : word + 1] = divided_tag(tags[word - 1] or "")
        probabilities[word] = probabilities[word - 1]
    if np.isnan(probabilities).any() and names_entities(labels):
        join_entities(tags, np.flatnonzero(~np.isnan(probabilities)).tolist(), labels)
    return TagAnswer(row, tuple(tags), probabilities)


AnyTag = TypeVar("AnyTag", str, str | None)


def join_entities(tags: list[AnyTag], read: Sequence[int], labels: Labels) -> None:
    """Tag the words between two that are `read` as of their entity, where both are of one.

    Of the others, such as marks of direction, a model reads nothing; they would part entities.
    """
    for before, after in pairwise(read):
        (first, kind), (rest, kind_after) = parted(tags[before] or ""), parted(tags[after] or "")
        if after - before == 1 or first not in ("B", "I") or rest not in ("I", "E"):
            continue
        inner = next((label for label in labels if parted(label) == ("I", kind)), None)
        if kind == kind_after and inner is not None:
            tags[before + 1 : after] = [inner] * (after - before - 1)


# of a tag's letter, those of the beginning and the rest of what it tags
_DIVIDED = {
    "B": ("B", "I"), "E": ("I", "E"), "L": ("I", "L"), "S": ("B", "E"), "U": ("B", "L"),
    "W": ("B", "E"),
}  # fmt: skip


def divided_tag(tag: str) -> tuple[str, str]:
    """Return the tags of two words that are one to a model, given its tag."""
    letter, kind = tag[:1], tag[1:]
    if letter in _DIVIDED and (kind.startswith("-") or tag == "B"):
        first, rest = _DIVIDED[letter]
        return first + kind, rest + kind
    return tag, tag


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    """Return the keys of a record."""
    return ("entities", "probability") if names_entities(labels) else ("words",)


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    """Return entities with their characters, or the words' tags where these name no entities."""
    row: Tagged = answer.row
    words = [row.text[start:end] for start, end in row.words]
    if not names_entities(labels):
        pairs = zip(words, answer.tags, strict=True)
        return {"words": [{"word": word, "tag": tag} for word, tag in pairs]}
    begins = np.array([start for start, _ in row.words], np.int64)
    entities = []
    for entity in answer.entities():
        inside = slice(*np.searchsorted(begins, (entity.start, entity.end)).tolist())
        entities.append(
            {
                "start": entity.start,
                "end": entity.end,
                "label": entity.label,
                "text": row.text[entity.start : entity.end],
                "probability": _least_confident(answer.probabilities[inside]),
            }
        )
    return {"entities": entities, "probability": _least_confident(answer.probabilities)}


def _least_confident(probabilities: NDArray[np.float32]) -> float:
    """Return the smallest probability of the words that were read, 0 if there are none."""
    read = probabilities[~np.isnan(probabilities)]
    return round(float(read.min()), 6) if len(read) else 0.0


# learning


def _targets(rows: Sequence[Tagged], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    """Return each window with the tags of the words that are tagged in it."""
    numbers = zip(_numbers(rows, labels), encoded.sidecar, strict=True)
    return encoded.labelled(
        "tag", [row_tags[words] for row_tags, item in numbers for words in item.words]
    )


def _objective(rows: Sequence[Tagged], labels: Labels, settings: LabelLoss) -> Objective:
    """Return cross-entropy of each word."""
    weights: tuple[float, ...] = ()
    if settings.class_weights == "balanced":
        weights = balanced_weights(np.concatenate(_numbers(rows, labels)), len(labels))
    return Objective(terms={"tag": Tag(smoothing=settings.label_smoothing, weights=weights)})


# measuring


def _evidence(rows: Sequence[Tagged], answers: Sequence[Any], labels: Labels) -> Evidence:
    """Return counts of entities (true, predicted, right) and words (all, right), (rows, 5)."""
    evidence, entities = [], names_entities(labels)
    for row, answer in zip(rows, answers, strict=True):
        assert row.tags is not None
        right = sum(one == other for one, other in zip(row.tags, answer.tags, strict=True))
        counts = (0, 0, 0)
        if entities:
            scores = score_entities([_true_entities(row)], [answer.entities()])
            counts = scores.true, scores.found, scores.right
        evidence.append((*counts, len(row.tags), right))
    return np.array(evidence, np.float64)


def _true_entities(row: Tagged) -> tuple[Entity, ...]:
    """Return the entities of a labelled row, of its tags where they were read as they are."""
    return entities_of(row.words, row.tags or ()) if row.entities is None else row.entities


def _scoring(labels: Labels, tuned: Tuned) -> Scoring:
    """Return F1, precision and recall of entities as conlleval has them, and words right.

    Of tags that name no entities, words right alone.
    """
    accuracy: Scoring = {"accuracy": _accuracy}
    if not names_entities(labels):
        return accuracy
    entities: Scoring = {
        "f1": lambda evidence: _entity_scores(evidence).f1,
        "precision": lambda evidence: _entity_scores(evidence).precision,
        "recall": lambda evidence: _entity_scores(evidence).recall,
    }
    return entities | accuracy


def _entity_scores(evidence: Evidence) -> EntityScores:
    true, predicted, right = map(int, evidence[:, :3].sum(0).tolist())
    return EntityScores(true=true, found=predicted, right=right)


def _accuracy(evidence: Evidence) -> float:
    words, right = map(int, evidence[:, 3:].sum(0).tolist())
    return right / max(words, 1)


def _right(evidence: Evidence, tuned: Tuned) -> Right:
    """Return the sentences with exactly the true entities, or with all words right."""
    if evidence[:, :2].any():
        return np.ptp(evidence[:, :3], axis=1) == 0  # type: ignore[no-any-return]
    return evidence[:, 3] == evidence[:, 4]  # type: ignore[no-any-return]


# by score, the counts of a row's evidence of which it has a share
_COUNTED = {"f1": (0, 1), "precision": (1,), "recall": (0,), "accuracy": (3,)}


def _units(evidence: Evidence, name: str) -> Right | None:
    """Return the sentences with any of the entities, or words, of which a score is a share."""
    rows: Right = np.any(evidence[:, _COUNTED[name]], axis=1)
    return rows


def _constant(rows: Sequence[Tagged], answers: Sequence[Any]) -> bool:
    """Return whether one tag is predicted for all words."""
    return len({tag for answer in answers for tag in answer.tags}) <= 1


def _by_type(rows: Sequence[Tagged], answers: Sequence[Any]) -> dict[str, EntityScores]:
    predicted = [answer.entities() for answer in answers]
    return scores_by_type([_true_entities(row) for row in rows], predicted)


def _commonest_tags(
    train: Sequence[Tagged], dev: Sequence[Tagged], labels: Labels
) -> tuple[str, float]:
    """Predict each word's commonest tag in train, and the commonest of all for other words."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in train:
        for (start, end), tag in zip(row.words, tags_of(row), strict=True):
            counts[row.text[start:end]][tag] += 1
    every = Counter[str]()
    for count in counts.values():
        every.update(count)
    best = {word: count.most_common(1)[0][0] for word, count in counts.items()}
    usual = every.most_common(1)[0][0]
    answers = [
        TagAnswer(
            row,
            tuple(best.get(row.text[start:end], usual) for start, end in row.words),
            np.ones(len(row.words), np.float32),
        )
        for row in dev
    ]
    score = next(iter(_scoring(labels, UNTUNED).values()))
    return "predicting each word's most frequent tag", score(_evidence(dev, answers, labels))


# presentation


def _lines(row: Tagged, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield the text, and below it its entities; or its words with their tags."""
    if not names_entities(labels):
        tagged = ((word["word"], word["tag"]) for word in record["words"])
        yield " ".join(word if tag is None else f"{word}/{tag}" for word, tag in tagged)
        return
    yield brief(row.text)
    for entity in record["entities"]:
        location = f"{entity['start']}-{entity['end']}"
        yield f"    {location:>11}  {entity['label']}  {brief(entity['text'])}"


def _inputs(row: Tagged) -> dict[str, Any]:
    return {"text": row.text}


def _parts(row: Tagged) -> dict[str, str]:
    """Return the words, each with its tag."""
    words = [row.text[start:end] for start, end in row.words]
    tagged = [f"{word}/{tag}" for word, tag in zip(words, tags_of(row), strict=False)]
    return {"words/tags": " ".join(tagged)}


def _truth(row: Tagged) -> str:
    """Return the entities of a row, or its tags."""
    if row.entities is None:
        return " ".join(tags_of(row))
    return ", ".join(f"{row.text[e.start : e.end]} {e.label}" for e in row.entities) or "-"


def _prediction(record: Record) -> str:
    """Return the predicted entities, or tags."""
    if "words" in record:
        return " ".join(word["tag"] or "-" for word in record["words"])
    return ", ".join(f"{e['text']} {e['label']}" for e in record["entities"]) or "-"


def _identity(row: Tagged) -> Hashable:
    """Return the text, by which copies of a sentence stay on one side of a split."""
    return folded(row.text)


def _clusters(rows: Sequence[Tagged]) -> list[Hashable]:
    """Return the documents of rows; their texts where no file has documents of several rows."""
    documents = {(row.source, row.document) for row in rows}
    if len(documents) in (len({row.source for row in rows}), len(rows)):
        return list(map(_identity, rows))
    return [(row.source, row.document) for row in rows]


def _describe(rows: Sequence[Tagged], labels: Labels) -> str:
    """Return the numbers of words, and of entities by label."""
    words = counted(sum(len(row.words) for row in rows), "word") + _split_words(rows)
    if not names_entities(labels):
        return f"{words}, {counted(len(labels), 'tag')}"
    counts = Counter(entity.label for row in rows for entity in _true_entities(row))
    kinds = tuple(sorted(counts))
    entities = count_labels(counts.elements(), kinds) or "no entities"
    if beyond := sum(map(_beyond_words, rows)):
        inside, what = (
            ("entity begins or ends inside a word", "it, and it counts")
            if beyond == 1
            else ("entities begin or end inside words", "them, and they count")
        )
        entities += f"; {beyond:,} {inside}: tags of words cannot give {what} as not found"
    return f"{words}; {entities}"


def _split_words(rows: Sequence[Tagged]) -> str:
    """Return a warning where many words are several in a raw text, as in Japanese or in logs."""
    words = [row.text[start:end] for row in rows for start, end in row.words]
    split = sum(len(words_of(word)) > 1 for word in words)
    if split < _MANY_SPLIT * len(words):
        return ""
    return (
        f", {100 * split / len(words):.0f} % of which are several words in raw text: "
        "split texts into words before you ask"
    )


def _beyond_words(row: Tagged) -> int:
    """Return the number of a labelled row's entities that are none of its words' tags."""
    return len(set(_true_entities(row)) - set(entities_of(row.words, row.tags or ())))


TAG = Task(
    name="tag",
    title="Tagging",
    unit="sentences",
    head="tags",
    reader=Reader(
        labelled=partial(_read, labelled=True),
        unlabelled=_unlabelled,
        characters=_characters,
        resolve=_resolve_reading,
        layout=_layout,
        of_text=raw_text,
        reads_lines=_reads_lines,
        row_a_record=_row_a_record,
    ),
    labels=Labelling(names=_names, of_row=tags_of, check=_check, as_labelled=_as_labelled),
    identity=_identity,
    clusters=_clusters,
    answers=Answers(
        encode=encode_words,
        outputs=tag_probabilities,
        decode=_decode,
        record=_record,
        keys=_keys,
        windowed=True,
    ),
    learning=Learning(targets=_targets, objective=_objective, weighs=True, lengthens=False),
    measuring=Measuring(
        evidence=_evidence,
        scoring=_scoring,
        constant=_constant,
        right=_right,
        units=_units,
        majority_baseline=_commonest_tags,
        by_type=_by_type,
    ),
    present=Presentation(
        lines=_lines,
        inputs=_inputs,
        truth=_truth,
        prediction=_prediction,
        describe=_describe,
        parts=_parts,
    ),
)
"""Answers are tags, and how sure the model is of each."""
