"""What a user is shown before training, for every task, and which classes are taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.recipes.finetune.config import FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.recipe import dry_run
from bertsmith.tasks.config import Reading
from bertsmith.text.config import Columns


def file(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def dry(model: Path, path: Path, task: str | None = None, **columns: object) -> None:
    settings = FinetuneSettings(dev_share=0.2, reading=Reading(columns=Columns.from_dict(columns)))
    dry_run(FinetuneConfig(model=model, train=path, out=Path("out"), task=task, settings=settings))


SQUAD = {
    "id": "1",
    "question": "Who won?",
    "context": "good bad " * 30 + "word7 won.",
    "answers": {"text": ["word7"], "answer_start": [270]},
}
PAIRS = [f"good {n}\tbad {n}\t{('ja', 'nein')[n % 2]}" for n in range(12)]
TASKS = [
    (
        "a.csv",
        [f"{('up', 'down')[n % 2]},word{n} went good today" for n in range(14)],
        "a.csv: CSV without header ('up' in its first line is repeated below): text is column 1, "
        "label is column 0",
        [["line 1", "text", "word0 went good today"], ["label", "up"], ["line 2", "text", "word1"]],
    ),
    (
        "a.tsv",
        ["sentence1\tsentence2\tlabel", *PAIRS],
        "a.tsv: TSV with a header: text is 'sentence1', second text is 'sentence2', label is 'l",
        [["line 2", "text", "good 0"], ["text_pair", "bad 0"], ["label", "ja"]],
    ),
    (
        "a.csv",
        ["text,score", *(f"word{n},{n / 4}" for n in range(8))],
        "text is 'text', label is 'score'",
        [["text", "word0"], ["label", "0"], ["label", "0.25"]],
    ),
    (
        "a.jsonl",
        [json.dumps({"text": f"word{n}", "labels": ["a", "b"][: n % 3]}) for n in range(9)],
        "a.jsonl: JSONL: text is 'text', label is 'labels'",
        [["line 1", "text", "word0"], ["label", "-"], ["line 2", "text", "word1"], ["label", "a"]],
    ),
    (
        "a.tsv",
        ["query\tpassage\tlabel", *(f"q{n // 2}\tp{n}\t{n % 2}" for n in range(12))],
        "text is 'query', second text is 'passage', label is 'label'",
        [["query", "q0"], ["passage", "p0"], ["relevance", "0"], ["relevance", "1"]],
    ),
    (
        "a.csv",
        ["premise,choice0,choice1,label", *(f"x{n},y{n},z{n},{n % 2}" for n in range(9))],
        "a.csv: CSV with a header: context is 'premise', label is 'label', option 0 is 'choice0'",
        [["text", "x0"], ["option 0", "y0"], ["option 1", "z0"], ["right", "option 0"]],
    ),
    (
        "a.conll",
        ["EU B-ORG", "rejects O", "", "Ann B-PER", "Lee I-PER", "", "so O", "", "it O", "", "is O"],
        "a.conll: columns: word is column 0, tag is the last column, entities in BIO2",
        [["line 1", "words/tags", "EU/B-ORG rejects/O"], ["words/tags", "Ann/B-PER Lee/I-PER"]],
    ),
    (
        "a.jsonl",
        [json.dumps({**SQUAD, "id": str(n), "context": f"{n} {SQUAD['context']}"}) for n in "5678"],
        "a.jsonl: JSONL: id is 'id', question is 'question', context is 'context', answers is",
        [["question", "Who won?"], ["context", "...", "word7 won."], ["answer", "word7"]],
    ),
]


@pytest.mark.parametrize(("name", "lines", "layout", "shown"), TASKS)
def test_two_rows_are_shown_before_training(
    base_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    lines: list[str],
    layout: str,
    shown: list[list[str]],
) -> None:
    if "answers" in lines[0]:
        rows = [json.loads(line) for line in lines]
        for row in rows:
            row["answers"] = {"text": ["word7"], "answer_start": [row["context"].index("word7")]}
        lines = list(map(json.dumps, rows))
    dry(base_folder, file(tmp_path, name, *lines))
    told = capsys.readouterr().err
    assert layout in told
    after = told
    for parts in shown:
        for part in parts:
            assert part in after
            after = after[after.index(part) + len(part) :]
    assert told.rstrip().endswith("dry run: nothing was trained, nothing was written")
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_a_row_is_shortened_to_the_width(
    base_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [f"{n % 2},{'good' if n % 2 else 'bad'} {n} \x1b[31m{'long ' * 50}" for n in range(12)]
    dry(base_folder, file(tmp_path, "a.csv", "label,text", *rows))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  ")]
    assert len(lines) == 4
    assert [len(line) for line in lines if " text " in line] == [60, 60]
    assert "\x1b" not in "".join(lines)


def test_classes_are_picked_and_left_out(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"word{n} good,{'abcd'[n % 4]}" for n in range(40)]
    path = file(tmp_path, "a.csv", "text,label", *rows)
    dry(base_folder, path, classes=["a", "c"])
    assert "16 examples (a 8, c 8)" in capsys.readouterr().err
    dry(base_folder, path, exclude=["d"])
    assert "(a 8, b 8, c 8)" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="there is no class 'e'; the classes are: a, b, c, d"):
        dry(base_folder, path, classes=["a", "e"])
    rows = [json.dumps({"text": f"word{n}", "labels": ["a", "b", "c"][: n % 4]}) for n in range(16)]
    path = file(tmp_path, "a.jsonl", *rows)
    dry(base_folder, path, exclude=["b"])
    told = capsys.readouterr().err.splitlines()
    held = [line for line in told if line.startswith(("train: ", "dev: "))]
    assert len(held) == 2
    assert all("a " in line and "b " not in line for line in held)
    path = file(tmp_path, "b.csv", "text,score", *(f"word{n},{n / 4}" for n in range(8)))
    with pytest.raises(ConfigError, match="regression has no classes to pick from; leave out --cl"):
        dry(base_folder, path, classes=["a"])


def test_classes_as_options(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"word{n} good,{'abcd'[n % 4]}" for n in range(40)]
    path = file(tmp_path, "a.csv", "text,label", *rows)
    arguments = ["finetune", str(base_folder), str(path), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--dry-run", "--classes", "a, b,c", "--exclude", "b"]) in (0, None)
    assert "(a 9, c 9)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([f"text {n},{n}a" for n in range(12)], "gives every example a label of its own"),
        (
            [f"text {n},{f'id{n}' if n > 3 else 'x'}" for n in range(12)],
            "8 of 12 labels occur once only, such as 'x'",
        ),
        ([f"text {n},x" for n in range(12)], "has one class only, 'x'"),
        (
            [f"{'ab'[n % 2]},{'ab'[n % 2]}" for n in range(40)],
            "40 examples have only 2 different texts, such as 'a'; name the text's column",
        ),
        (
            [f"same,{'ab'[n % 2]}" for n in range(40)],
            "40 examples have only 1 different text, such as 'same'; name the text's column",
        ),
        (
            [f"text {n},{('1', '1.0', '2')[n % 3]}" for n in range(12)],
            "the labels '1' and '1.0' are one number written in two ways; write them alike",
        ),
        ([f"text {n},{('01', '1', 'x')[n % 3]}" for n in range(12)], "'01' and '1' are one numb"),
    ],
)
def test_what_cannot_be_labels_never_trains(
    base_folder: Path, tmp_path: Path, rows: list[str], message: str
) -> None:
    path = file(tmp_path, "a.csv", "text,label", *rows)
    with pytest.raises(ExampleError) as caught:
        dry(base_folder, path, "classify")
    assert message in str(caught.value)


def test_one_set_of_labels_never_trains(base_folder: Path, tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"text {n}", "labels": ["a", "b"]}) for n in range(9)]
    with pytest.raises(ExampleError, match="every example has the same labels: a, b"):
        dry(base_folder, file(tmp_path, "a.jsonl", *rows))


def test_a_label_that_dev_alone_has_can_be_left_out(base_folder: Path, tmp_path: Path) -> None:
    """It was called unknown in dev, and no class of train where --exclude named it."""
    train, dev = tmp_path / "a.csv", tmp_path / "b.csv"
    train.write_text("text,label\n" + "".join(f"word{n},{n % 2}\n" for n in range(20)))
    dev.write_text("text,label\nword1,1\nword2,x y\n", encoding="utf-8")
    config = FinetuneConfig(model=base_folder, train=train, dev=dev, out=tmp_path / "run")
    with pytest.raises(ExampleError) as caught:
        dry_run(config)
    assert caught.value.remedy == ("the training examples have 0, 1; '--exclude=x y' leaves it out")
    reading = Reading(columns=Columns(exclude=("x y",)))
    dry_run(replace(config, settings=FinetuneSettings(reading=reading)))
    reading = Reading(columns=Columns(exclude=("z",)))
    with pytest.raises(ConfigError, match="there is no class 'z'; the classes are: 0, 1, x y"):
        dry_run(replace(config, settings=FinetuneSettings(reading=reading)))


def test_a_label_that_is_only_spelled_otherwise(base_folder: Path, tmp_path: Path) -> None:
    train = file(tmp_path, "a.csv", "text,label", *(f"text {n},{n % 2}" for n in range(12)))
    dev = file(tmp_path, "b.csv", "text,label", "one,1.0", "two,0.0")
    with pytest.raises(ExampleError, match=r"b\.csv:2: unknown label '1.0'; .*'1' is the same num"):
        dry_run(FinetuneConfig(model=base_folder, train=train, dev=dev, out=tmp_path / "out"))
