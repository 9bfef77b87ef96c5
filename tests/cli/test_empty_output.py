"""An output folder that is there: an empty one is filled by every verb, any other is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bertsmith.cli.main import main
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.weights.folder import save_model
from invented import invented_documents, syllable_tokenizer

COMMANDS = {
    "vocab learn": "vocab learn TEXT --size 120 --out OUT",
    "vocab extend": "vocab extend MODEL TEXT --add 2 --out OUT",
    "prepare": "prepare TEXT --vocab MODEL --workers 1 --out OUT",
    "convert": "convert ROUNDED OUT",
    "pretrain": "pretrain STORE --model tiny --steps 1 --tokens-per-batch 64 --force "
    "--max-length 16 --out OUT",
    "finetune": "finetune MODEL TABLE --epochs 1 --seeds 1 --no-baseline --out OUT",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    made = {name: folder / name.lower() for name in ("MODEL", "ROUNDED", "STORE")}
    made |= {"TEXT": folder / "text.txt", "TABLE": folder / "table.tsv"}
    documents = invented_documents(30)
    texts = ["\n".join(document.paragraphs) for document in documents]
    made["TEXT"].write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    rows = (f"{'du' if n % 2 else 'ba'} {'bi' * (n % 7)}\t{n % 2}" for n in range(40))
    made["TABLE"].write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    tokenizer = syllable_tokenizer()
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=16, layers=1, heads=2, feed_forward=16, longest=24
    )
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=1)
    for name in ("MODEL", "ROUNDED"):
        save_model(made[name], model, tokenizer)
    weights = made["ROUNDED"] / "model.safetensors"
    halves = {key: value.half() for key, value in load_file(weights).items()}
    save_file(halves, made["ROUNDED"] / "model.fp16.safetensors")
    weights.unlink()
    arguments = [str(made["TEXT"]), "--vocab", str(made["MODEL"]), "--out", str(made["STORE"])]
    assert main(["prepare", *arguments, "--workers", "1"]) == 0
    return made


@pytest.mark.parametrize("verb", COMMANDS)
def test_an_empty_folder_is_filled_and_another_one_left_alone(
    verb: str, places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for out in (tmp_path / "empty", tmp_path / "taken"):
        out.mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine", encoding="utf-8")

    def run(out: str) -> int:
        known = places | {"OUT": tmp_path / out}
        return main([str(known.get(word, word)) for word in COMMANDS[verb].split()])

    assert run("empty") == 0, capsys.readouterr().err
    assert (tmp_path / "empty").is_dir()
    assert list((tmp_path / "empty").iterdir())
    capsys.readouterr()
    assert run("taken") == 2
    said = capsys.readouterr().err
    assert "exists already" in said or "is not a run folder" in said
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["thesis.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "taken"}


@pytest.mark.parametrize(
    ("verb", "folder"),
    [("explain", "page.html"), ("inspect", "page.html"), ("inspect", "page.json")],
)
def test_a_page_is_no_folder(
    verb: str, folder: str, places: dict[str, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It was refused when all had been computed."""
    (tmp_path / folder).mkdir()
    out = tmp_path / "page.html"
    assert main([verb, "nothing", str(places["TEXT"]), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"page.html', and {folder} is a folder; name another file" in said


def test_vectors_are_no_folder(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vectors.npy"
    out.mkdir()
    arguments = [str(places["MODEL"]), str(places["TEXT"]), "--out", str(out)]
    assert main(["embed", *arguments]) == 2
    assert "vectors.npy is a folder; name another file" in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == [out]
    assert main(["embed", *arguments[:-1], str(out / "vectors.npy")]) == 0
    assert (out / "vectors.npy").is_file()


def test_vectors_replace_no_pipe(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reader would wait for ever; and of a link to /dev/null, that would be replaced."""
    os.mkfifo(tmp_path / "pipe")
    out = tmp_path / "vectors.jsonl"
    out.symlink_to("pipe")
    assert main(["embed", str(places["MODEL"]), str(places["TEXT"]), "--out", str(out)]) == 2
    assert "vectors.jsonl is a pipe or device; name another file" in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()
