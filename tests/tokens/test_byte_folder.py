"""Folders of byte-level vocabularies: ours, those of transformers, and hostile ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    RobertaTokenizerFast,
)

from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.tokens.bpe import ByteRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.tokenizer import Tokenizer

CORPUS = (
    "The hands of the clock, the hand.",
    "the café's hands don't stop 12 times",
    "漢字 漢字",
) * 4
TEXTS = ("The hands, the CAFÉS! 漢字", "the <mask> hand", "hand</s>the")
FILES = (
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)

Kind = type[RobertaTokenizer | RobertaTokenizerFast | AutoTokenizer]


@pytest.fixture(scope="module")
def made() -> Tokenizer:
    return learn_byte_bpe(CORPUS, size=320)


@pytest.fixture
def saved(made: Tokenizer, tmp_path: Path) -> Path:
    made.save(tmp_path / "model")
    return tmp_path / "model"


def change_json(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(data | changes), encoding="utf-8")


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("takes_blank", [False, True])
def test_save_and_load(made: Tokenizer, prefix: bool, takes_blank: bool, tmp_path: Path) -> None:
    assert isinstance(made.rules, ByteRules)
    rules = ByteRules(merges=made.rules.merges, prefix_blank=prefix, mask_takes_blank=takes_blank)
    Tokenizer(made.vocabulary, rules).save(tmp_path, longest=77)
    assert tuple(sorted(path.name for path in tmp_path.iterdir())) == FILES
    # without vocab.json there is only the fast tokenizer, which takes the blank from the settings
    for gone, expected in (
        ("nothing", rules),
        ("vocab.json", replace(rules, prefix_parts=prefix)),
        ("tokenizer_config.json", replace(rules, prefix_blank=False)),
    ):
        (tmp_path / gone).unlink(missing_ok=True)
        loaded = Tokenizer.load(tmp_path)
        assert (loaded.vocabulary, loaded.rules) == (made.vocabulary, expected)


@pytest.mark.parametrize("kind", [RobertaTokenizer, RobertaTokenizerFast, AutoTokenizer])
def test_transformers_reads_what_we_save(made: Tokenizer, kind: Kind, tmp_path: Path) -> None:
    made.save(tmp_path, longest=77)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    theirs = kind.from_pretrained(tmp_path)
    assert theirs.model_max_length == 77
    assert (theirs.mask_token_id, theirs.pad_token_id) == (made.mask_id, made.pad_id)
    for text, ids in zip(TEXTS, made.encode(TEXTS), strict=True):
        around = [made.cls_id, *ids.tolist(), made.sep_id]
        assert theirs(text)["input_ids"] == around
        (second,) = made.encode(["the"])
        pair = theirs(text, "the", return_token_type_ids=True)
        assert pair["input_ids"] == [*around, made.sep_id, *second.tolist(), made.sep_id]
        assert set(pair["token_type_ids"]) == {0}
        assert theirs.decode(ids.tolist()) == made.decode(ids.tolist())


@pytest.mark.parametrize("kind", [RobertaTokenizer, RobertaTokenizerFast, PreTrainedTokenizerFast])
@pytest.mark.parametrize("prefix", [False, True])
def test_we_read_what_transformers_saves(
    saved: Path, kind: Kind, prefix: bool, tmp_path: Path
) -> None:
    change_json(saved / "tokenizer_config.json", add_prefix_space=prefix)
    data = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    data["pre_tokenizer"]["add_prefix_space"] = prefix
    (saved / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    theirs = kind.from_pretrained(saved)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = Tokenizer.load(tmp_path / "theirs")
    expected = Tokenizer.load(saved)
    assert isinstance(loaded.rules, ByteRules)
    assert loaded.rules.prefix_blank is prefix
    # a generic class is a fast one
    assert loaded.rules.prefix_parts is (prefix and kind is PreTrainedTokenizerFast)
    assert replace(loaded.rules, prefix_parts=False) == expected.rules
    assert loaded.vocabulary == expected.vocabulary


def test_learning_is_the_same_in_every_process() -> None:
    code = (
        "from bertsmith.tokens.learning.bpe import learn_byte_bpe\n"
        "texts = [' '.join(f'{a}{b}{c}' for c in 'xyzéß' for b in 'uvw') for a in 'abcdefghi']\n"
        "print(learn_byte_bpe(texts * 3, size=400).fingerprint)"
    )
    prints = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_what_is_learned() -> None:
    made = learn_byte_bpe(CORPUS, size=320)
    assert made.vocabulary[:5] == ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    assert made.size <= 320
    assert {"Ġthe", "Ġhand", "Ġhands", "'s"} <= set(made.vocabulary)
    (ids,) = made.encode(["\x00 żółw \U0001f9ff \ud800"], specials_in_text=False)
    assert made.unknown_id not in ids.tolist()
    assert (
        made.decode(made.encode(["Ein Straßenfest, 漢字!"])[0].tolist()) == "Ein Straßenfest, 漢字!"
    )


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [((), 300, "no text"), (("", " "), 300, "no text"), (CORPUS, 261, "vocabulary of 261")],
)
def test_what_cannot_be_learned(texts: tuple[str, ...], size: int, message: str) -> None:
    with pytest.raises(VocabularyError, match=message) as caught:
        learn_byte_bpe(texts, size=size)
    assert caught.value.remedy


HOSTILE: dict[str, tuple[str, str, str]] = {
    "no merges": ("merges.txt", "", "merges.txt"),
    "no version": ("merges.txt", "Ġ t\n", "#version"),
    "cut off": ("merges.txt", "#version: 0.2\nĠ t\nh e", "line feed"),
    "three parts": ("merges.txt", "#version: 0.2\nĠ t h\n", "not a pair"),
    "a double": ("merges.txt", "#version: 0.2\nĠ t\nĠ t\n", "twice"),
    "no piece": ("merges.txt", "#version: 0.2\nĠ Ġ\n", "not all three"),
    "a gap": ("vocab.json", '{"a": 0, "b": 2}', "has the id 2"),
    "a list": ("vocab.json", "[]", "no JSON object"),
    "truths": ("vocab.json", '{"a": false, "b": true}', "has the id"),
    "no specials": ("vocab.json", '{"a": 0, "b": 1}', "lacks the special tokens <pad>"),
    "nested": ("vocab.json", "[" * 100_000, "nested deeper"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files(case: str, saved: Path) -> None:
    name, content, message = HOSTILE[case]
    (saved / name).write_text(content, encoding="utf-8")
    if case == "no merges":
        (saved / name).unlink()
    with pytest.raises((ModelFolderError, VocabularyError), match=message) as caught:
        Tokenizer.load(saved)
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


COMPILED: dict[str, tuple[str, object]] = {
    "dropout": ("model", 0.1),
    "unk_token": ("model", "x"),
    "fuse_unk": ("model", True),
    "byte_fallback": ("model", True),
    "ignore_merges": ("model", True),
    "end_of_word_suffix": ("model", "</w>"),
    "use_regex": ("pre_tokenizer", False),
    "add_prefix_space": ("pre_tokenizer", "yes"),
    "merges": ("model", [["a"]]),
    "vocab": ("model", {"a": 10**30}),
    "type": ("model", "Unigram"),
}


@pytest.mark.parametrize("key", COMPILED)
def test_hostile_tokenizer_json(key: str, saved: Path) -> None:
    part, value = COMPILED[key]
    (saved / "vocab.json").unlink()
    path = saved / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data[part][key] = value
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ModelFolderError) as caught:
        Tokenizer.load(saved)
    assert caught.value.where == path
    assert caught.value.remedy


UNFOLLOWED: dict[str, dict[str, object]] = {
    "bos_token": {"bos_token": "[CLS]"},
    "extra_special_tokens": {"extra_special_tokens": {"image": "<image>"}},
    "<e1>": {"added_tokens_decoder": {"400": {"content": "<e1>"}}},
    "</s> is lstrip": {"added_tokens_decoder": {"2": {"content": "</s>", "lstrip": True}}},
    "<mask> is rstrip": {"added_tokens_decoder": {"4": {"content": "<mask>", "rstrip": True}}},
    "add_prefix_space": {"add_prefix_space": 1},
    "BartTokenizer": {"tokenizer_class": "BartTokenizer"},
}


@pytest.mark.parametrize("named", UNFOLLOWED)
def test_settings_that_are_not_followed_are_refused_by_name(named: str, saved: Path) -> None:
    change_json(saved / "tokenizer_config.json", **UNFOLLOWED[named])
    with pytest.raises(ModelFolderError, match=named) as caught:
        Tokenizer.load(saved)
    assert caught.value.remedy


def test_the_folder_around_a_model_names_it(tmp_path: Path) -> None:
    settings = json.dumps({"tokenizer_class": "RobertaTokenizer"})
    (tmp_path / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "vocab.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelFolderError, match=f"name {re.escape(str(tmp_path / 'model'))}"):
        Tokenizer.load(tmp_path)
