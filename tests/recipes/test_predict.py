from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from bertsmith.errors import ConfigError, ExampleError, ModelFolderError
from bertsmith.models.model import Model, ModelConfig, build_model
from bertsmith.recipes.predict import predict
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from


@pytest.fixture(scope="module")
def classifier(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, tiny_tokenizer: Tokenizer
) -> Path:
    model, _ = start_from(base_folder, labels=("ham", "spam", "long name"), seed=3)
    folder = tmp_path_factory.mktemp("classifier") / "model"
    save_model(folder, model, tiny_tokenizer)
    return folder


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def typed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_lines_of_standard_input_are_classified_in_order(
    classifier: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "\ufeffword1 good\r\n\r\nWORD2  bad\nété [SEP] 中".encode())
    predict(classifier, format="jsonl")
    found = objects(capsys)
    assert [each["text"] for each in found] == ["word1 good", "WORD2 bad", "été [SEP] 中"]
    for each in found:
        shares = each["probabilities"]
        assert isinstance(shares, dict)
        assert set(shares) == {"ham", "spam", "long name"}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert each["label"] == max(shares, key=shares.__getitem__)
        assert each["probability"] == max(shares.values())


def test_tables_are_read_by_their_columns_and_long_texts_are_told(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": "word1", "text_pair": "good"}, {"text": "word2 " * 100_000, "text_pair": "x"}]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    predict(classifier, str(tmp_path / "asked.jsonl"), top=2)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert "1 of 2 texts were longer than 40 tokens: --long says what is read" in printed.err


def test_masks_are_filled_by_a_folder_without_classes(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 [MASK] word2 [MASK]\n\n[MASK]\n", encoding="utf-8")
    predict(base_folder, str(asked), top=3, format="jsonl")
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [len(each["masks"]) for each in found] == [2, 1]
    assert all(len(fillings) == 3 for each in found for fillings in each["masks"])
    assert "1 empty lines passed over" in printed.err
    predict(base_folder, str(asked), top=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("    ") for line in lines] == [False, True, True, False, True]


def test_what_a_terminal_would_obey_is_not_printed(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 \x1b[31mgood \u202eevil " + "word3 " * 40, encoding="utf-8")
    predict(classifier, str(asked))
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
    predict(classifier, str(asked), format="jsonl")
    predict(classifier, str(asked))
    screen.flush()
    first, second = written.getvalue().splitlines()
    assert json.loads(first)["text"] == "été 中 😀"
    assert second.endswith(b"?t? ? ?")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("asked.txt", b"word1\nw\xf6rd\n", "asked.txt:2: is not UTF-8"),
        ("asked.txt", b"", "asked.txt: holds no text"),
        ("asked.csv", b"text,label\nword1\n", "asked.csv:2: 1 columns"),
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
        predict(classifier, file)
    assert message in str(raised.value)


def test_a_text_without_mask_is_named(base_folder: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("[MASK]\nword1\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"asked.txt:2: no \[MASK\] in the text"):
        predict(base_folder, str(asked))


def test_a_model_without_a_head_says_what_to_do(
    base_folder: Path, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    encoder = load_model(base_folder)[0].config.encoder
    headless: Model = build_model(ModelConfig(encoder=encoder), seed=1)
    save_model(tmp_path / "model", headless, tiny_tokenizer)
    with pytest.raises(ModelFolderError, match="fine-tune it first"):
        predict(tmp_path / "model")


def test_impossible_options_are_refused(classifier: Path) -> None:
    with pytest.raises(ConfigError, match="top is 0"):
        predict(classifier, top=0)
    with pytest.raises(ConfigError, match="longest is 2"):
        predict(classifier, longest=2)
