"""Added tokens: ids and places in text are those of the compiled tokenizers of transformers.

Both versions add the tokens, save the folder, and are asked again for what we saved of it.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bertsmith.core.errors import UserError
from bertsmith.text.white_space import tidy
from bertsmith.tokens.added import AddedToken, AddedTokens, Finder
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.modern import ModernRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, SPECIALS
from parity.other_process import Transformers

CORPUS = (
    "The hands of the clock, the hand. [unused1]",
    "the café's hands don't stop 12 times, 12, 13",
    "New York is not new, user",
    "漢字 漢字 e e é ü",
) * 4
ADDED: list[str | dict[str, Any]] = [
    "Covid",
    "New York",
    "@USER",
    "hand",
    "é!",
    "漢字",
    "##s",
    {"content": "<url>", "single_word": True},
    {"content": "the", "single_word": True, "lstrip": True, "normalized": False},
    {"content": "<n>", "lstrip": True, "normalized": False},
    {"content": "</n>", "rstrip": True, "normalized": False},
    {"content": "Stop", "lstrip": True, "rstrip": True},
]
SPECIAL = ["[E1]", "[/E1]", "[unused1]", "[E"]
TEXTS = (
    "",
    "Covid in New York, @User: covidx [E1]the hands[/E1] [unused1]",
    "x<url> <url> b <n> E! é! café! STOP  stop <url>²",
    "  <n>  <n></n>  </n> the  the\tother the",
    "new\u00a0york NEW  YORK newyork new york 漢字漢字x",
    "[MASK] <mask>[E1] [MASK] [E [E1 [SEP]</s>Covid",
    "@user@USER ＠user hands hand-hand thehand 12 <n>",
)
KINDS = ("bert", "cased", "roberta", "prefixed", "albert", "xlm", "modern")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, as we save it."""
    folder = tmp_path_factory.mktemp("bases")
    for name, lowercase in (("bert", True), ("cased", False)):
        words = learn_wordpiece(CORPUS, size=110, lowercase=lowercase, min_frequency=1)
        Tokenizer(words.vocabulary, BasicRules(lowercase=lowercase)).save(folder / name)
    byte_level = learn_byte_bpe(CORPUS, size=320)
    byte_level.save(folder / "roberta")
    rules: Any = byte_level.rules
    prefixed = replace(rules, prefix_blank=True, prefix_parts=True)
    Tokenizer(byte_level.vocabulary, prefixed).save(folder / "prefixed")
    pieces = tuple(piece for piece in byte_level.vocabulary if piece not in BYTE_SPECIALS)
    tokens = tuple(AddedToken(piece=each, special=True, normalized=False) for each in SPECIALS)
    added = AddedTokens(tokens=tokens, learned=len(pieces))
    modern = ModernRules(merges=rules.merges, added=added)
    Tokenizer((*pieces, *SPECIALS), modern).save(folder / "modern")
    learn_unigram(CORPUS, size=90, strip_accents=True).save(folder / "albert")
    learn_unigram(CORPUS, size=90, plain=True).save(folder / "xlm")
    types = {"cased": "bert", "prefixed": "roberta", "xlm": "xlm-roberta", "modern": "modernbert"}
    for kind in KINDS:
        config = json.dumps({"model_type": types.get(kind, kind)})
        (folder / kind / "config.json").write_text(config, encoding="utf-8")
    return folder


@pytest.fixture(params=["transformers4", "transformers5"])
def asked(request: pytest.FixtureRequest) -> Transformers:
    theirs: Transformers = request.getfixturevalue(request.param)
    return theirs


def extended(theirs: Transformers, bases: Path, kind: str, folder: Path, **options: object) -> Path:
    """A folder of a kind as transformers saves it with added tokens."""
    given = {"folder": str(bases / kind), "kind": "AutoTokenizer", "to": str(folder)}
    theirs.ask("save_tokenizer", **given | {"add": ADDED, "add_special": SPECIAL} | options)
    config = json.loads((bases / kind / "config.json").read_text(encoding="utf-8"))
    config["transformers_version"] = theirs.version
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def mixed(count: int) -> list[str]:
    draw = random.Random(7)
    contents = [each if isinstance(each, str) else str(each["content"]) for each in ADDED]
    some = [*contents, *SPECIAL, *(content.lower() for content in contents), *SPECIALS, "<mask>"]
    words = [*" ".join(CORPUS[:4]).split(), *"aBéÉ!²_-漢@<]'s"]
    return [
        "".join(
            draw.choice(some if draw.random() < 0.5 else words)
            + draw.choice(("", "", " ", " ", "  ", "\t", "\u00a0"))
            for _ in range(draw.randint(1, 12))
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_places(asked: Transformers, bases: Path, tmp_path: Path, kind: str) -> None:
    folder = extended(asked, bases, kind, tmp_path / "extended")
    ours = Tokenizer.load(folder)
    ours.save(tmp_path / "again")
    shutil.copy(folder / "config.json", tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert (again.vocabulary, again.rules) == (ours.vocabulary, ours.rules)
    assert again.fingerprint == ours.fingerprint
    texts = [*TEXTS, *mixed(250)]
    given = {"kind": "AutoTokenizer", "texts": texts}
    expected = asked.ask("spans", folder=str(folder), **given)
    assert asked.ask("spans", folder=str(tmp_path / "again"), **given) == expected
    for text, (ids, places) in zip(texts, expected, strict=True):
        assert ours.encode([text])[0].tolist() == ids, repr(text)
        found = ours.encode_spans(text)
        assert found.ids.tolist() == ids, repr(text)
        spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        if kind in ("bert", "cased", "roberta", "modern"):
            assert [list(span) for span in spans] == places, repr(text)
        elif kind != "prefixed":
            # there a marker has the place of the character behind it, here it has none
            for number, ours_at, at in zip(ids, spans, places, strict=True):
                if ours.vocabulary[number] != "▁":
                    assert text[slice(*ours_at)].strip() == text[slice(*at)].strip(), repr(text)


@pytest.mark.parametrize("kind", ["cased", "roberta", "prefixed", "xlm"])
def test_tokens_that_contain_special_tokens_or_the_blanks_of_others(
    asked: Transformers, bases: Path, tmp_path: Path, kind: str
) -> None:
    mask = "[MASK]" if kind == "cased" else "<mask>"
    added = [
        {"content": mask * 2, "single_word": True, "normalized": False},
        {"content": f"x{mask}", "single_word": True, "normalized": True},
        {"content": "New", "rstrip": True},
        {"content": "   ", "lstrip": True},
    ]
    folder = extended(asked, bases, kind, tmp_path / "extended", add=added, add_special=[])
    ours = Tokenizer.load(folder)
    texts = [
        f"{mask}{mask}x {mask}{mask} {mask}", f"yx{mask} x{mask}", "New   ", "New   York", "   New",
        "the \t   hand",
    ]  # fmt: skip
    expected = asked.ask("spans", folder=str(folder), kind="AutoTokenizer", texts=texts)
    for text, (ids, _) in zip(texts, expected, strict=True):
        assert ours.encode([text])[0].tolist() == ids, repr(text)
        assert ours.encode_spans(text).ids.tolist() == ids, repr(text)


@pytest.mark.parametrize("kind", ["bert", "cased", "roberta", "prefixed"])
def test_folders_of_the_slow_tokenizers(
    transformers4: Transformers, bases: Path, tmp_path: Path, kind: str
) -> None:
    """They have no tokenizer.json, of which AutoTokenizer makes one."""
    source = bases / kind
    folder = extended(transformers4, source.parent, kind, tmp_path / "slow", use_fast=False)
    assert not (folder / "tokenizer.json").exists()
    table = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    texts = [*TEXTS, *mixed(80)]
    given = {"folder": str(folder), "kind": "AutoTokenizer", "texts": texts}
    expected = [ids for ids, _ in transformers4.ask("spans", **given)]
    assert [ids.tolist() for ids in Tokenizer.load(folder).encode(texts)] == expected
    # before version 4.34 there was no table of added tokens, and so no flags
    del table["added_tokens_decoder"]
    (folder / "tokenizer_config.json").write_text(json.dumps(table), encoding="utf-8")
    plain = ["Covid [E1] New York[/E1] covid [unused1]", "x @user [E2] y", "[MASK] <mask>Covid"]
    given["texts"] = plain
    expected = [ids for ids, _ in transformers4.ask("spans", **given)]
    assert [ids.tolist() for ids in Tokenizer.load(folder).encode(plain)] == expected


def test_a_sentencepiece_model_alone(
    transformers4: Transformers, bases: Path, tmp_path: Path
) -> None:
    folder = extended(transformers4, bases, "albert", tmp_path / "slow", use_fast=False)
    with pytest.raises(UserError, match=r"'##s' was added to it; .* save it again"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_known_of_added_tokens(
    transformers4: Transformers, bases: Path, tmp_path: Path, kind: str
) -> None:
    ours = Tokenizer.load(extended(transformers4, bases, kind, tmp_path / "extended"))
    ids = ours.vocabulary.ids
    specials = {ids[piece] for piece in SPECIAL}
    assert specials <= ours.special_ids
    assert ids["@USER"] not in ours.special_ids
    assert specials.isdisjoint(ours.ordinary_ids.tolist())
    assert ids["@USER"] in ours.ordinary_ids
    assert not ours.continues[sorted({*specials, ids["@USER"], ids["New York"]})].any()
    assert ours.shown(ids["é!"]) == "é!"
    text = "é! the [E1] hands [/E1] @USER New York"
    assert ours.decode(ours.encode([text])[0].tolist()).replace(" ", "") == text.replace(" ", "")
    # a corpus has the added tokens, and none of those that mean something to the model
    corpus = [text, "[MASK] @USER [SEP] the <mask> hand </s> <s>x", *mixed(60)]
    encoder = DocumentEncoder(ours)
    marks = {ours.pad_id, ours.cls_id, ours.sep_id, ours.mask_id}
    for line in filter(None, map(tidy, corpus)):
        (found,) = ours.encode([line], specials_in_text=False)
        assert marks.isdisjoint(found.tolist()), repr(line)
        if not set(line) & set(".!?"):
            assert encoder.encode([line.encode()]).ids.tolist() == found.tolist(), repr(line)
    (found,) = ours.encode([text], specials_in_text=False)
    assert {*specials} - {ids["[unused1]"], ids["[E"]} <= set(found.tolist())
    assert ids["@USER"] in found


WRONG: dict[str, dict[str, object]] = {
    "must have": {"id": 7},
    "is invalid": {"lstrip": None},
    "are too long": {"content": "x" * 2**20},
    "nothing is left of the added token": {"content": "\u0301", "normalized": True},
}


@pytest.mark.parametrize("named", WRONG)
def test_what_is_refused(
    transformers4: Transformers, bases: Path, tmp_path: Path, named: str
) -> None:
    folder = extended(transformers4, bases, "bert", tmp_path / "extended")
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["added_tokens"][-1] |= WRONG[named]
    path.write_text(json.dumps(data), encoding="utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del settings["added_tokens_decoder"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(UserError, match=named) as caught:
        Tokenizer.load(folder)
    assert caught.value.remedy
    assert caught.value.where == path


def test_files_must_agree(transformers4: Transformers, bases: Path, tmp_path: Path) -> None:
    folder = extended(transformers4, bases, "bert", tmp_path / "extended")
    path = folder / "tokenizer_config.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    key, entry = data["added_tokens_decoder"].popitem()
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UserError, match=f"the added token {key} is not that of") as caught:
        Tokenizer.load(folder)
    assert caught.value.where == path
    data["added_tokens_decoder"][key] = entry
    data["bos_token"] = "[BOS]"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UserError, match="bos_token is"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("order", [("[x]", "[X]"), ("[X]", "[x]")])
def test_of_tokens_that_are_normalised_alike_the_special_one_is_matched(
    order: tuple[str, str],
) -> None:
    special = {"[x]": False, "[X]": True}
    theirs = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    theirs.normalizer = tokenizers.normalizers.Lowercase()
    for piece in order:
        token = tokenizers.AddedToken(piece, normalized=True, special=special[piece])
        (theirs.add_special_tokens if special[piece] else theirs.add_tokens)([token])
    ids = {piece: theirs.token_to_id(piece) for piece in order}
    tokens = [AddedToken(piece=item, special=special[item], normalized=True) for item in order]
    ours = Finder(tokens, ids, reserved=(), normalised=str.lower)
    found = [part.number for part in ours.parts("[x][X]".lower(), specials_in_text=True)]
    assert found == theirs.encode("[x][X]").ids == [ids["[X]"]] * 2


def test_what_follows_a_token_that_is_not_matched_is_matched() -> None:
    ids = {"[MASK]": 7, "word": 8, "Covid": 9}
    tokens = [
        AddedToken(piece=piece, special=piece == "[MASK]", normalized=False, single_word=True)
        for piece in ids
    ]
    finder = Finder(tokens, ids, reserved=["[MASK]"])
    found = finder.parts("[MASK] words Covid word", specials_in_text=False)
    assert [part for part in found if part.number] == [(13, 18, 9), (19, 23, 8)]
