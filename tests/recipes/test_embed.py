from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from pyarrow import parquet

import bertsmith
from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, DiskError, ExampleError, ModelFolderError
from bertsmith.engine.config import FULL_PRECISION, FeatureConfig
from bertsmith.engine.features import TextFeatures, features
from bertsmith.network.pooling import Dense, UnitLength
from bertsmith.recipes.config import EmbedConfig
from bertsmith.recipes.embed import embed
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.text.examples.reading import Example
from bertsmith.weights.folder import load_model
from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder
from bounds import close_unit_vectors, close_when_regrouped
from limits import files_of

LINES = ["word1 good", "", "WORD2  bad,", "été 中", "word3 " * 50, "word4"]
TEXTS = ["word1 good", "", "WORD2 bad,", "été 中", ("word3 " * 50).strip(), "word4"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def expected(folder: Path, config: FeatureConfig) -> list[TextFeatures]:
    """What the call beneath gives for each text by itself."""
    model, tokenizer = load_model(folder)
    asked = [
        Example(text=text, text_pair=None, label=None, source="memory", line=1) for text in TEXTS
    ]
    return [next(features(model, tokenizer, [request], config)) for request in asked]


def read_npy(path: Path) -> list[NDArray[np.float32]]:
    if not path.with_suffix(".offsets.npy").exists():
        return list(np.load(path))
    offsets = np.load(path.with_suffix(".offsets.npy"))
    return np.split(np.load(path), offsets[1:-1])


def read_parquet(path: Path) -> list[NDArray[np.float32]]:
    rows = parquet.read_table(path).to_pylist()
    return [np.array(row.get("vector", row.get("vectors")), np.float32) for row in rows]


def read_jsonl(path: Path) -> list[NDArray[np.float32]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [np.array(row.get("vector", row.get("vectors")), np.float32) for row in rows]


READERS: dict[str, Callable[[Path], list[NDArray[np.float32]]]] = {
    ".npy": read_npy,
    ".parquet": read_parquet,
    ".jsonl": read_jsonl,
}


@pytest.mark.parametrize("pool", ["mean", "token", "word-mean"])
@pytest.mark.parametrize("kind", READERS)
def test_vectors_are_written_in_the_order_of_the_texts(
    base_folder: Path, lines: Path, tmp_path: Path, kind: str, pool: str
) -> None:
    config, out = FeatureConfig(pool=pool), tmp_path / "new" / f"vectors{kind}"
    embed(
        EmbedConfig(
            model=base_folder, file=str(lines), out=out, features=config, engine=FULL_PRECISION
        )
    )
    wanted = expected(base_folder, config)
    got = READERS[kind](out)
    assert len(got) == len(wanted) == 6
    for one, other in zip(got, wanted, strict=True):
        # nine digits are all there is to a float32; the batch may change the last of them
        assert one.size == other.vectors.size
        # no words, no vectors
        if one.size:
            close_when_regrouped(one, other.vectors)


def test_what_is_beside_the_vectors(base_folder: Path, lines: Path, tmp_path: Path) -> None:
    config = FeatureConfig(pool="word-mean", words="marks")
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        embed(EmbedConfig(model=base_folder, file=str(lines), out=tmp_path / name, features=config))
    wanted = expected(base_folder, config)
    spans = np.load(tmp_path / "v.spans.npy")
    assert np.array_equal(spans, np.concatenate([item.spans for item in wanted]))
    table = parquet.read_table(tmp_path / "v.parquet").to_pylist()
    objects = list(map(json.loads, (tmp_path / "v.jsonl").read_text("utf-8").splitlines()))
    for row, said, text, item in zip(table, objects, TEXTS, wanted, strict=True):
        assert row["text"] == said["text"] == text
        assert row["words"] == said["words"] == list(item.names)
        assert said["spans"] == item.spans.tolist()
        assert [list(pair) for pair in zip(row["starts"], row["ends"], strict=True)] == (
            said["spans"]
        )
    assert (
        [row["line"] for row in table] == [said["line"] for said in objects] == [1, 2, 3, 4, 5, 6]
    )
    assert table[2]["words"] == ["WORD2", "bad", ","]


def test_the_bits_are_those_of_the_call_beneath(base_folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("word1 good\nword2\n", encoding="utf-8")
    found = []
    for kind, read in READERS.items():
        embed(EmbedConfig(model=base_folder, file=str(texts), out=tmp_path / f"v{kind}"))
        found.append(np.stack(read(tmp_path / f"v{kind}")))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert found[0].dtype == np.float32
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert mapped.shape == (2, 24)
    # where data begin is where they can be mapped
    assert (tmp_path / "v.npy").stat().st_size == 128 + 4 * 2 * 24


def test_what_was_left_out_is_told(
    base_folder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embed(EmbedConfig(model=base_folder, file=str(lines), out=tmp_path / "v.npy"))
    told = capsys.readouterr().err
    assert "v.npy: 6 texts, mean of layer last, vectors of 24; 58 tokens in" in told
    assert "1 of 6 texts was longer than 40 tokens and cut, 17.1 % of all tokens" in told
    assert "1 blank row: the vector of an empty text for each" in told
    embed(
        EmbedConfig(
            model=base_folder,
            file=str(lines),
            out=tmp_path / "v.npy",
            features=FeatureConfig(truncation="windows"),
        )
    )
    assert "cut" not in capsys.readouterr().err


def test_the_command_reads_tables_and_standard_input(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = tmp_path / "t.csv", tmp_path / "v.npy"
    table.write_text("number,said,answer\n1,word1 good,word4\n2,word2,word5\n", encoding="utf-8")
    arguments = ["embed", str(base_folder), str(table), "--out", str(out), "--text-column", "said"]
    more = ["--layer", "mix:1,0.5", "--pool", "cls+max", "--normalize", "--precision", "fp32"]
    assert main([*arguments, *more]) == 0
    config = FeatureConfig(layer="mix:1,0.5", pool="cls+max", normalize=True)
    first = expected(base_folder, config)[0].vectors
    close_unit_vectors(np.load(out)[0], first)
    assert main([*arguments, "--text-pair-column", "answer", "--pool", "token"]) == 2
    content = io.TextIOWrapper(io.BytesIO(b"word1 good\nword9\n"))
    monkeypatch.setattr("sys.stdin", content)
    assert main(["embed", str(base_folder), "--out", str(out), *more]) == 0
    assert np.load(out).shape == (2, 48)


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet"])
def test_rows_of_a_table_without_text_keep_their_places(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    texts, out = tmp_path / f"texts{kind}", tmp_path / "v.npy"
    rows = ["word1", None, " ", "word2"]
    if kind == ".csv":
        texts.write_text("id,text\n1,word1\n,\n\n3, \n4,word2\n", encoding="utf-8")
    elif kind == ".parquet":
        parquet.write_table(pa.table({"text": rows}), texts)
    else:
        texts.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), "utf-8")
    embed(EmbedConfig(model=base_folder, file=str(texts), out=out, engine=FULL_PRECISION))
    found = np.load(out)
    given = vectors(open_embedder(base_folder), ["word1", "", "", "word2"])
    close_when_regrouped(found, given)
    told = capsys.readouterr().err
    assert "2 blank rows: the vector of an empty text for each" in told
    # as for pandas and `predict`
    assert ("1 blank line skipped: rows are those of the others" in told) == (kind == ".csv")
    embed(
        EmbedConfig(
            model=base_folder, file=str(texts), out=out, features=FeatureConfig(pool="word-mean")
        )
    )
    assert np.load(tmp_path / "v.offsets.npy").tolist() == [0, 1, 1, 1, 2]


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_a_table_of_several_groups_has_each_text_once(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: str
) -> None:
    monkeypatch.setattr("bertsmith.recipes.embed._GROUP_BYTES", 300)
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"word{n} good\n" * (n % 3 + 1) for n in range(9)), encoding="utf-8")
    config = FeatureConfig(pool=pool)
    for kind in READERS:
        out = tmp_path / f"v{kind}"
        embed(EmbedConfig(model=base_folder, file=str(texts), out=out, features=config))
    assert parquet.ParquetFile(tmp_path / "v.parquet").num_row_groups > 3
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == texts.read_text(encoding="utf-8").splitlines()
    assert table["line"].to_pylist() == list(range(1, 19))
    found, expected = read_parquet(tmp_path / "v.parquet"), read_npy(tmp_path / "v.npy")
    assert len(found) == len(expected) == 18
    assert all(map(np.array_equal, found, expected))


def test_the_second_texts_of_pairs_are_beside_their_vectors(
    base_folder: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text,text_pair\nword1,word2\nword3,good bad\n", encoding="utf-8")
    for kind in (".parquet", ".jsonl"):
        embed(EmbedConfig(model=base_folder, file=str(pairs), out=tmp_path / f"v{kind}"))
    table = parquet.read_table(tmp_path / "v.parquet").to_pylist()
    lines = map(json.loads, (tmp_path / "v.jsonl").read_text("utf-8").splitlines())
    for rows in (table, list(lines)):
        assert [(row["text"], row["text_pair"]) for row in rows] == [
            ("word1", "word2"), ("word3", "good bad"),
        ]  # fmt: skip


def test_pairs_without_one_text_keep_the_other(base_folder: Path, tmp_path: Path) -> None:
    pairs, out = tmp_path / "pairs.csv", tmp_path / "v.npy"
    pairs.write_text("text,text_pair\nword1,\nword1,word2\n,\n", encoding="utf-8")
    embed(EmbedConfig(model=base_folder, file=str(pairs), out=out))
    found = np.load(out)
    assert found.shape == (3, 24)
    assert not np.allclose(found[0], found[2])


def test_a_sentence_folder_pools_as_it_says(
    base_folder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = load_model(base_folder)
    settings = SentenceSettings(
        network=base_folder, pool=("cls",), longest=7,
        after=(Dense(torch.eye(24)[:9] * 2, None, "Identity"), UnitLength()),
        prompts={"query": "word7"},
    )  # fmt: skip
    folder = tmp_path / "sentences"
    save_sentence_folder(folder, model, tokenizer, settings)
    out = tmp_path / "v.npy"
    embed(EmbedConfig(model=folder, file=str(lines), out=out, engine=FULL_PRECISION))
    plain = expected(base_folder, FeatureConfig(pool="cls", max_length=7))
    wanted = np.stack([item.vectors[:9] for item in plain]).astype(np.float64)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    close_unit_vectors(np.load(tmp_path / "v.npy"), wanted)
    told = capsys.readouterr().err
    assert "longer than 7 tokens" in told
    assert "no prompt is used; it has query (--prompt)" in told
    # a prompt stands before each text
    options: dict[str, Any] = {"model": folder, "out": out, "engine": FULL_PRECISION}
    embed(EmbedConfig(file=str(lines), prompt="query", **options))
    asked = np.load(out)
    prompted = tmp_path / "prompted.txt"
    prompted.write_text("\n".join(f"word7{line}" for line in LINES), encoding="utf-8")
    embed(EmbedConfig(file=str(prompted), **options))
    assert np.array_equal(asked, np.load(out))
    assert not np.allclose(asked, wanted)
    # in Python too, whatever was asked before
    loaded = bertsmith.load(folder, precision="fp32", device="cpu")
    for prompt, expected_vectors in ((None, wanted), ("query", asked), (None, wanted)):
        close_unit_vectors(loaded.embed(TEXTS, prompt=prompt), expected_vectors)
    # another pooling is that alone
    embed(
        EmbedConfig(
            model=folder,
            file=str(lines),
            out=tmp_path / "v.npy",
            features=FeatureConfig(pool="max"),
            engine=FULL_PRECISION,
        )
    )
    other = expected(base_folder, FeatureConfig(pool="max", max_length=7))
    close_when_regrouped(np.load(tmp_path / "v.npy"), [item.vectors for item in other])
    with pytest.raises(ConfigError, match="vectors are 48 wide, and the folder's Dense takes 24"):
        embed(
            EmbedConfig(
                model=folder,
                file=str(lines),
                out=tmp_path / "v.npy",
                features=FeatureConfig(layer="mix:" + str(_both(tmp_path))),
            )
        )
    # before the weights are loaded
    for number, (wrong, problem) in enumerate((
        (folder, "there is no prompt 'x'; the folder has query"),
        (base_folder, "only a sentence-transformers folder has prompts"),
    )):  # fmt: skip
        copy = Path(shutil.copytree(wrong, tmp_path / f"without-weights-{number}"))
        (copy / "model.safetensors").unlink()
        with pytest.raises(ConfigError, match=problem):
            open_embedder(copy, prompt="x")


def test_tokens_and_words_are_read_without_a_prompt(
    base_folder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = load_model(base_folder)
    settings = SentenceSettings(
        network=base_folder, prompts={"query": "word7 ", "none": ""}, default_prompt="query"
    )
    folder = tmp_path / "sentences"
    save_sentence_folder(folder, model, tokenizer, settings)
    command = ["embed", str(folder), str(lines), "--out", str(tmp_path / "v.npy"), "--pool"]
    assert main([*command, "word-mean", "--precision", "fp32"]) == 0
    told = capsys.readouterr().err
    assert "its prompt is left out: a word's place is in the text alone" in told
    plain = expected(base_folder, FeatureConfig(pool="word-mean"))
    found = np.load(tmp_path / "v.npy")
    close_when_regrouped(found, np.concatenate([item.vectors for item in plain]))
    # one without text changes nothing, and one that is named is not passed over
    assert main([*command, "token", "--prompt", "none"]) == 0
    for prompt, problem in (
        ("query", "a token's place is that in the text as it is given"),
        ("x", "there is no prompt 'x'; the folder has query, none"),
    ):
        capsys.readouterr()
        assert main([*command, "token", "--prompt", prompt]) == 2
        assert problem in capsys.readouterr().err


def _both(folder: Path) -> Path:
    path = folder / "both.json"
    path.write_text('{"layers": [1, 2]}', encoding="utf-8")
    return path


def test_nothing_half_written_stays(base_folder: Path, tmp_path: Path) -> None:
    out, bad = tmp_path / "out" / "v.npy", tmp_path / "bad.txt"
    bad.write_bytes(b"word1\n" * 3000 + b"w\xf6rd\n")
    with pytest.raises(ExampleError, match=r"bad.txt:3001: is not UTF-8"):
        embed(EmbedConfig(model=base_folder, file=str(bad), out=out))
    assert not out.parent.exists()
    out.parent.mkdir()
    out.write_text("before", encoding="utf-8")
    with pytest.raises(ExampleError):
        embed(
            EmbedConfig(
                model=base_folder, file=str(bad), out=out, features=FeatureConfig(pool="token")
            )
        )
    assert os.listdir(out.parent) == ["v.npy"]
    assert out.read_text(encoding="utf-8") == "before"


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("name", ["v.npy", "v.jsonl"])
def test_a_link_leads_to_the_file_that_is_written(
    base_folder: Path, lines: Path, tmp_path: Path, name: str, there: bool
) -> None:
    """So it is with cp, numpy.save, and > of a shell."""
    target, link = tmp_path / "disk" / "vectors", tmp_path / "out" / name
    link.parent.mkdir()
    link.symlink_to(Path("..") / "disk" / "vectors")
    if there:
        target.parent.mkdir()
        target.write_text("before", encoding="utf-8")
    embed(EmbedConfig(model=base_folder, file=str(lines), out=link))
    assert link.is_symlink()
    assert os.listdir(link.parent) == [name]
    assert os.listdir(target.parent) == ["vectors"]
    assert len(READERS[link.suffix](link)) == len(LINES)


def test_a_full_disk_is_told(base_folder: Path, lines: Path, tmp_path: Path) -> None:
    told = r"v.npy: cannot be written: File too large"
    with files_of(200), pytest.raises(DiskError, match=told):
        embed(EmbedConfig(model=base_folder, file=str(lines), out=tmp_path / "v.npy"))
    assert os.listdir(tmp_path) == ["lines.txt"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("v.csv", "--out is '{0}/v.csv'; name a file that ends in .npy, .parquet, .jsonl"),
        (
            "texts.jsonl",
            "--out is '{0}/texts.jsonl', which would replace texts.jsonl, the file that is read; "
            "name another",
        ),
    ],
)
def test_impossible_files_are_refused(
    base_folder: Path, tmp_path: Path, out: str, message: str
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "word1"}\n', encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        embed(
            EmbedConfig(model=base_folder, file=str(tmp_path / "texts.jsonl"), out=tmp_path / out)
        )
    assert str(raised.value) == message.format(tmp_path)


def test_a_folder_that_is_no_model_is_named(lines: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="no such folder"):
        embed(EmbedConfig(model=tmp_path / "none", file=str(lines), out=tmp_path / "v.npy"))


@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_progress_reaches_the_end_with_the_last_text(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    moved: list[float] = []
    texts = tmp_path / f"texts{kind}"

    class Bar:
        def move_to(self, done: float) -> None:
            moved.append(done)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def bar(description: str, total: float | None, unit: str = "") -> Any:  # noqa: ANN401
        assert total == texts.stat().st_size
        return Bar()

    monkeypatch.setattr("bertsmith.recipes.embed.progress", bar)
    rows = ["word1 word2"] * 50
    if kind == ".parquet":
        parquet.write_table(pa.table({"text": rows}), texts)
    else:
        lines = rows if kind == ".txt" else [json.dumps({"text": row}) for row in rows]
        texts.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    embed(EmbedConfig(model=base_folder, file=str(texts), out=tmp_path / "v.npy"))
    assert len(moved) == 50
    assert moved == sorted(moved)
    assert moved[-1] == pytest.approx(texts.stat().st_size, rel=0.03)
