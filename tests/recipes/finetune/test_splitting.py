"""The cut of rows that belong to documents, or share a text, into train and dev."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bertsmith.recipes.finetune.splitting import split
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import Reading
from bertsmith.tasks.tag import TAG
from bertsmith.text.examples.example import Example
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


def test_a_text_that_all_pairs_share_makes_no_group() -> None:
    rows = [pair("Is it good?", f"text {n}", "ab"[n % 2]) for n in range(200)]
    assert CLASSIFY.clusters is not None
    assert len(set(CLASSIFY.clusters(rows))) == 200
    assert Counter(row.label for row in split(CLASSIFY, rows, 0.1, seed=1)[1]) == {"a": 10, "b": 10}
