"""Ids of XLM-RoBERTa's vocabularies equal those of transformers' XLMRobertaTokenizer.

The slow class of 4.57 reads the SentencePiece model, the fast one and that of version 5
tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer as CompiledTokenizer
from transformers import AutoTokenizer, XLMRobertaTokenizer, XLMRobertaTokenizerFast

from bertsmith.cli.main import main
from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.normalisation import PlainRules
from bertsmith.tokens.tokenizer import Tokenizer
from goldens.inputs import HARD_PAGE, write_corpus
from parity.other_process import Transformers
from parity.test_token_ids_unigram import (
    LINES,
    OF_BLANKS,
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


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has a tokenizer.json alone, as version 4 writes it."""
    folder = tmp_path_factory.mktemp("compiled")
    model = sentence_piece(
        SENTENCES, 400, control_symbols="", pad_id=-1, unk_id=0, bos_id=1, eos_id=2
    )
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    XLMRobertaTokenizerFast(str(folder / "sentencepiece.bpe.model")).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    return folder


def ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [list(map(int, item)) for item in tokenizer.encode(texts)]


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
    one, second = (item.tolist() for item in ours.encode(["bada ke", "lo mi"]))
    assert other("bada ke", "lo mi")["input_ids"] == [0, *one, 2, 2, *second, 2]
    assert (ours.separators, ours.segments, ours.lowercase) == (2, False, False)


def test_places(learned: Path) -> None:
    ours, fast = Tokenizer.load(learned), XLMRobertaTokenizerFast.from_pretrained(learned)
    assert assert_equal_places(ours, fast, PAGE) == 0


def test_version_5_reads_and_writes_it(
    learned: Path, transformers5: Transformers, tmp_path: Path
) -> None:
    ours, texts = Tokenizer.load(learned), [*PAGE, *MARKED, *OF_BLANKS]
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
    with pytest.raises(ModelFolderError, match=r"holds neither sentencepiece\.bpe\.model nor tok"):
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
    for text in (*LINES, *MARKED, *OF_BLANKS):
        assert ids(ours, [text]) == theirs(slow, [text]), text
    for text in OF_BLANKS:
        assert ours.encode_spans(text).ids.tolist() == ids(ours, [text])[0]
    # with both files the slow class is followed, as everywhere
    fast = XLMRobertaTokenizerFast.from_pretrained(tmp_path / "slow")
    fast.save_pretrained(tmp_path / "fast")
    both = Tokenizer.load(tmp_path / "fast")
    assert both.fingerprint == ours.fingerprint
    both.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").fingerprint == ours.fingerprint
    (tmp_path / "fast" / "sentencepiece.bpe.model").unlink()
    same = Tokenizer.load(tmp_path / "fast")
    for text in (*LINES, *MARKED, *OF_BLANKS):
        assert ids(same, [text]) == theirs(fast, [text]), text
    same.save(tmp_path / "ours")
    assert not (tmp_path / "ours" / "sentencepiece.bpe.model").exists()
    again = XLMRobertaTokenizerFast.from_pretrained(tmp_path / "ours")
    assert theirs(again, LINES) == theirs(fast, LINES)
    assert Tokenizer.load(tmp_path / "ours").fingerprint == same.fingerprint
    assert same.fingerprint != both.fingerprint


CLUSTERS = (
    *"ab ei1,.-  \t\n\r\u2581\u0301\u0302\u0303\u0308\u030a\u0327\u0338<>=\u00e9\ufb01\u2163\u00bd",
    *"\u00a0\u3000\u200b\u200c\u200d\ufe0f\u00ad\u0600\u06dd\u1100\u1161\u11a8\uac00\u1160\u20dd\u0d4e",
    *"\u2122\u00a9\u00ae\u263a\u2764\U0001f3fb\U0001f468\u0e33\u0eb3\u0e01\x1c\x85\u2028\u0928\u093f\u094d",
    "<s>", "<mask>",
)  # fmt: skip


@pytest.mark.parametrize("gaps", ["kept", "alone", "one blank", "marked"])
@pytest.mark.parametrize("words", [True, False])
def test_every_form_of_a_compiled_tokenizer(
    compiled: Path, tmp_path: Path, gaps: str, words: bool
) -> None:
    """As on the hub, as versions 4 and 5 write them: the reference is the compiled tokenizer."""
    data = json.loads((compiled / "tokenizer.json").read_text(encoding="utf-8"))
    steps = data["normalizer"]["normalizers"]
    assert [step["type"] for step in steps] == ["Precompiled", "Strip", "Replace"]
    forms = {
        "kept": {"type": "Sequence", "normalizers": steps[:1]},
        "alone": steps[0],
        "one blank": {"type": "Sequence", "normalizers": [steps[0], steps[2] | {"content": " "}]},
        "marked": data["normalizer"],
    }
    for scheme in ("always", "never"):
        marks = data["pre_tokenizer"] | {"prepend_scheme": scheme}
        split = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, marks]}
        edited = data | {"normalizer": forms[gaps], "pre_tokenizer": split if words else marks}
        # the mask is matched before replacement, or after it
        flags = data["added_tokens"][-1] | {"normalized": scheme == "always"}
        edited["added_tokens"] = [*data["added_tokens"][:-1], flags]
        (tmp_path / "tokenizer.json").write_text(json.dumps(edited), encoding="utf-8")
        settings = {"tokenizer_class": "XLMRobertaTokenizer", "cls_token": "<s>"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        ours = Tokenizer.load(tmp_path)
        reference = CompiledTokenizer.from_file(str(tmp_path / "tokenizer.json"))
        random = Random(f"{gaps} {words} {scheme}")
        texts = ["".join(random.choices(CLUSTERS, k=random.randint(0, 14))) for _ in range(300)]
        plain = ["".join(random.choices(("a", "b", " ", "  ", "<mask>"), k=9)) for _ in range(60)]
        for text in (*texts, *MARKED, *plain):
            found = ours.encode_spans(text)
            assert found.ids.tolist() == ids(ours, [text])[0]
            expected = reference.encode(text, add_special_tokens=False)
            assert found.ids.tolist() == expected.ids, text
            assert (found.starts <= found.ends).all()
            # the blanks before a mask belong to it; those of a late one are shifted there where a
            # character was left out or became several
            if text in plain or not flags["normalized"]:
                spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
                assert masks(found.ids, spans, ours) == masks(expected.ids, expected.offsets, ours)
        ours.save(tmp_path / "again")
        assert Tokenizer.load(tmp_path / "again").fingerprint == ours.fingerprint
        again = CompiledTokenizer.from_file(str(tmp_path / "again" / "tokenizer.json"))
        assert [item.ids for item in again.encode_batch(texts)] == [
            item.ids for item in reference.encode_batch(texts)
        ]


def masks(
    ids: Iterable[int], spans: Iterable[tuple[int, int]], ours: Tokenizer
) -> list[tuple[int, int]]:
    """Return the spans of the masks of a text."""
    return [span for number, span in zip(ids, spans, strict=True) if number == ours.mask_id]


def test_documents_of_a_compiled_tokenizer(compiled: Path) -> None:
    ours = Tokenizer.load(compiled)
    text = "Bada  ke\u0301 lo. Mi do\u00e9 ra. \u200bBe \u2581le"
    made = DocumentEncoder(ours).encode([text.encode()])
    assert made.ids.tolist() == ids(ours, [text])[0]


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.txt")
    command = ["vocab", "learn", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "vocab")]
    assert main([*command, "--specials", "xlm-roberta"]) == 2
    assert not (tmp_path / "vocab").exists()


def test_a_model_of_another_order_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(sentence_piece(SENTENCES, 300))
    with pytest.raises((ModelFolderError, VocabularyError), match="does not begin with <unk>"):
        Tokenizer.load(tmp_path / "sentencepiece.bpe.model")
