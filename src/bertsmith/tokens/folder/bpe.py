"""The files of a byte-level vocabulary in a model folder.

vocab.json                the id of each piece
merges.txt                a first line with a version, then the pairs to merge, in order
tokenizer_config.json     settings, such as whether a blank is prepended to a text
tokenizer.json            read if the folder follows the fast tokenizer; must agree otherwise
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.tokens.bpe import ByteRules
from bertsmith.tokens.folder.added import FolderTokens, added_entries, further_names
from bertsmith.tokens.folder.compiled import (
    added_in,
    added_tokens,
    by_id,
    check_same,
    check_settings,
    check_template,
    dense,
    lowered,
    lowered_before,
    part,
    tokenizer_json,
)
from bertsmith.tokens.folder.files import (
    BPE_FILE,
    COMPILED_FILE,
    FOLLOWS,
    MERGES_FILE,
    FolderFiles,
    Settings,
    check_added,
    check_added_ids,
    json_bytes,
    names_of,
    read_json,
    read_lined_text,
    refused,
    standard_files,
)
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, MAX_PIECES, Pieces, check_vocabulary

MODEL: dict[str, Any] = {
    "dropout": None,
    "unk_token": (None, "<unk>"),
    "continuing_subword_prefix": ("", None),
    "end_of_word_suffix": ("", None),
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}

Merges = tuple[tuple[str, str], ...]


def read_compiled_bytes(
    data: Mapping[str, Any], where: Path, tokens: FolderTokens
) -> tuple[Pieces, Merges, dict[str, Any]]:
    """Return the pieces of words, the merges and the settings of a parsed tokenizer.json.

    Vocabulary and merges have still to be checked against each other. The settings are whether a
    blank is prepended to a text ("add_prefix_space") and the table of added tokens ("added").
    Raises `ModelFolderError` unless it describes RoBERTa's own rules.
    """
    model = part(data, "model", "BPE", where)
    if lowered_before(data.get("normalizer")) is not None:
        raise lowered(where)
    if data.get("normalizer") is not None:
        raise refused("it has a normalizer", where, "RoBERTa's rules have none, ModernBERT's NFC")
    words = part(data, "pre_tokenizer", "ByteLevel", where)
    check_settings(model, MODEL, where)
    check_settings(words, {"use_regex": True, "add_prefix_space": (True, False)}, where)
    added = added_in(data)
    check_added(added, BYTE_SPECIALS, where, blanks=True, normalizes=False, more=tokens.more)
    stated = {"add_prefix_space": words.get("add_prefix_space", True), "added": added}
    learned = dense(model.get("vocab"), where)
    vocabulary, _ = tokens.extended(learned)
    check_vocabulary(vocabulary, where, specials=BYTE_SPECIALS, lines=False)
    ids = vocabulary.ids
    check_added_ids(added, ids, where)
    ends = (BYTE_SPECIALS[2], BYTE_SPECIALS[3])
    check_template(data.get("post_processor"), ends, ids, where, separators=2)
    return learned, merges_in(model.get("merges"), where), stated


def merges_in(table: object, where: Path) -> Merges:
    """Return the merges of a model, given as pairs or as two pieces separated by a blank.

    Raises `ModelFolderError`.
    """
    if not isinstance(table, list) or len(table) > MAX_PIECES:
        raise refused("its merges are not a list of pairs", where, "save the tokenizer again")
    pairs: list[Any] = [entry.split(" ") if type(entry) is str else entry for entry in table]
    if not _all_pairs(pairs):
        wrong = next(
            entry for entry, pair in zip(table, pairs, strict=True) if not _all_pairs([pair])
        )
        raise refused(
            f"the merge {str(wrong)[:50]!r} is not a pair", where, "save the tokenizer again"
        )
    return tuple(map(tuple, pairs))


def _all_pairs(entries: list[Any]) -> bool:
    """Return whether all entries are lists of two strings."""
    # types and lengths of all as sets, which is much faster than one by one
    return (
        set(map(type, entries)) <= {list}
        and set(map(len, entries)) <= {2}
        and set(map(type, chain.from_iterable(entries))) <= {str}
    )


def byte_tokenizer(
    ids: Mapping[str, int], rules: ByteRules, added: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the contents of tokenizer.json, which adds <s> and </s> around texts."""
    level = {
        "type": "ByteLevel",
        "add_prefix_space": rules.prefix_blank,
        "trim_offsets": True,
        "use_regex": True,
    }
    cls, sep = BYTE_SPECIALS[2:4]
    learned = len(ids) if rules.added is None else rules.added.learned
    around = {
        "type": "RobertaProcessing",
        "sep": [sep, ids[sep]],
        "cls": [cls, ids[cls]],
        "trim_offsets": True,
        "add_prefix_space": rules.prefix_blank,
    }
    return tokenizer_json(
        added,
        normalizer=None,
        pre_tokenizer=level,
        post_processor=around,
        decoder=level | {"add_prefix_space": True},
        model=model_of(MODEL, dict(islice(ids.items(), learned)), rules.merges),
    )


def model_of(
    settings: Mapping[str, Any], vocabulary: Mapping[str, int], merges: Merges
) -> dict[str, Any]:
    """Return the model of a tokenizer.json; of settings with several values, the first."""
    usual = {
        key: setting[0] if isinstance(setting, tuple) else setting
        for key, setting in settings.items()
    }
    return {"type": "BPE", **usual, "vocab": vocabulary, "merges": [list(pair) for pair in merges]}


_VERSION = "#version"
_DAMAGED = "the file is damaged: save or download the folder again"


def read_folder(files: FolderFiles) -> tuple[Pieces, ByteRules]:
    """Return a folder's vocabulary and rules. Raises `ModelFolderError`, `VocabularyError`."""
    folder = files.path
    tokens = FolderTokens(files, BYTE_SPECIALS)
    settings = Settings(files, BYTE_SPECIALS, blanks=True, normalizes=False, more=tokens.more)
    path, compiled = folder / BPE_FILE, folder / COMPILED_FILE
    fast = settings.follows_compiled(BPE_FILE)
    learned = Pieces()
    merges: Merges = ()
    stated: dict[str, Any] = {}
    where = compiled if fast else folder / MERGES_FILE
    if not fast:
        learned, merges = dense(read_json(path), path), _read_merges(where)
        needed = () if tokens.more else BYTE_SPECIALS
        check_vocabulary(learned, path, specials=needed, lines=False)
        check_merges(merges, learned, where)
    if compiled.is_file():
        pieces, joins, stated = read_compiled_bytes(files.json(COMPILED_FILE), compiled, tokens)
        settings.check_listed(stated["added"], BYTE_SPECIALS)
        if fast:
            check_merges(joins, pieces, where)
        else:
            check_same(learned, pieces, BPE_FILE, compiled)
            check_same(merges, joins, MERGES_FILE, compiled)
        learned, merges = pieces, joins
    prefix = _prefix(settings, stated)
    takes_blank = settings.mask_takes_blank(BYTE_SPECIALS[4], stated.get("added") or {})
    vocabulary, added = tokens.extended(learned, mask_takes_blank=takes_blank)
    settings.check_ids(vocabulary)
    return vocabulary, ByteRules(
        merges=merges,
        prefix_blank=prefix,
        prefix_parts=prefix and (fast or added is not None or settings.followed == "fast"),
        mask_takes_blank=takes_blank,
        added=added,
    )


def _prefix(settings: Settings, stated: Mapping[str, Any]) -> bool:
    """Return whether a blank is prepended to a text.

    RobertaTokenizer reads it from tokenizer_config.json, false by default; a generic class reads it
    from tokenizer.json, in version 5 regardless of the other file.
    """
    prefix = settings.switch("add_prefix_space", null=True)
    if not settings.generic or not stated:
        return prefix is True
    if prefix not in (None, stated["add_prefix_space"]):
        raise settings.refuse(
            f"add_prefix_space is {prefix}", f"it must be what {COMPILED_FILE} says"
        )
    return bool(stated["add_prefix_space"])


def _read_merges(path: Path) -> tuple[tuple[str, str], ...]:
    if not path.is_file():
        raise ModelFolderError(
            f"has no {MERGES_FILE}",
            where=path.parent,
            remedy=f"put it next to {BPE_FILE}: it defines how pieces are merged",
        )
    first, line_feed, text = read_lined_text(path).partition("\n")
    # transformers skips the first line and whatever follows the last line feed
    if not first.startswith(_VERSION) or not line_feed or text[-1:] not in ("", "\n"):
        raise ModelFolderError(
            f"does not begin with a line {_VERSION!r} or end with a line feed",
            where=path,
            remedy=_DAMAGED,
        )
    words = text.split()
    merges: Merges = tuple(zip(words[::2], words[1::2], strict=False))
    lines = text.split("\n")[:-1]
    if list(map(" ".join, merges)) == lines:
        return merges
    # with other blanks than one, or not a pair on every line
    pairs: list[Any] = list(map(str.split, lines))
    for number, pair in enumerate(pairs, start=2):
        if len(pair) != 2:
            raise ModelFolderError(
                "is not a pair of pieces separated by a blank",
                where=path,
                line=number,
                remedy=_DAMAGED,
            )
    return tuple(map(tuple, pairs))


def check_merges(merges: Merges, vocabulary: Pieces, where: Path) -> None:
    """Raise `ModelFolderError` unless merges are distinct and their parts and results pieces."""
    if len(merges) > MAX_PIECES or len(set(merges)) < len(merges):
        raise ModelFolderError(
            f"a pair is merged twice, or more than {MAX_PIECES:,} are", where=where, remedy=_DAMAGED
        )
    if _all_merged(merges, vocabulary):
        return
    for first, second in merges:
        if (first + second).split() != [first + second]:
            raise ModelFolderError(
                "a merged pair contains white space", where=where, remedy=_DAMAGED
            )
        if not {first, second, first + second} <= vocabulary.ids.keys():
            raise ModelFolderError(
                f"{first[:30]!r} and {second[:30]!r} are merged, but not all three are pieces",
                where=where,
                remedy="vocabulary and merges must be of one tokenizer",
            )


def _all_merged(merges: Merges, vocabulary: Pieces) -> bool:
    """Return whether parts and results of all merges are pieces, without white space."""
    results = list(map("".join, merges))
    together = "".join(results)
    pieces = chain(results, chain.from_iterable(merges))
    return together.split() == [together] and all(map(vocabulary.ids.__contains__, pieces))


def files_of(
    vocabulary: Sequence[str], rules: ByteRules, *, longest: int | None, segments: bool
) -> dict[str, bytes]:
    """Return the contents of the five files, which never give a model ids of segments."""
    del segments
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    if rules.added is None:
        added = added_tokens(ids, BYTE_SPECIALS, {"lstrip": rules.mask_takes_blank})
    else:
        added = added_entries(rules.added, ids)
    settings: dict[str, Any] = {
        "tokenizer_class": "RobertaTokenizer",
        "add_prefix_space": rules.prefix_blank,
        "added_tokens_decoder": by_id(added),
        **further_names(rules.added, BYTE_SPECIALS),
        **({FOLLOWS: "fast"} if rules.prefix_parts else {}),
    }
    names, compiled = names_of(BYTE_SPECIALS, ends=True), byte_tokenizer(ids, rules, added)
    merges = "".join(f"{first} {second}\n" for first, second in rules.merges)
    return {
        BPE_FILE: json_bytes(compiled["model"]["vocab"]),
        MERGES_FILE: f"{_VERSION}: 0.2\n{merges}".encode(),
        **standard_files(compiled, settings, names, longest),
    }
