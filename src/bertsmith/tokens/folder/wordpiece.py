"""The files of a WordPiece vocabulary in a model folder.

vocab.txt                 one piece per line, its id is the line number from 0
tokenizer_config.json     settings, such as lower-casing
tokenizer.json            read if the folder follows the fast tokenizer; must agree otherwise
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError, UserError, VocabularyError
from bertsmith.tokens.basic import BasicRules
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
    surrounded,
    tokenizer_json,
)
from bertsmith.tokens.folder.files import (
    COMPILED_FILE,
    FOLLOWS,
    WORDPIECE_FILE,
    FolderFiles,
    Settings,
    check_added,
    check_added_ids,
    input_names,
    names_of,
    read_lined_text,
    standard_files,
)
from bertsmith.tokens.vocabulary import SPECIALS, Pieces, check_vocabulary, is_placeholder
from bertsmith.tokens.wordpiece import CONTINUES, MAX_WORD_LENGTH

_MODEL = {
    "unk_token": "[UNK]",
    "continuing_subword_prefix": CONTINUES,
    "max_input_chars_per_word": MAX_WORD_LENGTH,
}


def read_compiled(
    data: dict[str, Any], where: Path, tokens: FolderTokens
) -> tuple[Pieces, dict[str, Any]]:
    """Return the pieces that a parsed tokenizer.json splits words into, and its normaliser.

    Raises `ModelFolderError` unless it describes BERT's own rules and WordPiece, and
    `VocabularyError` for an invalid vocabulary.
    """
    model = part(data, "model", "WordPiece", where)
    normaliser = _normaliser(data.get("normalizer"), where)
    part(data, "pre_tokenizer", "BertPreTokenizer", where)
    check_settings(model, _MODEL, where)
    check_settings(normaliser, {"clean_text": True}, where)
    learned = dense(model.get("vocab"), where)
    added = added_in(data)
    check_added(added, SPECIALS, where, blanks=False, normalizes=True, more=tokens.more)
    vocabulary, _ = tokens.extended(learned)
    check_vocabulary(vocabulary, where, lines=False)
    check_added_ids(added, vocabulary.ids, where)
    ends = (SPECIALS[2], SPECIALS[3])
    check_template(data.get("post_processor"), ends, vocabulary.ids, where, separators=1)
    return learned, normaliser


def _normaliser(stated: object, where: Path) -> dict[str, Any]:
    """Return BERT's normaliser, which may have a Lowercase before it that changes nothing."""
    behind = lowered_before(stated)
    if behind is None:
        return part({"normalizer": stated}, "normalizer", "BertNormalizer", where)
    normaliser = part(
        {"normalizer": behind[0] if len(behind) == 1 else None},
        "normalizer",
        "BertNormalizer",
        where,
    )
    if normaliser.get("lowercase") is not True:
        raise lowered(where)
    return normaliser


def compiled_tokenizer(vocabulary: Sequence[str], rules: BasicRules) -> dict[str, Any]:
    """Return the contents of tokenizer.json, which adds [CLS] and [SEP] around texts."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    learned = len(vocabulary) if rules.added is None else rules.added.learned
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": rules.space_cjk,
        "strip_accents": rules.strip_accents,
        "lowercase": rules.lowercase,
    }
    return tokenizer_json(
        added_tokens(ids, SPECIALS, {}) if rules.added is None else added_entries(rules.added, ids),
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=surrounded("[CLS]", "[SEP]", ids, segments=True),
        decoder={"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        model={"type": "WordPiece", **_MODEL, "vocab": dict(islice(ids.items(), learned))},
    )


_LOWERCASE = "do_lower_case"
_CAPITAL = re.compile("[A-Z]")
_CASING = {
    _LOWERCASE: "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_file(path: Path) -> tuple[Pieces, BasicRules]:
    """Read a vocabulary file of one piece per line; capitals in it determine the casing."""
    vocabulary = _pieces_in(_read_lines(path), path)
    return vocabulary, _with_notice(BasicRules(lowercase=_looks_uncased(vocabulary)), path)


def read_folder(files: FolderFiles) -> tuple[Pieces, BasicRules]:
    """Return a folder's vocabulary and rules. Raises `ModelFolderError`, `VocabularyError`."""
    tokens = FolderTokens(files, SPECIALS)
    settings = Settings(files, SPECIALS, blanks=False, normalizes=True, more=tokens.more)
    basic = settings.config.get("do_basic_tokenize", True)
    if basic is not True or settings.config.get("never_split"):
        raise settings.refuse(
            "do_basic_tokenize or never_split is set",
            "they change the ids and are not supported: remove them and train again",
        )
    fast = settings.follows_compiled(WORDPIECE_FILE)
    learned, normalizer = _read_pieces(files, settings, tokens, fast=fast)
    rules = _rules(settings, normalizer, learned, files.path / COMPILED_FILE)
    rules = replace(
        rules,
        slow=not (fast or tokens.more) and settings.followed == "slow",
        segments=settings.gives_segments(True),
    )
    vocabulary, added = tokens.extended(learned, rules.normalised)
    settings.check_ids(vocabulary)
    return vocabulary, replace(rules, added=added)


def _read_pieces(
    files: FolderFiles, settings: Settings, tokens: FolderTokens, *, fast: bool
) -> tuple[Pieces, dict[str, Any] | None]:
    """Return the pieces that words are split into, and tokenizer.json's normaliser, if it is there.

    If both files are there, they have to agree; tokenizer.json is followed if `fast`.
    """
    words, compiled = files.path / WORDPIECE_FILE, files.path / COMPILED_FILE
    text = "" if fast else _read_lines(words)
    if not compiled.is_file():
        return _pieces_in(text, words, tokens), None
    try:
        data = files.json(COMPILED_FILE)
        learned, normalizer = read_compiled(data, compiled, tokens)
        settings.check_listed(added_in(data), SPECIALS)
    except UserError:
        if not fast:
            # if both are damaged, the error is that of the file that is followed
            _pieces_in(text, words, tokens)
        raise
    # equal texts are seen at once; splitting and checking the lines takes much longer
    if not fast and not learned.are_lines(text.removesuffix("\n")):
        check_same(_pieces_in(text, words, tokens), learned, WORDPIECE_FILE, compiled)
    return learned, normalizer


def _rules(
    settings: Settings, normalizer: dict[str, Any] | None, vocabulary: Pieces, compiled: Path
) -> BasicRules:
    """Return the rules as the tokenizer's class reads them from its two files.

    Classes of a family read them from tokenizer_config.json, with their own defaults for missing
    ones; a generic one reads them from tokenizer.json. If tokenizer_config.json does not state
    whether to lower-case, the default is not used, and `_with_notice` prints a line.
    """
    stated = {key: settings.switch(key, null=key == "strip_accents") for key in _CASING}
    fast = {key: _switch(normalizer or {}, name, compiled) for key, name in _CASING.items()}
    if settings.generic and normalizer is not None:
        stated = fast
    elif stated[_LOWERCASE] is None:
        stated = {key: fast[key] if stated[key] is None else stated[key] for key in _CASING}
        guess = _looks_uncased(vocabulary)
        stated[_LOWERCASE] = guess if stated[_LOWERCASE] is None else stated[_LOWERCASE]
        return _with_notice(_basic_rules(stated), settings.where)
    return _basic_rules(stated)


def _basic_rules(switches: Mapping[str, bool | None]) -> BasicRules:
    return BasicRules(
        lowercase=switches[_LOWERCASE] is not False,
        strip_accents=switches["strip_accents"],
        space_cjk=switches["tokenize_chinese_chars"] is not False,
    )


def _with_notice(rules: BasicRules, where: Path) -> BasicRules:
    """Return the rules; print a line if they differ from the defaults of `transformers`."""
    if rules != BasicRules(lowercase=True):
        # with rich, which takes longer to import than a vocabulary to read
        from bertsmith.core.log import say

        done = f"lower-cased as in {COMPILED_FILE}" if rules.lowercase else "not lower-cased"
        say(f"{where}: does not set {_LOWERCASE}; text is {done}")
    return rules


def _switch(normalizer: dict[str, Any], name: str, where: Path) -> bool | None:
    value = normalizer.get(name)
    if value is not None and not isinstance(value, bool):
        raise ModelFolderError(
            f"{name} is {str(value)[:50]!r}", where=where, remedy="it must be true or false"
        )
    return value


def _looks_uncased(vocabulary: Pieces) -> bool:
    with_capitals = filter(_CAPITAL.search, vocabulary)
    return all(piece in SPECIALS or is_placeholder(piece) for piece in with_capitals)


def _read_lines(path: Path) -> str:
    """Return the text of a vocabulary file, with line feeds alone between lines."""
    # carriage returns are the line endings of old Macs
    return read_lined_text(path, VocabularyError).replace("\r", "\n")


def _pieces_in(text: str, where: Path, tokens: FolderTokens | None = None) -> Pieces:
    """Return the pieces of a vocabulary file; special tokens may be among added `tokens`."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    vocabulary = Pieces(lines)
    needed = SPECIALS if tokens is None or not tokens.more else ()
    check_vocabulary(vocabulary, where, specials=needed)
    return vocabulary


def files_of(
    vocabulary: Sequence[str], rules: BasicRules, *, longest: int | None, segments: bool
) -> dict[str, bytes]:
    """Return the contents of the four files; without `segments` the model takes no ids of them."""
    names = names_of(SPECIALS, ends=False)
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        _LOWERCASE: rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.space_cjk,
        **({} if rules.slow else {FOLLOWS: "fast"}),
        **names,
        **further_names(rules.added, SPECIALS),
        **({} if longest is None else {"model_max_length": longest}),
        # a DistilBERT refuses those that a BertTokenizer gives, a RoBERTa has no row for them
        **({} if segments else input_names(segments=False)),
    }
    learned = vocabulary if rules.added is None else vocabulary[: rules.added.learned]
    pieces = "".join(f"{piece}\n" for piece in learned).encode()
    compiled = compiled_tokenizer(vocabulary, rules)
    if rules.added is not None:
        settings["added_tokens_decoder"] = by_id(compiled["added_tokens"])
    return {WORDPIECE_FILE: pieces, **standard_files(compiled, settings, names, longest)}
