"""Strings of strangers in everything that is printed: no terminal obeys them, no page runs them."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from safetensors.numpy import load_file, save_file

from bertsmith.cli.main import main

# a title, a colour, a bidirectional control, an invisible letter, a forged line, and markup of
# rich, HTML, Markdown and matplotlib
EVIL = "\x1b]0;x\x07\x9b31m\u202e\u200b\u2028[red]:smile:<img src=x>|**`$\\frac$![i](http://x)"
FORGED = "\nbertsmith: FORGED\r\n| FORGED |\n<p>FORGED"
# what file systems and argument lists take
NAME = EVIL.replace("/", "") + "\nFORGED"

Capture = pytest.CaptureFixture[str]


class Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_clean(text: str) -> None:
    """No control but line ends, nothing that reverses or hides, and no line that is not ours."""
    for letter in text:
        assert letter == "\n" or unicodedata.category(letter)[0] != "C", ascii(letter)
        assert letter not in "\u2028\u2029"
    assert not re.search(r"^\W*(bertsmith: )?FORGED", text, re.MULTILINE), text


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """Status, standard output and standard error, both clean."""
    capsys.readouterr()
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    output, told = capsys.readouterr()
    assert_clean(told)
    return status, output, told


def refused(capsys: Capture, *arguments: str) -> str:
    """The one line of an error."""
    status, output, told = run(capsys, *arguments)
    assert (status, output) == (2, ""), told
    *others, last = told.splitlines()
    # finetune shows before what it has read
    assert arguments[0] == "finetune" or not others, told
    assert last.startswith("bertsmith: ")
    assert not any(line.startswith("bertsmith: ") for line in others), told
    return last


@pytest.fixture(scope="module")
def trained(honest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned model of two classes with such names."""
    place = tmp_path_factory.mktemp("trained")
    rows = [
        json.dumps({"text": f"{'ba' if n % 2 else 'do'} {EVIL}{FORGED} {n}", "label": label(n)})
        for n in range(60)
    ]
    (place / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return place


def label(number: int) -> str:
    return f"{'up' if number % 2 else 'down'} {EVIL}"


def test_labels_and_texts(honest: Path, trained: Path, capsys: Capture) -> None:
    rows, out = trained / "train.jsonl", trained / "run"
    status, _, told = run(
        capsys, "finetune", str(honest), str(rows), "--out", str(out), "--seeds", "1",
        "--epochs", "1", "--precision", "fp32", "--task", "classify",
    )  # fmt: skip
    assert status == 0, told
    config = json.loads((out / "model" / "config.json").read_text("utf-8"))
    labels = config["id2label"].values()
    # what begins with an escape is no text; a terminal may obey other controls too
    assert all("\x9b" in item for item in labels)

    page = Page()
    page.feed((out / "report.html").read_text(encoding="utf-8"))
    # one of ours, before the names of curves
    assert_clean(page.text.replace("\u200b", ""))
    assert "img" not in page.tags
    assert "<img src=x>" in page.text

    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert_clean(card)
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head)["pipeline_tag"] == "text-classification"
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert not kinds & {"html_inline", "image", "link_open", "strong_open"}
    assert "html_block" not in {token.type for token in tokens}

    status, table, _ = run(capsys, "predict", str(out / "model"), str(rows))
    assert status == 0
    assert_clean(table)
    assert len(table.splitlines()) == 60
    status, lines, _ = run(capsys, "predict", str(out / "model"), str(rows), "--format", "jsonl")
    assert_clean(lines)
    answers = [json.loads(line) for line in lines.splitlines()]
    assert [answer["text"] for answer in answers] == [
        json.loads(line)["text"] for line in rows.read_text("utf-8").splitlines()
    ]
    assert {answer["predicted_label"] for answer in answers} <= set(labels)
    # a table for a program keeps what it was given
    status, text, _ = run(capsys, "predict", str(out / "model"), str(rows), "--format", "csv")
    assert next(csv.DictReader(io.StringIO(text, newline="")))["text"] == answers[0]["text"]
    assert run(capsys, "evaluate", str(out / "model"), str(rows))[0] == 0
    status, card, _ = run(capsys, "push", str(out / "model"), "owner/name", "--dry-run")
    assert_clean(card)
    # a folder of somebody else, whose labels nobody has tidied
    config["id2label"] = {number: f"{EVIL} {number}" for number in config["id2label"]}
    config["label2id"] = {name: int(number) for number, name in config["id2label"].items()}
    (out / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, table, _ = run(capsys, "predict", str(out / "model"), str(rows))
    assert status == 0
    assert_clean(table)


@pytest.mark.parametrize(
    "arguments",
    [
        ["vocab learn", NAME, "--out", "v"],
        ["prepare", NAME, "--vocab", "v", "--out", "s"],
        ["prepare", "a.txt", "--vocab", NAME, "--out", "s"],
        ["pretrain", NAME, "--out", "r", "--minutes", "1"],
        ["pretrain", "--out", NAME],
        ["finetune", NAME, "t.csv", "--out", "r"],
        ["finetune", "MODEL", NAME, "--out", "r"],
        ["predict", NAME],
        ["predict", "MODEL", NAME],
        ["evaluate", "MODEL", NAME],
        ["embed", "MODEL", NAME, "--out", "x.npy"],
        ["embed", "MODEL", "a.txt", "--out", NAME],
        ["convert", NAME, "x"],
        ["push", NAME, "owner/name", "--dry-run"],
        ["push", "MODEL", NAME, "--dry-run"],
        ["predict", f"hub:{NAME}"],
        [NAME],
        ["vocab", NAME],
        ["pretrain", f"--{NAME}"],
        ["pretrain", "s", "--out", "r", f"--{NAME}=1"],
        ["pretrain", "s", "--out", "r", "--minutes", NAME],
        ["pretrain", "s", "--out", "r", "--steps", NAME],
        ["pretrain", "s", "--out", "r", "--model", NAME],
        ["pretrain", "s", "--out", "r", "--minutes", "1", "--max-gradient-norm", NAME],
        ["pretrain", "s", "--out", "r", "--minutes", "1", "--optimiser", NAME],
        ["pretrain", "s", "--out", "r", "--minutes", "1", "--device", NAME],
        ["pretrain", "s", "--out", "r", "--minutes", "1", "--config", NAME],
        ["finetune", "MODEL", "t.csv", "--out", "r", "--task", NAME],
        ["finetune", "MODEL", "t.csv", "--out", "r", "--text-column", NAME],
        ["glue", "MODEL", "g", "--out", "r", "--tasks", NAME],
        ["compare", NAME, NAME],
        ["predict", "MODEL", "a.txt", "--format", NAME],
        ["embed", "MODEL", "a.txt", "--out", "x.npy", "--layer", NAME],
        ["embed", "MODEL", "a.txt", "--out", "x.npy", "--pool", NAME],
    ],
)
def test_arguments_and_names_of_files(
    arguments: list[str],
    honest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("ba be\n")
    Path("t.csv").write_text("text,label\nba,a\nbe,b\n")
    words = [*arguments[0].split(" ", 1 if arguments[0] != NAME else 0), *arguments[1:]]
    if arguments == [NAME]:
        words = [NAME]
    refused(capsys, *(str(honest) if word == "MODEL" else word for word in words))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", f'"{EVIL}{FORGED}","{EVIL}2"\nx,y\nz,u\n'),
        ("t.tsv", f"{EVIL.replace(chr(0x2028), '')}\t{EVIL}2\nx\ty\nx\n"),
        ("t.csv", f'text,label\n"{EVIL}{FORGED}"\n'),
        ("t.csv", f'text,label\n"{EVIL}{FORGED}"x,y\n'),
        ("t.jsonl", json.dumps({EVIL + FORGED: 1, "b": 2}) + "\n"),
        ("t.jsonl", '{"text": "a", "label": ' + EVIL + "\n"),
        ("t.jsonl", json.dumps({"text": "a", "label": {EVIL: FORGED}}) + "\n"),
        ("t.json", json.dumps({"data": EVIL + FORGED}) + "\n"),
        ("t.conll", f"{EVIL} B-{EVIL}\n{EVIL}\n"),
        ("t.xyz" + NAME, "what\n"),
    ],
)
def test_tables(
    name: str,
    content: str,
    honest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content, encoding="utf-8", newline="")
    refused(capsys, "finetune", str(honest), name, "--out", "r")


def test_settings_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    for content in ({EVIL + FORGED: 1}, {"clip": EVIL + FORGED}, {"network": {EVIL: 1}}):
        Path("c.json").write_text(json.dumps(content), encoding="utf-8")
        command = "pretrain s --out r --minutes 1 --config c.json"
        refused(capsys, *command.split())
    Path("c.toml").write_text(f'clip = "{EVIL}', encoding="utf-8")
    refused(capsys, *command.replace("json", "toml").split())


def test_pieces_of_a_vocabulary(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    for number in range(6, len(pieces) - 1):
        pieces[number] = f"{EVIL.replace(chr(0x2028), '')}{number}"
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    for key in ("id2label", "label2id", "problem_type", "bertsmith"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))
    texts = tmp_path / "texts.txt"
    texts.write_text("ba [MASK] do\n")
    for form in ("table", "jsonl"):
        status, output, told = run(capsys, "predict", str(folder), str(texts), "--format", form)
        assert_clean(output)
        assert status == 0, told
        assert "\\x1b" in output or "\\u001b" in output


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": EVIL + FORGED},
        {"architectures": [EVIL + FORGED]},
        {"hidden_act": EVIL + FORGED},
        {"hidden_size": EVIL},
        {"id2label": {"0": EVIL, EVIL: "b"}},
        {EVIL + FORGED: True},
        {"position_embedding_type": EVIL},
    ],
)
def test_configs(change: dict[str, object], folder: Path, capsys: Capture) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    text = folder.parent / "a.txt"
    text.write_text("ba be\n")
    run(capsys, "predict", str(folder), str(text))
    run(capsys, "push", str(folder), "owner/name", "--dry-run")


def test_names_of_tensors(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    names = list(weights)
    (tmp_path / "a.txt").write_text("ba be\n")
    save_file({**weights, EVIL + FORGED: weights[names[3]]}, path)
    status, _, told = run(capsys, "predict", str(folder), str(tmp_path / "a.txt"))
    assert "FORGED" in told, (status, told)
    save_file({f"{EVIL}{FORGED}{n}": weight for n, weight in enumerate(weights.values())}, path)
    refused(capsys, "predict", str(folder), str(tmp_path / "a.txt"))


def test_texts_of_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(NAME)
    folder.mkdir()
    texts = [f"ba be do {EVIL} {n % 7}. gu ga." for n in range(80)]
    (folder / f"{NAME}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    status, _, told = run(capsys, "vocab", "learn", NAME, "--out", "v" + NAME, "--size", "200")
    assert status == 0, told
    prepared = ["prepare", NAME, "--vocab", "v" + NAME, "--out", "s" + NAME]
    status, _, told = run(capsys, *prepared)
    assert status == 0, told
    (folder / "b.txt.gz").write_bytes(b"\x1f\x8b\x1b[31m\nFORGED")
    refused(capsys, *prepared[:-1], "t")
