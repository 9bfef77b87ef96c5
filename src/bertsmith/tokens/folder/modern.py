"""The files of ModernBERT's vocabulary in a model folder.

tokenizer.json            the pieces, the merges and the added tokens
tokenizer_config.json     further settings of the tokenizer
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.tokens.bpe import byte_letters
from bertsmith.tokens.folder.bpe import MODEL, check_merges, merges_in, model_of
from bertsmith.tokens.folder.compiled import (
    by_id,
    check_settings,
    dense,
    part,
    surrounded,
    tokenizer_json,
)
from bertsmith.tokens.folder.files import (
    BPE_FILE,
    COMPILED_FILE,
    FolderFiles,
    Settings,
    input_names,
    names_of,
    refused,
    standard_files,
)
from bertsmith.tokens.modern import AddedPiece, ModernRules
from bertsmith.tokens.vocabulary import SPECIALS, Pieces, check_vocabulary

_MAX_ADDED = 10_000
_MASK = SPECIALS[4]
_NEVER = ("single_word", "rstrip")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_added(
    table: object, learned: Pieces, where: Path
) -> tuple[tuple[AddedPiece, ...], list[dict[str, Any]]]:
    """Return the added tokens in the order of ids, and their checked entries.

    The ids of those that are not learned pieces must follow the learned ones in the order of the
    file: the compiled tokenizers assign them so regardless of the file. Raises `ModelFolderError`.
    """
    if not isinstance(table, list) or len(table) > _MAX_ADDED:
        raise refused("its added_tokens are not a short list", where, "save the tokenizer again")
    ids = dict(learned.ids)
    seen: set[str] = set()
    entries: list[dict[str, Any]] = []
    for entry in table:
        entries.append(_checked(entry, where))
        piece, number = entries[-1]["content"], entries[-1]["id"]
        expected = ids.setdefault(piece, len(ids))
        if piece in seen or number != expected:
            raise refused(
                f"the added token {piece[:50]!r} has the id {str(number)[:20]}, or is there twice",
                where,
                f"it must have {expected}: the ids continue after the vocabulary's, in order",
            )
        seen.add(piece)
    if missing := [piece for piece in SPECIALS if piece not in seen]:
        raise refused(
            f"{missing[0]} is not among its added_tokens", where, "all special tokens must be"
        )
    entries.sort(key=lambda entry: int(entry["id"]))
    return tuple(
        AddedPiece(piece=entry["content"], special=entry["special"], composed=entry["normalized"])
        for entry in entries
    ), entries


def _checked(entry: object, where: Path) -> dict[str, Any]:
    """Return an entry of the list if it is valid and supported. Raises `ModelFolderError`."""
    if not (
        isinstance(entry, dict)
        and set(entry) == {"id", "content", *_FLAGS}
        and type(entry["id"]) is int
        and isinstance(entry["content"], str)
        and entry["content"]
        and all(isinstance(entry[flag], bool) for flag in _FLAGS)
    ):
        raise refused(
            f"the added token {str(entry)[:80]!r} is invalid", where, "save the tokenizer again"
        )
    piece = entry["content"]
    for flag in (*_NEVER, *(["lstrip"] if piece != _MASK else [])):
        if entry[flag]:
            raise refused(
                f"the added token {piece[:50]!r} is {flag}", where, "only [MASK] may be, lstrip"
            )
    if piece in SPECIALS and not entry["special"]:
        raise refused(f"{piece} is not special", where, "save the tokenizer again")
    if entry["normalized"] and not unicodedata.is_normalized("NFC", piece):
        raise refused(f"the added token {piece[:50]!r} is not in NFC", where, "write it composed")
    return entry


def added_entries(rules: ModernRules, ids: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return tokenizer.json's entries of the added tokens."""
    return [
        {
            "id": ids[token.piece],
            "content": token.piece,
            "single_word": False,
            "lstrip": rules.mask_takes_blank and token.piece == _MASK,
            "rstrip": False,
            "normalized": token.composed,
            "special": token.special,
        }
        for token in rules.added
    ]


_MODEL: dict[str, Any] = MODEL | {"unk_token": None}
_LEVEL: dict[str, Any] = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_CLS, _SEP = SPECIALS[2:4]


def is_modern(files: FolderFiles) -> bool:
    """Return whether a folder's byte-level vocabulary normalises to NFC, as ModernBERT's does."""
    if (files.path / BPE_FILE).is_file():
        return False
    normalizer = files.json(COMPILED_FILE).get("normalizer")
    return isinstance(normalizer, dict) and normalizer.get("type") == "NFC"


def read_folder(files: FolderFiles) -> tuple[Pieces, ModernRules]:
    """Return a folder's vocabulary and rules. Raises `ModelFolderError`, `VocabularyError`."""
    where = files.path / COMPILED_FILE
    data = files.json(COMPILED_FILE)
    model = part(data, "model", "BPE", where)
    check_settings(model, _MODEL, where)
    words = part(data, "pre_tokenizer", "ByteLevel", where)
    # the default is true
    check_settings({"add_prefix_space": True} | words, _LEVEL, where)
    part(data, "decoder", "ByteLevel", where)
    learned = dense(model.get("vocab"), where)
    if lacking := [letter for letter in byte_letters() if letter not in learned.ids]:
        raise refused(
            f"its vocabulary lacks the byte {lacking[0]!r}", where, "all 256 must be pieces"
        )
    added, entries = read_added(data.get("added_tokens"), learned, where)
    beyond = [token.piece for token in added if token.piece not in learned.ids]
    vocabulary = Pieces((*learned, *beyond)) if beyond else learned
    check_vocabulary(vocabulary, where, specials=SPECIALS, lines=False)
    merges = merges_in(model.get("merges"), where)
    check_merges(merges, learned, where)
    _check_template(data.get("post_processor"), vocabulary, where)
    mask = next(entry for entry in entries if entry["content"] == SPECIALS[4])
    _check_settings(files, entries, vocabulary, bool(mask["lstrip"]))
    return vocabulary, ModernRules(
        merges=merges, learned=len(learned), added=added, mask_takes_blank=mask["lstrip"]
    )


def _check_template(result: object, vocabulary: Pieces, where: Path) -> None:
    """Raise `ModelFolderError` unless pairs become `[CLS] a [SEP] b [SEP]`, with any segments."""
    ids = vocabulary.ids
    if result not in [surrounded(_CLS, _SEP, ids, segments=flag) for flag in (True, False)]:
        raise refused(
            "its post_processor is not ModernBERT's", where, "it must put [CLS] a [SEP] b [SEP]"
        )


def _check_settings(
    files: FolderFiles, entries: Sequence[Mapping[str, Any]], vocabulary: Pieces, takes_blank: bool
) -> None:
    """Raise `ModelFolderError` unless the files next to tokenizer.json agree with it."""
    settings = Settings(
        files,
        SPECIALS,
        blanks=True,
        normalizes=False,
        more=[str(entry["content"]) for entry in entries],
    )
    if settings.switch("add_prefix_space"):
        raise settings.refuse("add_prefix_space is set", "ModernBERT's own rules have none")
    settings.check_ids(vocabulary)
    named = settings.config.get("mask_token")
    if isinstance(named, dict) and named.get("lstrip") not in (None, takes_blank):
        raise settings.refuse(
            f"the mask's lstrip is not {takes_blank}", f"it is in {COMPILED_FILE}"
        )
    table = settings.config.get("added_tokens_decoder")
    expected = by_id(entries)
    if table and table != expected:  # invalid tables were refused above
        keys = sorted(set(table) | set(expected))
        other = next(key for key in keys if table.get(key) != expected.get(key))
        raise ModelFolderError(
            f"the added token {other[:20]} is not that of {COMPILED_FILE}",
            where=settings.where,
            remedy="both must be of one tokenizer: save or download the folder again",
        )


def files_of(
    vocabulary: Sequence[str], rules: ModernRules, *, longest: int | None, segments: bool
) -> dict[str, bytes]:
    """Return the contents of the three files."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    entries = added_entries(rules, ids)
    level = {"type": "ByteLevel", **_LEVEL}
    learned = {piece: ids[piece] for piece in vocabulary[: rules.learned]}
    compiled = tokenizer_json(
        entries,
        normalizer={"type": "NFC"},
        pre_tokenizer=level,
        post_processor=surrounded(_CLS, _SEP, ids, segments=True),
        decoder=level,
        model=model_of(_MODEL, learned, rules.merges),
    )
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": by_id(entries),
        "clean_up_tokenization_spaces": True,
        **input_names(segments=segments),
    }
    return standard_files(compiled, settings, names_of(SPECIALS, ends=False), longest)
