"""Texts without labels: which are read, what the teacher makes of them, and who learns from it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from bertsmith.core.errors import UserError
from bertsmith.recipes.distil.config import DistilConfig, StudentConfig, TeachingConfig
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.distil.trainings import DistilOutcome
from bertsmith.recipes.distil.transfer_set import read_unlabelled, with_teacher_answers
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.tasks.config import Reading
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.config import Columns
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_when_regrouped

TEXTS = [
    f"word{number % 7} word{number % 5} {'good' if number % 3 else 'bad'}" for number in range(40)
]
LABELLED = Path("rows.jsonl")
# the name of the labels' column, and two labels
KINDS = {
    "classify": ("label", ("up", "down")),
    "multi-label": ("labels", (["up", "loud"], ["down"])),
    "regression": ("label", (0.5, 3.25)),
}


@pytest.fixture(scope="module", params=KINDS)
def prepared(
    request: pytest.FixtureRequest, base_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Prepared]:
    """A teacher of random weights that is of opinions, and labelled rows."""
    folder = tmp_path_factory.mktemp("taught")
    name, values = KINDS[request.param]
    file = folder / "rows.jsonl"
    rows = [{"text": f"word{n} good", name: values[n % 2]} for n in range(8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = task_named(request.param)
    read = list(task.reader.labelled(file, task.reader.resolve(file, Reading())))
    labels = task.labels.names(read, ())
    data = LabelledData(task=task, labels=labels, train=read, dev=read[:2], dev_is_cut=False)
    model, tokenizer = start_from(base_folder, predicts=task.head, labels=labels, seed=3)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.mul_(3)
        for parameter in model.heads.parameters():
            parameter.mul_(20)
    save_model(folder / "model", model, tokenizer)
    return folder / "model", prepare(data, tokenizer, ReadingLimits(longest=40, long="head"))


@torch.no_grad()
def test_their_labels_are_what_transformers_answers(
    prepared: tuple[Path, Prepared], tmp_path: Path
) -> None:
    folder, rows = prepared
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    found = with_teacher_answers(
        load_model(folder)[0], rows, read_unlabelled(file, rows.data, Reading(), LABELLED)
    )
    assert [row.text for row in found] == TEXTS
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = AutoTokenizer.from_pretrained(folder)
    logits = torch.cat([theirs(**words(text, return_tensors="pt")).logits for text in TEXTS])
    names = theirs.config.id2label
    if rows.task.head == "class":
        assert [row.label for row in found] == [names[n] for n in logits.argmax(-1).tolist()]
        assert len({row.label for row in found}) == 2
    elif rows.task.head == "classes":
        taught = [{names[n] for n in range(len(names)) if logit[n] > 0} for logit in logits]
        assert [set(row.labels or ()) for row in found] == taught
    else:
        assert [row.number for row in found] == pytest.approx(logits[:, 0].tolist(), abs=1e-4)


def test_labelled_texts_and_blank_ones_are_left_out(
    prepared: tuple[Path, Prepared], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, rows = prepared
    file = tmp_path / "texts.jsonl"
    texts = ["new one", rows.data.dev[0].text, " ", "another", rows.data.train[5].text]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = read_unlabelled(file, rows.data, Reading(), LABELLED)
    assert [row.text for row in found] == ["new one", "another"]
    told = " ".join(capsys.readouterr().err.split())
    assert "unlabelled: 2 texts of" in told
    assert "; 2 left out that are among the labelled ones" in told


COLUMNS = Columns(text="review", label="verdict")
FILES = {
    "a table without labels": ("texts.csv", "review\nnew one\nanother\n"),
    "a table with labels": ("texts.csv", "verdict,review\nodd,new one\nodd,another\n"),
    "other names": ("texts.csv", "id,text\n1,new one\n2,another\n"),
    "lines": ("texts.txt", "new one\nanother\n"),
    "a folder": ("folder", "new one\nanother\n"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_are_read_whatever_columns_the_labelled_ones_have(
    prepared: tuple[Path, Prepared], tmp_path: Path, case: str
) -> None:
    _, rows = prepared
    name, text = FILES[case]
    file = tmp_path / name
    if case == "a folder":
        file.mkdir()
        for number, line in enumerate(text.splitlines()):
            (file / f"{number}.txt").write_text(line)
    else:
        file.write_text(text)
    found = read_unlabelled(file, rows.data, Reading(columns=COLUMNS), LABELLED)
    assert [row.text for row in found] == ["new one", "another"]


@pytest.mark.parametrize("columns", [Columns(), COLUMNS])
@pytest.mark.parametrize("head", ["id,remark,length\n", ""])
def test_a_table_without_the_column_of_the_texts_says_what_helps(
    prepared: tuple[Path, Prepared], tmp_path: Path, columns: Columns, head: str
) -> None:
    """An option that names it would name that of the labelled file."""
    _, rows = prepared
    file = tmp_path / "texts.csv"
    file.write_text(f"{head}1,new one,7\n2,another,7\n3,new one,7\n")
    with pytest.raises(UserError, match="no column") as refused:
        read_unlabelled(file, rows.data, Reading(columns=columns), LABELLED)
    assert str(refused.value).endswith(
        "; name its columns as in the labelled file: the options apply to both"
    )
    file.write_text(f"id,{columns.text or 'text'},length\n1,new one,7\n2,another,7\n")
    found = read_unlabelled(file, rows.data, Reading(columns=columns), LABELLED)
    assert [row.text for row in found] == ["new one", "another"]


def test_a_file_of_blank_lines_is_not_said_to_hold_labelled_texts(
    prepared: tuple[Path, Prepared], tmp_path: Path
) -> None:
    _, rows = prepared
    file = tmp_path / "blank.txt"
    file.write_text("\n  \n\n")
    with pytest.raises(UserError, match="holds no text; name another file"):
        read_unlabelled(file, rows.data, Reading(), LABELLED)


def test_students_of_a_teacher_learn_them_and_the_plain_one_does_not(
    base_folder: Path, labelled_rows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = start_from(base_folder, labels=("up", "down"), seed=3)
    save_model(tmp_path / "teacher", model, tokenizer)
    (tmp_path / "train.tsv").write_text("\n".join(labelled_rows[:33]) + "\n")
    (tmp_path / "dev.tsv").write_text("\n".join([labelled_rows[0], *labelled_rows[60:90]]) + "\n")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS + TEXTS[:28]) + "\n")
    settings = FinetuneSettings(
        epochs=1, batch_size=10, learning_rate=3e-3, precision="fp32", max_length=16, baseline=False
    )
    options: dict[str, Any] = {
        "teacher": tmp_path / "teacher", "data": tmp_path / "train.tsv",
        "dev": tmp_path / "dev.tsv", "out": tmp_path / "out", "settings": settings, "seeds": 1,
        "student": StudentConfig(student="1/24"), "side_by_side": 1,
    }  # fmt: skip
    config = DistilConfig(**options, teaching=TeachingConfig(unlabelled=tmp_path / "texts.txt"))
    distil(config)
    assert "unlabelled: 68 texts of" in " ".join(capsys.readouterr().err.split())
    steps = {
        name: json.loads((tmp_path / f"out/{name}/seed-0/result.json").read_text())["losses"][-1][0]
        for name in ("distilbert", "plain")
    }
    # batches of ten: an epoch of 32 rows and 68 texts is 10; one of 32 rows 4, and 4 are as many
    assert steps == {"distilbert": 10, "plain": 16}
    # with other texts it is another run
    (tmp_path / "texts.txt").write_text("other\n")
    with pytest.raises(UserError, match="unlabelled_hash"):
        distil(config)


TAGGED = [
    "word1 B-X\nword2 I-X\nbad O\n",
    "word3 O\nword4 B-X\ngood O\n",
    "word0 B-X\ngood O\nbad O\n",
]
SENTENCES = {
    "raw texts": ("more.txt", "word5 good, bad\n\nword6 bad\nword1 word2 bad\n"),
    "words in columns": ("more.conll", "word5\ngood\n,\nbad\n\nword6\nbad\n\nword1\nword2\nbad\n"),
    "tags that are not read": ("more.conll", "word5 O\ngood B-Y\n, O\nbad O\n\nword6 O\nbad O\n"),
}


@pytest.mark.parametrize("case", SENTENCES)
@torch.no_grad()
def test_sentences_are_tagged_by_the_teacher_as_transformers_tags_them(
    base_folder: Path, tmp_path: Path, case: str
) -> None:
    name, text = SENTENCES[case]
    (tmp_path / name).write_text(text)
    (tmp_path / "train.conll").write_text("\n".join(TAGGED))
    task, labels = task_named("tag"), ("O", "B-X", "I-X")
    model, tokenizer = start_from(base_folder, predicts="tags", labels=labels, seed=6)
    for parameter in model.encoder.parameters():
        parameter.mul_(3)
    for parameter in model.heads.parameters():
        parameter.mul_(20)
    save_model(tmp_path / "model", model, tokenizer)
    rows = list(task.reader.labelled(tmp_path / "train.conll", Reading()))
    data = LabelledData(task=task, labels=labels, train=rows, dev=rows[:1], dev_is_cut=False)
    prepared = prepare(data, tokenizer, ReadingLimits(longest=40, long="head"))
    read = read_unlabelled(tmp_path / name, data, Reading(), tmp_path / "train.conll")
    found = with_teacher_answers(load_model(tmp_path / "model")[0], prepared, read)
    # the third is among the labelled ones
    words = [["word5", "good", ",", "bad"], ["word6", "bad"]]
    assert [[row.text[start:end] for start, end in row.words] for row in found] == words
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "model").eval()
    fast = AutoTokenizer.from_pretrained(tmp_path / "model")
    tags = []
    for row in words:
        given = fast(row, is_split_into_words=True, return_tensors="pt")
        best = theirs(**given).logits[0].argmax(-1).tolist()
        first = [given.word_ids().index(number) for number in range(len(row))]
        tags.append(tuple(theirs.config.id2label[best[place]] for place in first))
    assert [row.tags for row in found] == tags
    assert len({tag for row in tags for tag in row}) > 1


def test_a_tagger_is_distilled_with_copies_and_with_sentences_without_tags(
    base_folder: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    sentences = [
        [(f"word{n}", "B-X" if n % 3 == 0 else "O") for n in random.integers(0, 30, 5)]
        for _ in range(40)
    ]
    written = ["".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences]
    (tmp_path / "train.conll").write_text("\n".join(written[:16]))
    (tmp_path / "dev.conll").write_text("\n".join(written[16:28]))
    more = [" ".join(word for word, _ in sentence) for sentence in sentences[28:]]
    (tmp_path / "more.txt").write_text("\n".join(more) + "\n")
    model, tokenizer = start_from(base_folder, predicts="tags", labels=("O", "B-X"), seed=3)
    save_model(tmp_path / "teacher", model, tokenizer)
    outcome = distil(
        DistilConfig(
            teacher=tmp_path / "teacher", data=tmp_path / "train.conll",
            dev=tmp_path / "dev.conll", out=tmp_path / "out", method=("tinybert",), seeds=1,
            student=StudentConfig(student="1/24"), side_by_side=1,
            teaching=TeachingConfig(unlabelled=tmp_path / "more.txt", augment=1),
            settings=FinetuneSettings(
                epochs=2, batch_size=4, learning_rate=3e-3, precision="fp32", max_length=16,
                baseline=False,
            ),
        )
    )  # fmt: skip
    assert isinstance(outcome, DistilOutcome)
    result = json.loads((tmp_path / "out/tinybert/seed-0/result.json").read_text())
    # 16 sentences, a copy of each, and 12 without tags, by fours, twice
    assert result["losses"][-1][0] == 22
    assert all(math.isfinite(loss) for _, loss in result["losses"])


def test_what_cannot_be_is_refused_in_a_line(
    base_folder: Path, tmp_path: Path, labelled_rows: list[str]
) -> None:
    model, tokenizer = start_from(base_folder, labels=("up", "down"), seed=3)
    save_model(tmp_path / "teacher", model, tokenizer)
    train = tmp_path / "train.tsv"
    train.write_text("\n".join(labelled_rows[:33]) + "\n")
    config = DistilConfig(
        teacher=tmp_path / "teacher", data=train, dev=train, out=tmp_path / "out",
        student=StudentConfig(student="1/24"),
        teaching=TeachingConfig(unlabelled=tmp_path / "texts.txt"),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"texts\.txt: .*[Nn]o such file"):
        distil(config)
    texts = [row.split("\t")[1] for row in labelled_rows[1:33]]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    with pytest.raises(
        UserError, match=r"texts\.txt: has no texts that are not among the labelled"
    ):
        distil(config)
    assert not (tmp_path / "out").exists()


def test_a_student_of_numbers_starts_in_the_units_that_it_is_taught_in(
    base_folder: Path, tmp_path: Path
) -> None:
    """The teacher's answers change mean and spread; with all its layers, there is no loss yet."""
    model, tokenizer = start_from(base_folder, predicts="number", labels=("number",), seed=3)
    save_model(tmp_path / "teacher", model, tokenizer)
    rows = [{"text": f"word{n} good", "label": 100 + 7.5 * n} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    settings = FinetuneSettings(
        epochs=1, batch_size=16, precision="fp32", dropout=0.0, max_length=16, baseline=False
    )
    config = DistilConfig(
        teacher=tmp_path / "teacher", data=tmp_path / "rows.jsonl", out=tmp_path / "out",
        student=StudentConfig(student="2/24"), settings=settings, seeds=1, plain=False,
        teaching=TeachingConfig(unlabelled=tmp_path / "texts.txt"), side_by_side=1,
    )  # fmt: skip
    distil(config)
    log = (tmp_path / "out" / "distilbert" / "seed-0" / "log.jsonl").read_text().splitlines()
    close_when_regrouped([json.loads(log[0])["soft_targets_loss"]], [0.0])
