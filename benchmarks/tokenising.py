"""Raw text to sentences to ids: bertsmith against `tokenizers` and `tokie`, one thread each.

Three ways through the same novels. *Prepare*: `bertsmith prepare --workers 1`, files to a token
store on disk. *Documents*: paragraphs in memory to sentences of ids. *Lines*: paragraphs in memory
to ids without sentences, which is all that the others do: `tokenizers` by `encode_batch_fast`,
`tokie` by `encode_batch`. The first time is also told apart, as ours learns words while it goes.
Ids are compared in the same run with `transformers`' BertTokenizer on some of the lines, and on
hostile ones.

    BERTSMITH_DATA=... python benchmarks/tokenising.py [--quick]

`tokie` is left out, by name, where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer as Compiled
from transformers import BertTokenizer

from bertsmith.store.preparing import prepare_store
from bertsmith.text.corpus.files import Corpus
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.tokenizer import Tokenizer

Encode = Callable[[list[str]], list[list[int]]]

HOSTILE = (
    "Ångström café naïve Straße ﬁancée ĳ Ǆ ŉ Cafe\u0301 e\u0323\u0302 İstanbul ISPARTA ığdır",
    "漢字かな交じり文 한국어 中文abc中 \U00020000x \U0002ceb0x \uf900 \U00030000 \u33ff",
    "👩‍👩‍👧‍👦 👍🏽 🇬🇧 ☺️ ❤️‍🔥 a👍b #️⃣",
    "bell\x07esc\x1b[0m del\x7f c1\x85\x9f fs\x1cgs\x1d vt\x0b ff\x0c tab\tcr\rlf\n end",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeff soft\u00adhyphen \u2060word\u180evowel \ufeffbom",
    "ΟΔΥΣΣΕΥΣ Σ. ΑΣ\u0301Σ Ὀδυσσεύς ᾼ ῼ \u0345 \u212a \u2126 \u212b \u1fef \u037e",
    "blank\u00a0s \u2002\u2003\u202f\u3000 \u2028line\u2029para \u1680ogham \u205f",
    "x" * 100 + " " + "x" * 101 + " " + "é" * 100 + " " + "e\u0301" * 101,
    "don't (stop) $5.00 ^_^ `a` ~b~ <c> | «d» „e“ f—g … ¿h? §¶ ⸘ ٪ । <\u0338",
    "العربية مُشَكَّل עִבְרִית हिन्दी ไทย தமிழ் Việt Nam \u200fRTL\u202e",
    "\ufffd \uffff \U0010ffff \ue000 \U000e0001 \u0378 a\ufffdb e" + "\u0301" * 1200,
)


def main() -> None:
    """Measure, print the table, then the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the novels, one round")
    options = parser.parse_args()
    # read by the rivals when they first encode
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    data = Path(os.environ.get("BERTSMITH_DATA", ""))
    novels = sorted((data / "text" / "novels").glob("*.txt"))
    if not novels:
        raise SystemExit("set BERTSMITH_DATA to the folder of real data sets")
    if options.quick:
        novels = novels[::4]
    figures: dict[str, Any] = {"megabytes": sum(novel.stat().st_size for novel in novels) / 1e6}
    console = Console(width=110)
    for casing in ("uncased", "cased"):
        vocabulary = data / "vocab" / f"bert-base-{casing}-vocab.txt"
        with tempfile.TemporaryDirectory() as folder:
            figures[casing] = compare(vocabulary, novels, Path(folder), 1 if options.quick else 3)
        console.print(table(casing, figures[casing]))
    print(json.dumps(figures))


def compare(vocabulary: Path, novels: list[Path], folder: Path, rounds: int) -> dict[str, Any]:
    """Megabytes a second of every way, and the lines on which ids differ from the reference."""
    ours = Tokenizer.load(vocabulary)
    ours.save(folder / "tokenizer")
    rivals = load_rivals(folder / "tokenizer" / "tokenizer.json")
    documents = [document.paragraphs for document in Corpus(novels)]
    lines = [paragraph for paragraphs in documents for paragraph in paragraphs]
    group = ["\n".join(paragraphs).encode() for paragraphs in documents]
    size = sum(novel.stat().st_size for novel in novels) / 1e6
    times: dict[str, list[float]] = {}
    for number in range(rounds):
        encoder = DocumentEncoder(ours)
        out = folder / f"store-{number}"
        ways: dict[str, Callable[[], object]] = {
            "bertsmith prepare": partial(prepare, novels, ours, out),
            "bertsmith documents, first": partial(in_groups, encoder, group),
            "bertsmith documents, again": partial(in_groups, encoder, group),
            "bertsmith lines": partial(ours.encode, lines, specials_in_text=False),
        }
        ways |= {f"{name} lines": partial(in_batches, way, lines) for name, way in rivals.items()}
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times.setdefault(name, []).append(time.perf_counter() - began)
    speeds = {name: size / statistics.median(taken) for name, taken in times.items()}

    def by_bertsmith(texts: list[str]) -> list[list[int]]:
        return [ids.tolist() for ids in ours.encode(texts)]

    every: dict[str, Encode] = {"bertsmith": by_bertsmith, **rivals}
    checked = [*HOSTILE, *lines[:: max(1, len(lines) // 5000)]]
    differing = differences(vocabulary, ours.lowercase, every, checked)
    assert differing["bertsmith"] == {"of_hostile": 0, "of_novels": 0}
    return {"megabytes_per_second": speeds, "lines_that_differ": differing}


def prepare(novels: list[Path], tokenizer: Tokenizer, out: Path) -> None:
    """What `bertsmith prepare --workers 1` does."""
    prepare_store(Corpus(novels), tokenizer, out, workers=1)


def in_groups(encoder: DocumentEncoder, group: list[bytes]) -> None:
    """Documents in groups of a megabyte or so, as `prepare` has them."""
    waiting: list[bytes] = []
    size = 0
    for document in group:
        waiting.append(document)
        size += len(document)
        if size > 1_000_000:
            encoder.encode(waiting)
            waiting, size = [], 0
    encoder.encode(waiting)


def in_batches(encode: Encode, lines: list[str]) -> None:
    """Lines a thousand at a time."""
    for start in range(0, len(lines), 1000):
        encode(lines[start : start + 1000])


def load_rivals(path: Path) -> dict[str, Encode]:
    """The other tokenizers, without [CLS] and [SEP], by name."""
    compiled = Compiled.from_file(str(path))

    def by_tokenizers(texts: list[str]) -> list[list[int]]:
        found = compiled.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    rivals: dict[str, Encode] = {"tokenizers": by_tokenizers}
    if importlib.util.find_spec("tokie") is None:
        print("tokie is not installed: left out")
        return rivals
    young = importlib.import_module("tokie").Tokenizer.from_json(str(path))

    def by_tokie(texts: list[str]) -> list[list[int]]:
        found = young.encode_batch(texts, add_special_tokens=False)
        return [list(encoding.ids) for encoding in found]

    return rivals | {"tokie": by_tokie}


def differences(
    vocabulary: Path, lowercase: bool, every: dict[str, Encode], lines: Sequence[str]
) -> dict[str, dict[str, int]]:
    """How many hostile lines and lines of novels have other ids than the reference."""
    reference = BertTokenizer(str(vocabulary), do_lower_case=lowercase)
    expected = [reference.convert_tokens_to_ids(reference.tokenize(line)) for line in lines]
    found: dict[str, dict[str, int]] = {}
    for name, encode in every.items():
        wrong = np.array([a != b for a, b in zip(encode(list(lines)), expected, strict=True)])
        hostile = len(HOSTILE)
        found[name] = {
            "of_hostile": int(wrong[:hostile].sum()),
            "of_novels": int(wrong[hostile:].sum()),
        }
    return found


def table(casing: str, figures: dict[str, Any]) -> Table:
    """One vocabulary's figures."""
    shown = Table(title=f"bert-base-{casing}, one thread")
    for column in ("way", "MB/s", "lines that differ: hostile", "novels"):
        shown.add_column(column, justify="left" if column == "way" else "right")
    for name, speed in figures["megabytes_per_second"].items():
        wrong = figures["lines_that_differ"][name.split()[0]]
        shown.add_row(
            name,
            f"{speed:.1f}",
            f"{wrong['of_hostile']} of {len(HOSTILE)}",
            str(wrong["of_novels"]),
        )
    return shown


if __name__ == "__main__":
    main()
