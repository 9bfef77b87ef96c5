"""Ids of XLM-RoBERTa's vocabularies equal those of transformers' XLMRobertaTokenizer.

The slow class of 4.57 reads the SentencePiece model, the fast one and that of version 5
tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, XLMRobertaTokenizer, XLMRobertaTokenizerFast

from bertsmith.cli.main import main
from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.tokens.normalisation import PlainRules
from bertsmith.tokens.tokenizer import Tokenizer
from goldens.inputs import HARD_PAGE, write_corpus
from parity.other_process import Transformers
from parity.test_token_ids_unigram import (
    LINES,
    SENTENCES,
    assert_equal_places,
    half,
    sentence_piece,
)

PAGE = tuple(line for line in HARD_PAGE if not half(line))
MARKED = ("a <mask> b", " a<mask><mask>  <s> b</s><unk>x<pad>", "<mask>", " \t <mask>a", "``so''")
CLASSES = {"slow": XLMRobertaTokenizer, "fast": XLMRobertaTokenizerFast, "auto": AutoTokenizer}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xlm")
    write_corpus(folder / "corpus.txt")
    command = ["vocab", "learn", str(folder / "corpus.txt"), "--kind", "unigram", "--size", "400"]
    assert main([*command, "--specials", "xlm-roberta", "--out", str(folder / "vocab")]) == 0
    return folder / "vocab"


def ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [list(map(int, each)) for each in tokenizer.encode(texts)]


def theirs(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:  # noqa: ANN401
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_learned_here_is_read_by_all(learned: Path, name: str) -> None:
    ours, other = Tokenizer.load(learned), CLASSES[name].from_pretrained(learned)
    assert isinstance(ours.rules, PlainRules)
    assert len(other) == ours.size == 400
    for text in (*PAGE, *MARKED):
        assert theirs(other, [text]) == ids(ours, [text]), text
    assert other.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert other.mask_token_id == ours.mask_id == 399
    one, second = (each.tolist() for each in ours.encode(["bada ke", "lo mi"]))
    assert other("bada ke", "lo mi")["input_ids"] == [0, *one, 2, 2, *second, 2]
    assert (ours.separators, ours.segments, ours.lowercase) == (2, False, False)


def test_places(learned: Path) -> None:
    ours, fast = Tokenizer.load(learned), XLMRobertaTokenizerFast.from_pretrained(learned)
    assert assert_equal_places(ours, fast, PAGE) == 0


def test_version_5_reads_and_writes_it(
    learned: Path, transformers5: Transformers, tmp_path: Path
) -> None:
    ours, texts = Tokenizer.load(learned), [*PAGE, *MARKED]
    for kind in ("XLMRobertaTokenizer", "AutoTokenizer"):
        answer = transformers5.ask("encode", folder=str(learned), kind=kind, texts=texts, pair="lo")
        assert answer["class"].startswith("XLMRoberta")
        for text, found in zip(texts, answer["ids"], strict=True):
            assert found == [0, *ids(ours, [text])[0], 2], text
    given = {"folder": str(learned), "kind": "XLMRobertaTokenizer", "to": str(tmp_path)}
    transformers5.ask("save_tokenizer", **given, add=[], add_special=[])
    assert ids(Tokenizer.load(tmp_path), texts) == ids(ours, texts)


def test_a_folder_comes_back_to_the_byte(learned: Path, tmp_path: Path) -> None:
    loaded = Tokenizer.load(learned)
    loaded.save(tmp_path / "again")
    names = {path.name for path in learned.iterdir()}
    assert names == {
        "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json",
    }  # fmt: skip
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (learned / name).read_bytes(), name
    (tmp_path / "again" / "tokenizer.json").unlink()
    alone = Tokenizer.load(tmp_path / "again")
    assert ids(alone, PAGE) == ids(loaded, PAGE)
    (tmp_path / "again" / "sentencepiece.bpe.model").unlink()
    with pytest.raises(ModelFolderError, match=r"sentencepiece\.bpe\.model: cannot be read"):
        Tokenizer.load(tmp_path / "again")


@pytest.mark.parametrize("rule", ["nmt_nfkc", "identity"])
def test_models_of_sentencepiece(tmp_path: Path, rule: str) -> None:
    """The slow class on hostile lines; what it and the fast one saved."""
    model = sentence_piece(
        SENTENCES, 400, normalization_rule_name=rule, control_symbols="", pad_id=-1, unk_id=0,
        bos_id=1, eos_id=2,
    )  # fmt: skip
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    slow = XLMRobertaTokenizer(str(tmp_path / "sentencepiece.bpe.model"))
    slow.save_pretrained(tmp_path / "slow")
    ours = Tokenizer.load(tmp_path / "slow")
    for text in (*LINES, *MARKED):
        assert ids(ours, [text]) == theirs(slow, [text]), text
    # with both files the slow class is followed, as everywhere
    fast = XLMRobertaTokenizerFast.from_pretrained(tmp_path / "slow")
    fast.save_pretrained(tmp_path / "fast")
    both = Tokenizer.load(tmp_path / "fast")
    assert both.fingerprint == ours.fingerprint
    both.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").fingerprint == ours.fingerprint
    (tmp_path / "fast" / "sentencepiece.bpe.model").unlink()
    same = Tokenizer.load(tmp_path / "fast")
    plain = [text for text in SENTENCES[:8] if text.isascii() and "[" not in text]
    assert ids(same, plain) == theirs(fast, plain)
    same.save(tmp_path / "ours")
    again = XLMRobertaTokenizerFast.from_pretrained(tmp_path / "ours")
    assert theirs(again, plain) == theirs(fast, plain)
    assert Tokenizer.load(tmp_path / "ours").fingerprint == same.fingerprint


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.txt")
    command = ["vocab", "learn", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "vocab")]
    assert main([*command, "--specials", "xlm-roberta"]) == 2
    assert not (tmp_path / "vocab").exists()


def test_a_model_of_another_order_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(sentence_piece(SENTENCES, 300))
    with pytest.raises((ModelFolderError, VocabularyError), match="does not begin with <unk>"):
        Tokenizer.load(tmp_path / "sentencepiece.bpe.model")
