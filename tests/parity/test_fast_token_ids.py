"""Ids of a folder that follows the fast tokenizers.

They have decomposed Unicode, code points without a character and blanks beside special tokens in a
way of their own.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.core.errors import ModelFolderError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe import ByteRules
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from parity.other_process import Transformers

LINES = (
    "Café naïve Straße Ångström Dvořák Çelik señor",
    "Việt Nam, Tiếng Việt; ἄνθρωπος Ὀδυσσεύς",
    "한국어 각 갂 がぎぐ パピプ ガ",
    "ñ. ç! Q\u0307\u0323 a\u0323\u0302 e\u0302\u0323x \u0301start end\u0301",
    "नमस्ते हिन्दी مُحَمَّد ไทย תּוֹרָה",
    "[MASK] caf\u00e9[SEP]\u0301x [MA\u200bSK] tab\there \u00a0blank",
    "\u212b \u2126 \ufb01 \u1e9b\u0323 \u0958 \uac00\u11a8 <\u0338 \u2260",
    "new a\uffffb \ufffe \u0378x, e\u0301\U0010ffff\u0301 [MASK]\ufdd0 \U0002fffe\u6f22",
)
TEXTS = tuple(unicodedata.normalize(form, line) for form in ("NFC", "NFD") for line in LINES)
RULES = {
    "cased": BasicRules(lowercase=False),
    "cased, no accents": BasicRules(lowercase=False, strip_accents=True),
    "uncased": BasicRules(lowercase=True),
    "uncased with accents": BasicRules(lowercase=True, strip_accents=False),
}


def vocabulary() -> tuple[str, ...]:
    """Every character of the texts, whatever becomes of it, at the beginning of a word or not."""
    text = "".join(TEXTS) + "".join(TEXTS).lower()
    forms = {c for form in ("NFC", "NFD") for c in unicodedata.normalize(form, text)} | set(text)
    kept = sorted(c for c in forms if not c.isspace() and unicodedata.category(c)[0] != "C")
    return (*SPECIALS, *kept, *(f"##{c}" for c in kept))


def saved(folder: Path, tokenizer: Tokenizer, kind: str, follows: str | None) -> Tokenizer:
    """A tokenizer in a folder that says which one it follows, read again."""
    tokenizer.save(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    path = folder / "tokenizer_config.json"
    data = json.loads(path.read_text())
    data.pop("bertsmith_follows", None)
    path.write_text(json.dumps(data | ({"bertsmith_follows": follows} if follows else {})))
    return Tokenizer.load(folder)


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("case", RULES)
def test_decomposed_unicode_as_the_fast_tokenizers_have_it(
    request: pytest.FixtureRequest, tmp_path: Path, case: str, version: str
) -> None:
    asked: Transformers = request.getfixturevalue(f"transformers{version}")
    ours = saved(tmp_path / "model", Tokenizer(vocabulary(), RULES[case]), "bert", "fast")
    theirs = asked.ask("spans", folder=str(tmp_path / "model"), kind="AutoTokenizer", texts=TEXTS)
    encoded = ours.encode(TEXTS)
    for text, ids, (expected, places) in zip(TEXTS, encoded, theirs, strict=True):
        assert ids.tolist() == expected, text
        spans = ours.encode_spans(text)
        assert spans.ids.tolist() == expected
        found = zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)
        assert list(found) == [tuple(place) for place in places], text
    # whole documents go another way
    plain = [text for text in TEXTS if "[" not in text]
    documents = DocumentEncoder(ours).encode([text.encode() for text in plain])
    assert documents.ids.tolist() == [n for item in ours.encode(plain) for n in item.tolist()]
    # and the setting lasts
    ours.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert (again.rules, again.fingerprint) == (ours.rules, ours.fingerprint)


def test_what_a_folder_follows_by_itself(transformers4: Transformers, tmp_path: Path) -> None:
    """The slow one, unless version 5 wrote it; they differ where accents stay."""
    made = Tokenizer(vocabulary(), RULES["cased"])
    slow = saved(tmp_path / "model", made, "bert", None)
    given = {"kind": "AutoTokenizer", "texts": list(TEXTS), "pair": "x", "use_fast": False}
    theirs = transformers4.ask("encode", folder=str(tmp_path / "model"), **given)
    assert [ids[1:-1] for ids in theirs["ids"]] == [ids.tolist() for ids in slow.encode(TEXTS)]
    assert slow.fingerprint == made.fingerprint
    fast = Tokenizer(made.vocabulary, replace(RULES["cased"], slow=False))
    assert fast.fingerprint != made.fingerprint
    assert [ids.tolist() for ids in fast.encode(TEXTS)] != [
        ids.tolist() for ids in slow.encode(TEXTS)
    ]
    config = tmp_path / "model" / "config.json"
    for version, expected in (("4.57.6", slow), ("5.0.0", fast), ("10.1", fast), ("x", slow)):
        config.write_text(json.dumps({"model_type": "bert", "transformers_version": version}))
        assert Tokenizer.load(tmp_path / "model").fingerprint == expected.fingerprint, version


def test_a_folder_can_follow_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="bertsmith_follows is 'both'; it can be slow or"):
        saved(tmp_path, Tokenizer(vocabulary(), RULES["cased"]), "bert", "both")


@pytest.mark.parametrize("version", ["4", "5"])
def test_a_blank_before_each_part_between_special_tokens(
    request: pytest.FixtureRequest, tmp_path: Path, version: str
) -> None:
    asked: Transformers = request.getfixturevalue(f"transformers{version}")
    learned = learn_byte_bpe(("the hand of the clock", "the hands") * 4, size=280)
    assert isinstance(learned.rules, ByteRules)
    made = Tokenizer(learned.vocabulary, replace(learned.rules, prefix_blank=True))
    ours = saved(tmp_path / "model", made, "roberta", "fast")
    texts = [
        "the hand<pad>the hand", "<pad>the", "</s> the <mask>the", "the<mask> ", "<s><s>x", "", " ",
        "\u3000the</s>\u3000the",
    ]  # fmt: skip
    theirs = asked.ask("spans", folder=str(tmp_path / "model"), kind="AutoTokenizer", texts=texts)
    for text, ids, (expected, _) in zip(texts, ours.encode(texts), theirs, strict=True):
        assert ids.tolist() == expected, text
        # theirs cut the first letter off a part that they put a blank before: places are ours
        spans = ours.encode_spans(text)
        assert spans.ids.tolist() == expected
    ours.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").rules == ours.rules
