from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.recipes.glue import (
    FILES,
    ZIP,
    Predictions,
    missing_files,
    read_submission,
    submission_table,
    write_submission,
)


def predicted(file: str) -> Predictions:
    task, split = FILES[file]
    if not task.labels:
        return [(str(n), -0.5 + n / 200) for n in range(task.sizes[split])]
    return [(str(n), task.labels[n % len(task.labels)]) for n in range(task.sizes[split])]


def tables_of(predictions: Mapping[str, Predictions]) -> dict[str, str]:
    return {file: submission_table(file, rows) for file, rows in predictions.items()}


def test_the_leaderboards_files() -> None:
    names = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI"]
    assert list(FILES) == [f"{name}.tsv" for name in (*names, "AX")]
    assert missing_files({"CoLA.tsv": []}) == tuple(list(FILES)[1:])


def test_a_submission(tmp_path: Path) -> None:
    files = ("RTE.tsv", "STS-B.tsv", "WNLI.tsv", "AX.tsv")
    path = write_submission(tmp_path / "new", tables_of({file: predicted(file) for file in files}))
    with zipfile.ZipFile(path) as packed:
        assert packed.namelist() == list(files)
        tables = {file: packed.read(file).decode().splitlines() for file in files}
    assert [len(tables[file]) for file in files] == [3001, 1380, 147, 1105]
    assert tables["RTE.tsv"][:3] == ["index\tprediction", "0\tentailment", "1\tnot_entailment"]
    assert tables["STS-B.tsv"][1] == "0\t0.000"  # never under 0
    assert tables["STS-B.tsv"][-1] == "1378\t5.000"  # nor over 5
    assert tables["STS-B.tsv"][201] == "200\t0.500"
    assert tables["WNLI.tsv"][1:3] == ["0\t0", "1\t1"]
    assert tables["AX.tsv"][3] == "2\tcontradiction"
    first = path.read_bytes()
    write_submission(tmp_path / "new", tables_of({file: predicted(file) for file in files}))
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


def test_a_submission_is_read_again(tmp_path: Path) -> None:
    assert read_submission(tmp_path) == {}
    files = ("RTE.tsv", "STS-B.tsv", "WNLI.tsv")
    path = write_submission(tmp_path, tables_of({file: predicted(file) for file in files}))
    found, first = read_submission(tmp_path), path.read_bytes()
    assert tuple(found) == ("STS-B.tsv", "RTE.tsv", "WNLI.tsv")
    assert found["RTE.tsv"] == predicted("RTE.tsv")
    write_submission(tmp_path, tables_of({file: found[file] for file in files}))
    assert path.read_bytes() == first
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr("CoLA.tsv", "index\tprediction\n0\t1\n")
        packed.writestr("notes.txt", "mine")
    assert tuple(read_submission(tmp_path)) == tuple(found)
    # the flag of encryption, in the directory and before the file
    at = [n for n in range(len(first)) if first[n : n + 4] in (b"PK\1\2", b"PK\3\4")]
    locked = bytearray(first)
    for place in at:
        locked[place + (8 if first[place : place + 4] == b"PK\1\2" else 6)] |= 1
    for damaged in (bytes(locked), first[:200], first[: len(first) // 2], b"", b"PK"):
        (tmp_path / ZIP).write_bytes(damaged)
        assert read_submission(tmp_path) == {}


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        (
            "CoLA.csv",
            [],
            "CoLA.csv: is not a file of GLUE's leaderboard; it has CoLA.tsv, SST-2.tsv",
        ),
        ("WNLI.tsv", predicted("WNLI.tsv")[1:], "145 predictions, and the test set has 146"),
        ("WNLI.tsv", [("7", "1")] * 146, "two predictions of one index"),
        ("WNLI.tsv", [(str(n), "yes") for n in range(146)], "'yes' is not a label of WNLI"),
        ("STS-B.tsv", [(str(n), float("nan")) for n in range(1379)], "nan is not a score"),
        ("STS-B.tsv", [(str(n), "3") for n in range(1379)], "'3' is not a score"),
    ],
)
def test_what_the_leaderboard_would_refuse(file: str, rows: Predictions, message: str) -> None:
    with pytest.raises(ExampleError) as caught:
        submission_table(file, rows)
    assert message in str(caught.value)
    assert caught.value.remedy
