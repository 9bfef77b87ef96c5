"""Folders made to do harm: a typed error at once, nothing allocated, nothing executed, no network.

Each is opened in a process of its own (worker.py), which tells the time and the memory it took and
what it touched.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hostile.conftest import Opened
from hostile.files import (
    PANICS,
    SPECIAL,
    change_json,
    header_of,
    overlapping,
    sparse,
    with_header,
)

# of which a header of the largest size that is read takes most; with CUDA libraries take more
MAX_MEMORY = (48 if torch.version.cuda is None else 72) * 2**20
MAX_SECONDS = 1.0  # of the processor
CONFIG, WEIGHTS, WORDS = "config.json", "model.safetensors", "vocab.txt"
TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.json", WORDS)
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
)  # fmt: skip


def harmless(answer: dict[str, Any]) -> None:
    """Whatever came of it, it took no time and no memory, and touched nothing."""
    assert answer["error"] is None or answer["told"], answer.get("trace", answer)
    assert answer["seen"] == []
    assert answer["seconds"] < MAX_SECONDS
    assert answer["grown"] < MAX_MEMORY


def refused(answer: dict[str, Any]) -> str:
    """The message of what was refused in that way."""
    harmless(answer)
    assert answer["error"] is not None, "it was loaded"
    assert "\n" not in answer["message"]
    message: str = answer["message"]
    return message


@pytest.mark.parametrize("how", ["load", "start", "config", "tokenizer", "predict"])
def test_an_honest_folder_loads(honest: Path, opened: Opened, how: str) -> None:
    answer = opened(honest, how)
    # nothing to predict for
    assert answer["error"] == (None if how != "predict" else "ExampleError")
    harmless(answer)


@pytest.mark.parametrize("how", ["load", "start", "config"])
@pytest.mark.parametrize("size", [2**40, 2**63, 10**30, -1, 0, 1e9, True, "9"])
@pytest.mark.parametrize("key", SIZES)
def test_sizes_that_cannot_be(
    folder: Path, opened: Opened, key: str, size: object, how: str
) -> None:
    change_json(folder / CONFIG, **{key: size})
    refused(opened(folder, how))


def test_all_sizes_at_once(folder: Path, opened: Opened) -> None:
    change_json(folder / CONFIG, **dict.fromkeys(SIZES, 2**40))
    refused(opened(folder))
    change_json(folder / CONFIG, model_type="albert", embedding_size=2**40, num_hidden_groups=2**40)
    refused(opened(folder))


@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
def test_a_table_that_is_not_in_the_file_is_not_made_of_any_size(
    folder: Path, opened: Opened, positions: str
) -> None:
    header, data = header_of(folder / WEIGHTS)
    name = "bert.embeddings.position_embeddings.weight"
    begin, end = header.pop(name)["data_offsets"]
    for key, entry in header.items():
        if key != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [place + begin - end for place in entry["data_offsets"]]
    with_header(folder / WEIGHTS, header, data[:begin] + data[end:])
    change_json(folder / CONFIG, bertsmith_positions=positions)
    assert opened(folder)["error"] is None
    change_json(folder / CONFIG, max_position_embeddings=2**31 - 1)
    answer = opened(folder)
    harmless(answer)
    assert answer["told"] or positions == "none"


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, WORDS, *TOKENIZER])
@pytest.mark.parametrize("kind", SPECIAL)
def test_special_files(folder: Path, opened: Opened, name: str, kind: str) -> None:
    SPECIAL[kind](folder / name)
    answer = opened(folder)
    # a folder may do without one of the tokenizer's files
    harmless(answer)
    if name in (CONFIG, WEIGHTS):
        refused(answer)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, *TOKENIZER])
def test_links_that_lead_out(folder: Path, opened: Opened, tmp_path: Path, name: str) -> None:
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(Path("..") / name)
    assert "leads out of the folder" in refused(opened(folder))


def test_a_folder_of_links(folder: Path, opened: Opened, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in folder.iterdir():
        (elsewhere / path.name).symlink_to(path)
    assert "leads out of the folder" in refused(opened(elsewhere))


@pytest.mark.parametrize("name", [CONFIG, *TOKENIZER, "added_tokens.json"])
def test_settings_of_a_gigabyte(folder: Path, opened: Opened, name: str) -> None:
    sparse(folder / name, 2**30, b"{")
    if name == "tokenizer.json":
        # read where there is no other vocabulary
        harmless(opened(folder))
        (folder / WORDS).unlink()
    refused(opened(folder))


@pytest.mark.parametrize("length", [100 * 2**20, 2**31, 2**32 + 1, 2**63, 2**64 - 1, 0, 1])
def test_headers_of_impossible_length(folder: Path, opened: Opened, length: int) -> None:
    begin = length.to_bytes(8, "little") + b'{"a":'
    sparse(folder / WEIGHTS, 200 * 2**20, begin)
    refused(opened(folder))


def test_a_whole_header_of_100_megabytes(folder: Path, opened: Opened) -> None:
    header, data = header_of(folder / WEIGHTS)
    text = json.dumps(header).encode()
    length = 100 * 2**20
    with (folder / WEIGHTS).open("wb") as file:
        file.write(length.to_bytes(8, "little") + text)
        file.write(b" " * (length - len(text)))
        file.write(data)
    assert "is not a safetensors file" in refused(opened(folder))


def test_overlapping_tensors(folder: Path, opened: Opened) -> None:
    overlapping(folder / WEIGHTS)
    assert "overlaps another" in refused(opened(folder))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 2**66]},
        {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [0] * 10**5, "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [2**63, 2**63 + 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": "1", "data_offsets": "04"},
        {"shape": [], "data_offsets": [0, 4]},
        None,
        [],
        "F32",
    ],
)
def test_entries_of_the_header_that_cannot_be(folder: Path, opened: Opened, entry: object) -> None:
    header, data = header_of(folder / WEIGHTS)
    name = next(name for name in header if name != "__metadata__")
    with_header(folder / WEIGHTS, header | {name: entry}, data)
    refused(opened(folder))


@pytest.mark.parametrize("content", ["[" * 10**6, '{"a":' * 10**5, "9" * 10**6, '{"a": NaN}'])
@pytest.mark.parametrize("name", [CONFIG, *TOKENIZER[:3]])
def test_settings_that_are_deep_or_long(
    folder: Path, opened: Opened, name: str, content: str
) -> None:
    (folder / name).write_text(content)
    harmless(opened(folder))


@pytest.mark.parametrize("content", ["[" * 10**6, '{"a":' * 10**5, "9" * 10**6, '{"a": NaN}'])
def test_headers_that_are_deep_or_long(folder: Path, opened: Opened, content: str) -> None:
    length = len(content).to_bytes(8, "little")
    (folder / WEIGHTS).write_bytes(length + content.encode() + b"\0" * 64)
    refused(opened(folder))


def test_code_that_comes_along_is_not_run(folder: Path, opened: Opened, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    for name in ("modeling_evil.py", "tokenization_evil.py", "__init__.py", "sitecustomize.py"):
        (folder / name).write_text(f"open({str(mark)!r}, 'w')\n")
    change_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tok", None]})
    harmless(opened(folder))
    change_json(folder / CONFIG, auto_map={"AutoModel": "modeling_evil.Model"})
    assert "auto_map" in refused(opened(folder))
    change_json(folder / CONFIG, auto_map={}, trust_remote_code=True)
    harmless(opened(folder))
    assert not mark.exists()


@pytest.mark.parametrize(
    "place", ["../outside/vocab.txt", "/etc/passwd", "~/.ssh/id_rsa", "file:///etc/passwd", "//x/y"]
)
def test_settings_that_name_files_elsewhere(
    folder: Path, opened: Opened, tmp_path: Path, place: str
) -> None:
    shutil.copytree(folder, tmp_path / "outside")
    names = (
        "vocab_file",
        "tokenizer_file",
        "merges_file",
        "spm_file",
        "name_or_path",
        "_name_or_path",
    )
    change_json(folder / "tokenizer_config.json", **dict.fromkeys(names, place))
    change_json(folder / CONFIG, **dict.fromkeys(names, place))
    harmless(opened(folder))


@pytest.mark.parametrize(
    "named",
    [
        "../outside.safetensors", "/outside.safetensors", "sub/../../outside.safetensors", "",
        ".", "..", "config.json", "link.safetensors", "model-\0.safetensors", 3, None, ["x"],
        "x" * 10**5, "model.safetensors.index.json",
    ],
)  # fmt: skip
def test_an_index_that_points_outside(
    folder: Path, opened: Opened, tmp_path: Path, named: object
) -> None:
    outside = tmp_path / "outside.safetensors"
    (folder / WEIGHTS).rename(outside)
    (folder / "link.safetensors").symlink_to(outside)
    header, _ = header_of(outside)
    index = {"metadata": {}, "weight_map": dict.fromkeys(header, named)}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    for how in ("load", "start", "config"):
        refused(opened(folder, how))


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"weight_map": []}', "[" * 10**6, '{"weight_map": {"a": {}}}']
)
def test_an_index_that_is_none(folder: Path, opened: Opened, content: str) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
    (folder / f"{WEIGHTS}.index.json").write_text(content)
    refused(opened(folder))


def test_an_index_of_a_gigabyte(folder: Path, opened: Opened) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
    sparse(folder / f"{WEIGHTS}.index.json", 2**30, b"{")
    refused(opened(folder))


def test_pickles_are_never_opened(folder: Path, opened: Opened, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(b"cposix\nabort\n(tR.")
    harmless(opened(folder))
    (folder / WEIGHTS).unlink()
    assert "bertsmith convert" in refused(opened(folder))
    (folder / WEIGHTS).symlink_to("pytorch_model.bin")
    refused(opened(folder))


def compiled_parser(path: Path) -> subprocess.CompletedProcess[str]:
    """What the library's own parser makes of a file."""
    program = (
        "import resource, sys, tokenizers\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        "tokenizers.Tokenizer.from_file(sys.argv[1]).encode('ba be')"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("kind", PANICS)
def test_files_on_which_the_compiled_parser_panics(folder: Path, opened: Opened, kind: str) -> None:
    change_json(folder / "tokenizer.json", **PANICS[kind])
    theirs = compiled_parser(folder / "tokenizer.json")
    assert theirs.returncode < 0 or "PanicException" in theirs.stderr
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for how in ("load", "tokenizer"):
        harmless(opened(folder, how))
    # without these the compiled file is read
    (folder / WORDS).unlink()
    (folder / "tokenizer_config.json").write_text(
        json.dumps({key: settings[key] for key in settings if key != "do_lower_case"})
    )
    for how in ("load", "tokenizer"):
        harmless(opened(folder, how))


def test_the_watch_sees_what_reaches_out(honest: Path, opened: Opened) -> None:
    """Had it a hole, every other test of this file could pass."""
    seen = " ".join(opened(honest, "reach out")["seen"])
    for event in ("socket.", "subprocess.Popen", "pickle.find_class", "open /etc/hostname"):
        assert event in seen
    answer = opened(honest, "waste")
    assert answer["grown"] > MAX_MEMORY
    assert answer["seconds"] > MAX_SECONDS
    assert opened(honest, "ask for everything")["error"] == "MemoryError"
