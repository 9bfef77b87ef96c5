from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.detection import recognise, unread_texts
from bertsmith.text.examples.formats.choices import read_choices
from mutated import good_files

SQUAD_ROW = {
    "id": "1",
    "question": "?",
    "context": "x",
    "answers": {"text": [], "answer_start": []},
}
SENTENCES = "Ann B-PER\nruns O\n\nBob B-PER\nsits O\n\n"
# types of entities may have spaces
SPACED = SENTENCES.replace(" ", "\t").replace("PER", "first name")


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
        ("a.csv", "claim,evidence,label\nx,y,a\n", "pair", "two texts, and 'label' holds 1"),
        ("a.csv", "question,context,label\nx,y,a\n", "pair", "two texts, and 'label' holds 1"),
        ("a.csv", "question,answer\nx,a\ny,b\n", "classify", "'answer' holds 2 classes"),
        ("a.csv", "review,q1,q2,label\nx,1,2,a\n", "classify", "one text, and 'label' holds 1"),
        ("a.csv", "text,question,answer,label\nx,y,z,a\n", "classify", "one text, and 'label'"),
        ("a.tsv", "text\tscore\nx\t1\ny\t2.5\n", "regression", "'score' holds numbers with fract"),
        ("a.tsv", "sentence1\tsentence2\tscore\nx\ty\t.5\n", "regression", "with fractions"),
        ("a.tsv", "text\tlabels\nx\ta\ny\ta|b\n", "multi-label", "labels with | between them"),
        ("a.jsonl", '{"text": "x", "labels": ["a"]}\n', "multi-label", "holds lists of labels"),
        ("a.tsv", "text\tlabel\nx\t[]\ny\t['a']\n", "multi-label", "holds lists of labels"),
        ("a.tsv", "text\tlabel\nx\t[a]\ny\t[b]\n", "classify", "'label' holds 2 classes"),
        ("a.jsonl", '{"text": "x", "label": true}\n', "classify", "'label' holds 1 class"),
        ("a.tsv", "query\tpassage\tlabel\nq\tp\t1\n", "rank", "it has 'query' and 'passage'"),
        ("a.tsv", "qid\tquery\ttext\tlabel\n1\tq\tp\t1\n", "rank", "it has 'query' and 'qid'"),
        ("a.jsonl", json.dumps(SQUAD_ROW), "span", "it has 'question', 'context' and 'answers'"),
        ("a.json", '{"data": [{"paragraphs": []}]}', "span", "it has SQuAD's layout"),
        ("a.xml", "<copa><item></item></copa>", "choice", "its <item>s have COPA's layout"),
        ("a.csv", "sent1,ending0,ending1,label\nx,y,z,0\n", "choice", "'ending0', 'ending1'"),
        ("a.jsonl", '{"question": "x", "choices": ["y", "z"]}', "choice", "options: 'choices'"),
        ("a.jsonl", '{"text": "x", "entities": [[0, 1, "A"]]}', "tag", "positions of entities"),
        ("a.jsonl", '{"tokens": ["x"], "ner_tags": ["O"]}', "tag", "tokens and their tags"),
        ("a.txt", SENTENCES, "tag", "words with tags of entities"),
        ("a.tsv", SENTENCES.replace(" ", "\t") * 2, "tag", "rows are words with tags"),
        ("a.txt", SPACED, "tag", "words with tags of entities"),
        ("a.tsv", SPACED * 2, "tag", "rows are words with tags"),
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
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    found = recognise(path)
    assert found.task == task
    assert reason in found.reason
    assert found.glue == {"R": "RTE", "m": "MNLI"}.get(name[0])


@pytest.mark.parametrize("name", ["topics", "Genres", "categories", "emotions"])
def test_labels_are_found_under_names_in_the_plural(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.csv"
    rows = [f'text {n},"{("late", "late, rude", "rude")[n % 3]}"' for n in range(12)]
    path.write_text(table(f"text,{name}", *rows))
    found = recognise(path)
    assert (found.task, name in found.reason) == ("multi-label", True)


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
        (
            "a.csv",
            "Question A,Question B,Same?,Comment\nx,y,no,ok\n",
            "name it with --label-column (the text is 'Comment')",
        ),
        (
            "a.csv",
            "First,Second,kind\nx,y,a\n",
            "name the second text of a pair with --text-pair-column",
        ),
        (
            "a.jsonl",
            '{"query": "a", "positive": "b", "negative": "c"}\n',
            "to rank passages, write each in a row of its own: query, passage and relevance",
        ),
        (
            "a.jsonl",
            '{"query": "a", "passages": {"passage_text": ["b"], "is_selected": [1]}}\n',
            "to rank passages, write each in a row of its own: query, passage and relevance",
        ),
        (
            "a.csv",
            "question,answer,label\nx,y,1\n",
            "pass --text-column question --text-pair-column answer, or --text-column question",
        ),
        (
            "a.jsonl",
            '{"query": "a", "answer": "b", "relevance": 1}\n',
            "'query' and 'answer' may be pairs, or the text may be 'query' alone",
        ),
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


@pytest.mark.parametrize("names", ["candidate_1,candidate_2", "reply a,reply b,reply c"])
def test_columns_that_may_be_options_are_asked_about(tmp_path: Path, names: str) -> None:
    path = tmp_path / "a.csv"
    count = len(names.split(","))
    texts = [",".join(f"text {n} of {place}" for place in range(count)) for n in range(9)]
    rows = (f"question {n}?,{text},{n % 2 + 1}" for n, text in enumerate(texts))
    path.write_text(table(f"question,{names},label", *rows))
    with pytest.raises(ExampleError, match=r"may be options to choose from; call them option1"):
        recognise(path)
    # no number of an option
    rows = (f"question {n}?,{text},{'ab'[n % 2]}x" for n, text in enumerate(texts))
    path.write_text(table(f"question,{names},label", *rows))
    assert recognise(path).task == "classify"
    # no texts
    rows = (f"question {n}?{',word' * count},{n % 2 + 1}" for n in range(9))
    path.write_text(table(f"question,{names},label", *rows))
    assert recognise(path).task == "classify"


@pytest.mark.parametrize("form", ["{}%", "{}.5 %", "${},000.00", "-{} \u20ac"])
def test_many_numbers_with_a_sign_are_asked_about(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.tsv"
    rows = [f"text {n}\t{form.format(n % 30)}" for n in range(60)]
    path.write_text(table("text\tscore", *rows), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"and 29 other numbers with a sign; write them without"):
        recognise(path)
    rows = [f"text {n}\t{form.format(n % 3)}" for n in range(60)]
    path.write_text(table("text\tscore", *rows), encoding="utf-8")
    assert recognise(path).task == "classify"


def test_several_answers_and_the_number_of_one_are_multiple_choice(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    row = {"context": "c", "question": "q", "answers": ["x", "y", "z"], "label": 2}
    path.write_text(json.dumps([row, {**row, "label": 0}]))
    assert recognise(path).task == "choice"
    found = read_choices(path, need_label=True)
    assert [(each.choices, each.label) for each in found] == [
        (("x", "y", "z"), 2),
        (("x", "y", "z"), 0),
    ]
    # several judgements of where the answer stands
    row = {"context": "x y z", "question": "q", "answers": ["x", "y", "z"], "label": "a"}
    path.write_text(json.dumps([row, row]))
    assert recognise(path).task == "span"


def test_entities_in_the_cells_of_a_table_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    mark = json.dumps([{"start": 0, "end": 3, "labels": ["PER"]}]).replace('"', '""')
    path.write_text(table("id,text,label", f'1,Ann ran,"{mark}"', "2,nobody ran,[]"))
    with pytest.raises(ExampleError, match=r"'label' holds lists of entities in cells; export it"):
        recognise(path)
    record = {"id": 1, "data": {"text": "x"}, "annotations": []}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([record]))
    with pytest.raises(ExampleError, match=r"export it from Label Studio as JSON-MIN, whose"):
        recognise(path)


def test_paragraphs_outside_of_squads_layout_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"context": "x", "qas": []}]))
    with pytest.raises(ExampleError, match=r"holds paragraphs alone; put them into SQuAD's layout"):
        recognise(path)


def test_xml_of_neither_layout_is_no_multiple_choice(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text('<reviews><review rating="5"><text>x</text></review></reviews>')
    with pytest.raises(ExampleError, match=r"holds neither <pair>s of texts nor COPA's <item>s"):
        recognise(path)


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


def _reviews(count: int = 20) -> list[dict[str, object]]:
    return [
        {
            "title": f"this is title number {n} of all",
            "text": f"the film is text {n}",
            "label": n % 2,
            "place": ("the United States of America", "the Isle of Man")[n % 2],
            "when": f"Mon Apr {n} 22:19:45 PDT 2009",
            "parts": f'["a list of parts", "number {n}"]',
            "url": f"https://news.example/the-name-of-a-story-{n}",
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_columns_of_texts_that_are_not_read_are_named(tmp_path: Path, kind: str) -> None:
    """They were dropped without a word; places, dates, lists and addresses are no texts."""
    file, rows = tmp_path / f"a.{kind}", _reviews()
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with file.open("w", newline="", encoding="utf-8") as opened:
            writer = csv.DictWriter(opened, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    note = f"a.{kind}: 'title' holds texts too, and is not read; --text-pair-column names a second"
    assert unread_texts(file, USUAL, grouped=False) == f"{note} text"
    for columns in (Columns(text="text"), Columns(text="title", text_pair="text")):
        assert unread_texts(file, columns, grouped=False) == ""
    pair = Columns(text_pair="title")
    assert unread_texts(file, pair, grouped=False) == ""
