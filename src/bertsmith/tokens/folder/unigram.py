"""The files of a unigram vocabulary in a model folder: spiece.model, tokenizer.json, settings.

spiece.model is SentencePiece's: a vocabulary with scores, as a protocol buffer. Field numbers are
those of sentencepiece_model.proto; unsupported settings are refused by name."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.protocol_buffers import (
    DamagedMessage,
    Value,
    as_bytes,
    as_float,
    as_number,
    as_text,
    bytes_field,
    fields,
    float_field,
    number_field,
)
from bertsmith.tokens.compiled_unigram import Characters
from bertsmith.tokens.folder.added import FolderTokens, added_entries, further_names
from bertsmith.tokens.folder.compiled import (
    added_in,
    added_tokens,
    by_id,
    check_same,
    check_settings,
    check_template,
    part,
    surrounded,
    tokenizer_json,
)
from bertsmith.tokens.folder.files import (
    COMPILED_FILE,
    UNIGRAM_FILE,
    FolderFiles,
    Settings,
    check_added,
    check_added_ids,
    input_names,
    names_of,
    read_bytes,
    refused,
    standard_files,
)
from bertsmith.tokens.normalisation import SPACE, CharsMap, CompiledRules, UnigramRules
from bertsmith.tokens.vocabulary import MAX_PIECES, UNIGRAM_SPECIALS, Pieces, check_vocabulary

_PIECES, _TRAINER, _NORMALISER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL, _WANTED, _UNUSED = 1, 2, 3, 4, 5
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
_MODEL_TYPE, _VOCABULARY_SIZE, _SUFFIX, _FALLBACK = 3, 4, 24, 35
_UNKNOWN_ID, _BEGIN_ID, _END_ID, _PAD_ID, _UNKNOWN_PIECE, _PAD_PIECE = 40, 41, 42, 43, 45, 48
_NAME, _CHARSMAP, _PREFIX, _REMOVES, _ESCAPES = 1, 2, 3, 4, 5
_DAMAGED = "the file is damaged: save or download it again"


class Piece(NamedTuple):
    """A piece of a model: its text, score and type number."""

    text: str
    score: float
    type: int


def read_spiece(path: Path) -> tuple[Pieces, UnigramRules]:
    """Return the vocabulary of a model, and rules with only the model's own settings.

    Raises `ModelFolderError`.
    """
    data = read_bytes(path)
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normaliser: dict[int, Value] = {}
    try:
        for number, value in fields(data):
            if number == _PIECES:
                pieces.append(_piece(as_bytes(value)))
            elif number == _TRAINER:
                trainer |= dict(fields(as_bytes(value)))
            elif number == _NORMALISER:
                normaliser |= dict(fields(as_bytes(value)))
            if len(pieces) > MAX_PIECES:
                raise DamagedMessage(f"more than {MAX_PIECES:,} pieces")
        _check(trainer, normaliser, path)
        charsmap = as_bytes(normaliser.get(_CHARSMAP, b""))
        CharsMap(charsmap)
    except ValueError as error:
        raise ModelFolderError(
            f"not a SentencePiece model: {error}", where=path, remedy=_DAMAGED
        ) from error
    types = [piece.type for piece in pieces]
    if _WANTED + 2 in types:
        raise _refused("has pieces for single bytes", path)
    return Pieces(piece.text for piece in pieces), UnigramRules(
        scores=tuple(piece.score for piece in pieces),
        control=frozenset(
            number
            for number, piece in enumerate(pieces)
            if piece.type not in (_NORMAL, _WANTED) and piece.text not in UNIGRAM_SPECIALS
        ),
        wanted=frozenset(n for n, kind in enumerate(types) if kind == _WANTED),
        charsmap=charsmap,
        prefix_space=bool(normaliser.get(_PREFIX, 1)),
    )


# a text of less than 128 bytes, a score and, if it is not the default, a type
_USUAL_PIECE: Final = re.compile(rb"\x0a([\0-\x7f])(.*)\x15(.{4})(?:\x18([\0-\x7f]))?", re.DOTALL)


def _piece(data: bytes) -> Piece:
    text: Value
    score: Value
    kind: Value
    match = _USUAL_PIECE.fullmatch(data)
    if match and len(match[2]) == match[1][0]:
        # nearly all are such, and read faster than field by field
        text, score, kind = match[2], match[3], match[4][0] if match[4] else _NORMAL
    else:
        values = dict(fields(data))
        text, score = values.get(_TEXT, b""), values.get(_SCORE, bytes(4))
        kind = values.get(_TYPE, _NORMAL)
    piece = Piece(score=as_float(score), text=as_text(text), type=as_number(kind))
    if not piece.text or not math.isfinite(piece.score):
        raise DamagedMessage("a piece is empty or its score is not a number")
    return piece


def _check(trainer: Mapping[int, Value], normaliser: Mapping[int, Value], path: Path) -> None:
    kind = as_number(trainer.get(_MODEL_TYPE, 1))
    if kind != 1:
        raise _refused(f"is of the type {_MODEL_TYPES.get(kind, kind)}, not unigram", path)
    if trainer.get(_FALLBACK):
        raise _refused("falls back to bytes", path)
    if trainer.get(_SUFFIX):
        raise _refused("has blanks behind words (treat_whitespace_as_suffix)", path)
    for key, name in ((_REMOVES, "remove_extra_whitespaces"), (_ESCAPES, "escape_whitespaces")):
        if not normaliser.get(key, 1):
            raise _refused(f"has {name} off", path)


def _refused(problem: str, path: Path) -> ModelFolderError:
    return ModelFolderError(
        problem, where=path, remedy="only unigram models like ALBERT's are supported"
    )


def spiece_model(vocabulary: Sequence[str], rules: UnigramRules) -> bytes:
    """Return the contents of spiece.model for a vocabulary."""
    places = {piece: number for number, piece in enumerate(vocabulary)}
    unknown, pad = places[rules.specials[1]], places.get(rules.specials[0], -1)
    special = {places[piece] for piece in rules.specials if piece in places}
    rows: list[bytes] = []
    for number, (piece, score) in enumerate(zip(vocabulary, rules.scores, strict=True)):
        kind = _NORMAL
        if number == unknown:
            kind = _UNKNOWN
        elif number in special:
            kind = _CONTROL
        elif number in rules.wanted:
            kind = _WANTED
        elif number in rules.control:
            kind = _UNUSED
        row = bytes_field(_TEXT, piece.encode()) + float_field(_SCORE, score)
        rows.append(bytes_field(_PIECES, row + number_field(_TYPE, kind)))
    trainer = [
        *(number_field(_MODEL_TYPE, 1), number_field(_VOCABULARY_SIZE, len(vocabulary))),
        *(number_field(_UNKNOWN_ID, unknown), number_field(_BEGIN_ID, places.get("<s>", -1))),
        *(number_field(_END_ID, places.get("</s>", -1)), number_field(_PAD_ID, pad)),
        bytes_field(_UNKNOWN_PIECE, vocabulary[unknown].encode()),
        bytes_field(_PAD_PIECE, rules.specials[0].encode()),
    ]
    normaliser = [
        bytes_field(_NAME, b"user_defined" if rules.charsmap else b"identity"),
        bytes_field(_CHARSMAP, rules.charsmap),
        number_field(_PREFIX, rules.prefix_space),
        *(number_field(_REMOVES, 1), number_field(_ESCAPES, 1)),
    ]
    rows += [
        bytes_field(_TRAINER, b"".join(trainer)),
        bytes_field(_NORMALISER, b"".join(normaliser)),
    ]
    return b"".join(rows)


NUMBER_COMMA_PENALTY = 100.0
_QUOTES = (
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
)
_JOIN_SPACES: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
# of XLM-RoBERTa's that transformers makes of a SentencePiece model
_JOINED: list[dict[str, Any]] = [
    {"type": "Strip", "strip_left": False, "strip_right": True},
    _JOIN_SPACES | {"content": SPACE},
]
_MARKS = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}


def read_compiled_unigram(
    data: Mapping[str, Any],
    where: Path,
    tokens: FolderTokens,
    style: type[UnigramRules] = UnigramRules,
) -> tuple[Pieces, UnigramRules]:
    """Return the vocabulary and the rules, of a style, of a parsed tokenizer.json.

    It splits commas off digits by its scores, without an exception, so the rules have none. Raises
    `ModelFolderError` unless it describes the style's rules and unigram segmentation.
    """
    specials, splits = style.specials, data.get("pre_tokenizer")
    model = part(data, "model", "Unigram", where)
    check_settings(model, {"byte_fallback": False}, where)
    learned, scores = _scored(model.get("vocab"), where)
    if learned[:2] and model.get("unk_id") != _index(learned, specials[1]):
        raise refused("its unk_id is not that of <unk>", where, "save the tokenizer again")
    added = added_in(data)
    mask = added.get(specials[4])
    late = False
    if isinstance(mask, dict) and not style.joins_quotes:
        late = bool(mask.get("normalized"))
        added = added | {specials[4]: mask | {"normalized": False}}
    check_added(added, specials, where, blanks=True, normalizes=True, more=tokens.more)
    vocabulary, _ = tokens.extended(learned)
    check_vocabulary(vocabulary, where, specials=specials, lines=False)
    ids = vocabulary.ids
    check_added_ids(added, ids, where)
    ends, template = (specials[2], specials[3]), data.get("post_processor")
    check_template(template, ends, ids, where, separators=style.separators)
    words = isinstance(splits, dict) and splits.get("type") == "Sequence"
    normaliser, compiled = _normaliser(data.get("normalizer"), where, style)
    rules = style(
        scores=scores,
        number_commas=False,
        mask_takes_blank=not isinstance(mask, dict) or mask.get("lstrip") is not False,
        **normaliser,
        compiled=replace(compiled, late_mask=late),
        remove_space=words,
        prefix_space=_prefix(splits, where),
    )
    vocabulary, further = tokens.extended(learned, Characters(rules).normalised)
    return vocabulary, replace(rules, added=further)


def _index(vocabulary: Sequence[str], piece: str) -> int:
    return vocabulary.index(piece) if piece in vocabulary else -1


def _scored(table: object, where: Path) -> tuple[Pieces, tuple[float, ...]]:
    """Return the pieces and their scores: unlike SentencePiece's, a trainer's have 64 bits."""
    if not isinstance(table, list) or len(table) > MAX_PIECES:
        raise refused("its vocabulary is not a list of pieces", where, "save the tokenizer again")
    try:
        pieces = [str.__str__(piece) for piece, _ in table]
        scores = [float(score) for _, score in table]
    except (TypeError, ValueError, OverflowError) as error:
        raise refused(
            "its vocabulary is not a list of pieces with scores", where, "save the tokenizer again"
        ) from error
    if not all(map(math.isfinite, scores)):
        raise refused("a score is not a number", where, "save the tokenizer again")
    return Pieces(pieces), tuple(scores)


def _normaliser(
    value: object, where: Path, style: type[UnigramRules]
) -> tuple[dict[str, Any], CompiledRules]:
    """Return the settings of the rules that follow from the sequence of normalisers."""
    if not style.joins_quotes and (not isinstance(value, dict) or value.get("type") != "Sequence"):
        value = {"type": "Sequence", "normalizers": [] if value is None else [value]}
    remedy = f"only {'ALBERT' if style.joins_quotes else 'XLM-RoBERTa'}'s are supported"
    steps: Any = part({"normalizer": value}, "normalizer", "Sequence", where).get("normalizers")
    if not isinstance(steps, list):
        raise refused("its normalizers are not a list", where, remedy)
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    wanted: list[dict[str, Any]] = [
        *(_QUOTES if style.joins_quotes else ()),
        *({"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")),
    ]
    settings: dict[str, Any] = {
        "lowercase": "Lowercase" in kinds,
        "keep_accents": "NFKD" not in kinds,
    }
    expected = [step for step in wanted if step in _QUOTES or step["type"] in kinds]
    rest = steps[len(expected) :]
    if steps[: len(expected)] != expected or ("NFKD" in kinds) != ("StripAccents" in kinds):
        raise refused(
            f"its normalizers are {', '.join(map(str, kinds))[:80]}",
            where,
            remedy,
        )
    if rest and isinstance(rest[0], dict) and rest[0].get("type") == "Precompiled":
        settings["charsmap"] = _charsmap(rest.pop(0).get("precompiled_charsmap"), where)
    if rest not in ([], [_JOIN_SPACES], _JOINED):
        raise refused(f"its last normalizer is {str(rest[0])[:50]}", where, remedy)
    gaps = rest[-1]["content"] if rest else None
    return settings, CompiledRules(gaps=gaps, strips_end=rest == _JOINED)


def _charsmap(encoded: object, where: Path) -> bytes:
    try:
        data = base64.b64decode(str(encoded), validate=True)
        CharsMap(data)
    except (binascii.Error, ValueError) as error:
        raise refused(
            f"its precompiled_charsmap is damaged: {error}", where, "save the tokenizer again"
        ) from error
    return data


def _prefix(pre_tokenizer: object, where: Path) -> bool:
    """Return whether a blank is prepended to a text; older files split words at blanks first."""
    steps = pre_tokenizer.get("pretokenizers") if isinstance(pre_tokenizer, dict) else None
    several: list[Any] = steps if isinstance(steps, list) else []
    kinds = [step.get("type") if isinstance(step, dict) else None for step in several]
    if kinds == ["WhitespaceSplit", "Metaspace"]:
        pre_tokenizer = several[1]
    marks = part({"pre_tokenizer": pre_tokenizer}, "pre_tokenizer", "Metaspace", where)
    check_settings(marks, {"replacement": SPACE, "split": True}, where)
    check_settings(marks, {"add_prefix_space": (True, False)}, where)
    check_settings(marks, {"prepend_scheme": ("always", "never")}, where)
    wanted = marks.get("prepend_scheme", "always") == "always"
    return wanted and marks.get("add_prefix_space", True) is True


def unigram_tokenizer(vocabulary: Sequence[str], rules: UnigramRules) -> dict[str, Any]:
    """Return the contents of tokenizer.json, which adds special tokens around texts."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    learned = len(vocabulary) if rules.added is None else rules.added.learned
    marks = _MARKS | {"prepend_scheme": "always" if rules.prefix_space else "never"}
    # without the first step a blank at the end of a part would be a piece
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, marks]}
    steps: list[dict[str, Any]] = list(_QUOTES) if rules.joins_quotes else []
    if not rules.keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if rules.lowercase:
        steps.append({"type": "Lowercase"})
    if rules.charsmap:
        encoded = base64.b64encode(rules.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    flags, (cls, sep) = {"lstrip": rules.mask_takes_blank}, rules.specials[2:4]
    flags |= {"normalized": True} if rules.compiled and rules.compiled.late_mask else {}
    around = surrounded(cls, sep, ids, segments=rules.separators == 1)
    around["pair"][3:3] = [around["single"][2]] * (rules.separators - 1)
    steps += _gap_steps(rules)
    scores = zip(vocabulary[:learned], rules.scores, strict=True)
    model = {
        "type": "Unigram",
        "unk_id": ids[rules.specials[1]],
        "vocab": [
            [piece, score - NUMBER_COMMA_PENALTY * _ends_in_number(piece, rules)]
            for piece, score in scores
        ],
        "byte_fallback": False,
    }
    # as on the hub, the rules of XLM-RoBERTa's SentencePiece model split words in any case
    splits = rules.remove_space or not (rules.joins_quotes or rules.compiled)
    added = rules.added and added_entries(rules.added, ids)
    return tokenizer_json(
        added or added_tokens(ids, rules.specials, flags),
        normalizer={"type": "Sequence", "normalizers": steps},
        pre_tokenizer=words if splits else marks,
        post_processor=around,
        decoder=marks,
        model=model,
    )


def _gap_steps(rules: UnigramRules) -> list[dict[str, Any]]:
    """Return the last normalizers, for blanks at the end and several in a row."""
    compiled = rules.compiled
    if compiled is None:
        return [_JOIN_SPACES]
    return _JOINED if compiled.strips_end else [] if compiled.gaps is None else [_JOIN_SPACES]


def _ends_in_number(piece: str, rules: UnigramRules) -> bool:
    """Return whether a piece must never be used, as its comma is to be split off."""
    number = len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    return rules.number_commas and number


# scores are written with 32 bits in one file and as decimal numbers in the other
_ROUNDING = 1e-5

_LOWERCASE, _ACCENTS, _SPACES = "do_lower_case", "keep_accents", "remove_space"


def read_file(path: Path) -> tuple[Pieces, UnigramRules]:
    """Return the vocabulary of a SentencePiece model, with AlbertTokenizer's default rules."""
    vocabulary, rules = read_spiece(path)
    check_vocabulary(vocabulary, path, specials=UNIGRAM_SPECIALS, lines=False)
    return vocabulary, rules


def read_folder(files: FolderFiles) -> tuple[Pieces, UnigramRules]:
    """Return a folder's vocabulary and rules. Raises `ModelFolderError`, `VocabularyError`."""
    folder = files.path
    tokens = FolderTokens(files, UNIGRAM_SPECIALS)
    settings = Settings(files, UNIGRAM_SPECIALS, blanks=True, normalizes=True, more=tokens.more)
    if settings.config.get("sp_model_kwargs"):
        raise settings.refuse("sp_model_kwargs are set", "they change the ids: remove them")
    model, compiled = folder / UNIGRAM_FILE, folder / COMPILED_FILE
    data = files.json(COMPILED_FILE)
    added = added_in(data)
    if settings.follows_compiled(UNIGRAM_FILE) or (tokens.more and data):
        vocabulary, rules = read_compiled_unigram(data, compiled, tokens)
        _check_agreement(settings, rules)
        settings.check_listed(added, UNIGRAM_SPECIALS)
        rules = as_its_class_reads(rules, settings)
    else:
        check_without_added(tokens, model)
        vocabulary, rules = read_file(model)
        rules = replace(
            rules,
            lowercase=settings.switch(_LOWERCASE) is not False,
            keep_accents=settings.switch(_ACCENTS) is True,
            remove_space=settings.switch(_SPACES) is not False,
            number_commas=settings.followed == "slow",
        )
        if data:
            pieces, others = read_compiled_unigram(data, compiled, tokens)
            check_same(vocabulary, pieces, UNIGRAM_FILE, compiled)
            check_scores(vocabulary, rules, others, compiled, UNIGRAM_FILE)
            _check_agreement(settings, others)
    settings.check_ids(vocabulary)
    takes_blank = settings.mask_takes_blank(UNIGRAM_SPECIALS[4], added)
    # AlbertTokenizer of version 5 gives none, unlike that of version 4
    segments = settings.gives_segments(False)
    return vocabulary, replace(rules, mask_takes_blank=takes_blank, segments=segments)


def check_without_added(tokens: FolderTokens, model: Path) -> None:
    """Raise `ModelFolderError` if tokens were added to a SentencePiece model."""
    if tokens.more:
        raise refused(
            f"the token {tokens.more[0][:50]!r} was added to it",
            model,
            f"open the folder with AutoTokenizer and save it again, which writes {COMPILED_FILE}",
        )


def as_its_class_reads(rules: UnigramRules, settings: Settings) -> UnigramRules:
    """Return the rules of a tokenizer.json as its class reads them.

    The classes of a family in version 5 part words at white space, whatever the file says.
    """
    if settings.generic or not settings.of_version_5:
        return rules
    return replace(rules, remove_space=True)


def _check_agreement(settings: Settings, compiled: UnigramRules) -> None:
    """Raise `ModelFolderError` if tokenizer_config.json and tokenizer.json disagree.

    A generic class reads the latter; AlbertTokenizer reads the former in some versions of
    `transformers`, with defaults for missing settings, and the latter in others.
    """
    if settings.generic:
        return
    for key, default, result in (
        (_LOWERCASE, True, compiled.lowercase),
        (_ACCENTS, False, compiled.keep_accents),
        ("add_prefix_space", True, compiled.prefix_space),
    ):
        stated = settings.switch(key)
        if (default if stated is None else stated) != result:
            raise settings.refuse(
                f"{key} is {'not set' if stated is None else stated}",
                f"{COMPILED_FILE} has {result}: both must be the same",
            )


def check_scores(
    vocabulary: Sequence[str], rules: UnigramRules, compiled: UnigramRules, where: Path, name: str
) -> None:
    """Raise `ModelFolderError` unless tokenizer.json has a model's scores and replacements."""
    if rules.charsmap != compiled.charsmap:
        raise refused(f"replaces other characters than {name}", where, "save both again")
    ours, others = np.array(rules.scores), np.array(compiled.scores)
    # pieces with a comma after a digit have a penalty there
    difference = np.minimum(abs(ours - others), abs(ours - others - NUMBER_COMMA_PENALTY))
    limits = _ROUNDING * np.maximum(1, np.maximum(abs(ours), abs(others)))
    if (different := np.flatnonzero(difference > limits)).size:
        raise refused(
            f"the score of {vocabulary[different[0]][:50]!r} is not that of {name}",
            where,
            f"remove the one that the model was not trained with, this file or {name}",
        )


def files_of(
    vocabulary: Sequence[str], rules: UnigramRules, *, longest: int | None, segments: bool
) -> dict[str, bytes]:
    """Return the contents of the files, without spiece.model if the vocabulary came without it.

    Without `segments` the model takes no ids of them.
    """
    compiled = unigram_tokenizer(vocabulary, rules)
    settings: dict[str, Any] = {
        "tokenizer_class": "AlbertTokenizer",
        _LOWERCASE: rules.lowercase,
        _ACCENTS: rules.keep_accents,
        _SPACES: rules.remove_space,
        "added_tokens_decoder": by_id(compiled["added_tokens"]),
        **further_names(rules.added, UNIGRAM_SPECIALS),
        **({} if rules.prefix_space else {"add_prefix_space": False}),
        **input_names(segments=segments),
    }
    contents = standard_files(compiled, settings, names_of(UNIGRAM_SPECIALS, ends=True), longest)
    if not rules.number_commas:
        return contents
    return {UNIGRAM_FILE: spiece_model(vocabulary, rules), **contents}
