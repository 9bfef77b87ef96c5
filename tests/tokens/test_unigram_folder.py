"""Folders of unigram vocabularies: ours, those of transformers, and hostile ones."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from transformers import AlbertTokenizerFast, AutoTokenizer

from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.core.protocol_buffers import (
    DamagedMessage,
    bytes_field,
    fields,
    float_field,
    number_field,
)
from bertsmith.tokens.learning import elementary
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.normalisation import CharsMap, UnigramRules, compiled
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import UNIGRAM_SPECIALS
from goldens.inputs import write_corpus

CORPUS = (
    "The hands of the clock, the hand.",
    "the café's hands don't stop 12 times",
    "漢字 漢字",
) * 4
FILES = ("special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def made() -> Tokenizer:
    return learn_unigram(CORPUS, size=60)


@pytest.fixture
def saved(made: Tokenizer, tmp_path: Path) -> Path:
    made.save(tmp_path / "model")
    return tmp_path / "model"


def change_json(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(data | changes), encoding="utf-8")


def test_what_is_learned(made: Tokenizer) -> None:
    assert (made.kind, made.lowercase) == ("unigram", True)
    assert 30 < made.size <= 60  # what is hardly expected anywhere is no piece
    assert made.vocabulary[:5] == UNIGRAM_SPECIALS
    assert {"\u2581the", "\u2581hand", "\u2581hands", "\u2581"} <= set(made.vocabulary)
    # no piece holds a letter and a mark, or a digit and a comma
    assert made.pieces("the hands, don't.") == [
        *("\u2581the", "\u2581hands", ",", "\u2581don", "'", "t", "."),
    ]
    assert made.decode(made.encode(["The HANDS, 12"])[0].tolist()) == "the hands, 12"


def test_learning_is_the_same_in_every_process() -> None:
    code = (
        "from bertsmith.tokens.learning.unigram import learn_unigram\n"
        "texts = [' '.join(f'{a}{b}{c}' for c in 'xyzéß' for b in 'uvw') for a in 'abcdefghi']\n"
        "print(learn_unigram(texts * 3, size=90).fingerprint)"
    )
    prints = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_learning_is_the_same_on_every_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries' functions are a bit off; in this text many pieces are equally probable."""
    write_corpus(tmp_path / "corpus.txt")
    texts = (tmp_path / "corpus.txt").read_text(encoding="utf-8").splitlines()
    expected = learn_unigram(texts, size=400)

    def next_to(exact: Callable[..., Any]) -> Callable[..., Any]:
        def inexact(*given: Any) -> Any:  # noqa: ANN401
            values = exact(*given)
            return np.nextafter(values, np.where(np.sin(1e6 * values) < 0, -np.inf, np.inf))

        return inexact

    for library, names in (
        (np, ("exp", "expm1", "log", "log2", "log10", "log1p", "power")),
        (scipy.special, ("digamma", "psi", "gammaln")),
    ):
        for name in names:
            monkeypatch.setattr(library, name, next_to(getattr(library, name)))
    made = learn_unigram(texts, size=400)
    assert (made.vocabulary, made.rules) == (expected.vocabulary, expected.rules)


def test_elementary_functions() -> None:
    shares = np.random.default_rng(0).random(5000)
    small, large, counts = -700 * shares**3, np.exp(1400 * shares - 700), np.exp(30 * shares - 0.7)
    for value, reference in (
        (elementary.exp(small), np.exp(small)),
        (elementary.log(large), np.log(large)),
        (elementary.log(1 - 0.1 * shares), np.log(1 - 0.1 * shares)),
    ):
        np.testing.assert_allclose(value, reference, rtol=1e-15)
    np.testing.assert_allclose(
        elementary.digamma(counts), scipy.special.digamma(counts), rtol=4e-15, atol=4e-15
    )


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        ((), 300, "no text"),
        (("", " "), 300, "no text"),
        (CORPUS, 5, "vocabulary of 5"),
        (CORPUS, 20, "alphabet"),
    ],
)
def test_what_cannot_be_learned(texts: tuple[str, ...], size: int, message: str) -> None:
    with pytest.raises(VocabularyError, match=message) as caught:
        learn_unigram(texts, size=size)
    assert caught.value.remedy


@pytest.mark.parametrize("casing", [True, False])
def test_save_and_load(casing: bool, tmp_path: Path) -> None:
    made = learn_unigram(CORPUS, size=60, lowercase=casing, strip_accents=casing)
    made.save(tmp_path, longest=77)
    assert tuple(sorted(path.name for path in tmp_path.iterdir())) == FILES
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.vocabulary, loaded.rules) == (made.vocabulary, made.rules)
    assert Tokenizer.load(tmp_path / "spiece.model").vocabulary == made.vocabulary
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    text = "The hands [MASK] Cafés, 12,"
    for kind in (AlbertTokenizerFast, AutoTokenizer):
        theirs = kind.from_pretrained(tmp_path)
        assert theirs.model_max_length == 77
        around = [made.cls_id, *made.encode([text])[0].tolist(), made.sep_id]
        assert theirs(text)["input_ids"] == around
        pair = theirs(text, "the")
        assert pair["token_type_ids"] == [0] * len(around) + [1] * 2
    (tmp_path / "spiece.model").unlink()
    compiled = Tokenizer.load(tmp_path)
    assert compiled.encode([text])[0].tolist() == made.encode([text])[0].tolist()


def model(*, trainer: bytes = b"", normaliser: bytes = b"", pieces: bytes = b"") -> bytes:
    every = [bytes_field(1, bytes_field(1, piece.encode())) for piece in (*UNIGRAM_SPECIALS, "a")]
    return b"".join(every) + pieces + bytes_field(2, trainer) + bytes_field(3, normaliser)


def piece(text: bytes, score: bytes = b"", kind: int = 1) -> bytes:
    return bytes_field(1, bytes_field(1, text) + score + number_field(3, kind))


HOSTILE_MODELS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no pieces"),
    "text": (b"[PAD]\n[UNK]\n", "SentencePiece"),
    "cut off": (model()[:-1] + b"\x1a\x7f", "longer than its message"),
    "an endless number": (b"\x08" + b"\xff" * 20, "without an end"),
    "BPE": (model(trainer=number_field(3, 2)), "type BPE"),
    "word": (model(trainer=number_field(3, 3)), "type word"),
    "bytes": (model(trainer=number_field(35, 1)), "falls back to bytes"),
    "byte pieces": (model(pieces=piece(b"<0x00>", kind=6)), "single bytes"),
    "suffix": (model(trainer=number_field(24, 1)), "treat_whitespace_as_suffix"),
    "blanks kept": (model(normaliser=number_field(4, 0)), "remove_extra_whitespaces"),
    "blanks as they are": (model(normaliser=number_field(5, 0)), "escape_whitespaces"),
    "a huge table": (model(normaliser=bytes_field(2, b"\xff\xff\xff\x7f")), "longer than they are"),
    "a leaf outside": (
        model(normaliser=bytes_field(2, struct.pack("<II", 4, (1 << 31) + 9) + b"x\0")),
        "beyond their texts",
    ),
    "no number": (model(pieces=piece(b"b", float_field(2, float("nan")))), "score is not a number"),
    "not UTF-8": (model(pieces=piece(b"\xff")), "not UTF-8"),
    "a double": (model(pieces=piece(b"a")), "already on line"),
    "no [MASK]": (model().replace(b"[MASK]", b"[mask]"), r"lacks the special tokens \[MASK\]"),
    "a score of text": (
        model(pieces=piece(b"b", bytes_field(2, b"12345"))),
        "score is not a number",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_MODELS)
def test_hostile_models(case: str, tmp_path: Path) -> None:
    data, message = HOSTILE_MODELS[case]
    (tmp_path / "spiece.model").write_bytes(data)
    with pytest.raises((ModelFolderError, VocabularyError), match=message) as caught:
        Tokenizer.load(tmp_path)
    assert caught.value.where == tmp_path / "spiece.model"
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


def test_fields_of_messages() -> None:
    data = number_field(3, -1) + bytes_field(40, b"text") + float_field(2, 0.5)
    assert list(fields(data)) == [(3, 2**64 - 1), (40, b"text"), (2, struct.pack("<f", 0.5))]
    with pytest.raises(DamagedMessage, match="kind 3"):
        list(fields(b"\x0b"))


def test_a_table_of_nonsense_ends() -> None:
    """Every place of it leads somewhere, and none for ever."""
    for seed in range(50):
        words = [(seed * 2654435761 + n * 40503) % 2**31 for n in range(64)]
        rules = CharsMap(struct.pack("<65I", 256, *words) + b"x\0")
        assert rules.crosses_blanks in (True, False)
        for start in range(4):
            part, size = rules.exchange(b"abcdefgh", start)
            assert size <= 8 - start
            assert isinstance(part, str)


COMPILED: dict[str, tuple[str, dict[str, Any]]] = {
    "byte_fallback": ("model", {"byte_fallback": True}),
    "unk_id": ("model", {"unk_id": 7}),
    "vocab": ("model", {"vocab": {"a": 0}}),
    "scores": ("model", {"vocab": [["<pad>", "0"]]}),
    "a huge score": ("model", {"vocab": [["<pad>", 10**400]]}),
    "no number": ("model", {"vocab": [["<pad>", float("inf")]]}),
    "an entry": ("model", {"vocab": [[]]}),
    "normalizer": ("normalizer", {"type": "NFC"}),
    "normalizers": ("normalizer", {"normalizers": [{"type": "Prepend"}]}),
    "no list": ("normalizer", {"normalizers": None}),
    "charsmap": (
        "normalizer",
        {"normalizers": [{"type": "Precompiled", "precompiled_charsmap": "!"}]},
    ),
    "split": ("pre_tokenizer", {"split": False}),
    "replacement": ("pre_tokenizer", {"replacement": "_"}),
    "prepend_scheme": ("pre_tokenizer", {"prepend_scheme": "first"}),
}


@pytest.mark.parametrize("case", COMPILED)
def test_hostile_tokenizer_json(case: str, saved: Path) -> None:
    part, changes = COMPILED[case]
    (saved / "spiece.model").unlink()
    path = saved / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    given = data[part]["pretokenizers"][1] if part == "pre_tokenizer" else data[part]
    change_json(path, **{part: given | changes})
    with pytest.raises(ModelFolderError) as caught:
        Tokenizer.load(saved)
    assert caught.value.where == path
    assert caught.value.remedy


def test_rules_of_normalisation_are_kept(made: Tokenizer, tmp_path: Path) -> None:
    # one rule: "A" becomes "b"; the root's children begin at 0x40, so "A" is unit 1
    units = [0] * 0x80
    units[0] = 0x40 << 10
    units[0x40 ^ ord("A")] = ord("A") | 1 << 8 | (0x20 << 10)
    units[(0x40 ^ ord("A")) ^ 0x20] = 1 << 31
    charsmap = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"b\0"
    assert CharsMap(charsmap).exchange(b"xA", 1) == ("b", 1)
    assert isinstance(made.rules, UnigramRules)
    rules = UnigramRules(scores=made.rules.scores, charsmap=charsmap, lowercase=False)
    Tokenizer(made.vocabulary, rules).save(tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    (found,) = [n for n in data["normalizer"]["normalizers"] if n["type"] == "Precompiled"]
    assert base64.b64decode(found["precompiled_charsmap"]) == charsmap
    loaded = Tokenizer.load(tmp_path)
    assert loaded.rules == rules
    assert loaded.encode(["xAx"])[0].tolist() == loaded.encode(["xbx"])[0].tolist()


@pytest.mark.parametrize(
    "sources",
    [
        ("a", " "),
        ("ab", "a", "c"),
        ("a b", "c"),
        (" b", "c"),
        ("b ", "c"),
        ("  ",),
        (" ", "ab c"),
    ],
)
def test_rules_that_cross_blanks_are_those_of_a_blank_and_something_else(
    sources: tuple[str, ...],
) -> None:
    rules = CharsMap(compiled(dict.fromkeys(sources, "x")))
    assert rules.crosses_blanks == any(" " in text and text != " " for text in sources)
