"""tokenizer.json of a unigram vocabulary: read with suspicion, written in full."""

from __future__ import annotations

import base64
import binascii
import math
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.tokens.charsmap import CharsMap
from bertsmith.tokens.compiled import (
    added_in,
    added_tokens,
    check_settings,
    check_template,
    part,
    refused,
    surrounded,
)
from bertsmith.tokens.settings import check_added
from bertsmith.tokens.unigram import SPACE
from bertsmith.tokens.unigram_rules import UnigramRules
from bertsmith.tokens.vocabulary import MOST_PIECES, UNIGRAM_SPECIALS, check_vocabulary

NUMBER_COMMA_PENALTY = 100.0
_QUOTES = (
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
)
_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_MARKS = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}


def read_compiled_unigram(
    data: Mapping[str, Any], where: Path
) -> tuple[tuple[str, ...], UnigramRules]:
    """The vocabulary and the rules of a parsed tokenizer.json.

    Raises `ModelFolderError` unless it describes ALBERT's own rules and the likeliest cutting. What
    it cuts apart behind digits has no exception of its own, so we make none.
    """
    model = part(data, "model", "Unigram", where)
    check_settings(model, {"byte_fallback": False}, where)
    vocabulary, scores = _scored(model.get("vocab"), where)
    if vocabulary[:2] and model.get("unk_id") != _place(vocabulary, UNIGRAM_SPECIALS[1]):
        raise refused("its unk_id is not that of <unk>", where, "save the tokenizer again")
    added = added_in(data)
    check_added(added, UNIGRAM_SPECIALS, where, blanks=True, normalizes=True)
    check_vocabulary(vocabulary, where, specials=UNIGRAM_SPECIALS, lines=False)
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    ends = (UNIGRAM_SPECIALS[2], UNIGRAM_SPECIALS[3])
    check_template(data.get("post_processor"), ends, ids, where, separators=1)
    mask = added.get(UNIGRAM_SPECIALS[4])
    return vocabulary, UnigramRules(
        scores=scores,
        number_commas=False,
        mask_takes_blank=not isinstance(mask, dict) or mask.get("lstrip") is not False,
        **_normaliser(data.get("normalizer"), where),
        prefix_space=_prefix(data.get("pre_tokenizer"), where),
    )


def _place(vocabulary: Sequence[str], piece: str) -> int:
    return vocabulary.index(piece) if piece in vocabulary else -1


def _scored(table: object, where: Path) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Pieces and their scores, in 32 bits."""
    if not isinstance(table, list) or len(table) > MOST_PIECES:
        raise refused("its vocabulary is no list of pieces", where, "save the tokenizer again")
    try:
        pairs = [(str.__str__(piece), float(score)) for piece, score in table]
        scores = array("f", [score for _, score in pairs])
    except (TypeError, ValueError, OverflowError) as error:
        raise refused(
            "its vocabulary is no list of pieces with scores", where, "save the tokenizer again"
        ) from error
    if not all(map(math.isfinite, scores)):
        raise refused("a score is no number", where, "save the tokenizer again")
    return tuple(piece for piece, _ in pairs), tuple(scores)


def _normaliser(said: object, where: Path) -> dict[str, Any]:
    """What the normalisers, one after the other, say of the rules."""
    steps: Any = part({"normalizer": said}, "normalizer", "Sequence", where).get("normalizers")
    if not isinstance(steps, list):
        raise refused("its normalizer is no list of them", where, "only ALBERT's can be followed")
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    wanted: list[dict[str, Any]] = [
        *_QUOTES,
        *({"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")),
    ]
    found: dict[str, Any] = {
        "lowercase": "Lowercase" in kinds,
        "keep_accents": "NFKD" not in kinds,
    }
    expected = [each for each in wanted if each["type"] in ("Replace", *kinds)]
    rest = steps[len(expected) :]
    if steps[: len(expected)] != expected or ("NFKD" in kinds) != ("StripAccents" in kinds):
        raise refused(
            f"its normalizers are {', '.join(map(str, kinds))[:80]}",
            where,
            "only ALBERT's can be followed",
        )
    if rest and isinstance(rest[0], dict) and rest[0].get("type") == "Precompiled":
        found["charsmap"] = _charsmap(rest.pop(0).get("precompiled_charsmap"), where)
    if rest not in ([], [_SPACES]):
        raise refused(
            f"its last normalizer is {str(rest[0])[:50]}", where, "only ALBERT's can be followed"
        )
    return found


def _charsmap(encoded: object, where: Path) -> bytes:
    try:
        data = base64.b64decode(str(encoded), validate=True)
        CharsMap(data)
    except (binascii.Error, ValueError) as error:
        raise refused(
            f"its precompiled_charsmap is damaged: {error}", where, "save the tokenizer again"
        ) from error
    return data


def _prefix(said: object, where: Path) -> bool:
    """Whether a blank goes before a text; older files part words at blanks first."""
    steps = said.get("pretokenizers") if isinstance(said, dict) else None
    several: list[Any] = steps if isinstance(steps, list) else []
    kinds = [step.get("type") if isinstance(step, dict) else None for step in several]
    if kinds == ["WhitespaceSplit", "Metaspace"]:
        said = several[1]
    marks = part({"pre_tokenizer": said}, "pre_tokenizer", "Metaspace", where)
    check_settings(marks, {"replacement": SPACE, "split": True}, where)
    check_settings(marks, {"add_prefix_space": (True, False)}, where)
    check_settings(marks, {"prepend_scheme": ("always", "never")}, where)
    wanted = marks.get("prepend_scheme", "always") == "always"
    return wanted and marks.get("add_prefix_space", True) is True


def unigram_tokenizer(vocabulary: Sequence[str], rules: UnigramRules) -> dict[str, Any]:
    """The contents of tokenizer.json for a vocabulary; adds [CLS] and [SEP] around texts."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    marks = _MARKS | {"prepend_scheme": "always" if rules.prefix_space else "never"}
    # without the first step a blank at the end of a part is a piece
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, marks]}
    steps: list[dict[str, Any]] = list(_QUOTES)
    if not rules.keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if rules.lowercase:
        steps.append({"type": "Lowercase"})
    if rules.charsmap:
        encoded = base64.b64encode(rules.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    flags = {"lstrip": rules.mask_takes_blank}
    scores = zip(vocabulary, rules.scores, strict=True)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(ids, UNIGRAM_SPECIALS, flags),
        "normalizer": {"type": "Sequence", "normalizers": [*steps, _SPACES]},
        "pre_tokenizer": words if rules.remove_space else marks,
        "post_processor": surrounded("[CLS]", "[SEP]", ids, segments=True),
        "decoder": marks,
        "model": {
            "type": "Unigram",
            "unk_id": ids[UNIGRAM_SPECIALS[1]],
            "vocab": [
                [piece, score - NUMBER_COMMA_PENALTY * _ends_in_number(piece, rules)]
                for piece, score in scores
            ],
            "byte_fallback": False,
        },
    }


def _ends_in_number(piece: str, rules: UnigramRules) -> bool:
    """Whether a piece is never to be taken, as its comma is to stand alone."""
    number = len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    return rules.number_commas and number
