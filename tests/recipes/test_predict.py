from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import sys
from itertools import cycle
from pathlib import Path
from select import select
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
import torch
import transformers

from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, DiskError, ExampleError, ModelFolderError
from bertsmith.engine.config import FULL_PRECISION, ContinuationConfig
from bertsmith.engine.predictor import Predictor
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts, Preprocessing
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.loaded import load
from bertsmith.recipes.predict.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.predict.evaluate import evaluate
from bertsmith.recipes.predict.recipe import answer_rows, predict
from bertsmith.recipes.predict.rows import value_rows
from bertsmith.tasks.answering import answering_of
from bertsmith.tasks.config import AnsweringConfig, Reading
from bertsmith.tasks.tag import TAG
from bertsmith.text.config import Columns
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from
from forking import Forked


@pytest.fixture(scope="module")
def classifier(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, tiny_tokenizer: Tokenizer
) -> Path:
    model, _ = start_from(base_folder, labels=("ham", "spam", "long name"), seed=3)
    folder = tmp_path_factory.mktemp("classifier") / "model"
    save_model(folder, model, tiny_tokenizer)
    return folder


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def typed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_lines_of_standard_input_are_classified_in_order(
    classifier: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "\ufeffword1 good\r\n\r\nWORD2  bad\nété [SEP] 中".encode())
    predict(PredictConfig(model=classifier, format="jsonl"))
    told = capsys.readouterr()
    assert "reading standard input: each line is a text\n" in told.err
    found = [json.loads(line) for line in told.out.splitlines()]
    assert [result["text"] for result in found] == ["word1 good", "", "WORD2  bad", "été [SEP] 中"]
    assert found.pop(1) == {
        "text": "", "label": None, "probability": None, "probabilities": None
    }  # fmt: skip
    for result in found:
        shares = result["probabilities"]
        assert isinstance(shares, dict)
        assert set(shares) == {"ham", "spam", "long name"}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert result["label"] == max(shares, key=shares.__getitem__)
        assert result["probability"] == max(shares.values())


def test_lines_are_answered_before_more_of_them_are_waited_for(classifier: Path) -> None:
    """With `tail -f messages.log |` before the command, nothing was written for 2,048 lines."""
    command = [sys.executable, "-m", "bertsmith", "predict", str(classifier), "--format", "jsonl"]
    with Forked[bytes](command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for lines, texts in (
            (b"word1\n", ["word1"]),
            (b"word2\nwor", ["word2"]),
            (b"d3\n\n", ["word3", ""]),
        ):
            process.stdin.write(lines)
            for text in texts:
                assert select([process.stdout], [], [], 60)[0], "nothing was answered"
                assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    "line",
    ["predict classifier rows.csv", "predict base rows.jsonl", "score base rows.tsv",
     "embed base rows.csv --out vectors.npy", "embed base rows.parquet --out vectors.npy",
     "evaluate classifier rows", "finetune base rows --out run",
     "finetune base few.csv --dev rows --out run", "inspect base rows --out page.html",
     "quantize classifier --calibrate few.csv --dev rows --out int8"],
)  # fmt: skip
def test_a_pipe_that_is_read_more_than_once_is_refused(
    line: str, classifier: Path, base_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The second reading waited for ever."""
    monkeypatch.chdir(tmp_path)
    (pipe,) = re.findall(r"rows[.a-z]*", line)
    os.mkfifo(pipe)
    Path("few.csv").write_text("text,label\nword1 good,ham\nword2 bad,spam\n" * 9, encoding="utf-8")
    folders = {"classifier": str(classifier), "base": str(base_folder)}
    assert main([folders.get(word, word) for word in line.split()]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"bertsmith: {pipe}: is a pipe, and has to be read more than once; write"
    )


def test_bad_rows_of_a_pipe_have_no_place(classifier: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "texts"
    os.mkfifo(pipe)
    config = PredictConfig(model=classifier, file=str(pipe), reading=Reading(on_bad="quarantine"))
    with pytest.raises(
        ConfigError, match=r"beside their file, and .*texts is none; give --on-bad s"
    ):
        predict(config)


def test_json_on_standard_input_is_said_to_be_read_as_text(
    classifier: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, b'{"text": "word1 good"}\n{"text": "bad"}\n')
    predict(PredictConfig(model=classifier, format="jsonl"))
    told = capsys.readouterr()
    assert told.err.count("standard input looks like JSONL, but its lines are read as texts") == 1
    assert [json.loads(line)["text"] for line in told.out.splitlines()][1] == '{"text": "bad"}'


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ("id,text", "CSV"), ('"Text","Label"', "CSV"), ("sentence\tlabel", "TSV"),
        ("text,my own column", ""), ("a good text, a body, and more", ""), ("text", ""),
    ],
)  # fmt: skip
def test_a_table_on_standard_input_is_said_to_be_read_as_text(
    first: str,
    kind: str,
    classifier: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed(monkeypatch, f"{first}\nword1 good\n".encode())
    predict(PredictConfig(model=classifier, format="jsonl"))
    told = capsys.readouterr()
    warning = f"standard input looks like {kind}, but its lines are read as texts"
    assert told.err.count(warning) == (kind != "")
    assert ("looks like" in told.err) == (kind != "")
    assert len(told.out.splitlines()) == 2


def test_a_model_of_several_numbers_is_refused_in_place_of_the_first_being_given(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, predicts="number", labels=("valence", "arousal"), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    (tmp_path / "texts.txt").write_text("word1 good\n", encoding="utf-8")
    with pytest.raises(ModelFolderError, match="has 2 numbers for a text; only one is supported"):
        predict(PredictConfig(model=tmp_path / "model", file=str(tmp_path / "texts.txt")))


def test_tables_are_read_by_their_columns_and_long_texts_are_told(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": "word1", "text_pair": "good"}, {"text": "word2 " * 100_000, "text_pair": "x"}]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    predict(
        PredictConfig(
            model=classifier, file=str(tmp_path / "asked.jsonl"), answering=AnsweringConfig(top=2)
        )
    )
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    beginning = "only the beginning was read; --truncation chooses the part that is read"
    assert f"1 of 2 texts was longer than 40 tokens: {beginning}" in printed.err
    in_windows = AnsweringConfig(truncation="windows")
    predict(
        PredictConfig(model=classifier, file=str(tmp_path / "asked.jsonl"), answering=in_windows)
    )
    told = capsys.readouterr().err.splitlines()
    assert "1 of 2 texts was longer than 40 tokens: read in windows" in told


def test_a_question_of_which_not_all_is_read_is_named(
    reader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [{"text": "good", "answer_start": 6}]
    whole = {"context": "word2 good word3", "answers": answers}
    rows = [{"id": str(size), "question": "word1 " * size, **whole} for size in (3, 50, 4, 29, 30)]
    file = tmp_path / "asked.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    said = "asked.jsonl:2: the question has 50 tokens, of which the first 29 are read"
    predict(PredictConfig(model=reader, file=str(file)))
    assert f"{said} (the first of 2 such rows)\n" in capsys.readouterr().err
    evaluate(EvaluateConfig(model=reader, file=file))
    told = capsys.readouterr().err
    assert f"{said} (the first of 2 such rows)\n" in told
    # as in fine-tuning
    assert "5 questions, question answering (1 context)\n" in told


@pytest.fixture(scope="module")
def reader(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, tiny_tokenizer: Tokenizer
) -> Path:
    model, _ = start_from(base_folder, labels=(), seed=3, predicts="span")
    folder = tmp_path_factory.mktemp("reader") / "model"
    save_model(folder, model, tiny_tokenizer)
    return folder


def test_blank_questions_have_blank_answers(
    reader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "", "context": "word1"},
        {"question": "word2", "context": None},
    ]
    file = tmp_path / "asked.jsonl"
    for asked in (rows, [*rows, {"question": "word1", "context": "word2"}]):
        file.write_text("\n".join(map(json.dumps, asked)), encoding="utf-8")
        predict(PredictConfig(model=reader, file=str(file), format="jsonl"))
        found = objects(capsys)
        assert [result["question"] for result in found] == [
            request["question"] for request in asked
        ]
    assert [result["answer"] for result in found] == [None, None, "word2"]


def test_blank_texts_have_blank_tags(
    base_folder: Path,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, _ = start_from(base_folder, labels=("O", "B-A"), seed=3, predicts="tags")
    save_model(tmp_path / "tags", model, tiny_tokenizer)
    file = tmp_path / "asked.jsonl"
    file.write_text('{"text": " "}\n{"text": "word1"}\n', encoding="utf-8")
    predict(PredictConfig(model=tmp_path / "tags", file=str(file), format="jsonl"))
    assert [item["entities"] is None for item in objects(capsys)] == [True, False]


def test_who_asks_a_reader_with_plain_text_is_told_what_it_reads(
    reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "asked.txt"
    file.write_text("word1?\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"holds no questions; give rows of question and cont"):
        predict(PredictConfig(model=reader, file=str(file)))
    typed(monkeypatch, b"word1?\n")
    with pytest.raises(ExampleError, match="standard input: lines of text are not enough for q"):
        predict(PredictConfig(model=reader))


def test_masks_are_filled_by_a_folder_without_classes(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 [MASK] word2 [MASK]\n\n[MASK]\n", encoding="utf-8")
    predict(
        PredictConfig(
            model=base_folder, file=str(asked), format="jsonl", answering=AnsweringConfig(top=3)
        )
    )
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert found.pop(1) == {"text": "", "masks": None}
    assert [len(result["masks"]) for result in found] == [2, 1]
    assert all(len(fillings) == 3 for result in found for fillings in result["masks"])
    assert "1 blank row, with a blank answer" in printed.err
    predict(PredictConfig(model=base_folder, file=str(asked), answering=AnsweringConfig(top=3)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("    ") for line in lines] == [False, True, True, False, False, True]
    assert lines[3] == ""


def test_what_a_terminal_would_obey_is_not_printed(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 \x1b[31mgood \u202eevil " + "word3 " * 40, encoding="utf-8")
    predict(PredictConfig(model=classifier, file=str(asked)))
    (line,) = capsys.readouterr().out.splitlines()
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert line.endswith("…")


def test_answers_survive_a_terminal_that_knows_ascii_only(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("été 中 😀", encoding="utf-8")
    written = io.BytesIO()
    screen = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr("sys.stdout", screen)
    predict(PredictConfig(model=classifier, file=str(asked), format="jsonl"))
    predict(PredictConfig(model=classifier, file=str(asked)))
    screen.flush()
    first, second = written.getvalue().splitlines()
    assert json.loads(first)["text"] == "été 中 😀"
    assert second.endswith(b"?t? ? ?")


def test_no_letter_of_a_csv_becomes_a_question_mark(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"text": "\\u00e9t\\u00e9 \\ud800"}\n{"text": "\\u0645"}\n', encoding="utf-8")
    for encoding, lacks in (("ascii", r"U\+00E9"), ("latin-1", r"U\+0645")):
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        message = rf"standard output: is in {encoding} here, which lacks {lacks}.*jsonl"
        with pytest.raises(DiskError, match=message):
            predict(PredictConfig(model=classifier, file=str(asked), format="csv"))
    written = io.BytesIO()
    screen = io.TextIOWrapper(written, encoding="utf-8")
    monkeypatch.setattr("sys.stdout", screen)
    predict(PredictConfig(model=classifier, file=str(asked), format="csv"))
    screen.flush()
    rows = written.getvalue().decode().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["été ?", "م"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("asked.txt", b"word1\nw\xf6rd\n", "asked.txt:2: is not UTF-8"),
        ("asked.txt", b"", "asked.txt: holds no text"),
        ("asked.csv", b"text,label\nword1\n", "asked.csv:2: 1 column"),
        ("missing.txt", None, "missing.txt: cannot be read"),
        ("-", b"word1\nw\xf6rd\n", "standard input:2: is not UTF-8: byte 0xF6"),
        ("-", b"", "standard input: holds no text"),
    ],
)
def test_bad_input_is_named(
    classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: bytes | None,
    message: str,
) -> None:
    file = name
    if name == "-":
        typed(monkeypatch, content or b"")
    else:
        file = str(tmp_path / name)
        if content is not None:
            Path(file).write_bytes(content)
    with pytest.raises(ExampleError) as raised:
        predict(PredictConfig(model=classifier, file=file))
    assert message in str(raised.value)


def test_a_text_without_mask_is_named(base_folder: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("[MASK]\nword1\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"asked.txt:2: no \[MASK\] in the text"):
        predict(PredictConfig(model=base_folder, file=str(asked)))


@pytest.mark.parametrize("name", ["asked.txt", "asked.jsonl"])
def test_texts_without_an_answer_are_bad_rows(
    name: str, base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["[MASK]", "word1", "", "word2 [MASK]", f"[MASK]{' word1' * 600}"]
    lines = texts if name.endswith("txt") else [json.dumps({"text": text}) for text in texts]
    asked = tmp_path / name
    asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
    reading = Reading(on_bad="quarantine")
    config = PredictConfig(model=base_folder, file=str(asked), format="jsonl", reading=reading)
    predict(config)
    output = capsys.readouterr()
    found = [json.loads(line) for line in output.out.splitlines()]
    assert [row["text"] for row in found] == texts
    assert [row["masks"] is None for row in found] == [False, True, True, False, True]
    assert "2 bad rows, with blank answers" in output.err
    kept = Path(f"{asked}.bad.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["line"] for line in kept] == [2, 5]


def test_a_model_without_a_head_says_what_to_do(
    base_folder: Path, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    encoder = load_model(base_folder)[0].config.encoder
    headless: Model = build_model(ModelConfig(encoder=encoder), seed=1)
    save_model(tmp_path / "model", headless, tiny_tokenizer)
    with pytest.raises(ModelFolderError, match="fine-tune it first"):
        predict(PredictConfig(model=tmp_path / "model"))


def test_impossible_options_are_refused(classifier: Path) -> None:
    with pytest.raises(ConfigError, match="top is 0"):
        predict(PredictConfig(model=classifier, answering=AnsweringConfig(top=0)))
    with pytest.raises(ConfigError, match="--max-length is 2"):
        predict(PredictConfig(model=classifier, answering=AnsweringConfig(max_length=2)))
    for columns in (Columns(classes=("ham",)), Columns(exclude=("spam",))):
        with pytest.raises(ConfigError, match="--classes and --exclude choose rows by their lab"):
            predict(PredictConfig(model=classifier, file="a.csv", reading=Reading(columns=columns)))


def test_columns_of_the_input_are_kept_and_blank_rows_answered_blank(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.csv"
    asked.write_text(
        'id,text,label,note\n7,word1 good,gold,"a, b"\n8,,gold,\n9,word2,,"x ""y"""\n',
        encoding="utf-8",
    )
    predict(PredictConfig(model=classifier, file=str(asked), format="csv"))
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["id"], row["text"], row["label"], row["note"]) for row in table] == [
        ("7", "word1 good", "gold", "a, b"),
        ("8", "", "gold", ""),
        ("9", "word2", "", 'x "y"'),
    ]
    assert table[0]["predicted_label"] in ("ham", "spam", "long name")
    assert table[1]["predicted_label"] == table[1]["probability"] == ""
    predict(PredictConfig(model=classifier, file=str(asked), format="jsonl"))
    found = objects(capsys)
    assert [result["predicted_label"] for result in found] == [
        row["predicted_label"] or None for row in table
    ]
    assert [result["note"] for result in found] == ["a, b", "", 'x "y"']


def test_json_lines_keep_values_and_keys_of_their_own(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]]
    rows = [{"text": "word1", "n": 1.5}, {"text": " ", "n": None}, {"text": "x", "n": 2, "z": [1]}]
    asked = tmp_path / "asked.jsonl"
    asked.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    predict(PredictConfig(model=classifier, file=str(asked), format="jsonl"))
    found = objects(capsys)
    assert [
        {key: result[key] for key in row} for result, row in zip(found, rows, strict=True)
    ] == rows
    assert [result["label"] is None for result in found] == [False, True, False]
    with pytest.raises(ExampleError, match="'z', which the first one lacks"):
        predict(PredictConfig(model=classifier, file=str(asked), format="csv"))


def test_a_table_without_header_is_answered_row_by_row(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.tsv"
    asked.write_text("a\tword1\nb\tword2\n", encoding="utf-8")
    predict(
        PredictConfig(
            model=classifier,
            file=str(asked),
            format="jsonl",
            reading=Reading(columns=Columns(text="1", header="no")),
        )
    )
    assert [(item["0"], item["1"]) for item in objects(capsys)] == [("a", "word1"), ("b", "word2")]


@pytest.mark.parametrize(
    ("pairs", "lines", "answered"),
    [
        (
            False,
            [("ham\t", "spam\t")[n % 3 == 1] + "it is so good " * n for n in range(1, 30)],
            True,
        ),
        (False, ["word1\tgood", "word2 bad"], False),
        (True, ["word1\tgood", "word2\tbad"], False),
    ],
)
def test_labels_before_a_tab_are_no_text(
    classifier: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pairs: bool,
    lines: list[str],
    answered: bool,
) -> None:
    model, tokenizer = load_model(classifier)
    kept = Preprocessing(longest=40, pairs=pairs)
    model.config = dataclasses.replace(model.config, preprocessing=kept)
    save_model(tmp_path / "model", model, tokenizer)
    file = tmp_path / "sms.txt"
    file.write_text("\n".join(map(str.strip, lines)), encoding="utf-8")
    predict(PredictConfig(model=tmp_path / "model", file=str(file), format="jsonl"))
    found = objects(capsys)
    lines = [line.strip() for line in lines]
    texts = [line.split("\t")[1:] if answered else line.split("\t") for line in lines]
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join("\t".join(row) for row in texts), encoding="utf-8")
    predict(PredictConfig(model=tmp_path / "model", file=str(plain), format="jsonl"))
    expected = [item["probabilities"] for item in objects(capsys)]
    assert [result["probabilities"] for result in found] == expected
    if answered:
        kept_cells = [[result["0"], result["1"]] for result in found]
        assert kept_cells == [line.split("\t") for line in lines]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n", False),
        ("EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\nrejects\tO\nit\tO\n.\tO\n", False),
        ("EU rejects it.\nPeter comes from the EU.\n\nIt is late.\n", True),
    ],
)
@pytest.mark.parametrize("name", ["train.txt", "app.log", "notes.md"])
def test_words_in_columns_are_no_texts_to_be_tagged(
    tmp_path: Path,
    content: str,
    lines: bool,
    name: str,
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert TAG.reader.reads_lines(str(tmp_path / name), Reading()) is lines


def test_a_folder_of_classes_is_answered_with_its_files(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ham", "spam"):
        (tmp_path / "asked" / name).mkdir(parents=True)
        (tmp_path / "asked" / name / "1.txt").write_text(f"word1 {name}", encoding="utf-8")
    predict(PredictConfig(model=classifier, file=str(tmp_path / "asked"), format="jsonl"))
    found = objects(capsys)
    assert [(Path(str(result["file"])).parent.name, result["text"]) for result in found] == [
        ("ham", "word1 ham"),
        ("spam", "word1 spam"),
    ]


def test_nothing_is_answered_below_the_least_confidence(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("\n".join(f"word{n} word{n + 1}" for n in range(20)), encoding="utf-8")
    predict(PredictConfig(model=classifier, file=str(asked), format="jsonl"))
    always = objects(capsys)
    shares = sorted(float(str(item["probability"])) for item in always)
    least = (shares[9] + shares[10]) / 2
    predict(
        PredictConfig(
            model=classifier,
            file=str(asked),
            format="jsonl",
            answering=AnsweringConfig(min_confidence=least),
        )
    )
    for told, before in zip(objects(capsys), always, strict=True):
        sure = float(str(before["probability"])) >= least
        assert told["label"] == (before["label"] if sure else None)
        assert told["probabilities"] == before["probabilities"]
    with pytest.raises(ConfigError, match=r"--min-confidence is 1\.5"):
        predict(
            PredictConfig(
                model=classifier, file=str(asked), answering=AnsweringConfig(min_confidence=1.5)
            )
        )
    with pytest.raises(ConfigError, match="--no-answer is for"):
        predict(
            PredictConfig(
                model=classifier, file=str(asked), answering=AnsweringConfig(no_answer=0.0)
            )
        )


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_pair_is_told_to_follow_as_transformers_tells_it(
    family: str,
    base_folder: Path,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, name = base_folder, "is_next"
    reference: Any = transformers.BertForPreTraining
    if family == "albert":
        encoder = dataclasses.replace(
            load_model(base_folder)[0].config.encoder, groups=1, embedding=12, family="albert"
        )
        config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
        folder, name = tmp_path / "albert", "in_order"
        save_model(folder, build_model(config, seed=5), tiny_tokenizer)
        reference = transformers.AlbertForPreTraining
    typed(monkeypatch, b"word1 word2\tgood\n\nbad [MASK]\nword3\tword4 bad\n")
    predict(PredictConfig(model=folder, format="jsonl", engine=FULL_PRECISION))
    found = objects(capsys)
    assert found.pop(1) == {"text": "", name: None, "probability": None}
    (filled,) = [result for result in found if "masks" in result]
    assert filled["text"] == "bad [MASK]"
    pairs = [result for result in found if name in result]
    model = reference.from_pretrained(folder).eval()
    for pair in pairs:
        first, second = tiny_tokenizer.encode([str(pair["text"]), str(pair["text_pair"])])
        ids = [tiny_tokenizer.cls_id, *first, tiny_tokenizer.sep_id, *second, tiny_tokenizer.sep_id]
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        with torch.no_grad():
            out = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
        logits = out.seq_relationship_logits if family == "bert" else out.sop_logits
        expected = float(logits.softmax(-1)[0, 0])
        assert pair["probability"] == pytest.approx(expected, abs=2e-6)
        assert pair[name] == (expected >= 0.5)


def test_pairs_and_single_texts_are_not_taken_for_each_other(
    base_folder: Path,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def folder(pairs: bool) -> Path:
        model, _ = start_from(base_folder, labels=("no", "yes"), seed=3)
        how = Preprocessing(longest=20, pairs=pairs)
        model.config = dataclasses.replace(model.config, preprocessing=how)
        save_model(tmp_path / str(pairs), model, tiny_tokenizer)
        return tmp_path / str(pairs)

    typed(monkeypatch, b"word1\tword2\n")
    predict(PredictConfig(model=folder(True), format="jsonl"))
    (told,) = objects(capsys)
    assert (told["text"], told["text_pair"]) == ("word1", "word2")
    typed(monkeypatch, b"word1 word2\n")
    with pytest.raises(ExampleError, match="standard input:1: is not a pair of texts"):
        predict(PredictConfig(model=tmp_path / "True"))
    table = tmp_path / "pairs.csv"
    table.write_text("text,text_pair,label\nword1,word2,no\n", encoding="utf-8")
    for ask in (
        lambda f: predict(PredictConfig(model=f, file=str(table))),
        lambda f: evaluate(EvaluateConfig(model=f, file=table)),
    ):
        with pytest.raises(
            ExampleError, match="pair of texts, and the model was trained on single"
        ):
            ask(folder(False))
    # in Python texts are values, which have no columns
    for pairs, value, remedy in (
        (False, ("word1", "word2"), "single texts; give single strings$"),
        (True, "word1", "pairs of texts; give pairs of strings as tuples$"),
    ):
        with pytest.raises(ExampleError, match=f"^example 1: .*{remedy}"):
            load(tmp_path / str(pairs)).predict(["", value])


def test_lengths_that_mean_nothing_are_refused(
    classifier: Path, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, labels=("a", "b"), seed=3, predicts="tags")
    save_model(tmp_path / "tags", model, tiny_tokenizer)
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 word2\n", encoding="utf-8")
    for folder, options, told in (
        (base_folder, AnsweringConfig(max_length=8), "fine-tuned for a task"),
        (classifier, AnsweringConfig(stride=3), "--stride is for words and answers in windows"),
        (tmp_path / "tags", AnsweringConfig(truncation="tail"), "tagging reads long texts in win"),
    ):
        with pytest.raises(ConfigError, match=told):
            predict(PredictConfig(model=folder, file=str(asked), answering=options))


def test_a_label_written_otherwise_is_named(classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nword1,spam\nword2,Ham\n", encoding="utf-8")
    remedy = "'ham' is written otherwise: write both alike; name the label's column"
    with pytest.raises(ExampleError) as caught:
        evaluate(EvaluateConfig(model=classifier, file=path))
    assert str(caught.value).endswith(f"{remedy} with --label-column, or rename")


def test_columns_of_words_are_not_shown_as_texts_and_labels(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    model, _ = start_from(base_folder, predicts="tags", labels=("B-X", "O"), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    file = tmp_path / "a.conll"
    file.write_text("word1\tO\nword2\tB-X\n\nword1\tO\n\n" * 9, encoding="utf-8")
    predict(PredictConfig(model=tmp_path / "model", file=str(file), format="jsonl"))
    assert "without header" not in capsys.readouterr().err


def test_a_log_with_a_tab_in_its_first_line_is_not_shown_as_a_table(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Traces of a stack begin with a tab; the lines are read as texts, and no note denies it."""
    file = tmp_path / "app.log"
    file.write_text("\tat word1 (2)\n" + "word2 at 7\n\tat word3 (4)\n" * 9, encoding="utf-8")
    predict(PredictConfig(model=classifier, file=str(file), format="jsonl"))
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[0])["text"] == "\tat word1 (2)"
    assert "TSV" not in told.err


@pytest.mark.parametrize(
    ("labels", "predicted"),
    [
        (("O", "B-X", "I-X", "L-X", "U-X"), "U-X"),
        # as of a published model of CoNLL-2003, whose training set has no B-PER
        (("O", "I-X"), "I-X"),
        (("O", "X"), "X"),
    ],
)
def test_a_tagger_is_scored_in_the_scheme_of_its_tags(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path, labels: tuple[str, ...],
    predicted: str,
) -> None:  # fmt: skip
    model, _ = start_from(base_folder, predicts="tags", labels=labels, seed=3)
    with torch.no_grad():
        model.get_parameter("heads.tag.bias")[labels.index(predicted)] = 100.0
    save_model(tmp_path / "model", model, tiny_tokenizer)
    file = tmp_path / "a.conll"
    file.write_text("word1\tB-X\n\nword2\tB-X\n\n" * 9, encoding="utf-8")
    figures = evaluate(EvaluateConfig(model=tmp_path / "model", file=file))
    scores = {name: score["value"] for name, score in figures["scores"].items()}
    entities = () if predicted == "X" else ("f1", "precision", "recall")
    assert scores == dict.fromkeys((*entities, "accuracy"), 1.0)


def test_numbers_are_the_classes_of_a_model_without_names(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    labels = ("LABEL_0", "LABEL_1", "LABEL_2")
    model, _ = start_from(base_folder, predicts="class", labels=labels, seed=3)
    with torch.no_grad():
        model.get_parameter("heads.classify.bias")[1] = 100.0
    save_model(tmp_path / "model", model, tiny_tokenizer)
    file = tmp_path / "a.csv"
    rows = "word1 good,1\nword2 bad,0\nword3 bad,1\nword4,LABEL_1\n"
    file.write_text(f"text,label\n{rows}", encoding="utf-8")
    scores = evaluate(EvaluateConfig(model=tmp_path / "model", file=file))["scores"]
    assert scores["accuracy"]["value"] == 0.75


@pytest.mark.parametrize("predicts", ["span", "choice"])
def test_what_is_no_line_of_text_is_not_read_from_standard_input(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path, predicts: Predicts
) -> None:
    model, _ = start_from(base_folder, predicts=predicts, labels=(), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    with pytest.raises(ExampleError) as caught:
        predict(PredictConfig(model=tmp_path / "model"))
    assert str(caught.value).startswith("standard input: lines of text are not enough for")
    assert "bertsmith predict MODEL FILE" in caught.value.remedy


def test_a_correlation_that_cannot_be_measured_is_named(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    model, _ = start_from(base_folder, predicts="number", labels=("number",), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    file = tmp_path / "a.csv"
    for last, named in (("2.5", True), ("3.5", False)):
        rows = [f"word{n},2.5" for n in range(5)]
        file.write_text("\n".join(["text,score", *rows, f"word9,{last}"]), encoding="utf-8")
        evaluate(EvaluateConfig(model=tmp_path / "model", file=file))
        assert ("a correlation is shown as 0" in capsys.readouterr().err) is named


def test_sampled_continuations_do_not_depend_on_how_many_rows_are_answered_together(
    tiny_tokenizer: Tokenizer,
) -> None:
    encoder = EncoderConfig(
        vocabulary=37, hidden=24, layers=1, heads=3, feed_forward=48, longest=16, initial_std=0.3,
        causal=True, pooled="last",
    )  # fmt: skip
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=2).eval()
    options = AnsweringConfig(continuation=ContinuationConfig(temperature=1.0))
    answering = answering_of(model, tiny_tokenizer, options, where="model")
    predictor = Predictor(model=model, answering=answering)
    texts = ["word1", "", *["word1"] * 4]
    few, all_together = (
        [
            record
            for _, record in answer_rows(predictor, answering, value_rows(texts, None), waits=w)
        ]
        for w in (cycle((False, True)).__next__, None)
    )
    assert few == all_together
    # every row draws numbers of its own
    assert len({str(record) for record in few}) == len(texts)


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_entities_are_not_placed_in_a_column_with_the_same_words(
    base_folder: Path,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    """They were characters of another column, where its blanks alone were other ones."""
    model, _ = start_from(base_folder, predicts="tags", labels=("O", "B-X"), seed=3)
    with torch.no_grad():
        model.get_parameter("heads.tag.bias").copy_(torch.tensor([0.0, 50.0]))
    save_model(tmp_path / "tags", model, tiny_tokenizer)
    file, sign = tmp_path / f"a.{kind}", "," if kind == "csv" else "\t"
    rows = [("clean", "said"), ("word1 word2", " word1   word2"), ("word3", "word4  word5")]
    file.write_text("".join(sign.join(row) + "\n" for row in rows), encoding="utf-8")
    for number in (0, 1):
        reading = Reading(columns=Columns(text=rows[0][number]))
        predict(
            PredictConfig(model=tmp_path / "tags", file=str(file), format="jsonl", reading=reading)
        )
        for row, answer in zip(rows[1:], objects(capsys), strict=True):
            found = [(entity["start"], entity["end"]) for entity in answer["entities"]]
            assert found == [match.span() for match in re.finditer("word.", row[number])]
