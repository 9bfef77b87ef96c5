"""`finetune --dry-run` of files as people have them: recognised, read and shown."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertsmith.cli.main import main
from bertsmith.core.errors import ExampleError
from bertsmith.network.config import Positions
from bertsmith.network.model import build_model
from bertsmith.recipes.finetune.config import FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.recipe import dry_run
from bertsmith.recipes.predict.rows import task_rows
from bertsmith.tasks.choice import CHOICE
from bertsmith.tasks.config import Reading
from bertsmith.tasks.span import SPAN
from bertsmith.tasks.task import Task
from bertsmith.text.config import USUAL, Columns, TagColumns
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, read_config, save_model, start_from

ROWS = 32


def _texts() -> Iterator[tuple[int, str, str]]:
    """Number, text and class of some rows."""
    for number in range(ROWS):
        good = number % 2 == 0
        text = f"word{number % 30} {'good' if good else 'bad'} word{(7 * number + 3) % 30}"
        yield number, f"{text} word{number // 2}", "up" if good else "down"


def json_list(folder: Path) -> Path:
    path = folder / "rows.json"
    rows = [{"id": n, "text": text, "label": label} for n, text, label in _texts()]
    path.write_text(json.dumps({"data": rows}, indent=2))
    return path


def fasttext(folder: Path) -> Path:
    path = folder / "rows.txt"
    path.write_text("".join(f"__label__{label} {text}\n" for _, text, label in _texts()))
    return path


def several(folder: Path) -> Path:
    path = folder / "rows.txt"
    path.write_text("".join(f"__label__{label} __label__b {text}\n" for _, text, label in _texts()))
    return path


def xml_pairs(folder: Path) -> Path:
    path = folder / "rows.xml"
    pair = '<pair id="{0}" value="{2}">\n<t>{1}</t>\n<h>word{0} &amp; word1</h>\n</pair>\n'
    pairs = "".join(pair.format(n, text, label) for n, text, label in _texts())
    path.write_text(f"<corpus>\n{pairs}</corpus>\n")
    return path


def questions(folder: Path) -> Path:
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "question", "context", "answers"])
        for number, text, _ in _texts():
            word = text.split()[1]
            answers = {"text": [word], "answer_start": [text.index(word)]}
            writer.writerow([number, "word1 word2?", text, str(answers)])
    return path


def joined_tags(folder: Path) -> Path:
    path = folder / "rows.txt"
    lines = [
        " ".join(f"{part}_{part[0].upper()}" for part in text.split()) for _, text, _ in _texts()
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def lettered(folder: Path) -> Path:
    path = folder / "rows.tsv"
    rows = [f"{text}\tword1\tword2\t{label}\t{1 + n % 3}\n" for n, text, label in _texts()]
    path.write_text("question\tA\tB\tC\tanswer\n" + "".join(rows))
    return path


def stories(folder: Path) -> Path:
    path = folder / "mc.train.tsv"
    asked = [
        f"{mark}: word{n}?\tword1\tword2\tgood\tbad"
        for n, mark in enumerate(["one", "multiple"] * 2)
    ]
    path.write_text(
        "".join(
            "\t".join([f"mc.{n}", "Author: x", f"{text}.\\newlineword2.", *asked]) + "\n"
            for n, text, _ in _texts()
        )
    )
    (folder / "mc.train.ans").write_text("C\tD\tA\tB\n" * ROWS)
    return path


def squad(folder: Path) -> Path:
    path = folder / "rows.json"
    data = []
    for number, text, _ in _texts():
        qas = [
            {"id": f"{number}.{n}", "question": f"word{n}?", "answers": [], "is_impossible": True}
            for n in range(3)
        ]
        data.append({"title": "x", "paragraphs": [{"context": text, "qas": qas}]})
    path.write_text(json.dumps({"data": data}, indent=1))
    return path


@pytest.mark.parametrize(
    ("write", "task", "layout", "shown"),
    [
        (json_list, "classify", "JSON: text is 'text', label is 'label'", ["text   word0 good"]),
        (fasttext, "classify", "lines of fastText", ["label  up"]),
        (several, "multi-label", "lines of fastText", ["up, b"]),
        (xml_pairs, "pair", "pairs in XML", ["text_pair  word0 & word1"]),
        (questions, "span", "question is 'question', context is 'context', answers is 'answers'",
         ["question  word1 word2?", "answer    good"]),
        (joined_tags, "tag", "sentences of word_TAG: tags as they are", ["word0/W good/G word3/W"]),
        (lettered, "choice", "labels count from 1", ["option 2  up", "right     option 0"]),
        (stories, "choice", "MCTest's stories, the answers in mc.train.ans",
         ["context   word0 good word3 word0. word2.", "question  word0?", "right     option 2"]),
    ],
)  # fmt: skip
def test_a_file_is_recognised_and_shown(
    tmp_path: Path,
    base_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], Path],
    task: str,
    layout: str,
    shown: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["finetune", str(base_folder), path.name, "--out", "run", "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert f"task: {task} (" in told
    (described,) = [line for line in told.splitlines() if line.startswith(f"{path.name}: ")]
    assert layout in described
    assert all(figures in told for figures in shown), told
    assert told.rstrip().endswith("dry run: nothing was trained, nothing was written")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("write", "task"), [(stories, CHOICE), (squad, SPAN)])
def test_a_record_with_several_questions(
    tmp_path: Path, write: Callable[[Path], Path], task: Task[Any]
) -> None:
    path = write(tmp_path)
    rows = list(task.reader.unlabelled(path, Reading()))
    asked = list(task_rows(task, str(path), Reading(), pairs=None))
    assert [request.example for request in asked] == rows
    assert len(rows) > ROWS


def test_classes_without_an_example_are_named(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    names = ["up", "down", "side"]
    rows = [f"word{n % 30} word{n % 7},{names[n % 3]}" for n in range(60)]
    train.write_text("text,label\n" + "\n".join(rows), encoding="utf-8")
    dev.write_text("text,label\n" + "\n".join(rows[::3]) + "\nword1,down\n", encoding="utf-8")

    def told(train: Path, dev: Path | None = None) -> str:
        dry_run(FinetuneConfig(model=base_folder, train=train, dev=dev, out=tmp_path / "run"))
        return capsys.readouterr().err

    assert (
        "dev has no example of 'side', so the scores say nothing about it, and macro F1 counts it "
        "as 0 if it is predicted"
    ) in told(train=train, dev=dev)
    dev.write_text("text,label\nword1,down\n", encoding="utf-8")
    several_absent = (
        "dev has no example of 'side', 'up', so the scores say nothing about them, and macro F1 "
        "counts them as 0 if they are predicted"
    )
    assert several_absent in told(train=train, dev=dev)
    assert "no example of" not in told(train=train, dev=train)
    dev.write_text("text,label\nWord0 word0,up\nword1,down\n", encoding="utf-8")
    copied = "1 of the dev examples has a text that is also in train (ignoring case)"
    assert copied in told(train=train, dev=dev)
    # labels of texts that have several are not split alike
    several = [f"word{n % 30} word{n % 7},{'a|b' if n % 2 else 'a'}" for n in range(60)]
    train.write_text("text,labels\n" + "\n".join(several) + "\nword1,c\n", encoding="utf-8")
    found = told(train=train)
    absent = "dev has no example of 'c': macro F1 counts it as 0"
    assert ("train has no example of 'c'" in found) != (absent in found)


def test_labels_that_say_less_than_they_seem_are_named(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = tmp_path / "train.csv"

    def told(head: str, rows: list[str], columns: Columns = USUAL) -> str:
        train.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
        settings = FinetuneSettings(reading=Reading(columns=columns))
        run = tmp_path / "run"
        dry_run(FinetuneConfig(model=base_folder, train=train, out=run, settings=settings))
        return capsys.readouterr().err

    texts = [f"word{n % 30} word{n % 7}" for n in range(60)]
    cased = told("text,label", [f"{text},{'Aab'[n % 3]}" for n, text in enumerate(texts)])
    assert "the labels 'A', 'a' differ only in case; they are separate labels" in cased
    accents = ("caf\u00e9", "cafe\u0301", "tea")
    written = told("text,label", [f"{text},{accents[n % 3]}" for n, text in enumerate(texts)])
    assert "differ only in case or in how characters are written; they are separate" in written
    twice = [f"word{n % 20} up,{'ab'[n % 2]}" for n in range(60)] + ["word1 up,a", "word3 up,a"]
    assert "2 texts of train have copies with another label" in told("text,label", twice)
    late = [f"{text} {n},{n % 5 + (n > 1005) / 2}" for n, text in enumerate(texts * 20)]
    with pytest.raises(ExampleError, match=r"but a later one is 0\.5: classes or values"):
        told("text,stars", late)
    for sign in ("|", ", "):
        several = [*("a", "c", "b") * 380, *(f"b{sign}c", "a") * 30]
        late = [
            f'{text} {n},"{label}"'
            for n, (text, label) in enumerate(zip(texts * 20, several, strict=True))
        ]
        with pytest.raises(ExampleError, match=r"the label 'b.+c' combines labels that also occur"):
            told("text,label", late)
    none = "may stand for none: --exclude="
    unsure = told("text,label", [f"{text},{'ab-'[n % 3]}" for n, text in enumerate(texts)])
    assert f"the label '-' {none}- leaves its examples out" in unsure
    hidden = told("text,label", [f"{text},{n % 3 - 1}" for n, text in enumerate(texts)])
    assert f"the label '-1' {none}-1 leaves its examples out" in hidden
    for labels in (
        ("-1", "1"),
        ("-1", "-2", "0"),
        ("-1", "0.5", "1"),
        ("a", "b"),
        ("-1", "a", "b"),
    ):
        rows = [f"{text},{labels[n % len(labels)]}" for n, text in enumerate(texts)]
        assert none not in told("text,label", rows, Columns(text="text"))
    flags = [f"{text},{n % 2},{n % 3 % 2},0" for n, text in enumerate(texts)]
    found = told("text,rude,loud,odd", flags, Columns(labels=("rude", "loud", "odd")))
    assert "no example has the label 'odd', which the model will lack" in found
    # of several labels one is left out, and the text stays
    codes = ("a|b", "N/A", "")
    coded = told("text,labels", [f"{text},{codes[n % 3]}" for n, text in enumerate(texts)])
    assert "'N/A' may stand for none: remove its rows; with --exclude=N/A they would be " in coded
    assert re.search(r"train: 5\d examples \(N/A \d\d, a \d\d, b \d\d; 1\d without any\)", coded)


def test_columns_of_words_and_tags_the_wrong_way_round_are_refused(
    base_folder: Path, tmp_path: Path
) -> None:
    train = tmp_path / "train.conll"
    train.write_text("".join(f"O other{n}\nB-PER word{n}\n\n" for n in range(40)))
    config = FinetuneConfig(model=base_folder, train=train, out=tmp_path / "run")
    with pytest.raises(ExampleError, match="has 80 tags, most of them once only") as caught:
        dry_run(config)
    assert "--tags.word 1 --tags.tag 0" in caught.value.remedy
    reading = Reading(tags=TagColumns(word=1, tag=0))
    dry_run(replace(config, settings=FinetuneSettings(reading=reading)))


def test_types_of_entities_without_an_example_are_named(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    sentence = "word{} B-PER\nword2 O\nword3 {}\nword4 O\n\n"
    every = [sentence.format(n, "B-LOC" if n % 2 else "O") for n in range(20)]
    train.write_text("".join(every) + "word1 B-LOC\nword2 I-LOC\n\n", encoding="utf-8")
    dev.write_text("".join(every[::2]), encoding="utf-8")
    dry_run(FinetuneConfig(model=base_folder, train=train, dev=dev, out=tmp_path / "run"))
    assert "dev has no example of 'LOC', so the scores" in capsys.readouterr().err


def test_texts_that_are_not_read_are_named(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = tmp_path / "train.csv"
    rows = [f"word1 and word2 of {text},{text},{label}" for _, text, label in _texts()]
    train.write_text("\n".join(["title,text,label", *rows]), encoding="utf-8")
    dry_run(FinetuneConfig(model=base_folder, train=train, out=tmp_path / "run"))
    assert "train.csv: 'title' holds texts too, and is not read; --text" in capsys.readouterr().err


@pytest.mark.parametrize(("trained", "told"), [(10, True), (36, False), (40, False)])
def test_sequences_longer_than_those_of_pretraining_are_counted(
    base_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    trained: int,
    told: bool,
) -> None:
    """Positions that no pre-training had seen were read without a word."""
    model, tokenizer = load_model(base_folder)
    model.config = model.config.pretrained_on(trained)
    save_model(tmp_path / "model", model, tokenizer)
    train = tmp_path / "train.csv"
    rows = [f"{text} {'word1 ' * 6 * (n % 4 > 0)},{label}" for n, text, label in _texts()]
    train.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    dry_run(FinetuneConfig(model=tmp_path / "model", train=train, out=tmp_path / "run"))
    note = (
        "sequences of at most 10 tokens, and 21 of 29 here (72.4 %) are longer: it learns later pos"
    )
    assert (note in capsys.readouterr().err) == told


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "none"])
def test_positions_that_are_not_learned_are_not_said_to_be(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], positions: Positions
) -> None:
    config, tokenizer = read_config(base_folder), Tokenizer.load(base_folder)
    encoder = replace(config.encoder, positions=positions)
    model = build_model(replace(config, encoder=encoder).pretrained_on(5), seed=1)
    save_model(tmp_path / "model", model, tokenizer)
    run = FinetuneConfig(model=tmp_path / "model", train=json_list(tmp_path), out=tmp_path / "run")
    dry_run(run)
    note = "29 of 29 here (100.0 %) are longer: it has read none so long; --max-length 5"
    assert note in capsys.readouterr().err


def test_a_new_head_in_place_of_an_earlier_one_is_told(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(tmp_path / "model", *start_from(base_folder, labels=("up", "down")))
    train = json_list(tmp_path)
    note = "the model's head, which predicts class (2 labels), is replaced by a new one"
    for model, told in ((tmp_path / "model", True), (base_folder, False)):
        dry_run(FinetuneConfig(model=model, train=train, out=tmp_path / "run"))
        assert (note in capsys.readouterr().err) == told
