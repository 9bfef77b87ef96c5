"""Stories with questions in one file, and the letters of their answers in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.choices import read_choices


def story(number: int) -> str:
    cells = [f"s{number}", "Author: x;Work Time(s): 9", f"Tom{number} sat.\\newlineHe ran."]
    for asked in range(4):
        mark = "multiple" if asked % 2 else "one"
        cells += [f"{mark}: What of {asked}?", *(f"{letter} {number}" for letter in "pqrs")]
    return "\t".join(cells)


def write(folder: Path, stories: list[str], answers: list[str] | None) -> Path:
    path = folder / "mc160.dev.tsv"
    path.write_text("".join(f"{item}\n" for item in stories))
    if answers is not None:
        (folder / "mc160.dev.ans").write_text("".join(f"{answer}\n" for answer in answers))
    return path


GOOD = [story(1), story(2)]
LETTERS = ["A\tB\tC\tD", "D\tD\tA\tB"]


def test_stories_and_answers(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, LETTERS)
    found = recognise(path)
    assert (found.task, found.reason) == ("choice", "it has stories with questions, like MCTest")
    rows = list(read_choices(path, need_label=True))
    assert [row.label for row in rows] == [0, 1, 2, 3, 3, 3, 0, 1]
    assert [(row.id, row.line) for row in rows[3:5]] == [("s1.3", 1), ("s2.0", 2)]
    assert rows[0].text == "Tom1 sat. He ran. What of 0?"
    assert rows[0].choices == ("p 1", "q 1", "r 1", "s 1")
    assert {row.context for row in rows} == {"Tom1 sat. He ran.", "Tom2 sat. He ran."}


def test_answers_may_be_missing_where_none_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, None)
    assert [row.label for row in read_choices(path, need_label=False)] == [None] * 8


@pytest.mark.parametrize(
    ("stories", "answers", "message"),
    [
        (GOOD, None, r"dev\.tsv: its answers are missing: no file mc160\.dev\.ans in its folder"),
        (GOOD, LETTERS[:1], r"dev\.ans:2: ends after 1 line, but mc160\.dev\.tsv has more stories"),
        (GOOD, [*LETTERS, "A\tA\tA\tA"], r"dev\.ans:3: has more lines than mc160\.dev\.tsv has st"),
        (GOOD, [LETTERS[0], "A\tE\tA\tB"], r"dev\.ans:2: the answer 'E' is not A, B, C or D"),
        (GOOD, [LETTERS[0], "A\tB\tA"], r"dev\.ans:2: 3 answers for 4 questions; give a letter"),
        ([GOOD[0], GOOD[1] + "\tmore"], LETTERS, r"dev\.tsv:2: 24 columns where a story with 4 q"),
        ([GOOD[0].rpartition("\t")[0]], LETTERS, r"dev\.tsv:1: 22 columns where a story with 4 q"),
        ([GOOD[0].replace("multiple: What of 3", "What of 3")], LETTERS[:1],
         r"dev\.tsv:1: question 4 begins with neither 'one:' nor 'multiple:'"),
        ([GOOD[0], GOOD[0]], LETTERS, r"dev\.tsv:2: the id 's1\.0' is used in an earlier row too"),
    ],
)  # fmt: skip
def test_faults(
    tmp_path: Path, stories: list[str], answers: list[str] | None, message: str
) -> None:
    path = write(tmp_path, stories, answers)
    assert recognise(path).task == "choice"
    with pytest.raises(ExampleError, match=message):
        list(read_choices(path, need_label=True))


def test_a_bad_story_is_left_out_with_its_answers(tmp_path: Path) -> None:
    path = write(tmp_path, [story(0) + "\tmore", *GOOD], ["A\tA\tA\tA", *LETTERS])
    bad = BadRows("skip")
    rows = list(read_choices(path, need_label=True, bad=bad))
    assert [row.label for row in rows] == [0, 1, 2, 3, 3, 3, 0, 1]
    assert bad.count == 1


def test_columns_cannot_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, LETTERS)
    with pytest.raises(ConfigError, match="--text-column does not apply to a file of stories"):
        list(read_choices(path, Columns(text="2"), need_label=True))
