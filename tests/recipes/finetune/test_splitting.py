"""The cut of rows that belong to documents, or share a text, into train and dev."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.recipes.finetune.inputs import LabelledData, contradictions, overlap, shared_groups
from bertsmith.recipes.finetune.splitting import split
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import Reading
from bertsmith.tasks.span import SPAN
from bertsmith.tasks.tag import TAG
from bertsmith.tasks.task import clusters_of
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.squad import Answer, Question
from bertsmith.text.examples.tagged import Tagged


def tagged(path: Path, documents: list[list[str]]) -> list[Tagged]:
    """Return sentences of documents of a CoNLL file, the first word of each a name."""
    parts = []
    for sentences in documents:
        parts.append("-DOCSTART- O\n")
        for sentence in sentences:
            first, *others = sentence.split()
            parts.append("\n".join([f"{first} B-PER", *(f"{word} O" for word in others)]) + "\n")
    path.write_text("\n".join(parts), encoding="utf-8")
    return list(TAG.reader.labelled(path, TAG.reader.resolve(path, Reading())))


def test_documents_are_held_out_whole_and_their_copies_join_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every document begins with the same dateline, which links them all."""
    documents = [
        ["LONDON 1996-08-28", *(f"Name{n} says {part}" for part in "abcd")] for n in range(60)
    ]
    rows = tagged(tmp_path / "news.conll", documents)
    kept, held_out = split(TAG, rows, 0.1, seed=1)
    names = [{row.text.split()[0] for row in part} for part in (kept, held_out)]
    assert not names[0] & names[1]
    assert {row.text for row in held_out}.isdisjoint(row.text for row in kept)
    assert sorted(row.line for row in (*kept, *held_out)) == [row.line for row in rows]
    assert len(held_out) == 24
    printed = " ".join(capsys.readouterr().err.split())
    assert "6 groups held out whole" in printed
    assert "but for 6 sentences with copies in train" in printed
    assert held_out != split(TAG, rows, 0.1, seed=2)[1]
    for part in (kept, held_out):
        assert [row.line for row in part] == sorted(row.line for row in part)


def test_documents_are_held_out_whole_where_most_others_are_copies(tmp_path: Path) -> None:
    """There are more documents than different sentences."""
    documents = [[f"Name{n} says {part}" for part in "ab"] for n in range(200)]
    rows = tagged(tmp_path / "news.conll", [*documents, *210 * [["LONDON 1996-08-28"]]])
    kept, held_out = split(TAG, rows, 0.1, seed=1)
    names = [{row.text.split()[0] for row in part} for part in (kept, held_out)]
    assert not names[0] & names[1]
    assert len(held_out) > 30


VISITS = ["patient,text,label", *(f"{n // 4},visit {n},{'ab'[n % 3 > 0]}" for n in range(160))]


def visits(path: Path, group: str | None = "patient") -> list[Example]:
    path.write_text(
        "\n".join([*VISITS, ",nobody's first,a", ",nobody's second,b"]), encoding="utf-8"
    )
    return list(CLASSIFY.reader.labelled(path, Reading(columns=Columns(group=group))))


def test_rows_of_a_stated_group_are_held_out_and_drawn_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A patient's visits on both sides are recognised by what recurs in them: a score too good."""
    rows = visits(tmp_path / "visits.csv")
    kept, held_out = split(CLASSIFY, rows, 0.1, seed=1)
    patients = [{row.group for row in part} - {None} for part in (kept, held_out)]
    assert patients[1]
    assert not patients[0] & patients[1]
    assert len(kept) + len(held_out) == 162
    assert 12 <= len(held_out) <= 20
    assert "held out whole" in " ".join(capsys.readouterr().err.split())
    # rows without a patient are none of one
    assert clusters_of(CLASSIFY, rows, np.zeros((len(rows), 1))).count == 42
    # measured with other rows than those of train, patients of both are counted
    data = LabelledData(
        task=CLASSIFY, labels=("a", "b"), train=rows[:6], dev=rows[6:], dev_is_cut=False
    )
    assert (overlap(data), shared_groups(data)) == (0, 2)
    data = replace(data, train=visits(tmp_path / "plain.csv", None)[:6])
    assert shared_groups(data) == 0


def test_stated_groups_too_large_for_the_share_are_never_cut(tmp_path: Path) -> None:
    """The remedy is one that helps."""
    rows = visits(tmp_path / "visits.csv", None)
    for groups, message in (
        ([row.label for row in rows], r"no two groups of --group-column \(2\) begin .*--dev$"),
        (["one"] * 162, r"all 162 examples are of one group of --group-column; .*--dev$"),
        ([str(n // 54) for n in range(162)], r"none of 3 groups .* with --dev-share 0\.34$"),
    ):
        grouped = [replace(row, group=name) for row, name in zip(rows, groups, strict=True)]
        with pytest.raises(ExampleError, match=rf"visits\.csv: {message}"):
            split(CLASSIFY, grouped, 0.1, seed=1)
    assert len(split(CLASSIFY, grouped, 0.34, seed=1)[1]) == 54


def test_copies_are_named_where_they_keep_stated_groups_from_being_held_out(tmp_path: Path) -> None:
    """The share was blamed, and none would have helped."""
    rows = visits(tmp_path / "visits.csv")
    rows = [replace(row, text="yes, thanks") if n % 3 else row for n, row in enumerate(rows)]
    with pytest.raises(
        ExampleError, match=r"of the 14 .*, 10 are copies of others; .*remove copies$"
    ):
        split(CLASSIFY, rows, 0.1, seed=1)


def test_two_documents_are_cut_by_sentences_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [[f"Name{n} says {part}" for n in range(50)] for part in "ab"]
    rows = tagged(tmp_path / "news.conll", documents)
    _, held_out = split(TAG, rows, 0.1, seed=1)
    assert len(held_out) == 10
    assert "dev has some of groups that are also in train" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("layout", ["json", "csv"])
def test_the_questions_of_one_article_stay_on_one_side(layout: str, tmp_path: Path) -> None:
    """An article of SQuAD has many contexts, all about what its title says."""
    articles = [
        {
            "title": f"Article {n}",
            "paragraphs": [
                {
                    "context": f"Part {part} of A{n}.",
                    "qas": [
                        {
                            "id": f"{n} {part}",
                            "question": "Of which?",
                            "answers": [{"text": f"A{n}", "answer_start": 10}],
                        }
                    ],
                }
                for part in range(5)
            ],
        }
        for n in range(40)
    ]
    path = tmp_path / f"train.{layout}"
    if layout == "json":
        path.write_text(json.dumps({"data": articles}), encoding="utf-8")
    else:
        lines = [
            f"{article['title']},Part {part} of A{n}.,Of which?,A{n}"
            for n, article in enumerate(articles)
            for part in range(5)
        ]
        path.write_text("\n".join(["title,context,question,answer", *lines]), encoding="utf-8")
    rows = list(SPAN.reader.labelled(path, SPAN.reader.resolve(path, Reading())))
    kept, held_out = split(SPAN, rows, 0.1, seed=1)
    titles = [{row.title for row in part} for part in (kept, held_out)]
    assert [len(part) for part in titles] == [36, 4]
    assert len(held_out) == 20


def test_one_title_for_all_questions_names_no_article() -> None:
    answer = Answer("b", 2)
    rows = [
        Question(
            id=str(n), question="c?", context=f"a b {n}", answers=(answer,), impossible=False,
            plausible=(), title="all", source="memory", line=n,
        )
        for n in range(30)
    ]  # fmt: skip
    assert len(split(SPAN, rows, 0.1, seed=1)[1]) == 3


def pair(first: str, second: str, label: str) -> Example:
    return Example(text=first, text_pair=second, label=label, source="memory", line=1)


@pytest.mark.parametrize("side", ["text", "text_pair"])
def test_pairs_that_share_their_recurring_text_stay_on_one_side(side: str) -> None:
    """Each of 50 questions has 20 candidates, one of which all questions have."""
    rows = []
    for question in range(50):
        for number in range(20):
            question_text, answer = f"question {question}", f"answer {question * number}"
            label = ["no", "yes"][number % 2]
            if side == "text":
                rows.append(pair(question_text, answer, label))
            else:
                rows.append(pair(answer, question_text, label))
    kept, held_out = split(CLASSIFY, rows, 0.1, seed=1)
    questions = [{getattr(row, side) for row in part} for part in (kept, held_out)]
    assert not questions[0] & questions[1]
    copies = [{(row.text, row.text_pair) for row in part} for part in (kept, held_out)]
    assert not copies[0] & copies[1]
    assert len(held_out) == 100
    assert set(Counter(row.label for row in held_out)) == {"no", "yes"}


def test_a_pair_and_its_texts_the_other_way_round_stay_on_one_side() -> None:
    """Symmetric pairs that were doubled were in train and in dev, which told of none."""
    once = [pair(f"text {n}", f"other {n}", "ab"[n % 2]) for n in range(200)]
    turned = [replace(row, text=str(row.text_pair), text_pair=row.text) for row in once]
    kept, held_out = split(CLASSIFY, [*once, *turned], 0.1, seed=1)
    assert len(held_out) == 40
    assert not {row.text for row in kept} & {row.text for row in held_out}
    data = LabelledData(
        task=CLASSIFY, labels=("a", "b"), train=once, dev=turned[:3], dev_is_cut=False
    )
    assert overlap(data) == 3
    # what follows from a premise need not be followed by it
    other = [replace(row, label="c") for row in turned]
    assert contradictions(replace(data, train=[*once, *other])) == 0
    assert contradictions(replace(data, train=[*once, replace(once[0], label="c")])) == 1


def test_a_text_that_all_pairs_share_makes_no_group(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [pair("Is it good?", f"text {n}", "ab"[n % 2]) for n in range(200)]
    assert CLASSIFY.clusters is not None
    assert len(set(CLASSIFY.clusters(rows))) == 200
    assert Counter(row.label for row in split(CLASSIFY, rows, 0.1, seed=1)[1]) == {"a": 10, "b": 10}
    assert capsys.readouterr().err == ""
