"""Ids and places of ModernBERT's byte-level BPE equal those of transformers, and so do folders.

The tokenizer is built here by the compiled library, laid out as the published one is.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as CompiledTokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.text.white_space import tidy
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.modern import ModernRules, composed
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from parity.test_token_ids import HARD_PAGE
from parity.test_token_ids_bytes import LINES, known

NORMAL, APART = {"normalized": True}, {"normalized": False}
OLD = ("|||IP_ADDRESS|||", "<|padding|>")
BLANKS = tuple(" " * size for size in range(24, 1, -1))
NAMES = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token")
VALUES = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
MARKED = (
    "a [MASK] b",
    " a[MASK][MASK]  [CLS] b[SEP][UNK]",
    "   [MASK]",
    " \t\u3000\x85 [MASK]a [MASK]  ",
    "a\u3000[MASK]\x1c[MASK] \x1f  [MASK]",
    "e\u0301 [MASK]e\u0301 [MASK]\u0301 a[SEP]\u0301",
    "a" + " " * 23 + "b" + " " * 24 + "c" + " " * 25 + "d" + " " * 26 + "e" + " " * 60,
    "  \n    x\n\t  y  \u0301  \u2000\u2000 z",
    "|||IP_ADDRESS||| x|||EMAIL_ADDRESS|||||||PHONE_NUMBER|||| <|padding|> <|endoftext|>b",
    "[unused0][unused82] [unused83] [unused1",
    "cafe\u0301  e\u0323\u0302 e\u0302\u0323  \u1112\u1161\u11ab \u0958 \u212b  \u0340 \u0f73",
    "\u0301\u0323 \u0301a a\u0315\u0300\u05ae\u0300b \u1100\u1161\u11a7 \uac00\u11a8 \u0344",
)


def added() -> list[AddedToken]:
    special = [AddedToken(item, special=True, **APART) for item in VALUES[:-1]]
    return [
        *(AddedToken(item, **NORMAL) for item in BLANKS),
        *(AddedToken(f"|||{name}|||", **NORMAL) for name in ("EMAIL_ADDRESS", "PHONE_NUMBER")),
        AddedToken("<|endoftext|>", special=True, **APART),
        *special,
        AddedToken("[MASK]", special=True, lstrip=True, **APART),
        *(AddedToken(f"[unused{number}]", **NORMAL) for number in range(83)),
    ]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as ModernBERT's, with two added tokens among the learned pieces."""
    made = CompiledTokenizer(BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(
        vocab_size=700,
        special_tokens=[AddedToken(OLD[0], **NORMAL), AddedToken(OLD[1], special=True, **APART)],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator([known(line) for line in HARD_PAGE * 3], trainer)
    made.add_tokens(added())
    data = json.loads(made.to_str())
    # a trainer calls special and apart whatever it is told of
    data["added_tokens"][0] |= {"special": False, "normalized": True}
    made = CompiledTokenizer.from_str(json.dumps(data))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(item, made.token_to_id(item)) for item in ("[CLS]", "[SEP]")],
    )
    folder = tmp_path_factory.mktemp("modern")
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        clean_up_tokenization_spaces=True,
        model_input_names=["input_ids", "attention_mask"],
        **dict(zip(NAMES, VALUES, strict=True)),
    ).save_pretrained(folder)
    return folder


def assert_equal(ours: Tokenizer, theirs: PreTrainedTokenizerFast, texts: Sequence[str]) -> None:
    encoded = theirs(list(texts), return_offsets_mapping=True, add_special_tokens=False)
    of_each = zip(
        texts, ours.encode(texts), encoded["input_ids"], encoded["offset_mapping"], strict=True
    )
    for text, ids, expected, places in of_each:
        assert ids.tolist() == expected, repr(text)
        found = ours.encode_spans(text)
        assert found.ids.tolist() == expected, repr(text)
        spans = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
        assert spans == places, repr(text)


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def mixed(count: int) -> list[str]:
    """Lines of words, marks, blanks, added tokens and parts of decomposed text."""
    draw = random.Random(5)
    page = [known(line) for line in HARD_PAGE]
    words = [w for p in page for w in f"{p} {decomposed(p)}".split()]
    marks = "\u0301\u0323\u0302\u0345\u05ae\u0f73\u1161\u11abeo\u1112\u0958"
    some = [*VALUES, *OLD, "<|endoftext|>", "[unused7]", "|||EMAIL_ADDRESS|||", "\n", "\t", "\x1c"]
    lines = []
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(1, 12)):
            kind = draw.random()
            if kind < 0.5:
                parts.append(draw.choice(words) + " " * draw.choice((0, 1, 1, 1, 2, 5)))
            elif kind < 0.65:
                parts.append(" " * draw.randint(1, 55))
            elif kind < 0.85:
                parts.append("".join(draw.choices(marks, k=draw.randint(1, 5))))
            else:
                parts.append(draw.choice(some))
        lines.append("".join(parts))
    return lines


def test_ids_and_places(published: Path) -> None:
    ours = Tokenizer.load(published)
    theirs = AutoTokenizer.from_pretrained(published)
    assert isinstance(theirs, PreTrainedTokenizerFast)
    assert (ours.kind, ours.size, ours.separators) == ("byte-bpe", len(theirs), 1)
    assert [ours.pad_id, ours.mask_id] == [theirs.pad_token_id, theirs.mask_token_id]
    lines = mixed(600)
    assert sum(not unicodedata.is_normalized("NFC", line) for line in lines) > 180
    assert_equal(ours, theirs, [*LINES, *MARKED, *lines])


def test_every_character_that_composing_changes(published: Path) -> None:
    every = known("".join(map(chr, range(0x110000))))
    changed = [c for c in every if not unicodedata.is_normalized("NFC", c)]
    changed += [c for c in every if unicodedata.decomposition(c)[:1] not in ("", "<")][::7]
    # the compiled library does not know the compositions of Unicode 13 and later
    compose = normalizers.NFC().normalize_str
    changed = [c for c in changed if compose(c) == unicodedata.normalize("NFC", c)]
    changed = [c for c in changed if compose(decomposed(c)) == unicodedata.normalize("NFC", c)]
    assert len(changed) > 1000
    texts = [
        "".join(f"a{decomposed(c)} {c}\u0301b" for c in changed[at : at + 50])
        for at in range(0, len(changed), 50)
    ]
    for text in texts:
        made = composed(text)
        assert made is not None
        assert made.text == unicodedata.normalize("NFC", text)
    ours, theirs = Tokenizer.load(published), AutoTokenizer.from_pretrained(published)
    assert_equal(ours, theirs, texts)


def test_save_load_save(published: Path, tmp_path: Path) -> None:
    ours = Tokenizer.load(published)
    ours.save(tmp_path / "a", longest=77)
    again = Tokenizer.load(tmp_path / "a")
    assert (again.vocabulary, again.rules) == (ours.vocabulary, ours.rules)
    assert again.fingerprint == ours.fingerprint
    again.save(tmp_path / "b", longest=77)
    names = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    theirs = AutoTokenizer.from_pretrained(published)
    saved = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert saved.model_max_length == 77
    assert saved.get_vocab() == theirs.get_vocab()
    assert saved.vocab_size == theirs.vocab_size
    assert saved.added_tokens_decoder == theirs.added_tokens_decoder
    assert_equal(ours, saved, [*LINES, *MARKED])
    for text in MARKED:
        ids, second = ours.encode([text, "of [MASK] the"])
        one = [ours.cls_id, *ids.tolist(), ours.sep_id]
        for item in (theirs, saved):
            assert item(text)["input_ids"] == one
            pair = item(text, "of [MASK] the", return_token_type_ids=True)
            assert pair["input_ids"] == [*one, *second.tolist(), ours.sep_id]
            assert pair["token_type_ids"] == [0] * len(one) + [1] * (len(second) + 1)
            shown = item.decode(ids.tolist(), clean_up_tokenization_spaces=False)
            assert ours.decode(ids.tolist()) == shown


def test_text_of_a_corpus_yields_no_special_token(published: Path) -> None:
    ours, theirs = Tokenizer.load(published), AutoTokenizer.from_pretrained(published)
    theirs.backend_tokenizer.encode_special_tokens = True
    for text in [*MARKED, *LINES, *mixed(300)]:
        (ids,) = ours.encode([text], specials_in_text=False)
        expected = theirs.backend_tokenizer.encode(text, add_special_tokens=False).ids
        assert ids.tolist() == expected, repr(text)
        assert not {ours.vocabulary[number] for number in ids} & {*SPECIALS, OLD[1]}
    encoder = DocumentEncoder(ours)
    for text in filter(None, map(tidy, ("One. Two three. Four! 5. (Six.) It's", *MARKED))):
        (ids,) = ours.encode([text], specials_in_text=False)
        assert encoder.encode([text.encode()]).ids.tolist() == ids.tolist(), repr(text)


def test_a_mask_that_takes_no_blanks(published: Path, tmp_path: Path) -> None:
    ours = Tokenizer.load(published)
    assert isinstance(ours.rules, ModernRules)
    assert ours.rules.mask_takes_blank
    tokens = [replace(token, lstrip=False) for token in ours.rules.added.tokens]
    added = replace(ours.rules.added, tokens=tuple(tokens))
    other = Tokenizer(ours.vocabulary, replace(ours.rules, added=added))
    assert other.fingerprint != ours.fingerprint
    other.save(tmp_path)
    assert Tokenizer.load(tmp_path).rules == other.rules
    assert_equal(other, AutoTokenizer.from_pretrained(tmp_path), MARKED)


def test_what_may_be_drawn(published: Path) -> None:
    ours = Tokenizer.load(published)
    drawn = {ours.vocabulary[number] for number in ours.ordinary_ids.tolist()}
    assert not drawn & {*SPECIALS, "<|padding|>", "<|endoftext|>", "[unused0]", "[unused82]"}
    assert "Ġthe" not in drawn or not ours.continues[ours.vocabulary.index("Ġthe")]


def entry(content: str, **changes: object) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": 817, "content": content, **flags, **changes}


WHOLE: dict[str, tuple[str, object]] = {
    "has a normalizer": ("normalizer", {"type": "NFKC"}),
    "begins with a Lowercase": (
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFC"}]},
    ),
    "pre_tokenizer is not a ByteLevel": ("pre_tokenizer", {"type": "Whitespace"}),
    "decoder is not a ByteLevel": ("decoder", None),
    "post_processor is not ModernBERT's": ("post_processor", None),
    "not a short list": ("added_tokens", {}),
    "is invalid": ("added_tokens", [{"id": 0, "content": "x"}]),
    r"\[PAD\] is not among its added_tokens": ("added_tokens", []),
}


@pytest.mark.parametrize("named", WHOLE)
def test_parts_that_are_not_followed(named: str, published: Path, tmp_path: Path) -> None:
    key, value = WHOLE[named]
    refuse(published, tmp_path, named, **{key: value})


INSIDE: dict[str, tuple[str, dict[str, object]]] = {
    "add_prefix_space is 'True'": ("pre_tokenizer", {"add_prefix_space": True}),
    "use_regex is 'False'": ("pre_tokenizer", {"use_regex": False}),
    "dropout is '0.1'": ("model", {"dropout": 0.1}),
    "unk_token is '<unk>'": ("model", {"unk_token": "<unk>"}),
    "ignore_merges is 'True'": ("model", {"ignore_merges": True}),
    "is not a pair": ("model", {"merges": ["a"]}),
    "lacks the byte": ("model", {"vocab": {"a": 0}}),
}


@pytest.mark.parametrize("named", INSIDE)
def test_settings_that_are_not_followed(named: str, published: Path, tmp_path: Path) -> None:
    key, changes = INSIDE[named]
    data = json.loads((published / "tokenizer.json").read_text(encoding="utf-8"))
    refuse(published, tmp_path, named, **{key: data[key] | changes})


ADDED: dict[str, dict[str, object]] = {
    "occurs twice": entry("[unused0]"),
    "'x!' has the id 5000": entry("x!", id=5000),
    "'th' has the id 5000": entry("th", id=5000),
}


@pytest.mark.parametrize("named", ADDED)
def test_added_tokens_that_are_not_followed(named: str, published: Path, tmp_path: Path) -> None:
    data = json.loads((published / "tokenizer.json").read_text(encoding="utf-8"))
    refuse(published, tmp_path, named, added_tokens=[*data["added_tokens"], ADDED[named]])


def refuse(published: Path, folder: Path, named: str, **changes: object) -> None:
    data = json.loads((published / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(data | changes), encoding="utf-8")
    with pytest.raises((ModelFolderError, VocabularyError), match=named) as caught:
        Tokenizer.load(folder)
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


BESIDE: dict[str, dict[str, object]] = {
    "add_prefix_space is set": {"add_prefix_space": True},
    "the mask's lstrip is not True": {"mask_token": {"content": "[MASK]", "lstrip": False}},
    "cls_token is '<s>'": {"cls_token": "<s>"},
    "'<e1>' was added": {"added_tokens_decoder": {"3": {"content": "<e1>"}}},
    "the added token 0 is not that of": {"added_tokens_decoder": {"0": {"content": OLD[0]}}},
    "extra_special_tokens": {"extra_special_tokens": {"image": "<image>"}},
    "has a normalizer": {"tokenizer_class": "RobertaTokenizer", "added_tokens_decoder": {}},
}


@pytest.mark.parametrize("named", BESIDE)
def test_files_beside_it_must_agree(named: str, published: Path, tmp_path: Path) -> None:
    for path in published.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "tokenizer_config.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    if "lstrip" in named:
        del data["added_tokens_decoder"]
    path.write_text(json.dumps(data | BESIDE[named]), encoding="utf-8")
    if named == "has a normalizer":
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            (tmp_path / name).unlink()
        path.write_text('{"tokenizer_class": "RobertaTokenizer"}', encoding="utf-8")
    with pytest.raises(ModelFolderError, match=named) as caught:
        Tokenizer.load(tmp_path)
    assert caught.value.remedy
