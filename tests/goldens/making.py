"""The goldens themselves: token ids, bytes of stores, batches and folders, help, and forms of JSON.

Each is a plain JSON value or a text. What depends on the chip or the clock is left out: of `--json`
only keys and types are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from bertsmith.tokens.tokenizer import Tokenizer
from goldens.inputs import HARD_PAGE
from goldens.losses import FAMILIES, Laboratory, bertsmith

VALUES = Path(__file__).parent / "values"
KINDS: dict[str, tuple[str, ...]] = {
    "wordpiece": ("--kind", "wordpiece"),
    "wordpiece-cased": ("--kind", "wordpiece", "--cased"),
    "byte-bpe": ("--kind", "byte-bpe"),
    "unigram": ("--kind", "unigram"),
    "unigram-xlm": ("--kind", "unigram", "--specials", "xlm-roberta"),
}

SAMPLES = {
    "next_sentence": "token", "sentence_order": "word",
    "within_documents": "ngram", "across_documents": "span",
}  # fmt: skip
"""Kinds of text, and a unit of masks for each."""


def token_ids(laboratory: Laboratory) -> dict[str, list[list[int]]]:
    """Return the ids of each line of the hard page, for each kind of vocabulary."""
    ids = {}
    for name, (_, kind, *options) in KINDS.items():
        tokenizer = Tokenizer.load(laboratory.vocabulary(kind, *options))
        ids[name] = [list(map(int, item)) for item in tokenizer.encode(list(HARD_PAGE))]
    return ids


def store_hashes(laboratory: Laboratory) -> dict[str, str]:
    """Return the hash of each file of a wordpiece store."""
    return hashes(laboratory.store("wordpiece"))


def batch_hashes(laboratory: Laboratory) -> dict[str, str]:
    """Return the hash of an epoch's masked sequences, by kind of text and unit of the masks."""
    import numpy as np

    from bertsmith.batches.config import SampleConfig
    from bertsmith.batches.pretraining import PretrainingBatches
    from bertsmith.store.store import TokenStore

    store = TokenStore(laboratory.store("wordpiece"))
    tokenizer = Tokenizer.load(laboratory.vocabulary("wordpiece"))
    found = {}
    for text, unit in SAMPLES.items():
        masking = {"unit": unit, "smoothing": 0.7}
        config = SampleConfig.from_dict({"max_length": 32, "text": text, "masking": masking})
        batches = PretrainingBatches(store, tokenizer, config, seed=11)
        batch = batches.samples(np.arange(batches.sequences), epoch=1)
        parts = [batch.ids, batch.segments, *(t.labels for t in batch.targets.values())]
        parts += [target.positions for target in batch.targets.values()]
        data = b"".join(part.numpy().tobytes() for part in parts)
        found[f"{text}, {unit}"] = hashlib.sha256(data).hexdigest()
    return found


def folder_hashes(laboratory: Laboratory) -> dict[str, dict[str, Any]]:
    """Return, by family, the tensors of a folder of random weights and the hashes of its files."""
    from safetensors.numpy import load_file

    folders = {}
    for family in FAMILIES:
        folder = laboratory.parent(family)
        files = hashes(folder)
        # the card tells of speed and time
        del files["README.md"], files["model.safetensors"]
        tensors = {
            name: [list(values.shape), hashlib.sha256(values.tobytes()).hexdigest()]
            for name, values in sorted(load_file(folder / "model.safetensors").items())
        }
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        folders[family] = {"config": config, "files": files, "tensors": tensors}
    return folders


def help_texts(_: Laboratory | None = None) -> dict[str, list[str]]:
    """Return the lines of the help of the program and of each verb, 200 columns wide."""
    from bertsmith.cli.commands import COMMANDS

    with mock.patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1"}):
        return {name: help_of(name) for name in ("", *COMMANDS)}


def help_of(verb: str) -> list[str]:
    """Return the help of one verb, by lines."""
    from bertsmith.cli.main import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*verb.split(), "--help"])
    return printed.getvalue().splitlines()


def json_forms(laboratory: Laboratory) -> dict[str, Any]:
    """Return the keys and types of what verbs print with `--json`."""
    laboratory.cell("fp32/bert/classify")
    laboratory.cell("fp32/modernbert/classify")
    rows = laboratory.folder / "classify.jsonl"
    first, second = (laboratory.folder / f"fp32-{f}-classify" for f in ("bert", "modernbert"))
    printed = {
        "models": bertsmith("models", "--json"),
        "evaluate": bertsmith("evaluate", first / "model", rows, "--json"),
        "compare": bertsmith("compare", first, second, "--json"),
    }
    answers = bertsmith("predict", first / "model", rows, "--format", "jsonl")
    printed["predict --format jsonl"] = answers.splitlines()[0]
    return {verb: form(json.loads(text.splitlines()[-1])) for verb, text in printed.items()}


def form(value: Any) -> Any:  # noqa: ANN401
    """Return a JSON value with the names of types in place of values."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    if isinstance(value, list):
        return [form(value[0])] if value else []
    return (
        "number" if isinstance(value, int | float) and value is not True else type(value).__name__
    )


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by its path."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


MAKERS: dict[str, Callable[[Laboratory], Any]] = {
    "token_ids": token_ids,
    "store": store_hashes,
    "batches": batch_hashes,
    "folders": folder_hashes,
    "help": help_texts,
    "json": json_forms,
}
"""By name of a file in values/, what makes its content."""


def written(value: Any) -> str:  # noqa: ANN401
    """Return a value as the text of its file: JSON, lists of numbers on a line each."""
    lines = _lines(value, "")
    return "\n".join(lines) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401
    if (isinstance(value, dict) and value) or (isinstance(value, list) and _nested(value)):
        named = isinstance(value, dict)
        yield "{" if named else "["
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        for number, (key, item) in enumerate(items, 1):
            inner = list(_lines(item, indent + " "))
            start = f"{indent} {json.dumps(key)}: " if named else f"{indent} "
            end = "," if number < len(items) else ""
            inner[0] = start + inner[0]
            inner[-1] += end
            yield from inner
        yield indent + ("}" if named else "]")
    else:
        yield json.dumps(value)


def _nested(value: list[Any]) -> bool:
    return any(isinstance(item, dict | list | str) for item in value) and len(value) > 2
