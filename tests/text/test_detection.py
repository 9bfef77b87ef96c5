from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.detection import recognise
from mutated import good_files

SQUAD_ROW = {
    "id": "1",
    "question": "?",
    "context": "x",
    "answers": {"text": [], "answer_start": []},
}
SENTENCES = "Ann B-PER\nruns O\n\nBob B-PER\nsits O\n\n"


def table(*rows: str) -> str:
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "task", "reason"),
    [
        ("a.csv", "text,label\nx,a\ny,b\n", "classify", "one text, and 'label' holds 2 classes"),
        ("a.csv", "review,stars\nx,1\ny,5\n", "classify", "'stars' holds 2 classes"),
        (
            "a.tsv",
            "".join(f"ham\tx{n}\nspam\ty{n}\n" for n in range(9)),
            "classify",
            "column 0 holds 2 classes",
        ),
        (
            "a.tsv",
            "premise\thypothesis\tlabel\nx\ty\ta\n",
            "pair",
            "two texts, and 'label' holds 1",
        ),
        ("a.tsv", "text\tscore\nx\t1\ny\t2.5\n", "regression", "'score' holds numbers with fract"),
        ("a.tsv", "sentence1\tsentence2\tscore\nx\ty\t.5\n", "regression", "with fractions"),
        ("a.tsv", "text\tlabels\nx\ta\ny\ta|b\n", "multi-label", "labels with | between them"),
        ("a.jsonl", '{"text": "x", "labels": ["a"]}\n', "multi-label", "holds lists of labels"),
        ("a.jsonl", '{"text": "x", "label": true}\n', "classify", "'label' holds 1 class"),
        ("a.tsv", "query\tpassage\tlabel\nq\tp\t1\n", "rank", "it has 'query' and 'passage'"),
        ("a.tsv", "qid\tquery\ttext\tlabel\n1\tq\tp\t1\n", "rank", "it has 'query' and 'qid'"),
        ("a.jsonl", json.dumps(SQUAD_ROW), "span", "it has 'question', 'context' and 'answers'"),
        ("a.json", '{"data": [{"paragraphs": []}]}', "span", "it has SQuAD's layout"),
        ("a.xml", "<copa></copa>", "choice", ".xml file without <pair>s has COPA's layout"),
        ("a.csv", "sent1,ending0,ending1,label\nx,y,z,0\n", "choice", "'ending0', 'ending1'"),
        ("a.jsonl", '{"question": "x", "choices": ["y", "z"]}', "choice", "options: 'choices'"),
        ("a.jsonl", '{"text": "x", "entities": [[0, 1, "A"]]}', "tag", "positions of entities"),
        ("a.jsonl", '{"tokens": ["x"], "ner_tags": ["O"]}', "tag", "tokens and their tags"),
        ("a.txt", SENTENCES, "tag", "words with tags of entities"),
        ("a.tsv", SENTENCES.replace(" ", "\t") * 2, "tag", "rows are words with tags"),
        ("a.txt", "Ann N\nruns V\n\nBob N\nsits V\n", "tag", "words with tags, in sentences"),
        ("a.txt", "-DOCSTART-\n\nx O\n", "tag", "it begins with -DOCSTART-"),
        ("a.conllu", "", "tag", "a .conllu file has a word and its tags per line"),
        ("a.label.gz", "", "classify", "lines begin with their label, as in any .label file"),
        ("RTE/dev.tsv", "", "glue", "the name and place of GLUE's RTE, dev"),
        ("mnli/dev_matched.tsv.gz", "", "glue", "GLUE's MNLI, dev_matched"),
    ],
)
def test_tasks(tmp_path: Path, name: str, text: str, task: str, reason: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    found = recognise(path)
    assert found.task == task
    assert reason in found.reason
    assert found.glue == {"R": "RTE", "m": "MNLI"}.get(name[0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "Just a line.\n", "a label and a text, or --task tag for words"),
        (
            "a.csv",
            "words,kind\nx,a\n",
            "--text-column; the columns are: 'words', 'kind'; if its first ",
        ),
        ("a.csv", "text,kind\nx,a\n", "name it with --label-column"),
        ("a.csv", "", "holds no examples"),
        ("a.jsonl", "\n", "holds no examples"),
        ("a.jsonl", '{"text": "x"}\n', "; if its rows are not texts with a label, pass --task tag"),
    ],
)
def test_what_is_uncertain(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ExampleError) as caught:
        recognise(tmp_path / name)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / name))


def test_many_whole_numbers_may_be_classes_or_amounts(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"x\t{n}\n" for n in range(30)))
    with pytest.raises(ExampleError, match="pass --task classify or --task regression"):
        recognise(path)


def test_what_is_named_decides(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("body,rude,loud\nx,0,1\n")
    found = recognise(path, Columns(labels=("rude", "loud")))
    assert (found.task, found.reason) == (
        "multi-label",
        "its labels are columns of 0 and 1: rude, loud",
    )
    path = tmp_path / "train.txt"
    path.write_text("A x\n")
    found = recognise(path, Columns(layout="label-first"))
    assert (found.task, found.reason[-9:]) == ("classify", "as stated")


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "glue" / "cola").mkdir(parents=True)
    (tmp_path / "glue" / "SST-2").mkdir()
    (tmp_path / "glue" / "cola" / "dev.tsv").write_text("")
    (tmp_path / "glue" / "SST-2" / "test.tsv").write_text("")
    (tmp_path / "glue" / "RTE").mkdir()
    found = recognise(tmp_path / "glue")
    assert (found.task, found.glue) == ("glue", None)
    assert found.reason == "it has the files of GLUE's CoLA, SST-2"
    assert recognise(tmp_path / "glue" / "cola").glue == "CoLA"
    (tmp_path / "films").mkdir()
    for label in ("pos", "neg"):
        (tmp_path / "films" / f"{label}.txt").write_text("x\n")
    found = recognise(tmp_path / "films")
    assert (found.task, found.reason) == (
        "classify",
        "it holds 2 files or folders, apparently one per class, such as 'neg'",
    )
    for number in range(40):
        (tmp_path / "films" / f"n{number}.txt").write_text("x\n")
    with pytest.raises(ExampleError, match="pass --task classify if they are classes"):
        recognise(tmp_path / "films")
    with pytest.raises(ExampleError, match="holds nothing, so no classes"):
        recognise(tmp_path / "glue" / "RTE")


TASK_OF = {
    "class": "classify", "classes": "multi-label", "number": "regression",
    "stories": "choice",
}  # fmt: skip


def test_every_good_file_is_recognised(tmp_path: Path) -> None:
    for name, (data, reader) in good_files().items():
        path = tmp_path / name
        path.write_bytes(data)
        columns = USUAL
        if reader == "flags":
            columns = Columns(labels=("rude", "loud"))
        elif "CoLA" in reader:
            continue  # known by its folder
        expected = TASK_OF.get(reader, reader)
        if reader in ("flags", "id", "label-first"):
            expected = "multi-label" if reader == "flags" else "classify"
        if name in ("pair.tsv", "rte.xml"):
            expected = "pair"
        assert recognise(path, columns).task == expected, name
