"""Bad rows of tables: each is named as such, and they come in the order of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.reading import read_examples

ROWS = [f"text number {n},{n / 8}" for n in range(40)]


def written(folder: Path, rows: list[str]) -> Path:
    path = folder / "a.csv"
    path.write_text("\n".join(["text,score", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_text_among_numbers_is_a_bad_row(tmp_path: Path) -> None:
    path = written(tmp_path, [*ROWS[:9], "text number 9,unknown", *ROWS[10:]])
    found = recognise(path)
    assert (found.task, found.reason) == (
        "regression",
        "'score' holds numbers with fractions, but for 1 row",
    )
    with pytest.raises(ExampleError) as caught:
        list(read_examples(path, need_label=True, kind="number"))
    assert "a.csv:11: the label is not a number: 'unknown'" in str(caught.value)
    assert "remove the row" in caught.value.remedy
    bad = BadRows("quarantine")
    assert len(list(read_examples(path, need_label=True, kind="number", bad=bad))) == 39
    (kept,) = (tmp_path / "a.csv.bad.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(kept)["line"] == 11


def test_many_texts_among_numbers_are_classes(tmp_path: Path) -> None:
    assert recognise(written(tmp_path, [*ROWS[:9], *["another,none"] * 3])).task == "classify"


def test_bad_rows_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    bad_rows = ["text number 9,unknown", "one,two,3.5", 'a "quote,4.5', 'an "un,"closed" one,5.5']
    path = written(tmp_path, [*ROWS[:5], *bad_rows, *ROWS[:5]])
    with pytest.raises(ExampleError, match=r"a\.csv:7: the label is not a number"):
        list(read_examples(path, need_label=True, kind="number"))
    bad = BadRows("quarantine")
    list(read_examples(path, need_label=True, kind="number", bad=bad))
    kept = (tmp_path / "a.csv.bad.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [json.loads(item)["line"] for item in kept]
    assert lines == sorted(lines)
    assert lines[:2] == [7, 8]
    assert len(lines) > 2


def test_rows_inside_quotes_are_not_taken_for_a_text(tmp_path: Path) -> None:
    rows = [*ROWS[:5], '"a quote that nobody closes,1.5', *ROWS[5:25], 'a word",2.5', *ROWS[25:30]]
    path = written(tmp_path, rows)
    told = r"a\.csv:7: not CSV: a quote is closed 21 lines below, after rows; write a quote inside"
    with pytest.raises(ExampleError, match=told):
        list(read_examples(path, need_label=True, kind="number"))
    bad = BadRows("skip")
    found = list(read_examples(path, need_label=True, kind="number", bad=bad))
    assert [row.text for row in found][:25] == [row.split(",")[0] for row in ROWS[:25]]
    poem = "\n".join(f"line {n} of a poem, with a comma, or two" for n in range(30))
    path = written(tmp_path, [*ROWS[:5], f'"{poem}",1.5'])
    assert len(list(read_examples(path, need_label=True, kind="number"))) == 6


def test_lines_after_an_open_quote_are_not_all_kept_in_memory(tmp_path: Path) -> None:
    """As many characters as a line may have would be thirty million short lines, of 6 GB."""
    path = tmp_path / "a.csv"
    path.write_text('text,label\ngood,pos\n"open,neg\n' + "x\n" * 500_001, encoding="utf-8")
    told = r"a\.csv:3: not CSV: a row of over 500,000 lines; write a quote inside"
    with pytest.raises(ExampleError, match=told):
        list(read_examples(path, need_label=True))
