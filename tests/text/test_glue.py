from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.evaluation.metrics import CLASS_SCORES
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.choices import read_choices
from bertsmith.text.examples.formats.conll import read_tagged
from bertsmith.text.examples.formats.squad import read_questions
from bertsmith.text.examples.glue import TASKS, find_glue, read_glue, task_of
from bertsmith.text.examples.reading import read_examples

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
MNLI = "index\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n"
AGREED = "neutral\tentailment\tentailment"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
QNLI = "index\tquestion\tsentence\tlabel\n"


LARGE = 10_000


def test_the_table_is_whole() -> None:
    assert list(TASKS) == [
        *("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI", "AX")
    ]
    for task in TASKS.values():
        assert set(task.sizes) == set(task.splits)
        assert set(task.submission) == set(task.test)
        assert set(task.metrics) <= {*CLASS_SCORES, "pearson", "spearman"}
        assert (task.predicts == "number") == (task.name == "STS-B") == (not task.labels)


@pytest.mark.parametrize(
    ("name", "split", "text", "expected"),
    [
        ("CoLA", "train", 'gj\t1\t\tHe said "no.\n', ('He said "no.', None, "1", None)),
        ("CoLA", "dev", "gj\t0\t*\tsentence\n", ("sentence", None, "0", None)),
        ("CoLA", "test", "index\tsentence\n3\tHe.\n", ("He.", None, None, "3")),
        ("MRPC", "dev", f"\ufeff{MRPC}1\t2\t3\tx\ty\n", ("x", "y", "1", None)),
        ("MNLI", "dev_mismatched", f"{MNLI}0\tx\ty\t{AGREED}\n", ("x", "y", "entailment", None)),
        ("QQP", "train", f"{QQP}1\t2\t3\tx?\ty?\t0\n", ("x?", "y?", "0", None)),
        ("QQP", "test", "id\tquestion1\tquestion2\n8\tx?\ty?\n", ("x?", "y?", None, "8")),
        ("QNLI", "dev", f"{QNLI}0\tx?\ty\tentailment\n", ("x?", "y", "entailment", None)),
        ("AX", "test", "index\tsentence1\tsentence2\n0\tx\ty\n", ("x", "y", None, "0")),
    ],
)
def test_files_as_they_are_distributed(
    tmp_path: Path, name: str, split: str, text: str, expected: tuple[str | None, ...]
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(text)
    (found,) = read_glue(path, TASKS[name], split)
    assert (found.text, found.text_pair, found.label, found.id) == expected


def test_scores_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("index\tgenre\tsentence1\tsentence2\tscore\n0\tg\tx\ty\t4.250\n")
    (found,) = read_glue(path, TASKS["STS-B"], "train")
    assert found.number == 4.25


def test_microsofts_own_files_of_mrpc(tmp_path: Path) -> None:
    folder = tmp_path / "MRPC"
    folder.mkdir()
    rows = f"{MRPC}1\t2\t3\tx\ty\n0\t2\t3\tz\ty\n"
    for split in ("train", "test"):
        (folder / f"msr_paraphrase_{split}.txt").write_text(rows)
    files = find_glue(tmp_path)["MRPC"]
    assert list(files) == ["train", "test"]
    train = list(read_glue(files["train"], TASKS["MRPC"], "train"))
    assert [sentence.label for sentence in train] == ["1", "0"]
    test = list(read_glue(files["test"], TASKS["MRPC"], "test"))
    assert [(sentence.text, sentence.label, sentence.id) for sentence in test] == [
        ("x", None, "0"),
        ("z", None, "1"),
    ]


def test_finding_files(tmp_path: Path) -> None:
    for name in (
        "sst-2/dev.tsv.gz",
        "MNLI/train.tsv",
        "diagnostic/diagnostic.tsv",
        "RTE/notes.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = find_glue(tmp_path)
    assert {task: list(files) for task, files in found.items()} == {
        "SST-2": ["dev"],
        "MNLI": ["train"],
        "AX": ["test"],
    }
    assert find_glue(tmp_path / "MNLI") == {"MNLI": {"train": tmp_path / "MNLI" / "train.tsv"}}
    known = task_of(tmp_path / "sst-2" / "dev.tsv.gz")
    assert known is not None
    assert (known[0].name, known[1]) == ("SST-2", "dev")
    assert task_of(tmp_path / "RTE" / "notes.txt") is None
    with pytest.raises(
        ExampleError, match="contains no files of GLUE; name the folder that contains CoLA/"
    ):
        find_glue(tmp_path / "RTE")
    with pytest.raises(ExampleError, match="cannot be read"):
        find_glue(tmp_path / "none")


def test_real_glue_has_the_published_sizes(data_folder: Path) -> None:
    found = find_glue(data_folder / "glue")
    assert list(found) == ["CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "RTE", "WNLI"]
    for name, files in found.items():
        task = TASKS[name]
        for split, path in files.items():
            if task.sizes[split] > LARGE:
                continue  # read among the faults
            bad = BadRows("skip")
            examples = list(read_glue(path, task, split, bad=bad))
            assert (len(examples), bad.count) == (task.sizes[split], 0), (name, split)
            if split in task.test:
                assert [example.id for example in examples] == [
                    str(n) for n in range(len(examples))
                ]
            elif task.labels:
                assert {example.label for example in examples} == set(task.labels)


@pytest.mark.parametrize(
    ("split", "sentences", "entities"),
    [("test", 3_453, 5_648), pytest.param("dev", 3_250, 5_942, marks=pytest.mark.faults)],
)
def test_real_tags_have_the_published_sizes(
    data_folder: Path, split: str, sentences: int, entities: int
) -> None:
    path = data_folder / "conll2003" / f"{split}.txt"
    tagged = list(read_tagged(path, need_tags=True))
    assert len(tagged) == sentences
    assert sum(len(item.entities or ()) for item in tagged) == entities
    assert recognise(path).task == "tag"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("train-v1.1-subset4330", 4_330),
        pytest.param("dev-v1.1-firstanswer", 10_268, marks=pytest.mark.faults),
    ],
)
def test_real_questions_have_the_published_sizes(data_folder: Path, name: str, count: int) -> None:
    path = data_folder / "squad" / f"{name}.json"
    questions = list(read_questions(path, need_answers=True))
    ids = [
        asked["id"]
        for article in json.loads(path.read_text())["data"]
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
    assert [question.id for question in questions] == ids
    assert len(ids) == count


def test_other_real_files_have_the_published_sizes(data_folder: Path) -> None:
    for split in ("dev", "test"):
        choices = list(read_choices(data_folder / "copa" / f"copa-{split}.xml", need_label=True))
        assert (len(choices), sum(choice.label or 0 for choice in choices)) == (500, 250)
    latin = Columns(layout="label-first", label_until=":", encoding="iso-8859-1")
    for name, count in (("train_5500", 5_452), ("TREC_10", 500)):
        path = data_folder / "trec" / f"{name}.label"
        examples = list(read_examples(path, latin, need_label=True))
        assert (len(examples), len({example.label for example in examples})) == (count, 6)
    films = list(read_examples(data_folder / "rt-polarity", need_label=True))
    assert [sum(film.label == label for film in films) for label in ("neg", "pos")] == [5_331] * 2
