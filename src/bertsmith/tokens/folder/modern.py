"""The files of ModernBERT's vocabulary in a model folder.

tokenizer.json            the pieces, the merges and the added tokens
tokenizer_config.json     further settings of the tokenizer
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

from bertsmith.tokens.bpe import byte_letters
from bertsmith.tokens.folder.added import FolderTokens, added_entries, further_names
from bertsmith.tokens.folder.bpe import MODEL, check_merges, merges_in, model_of
from bertsmith.tokens.folder.compiled import (
    by_id,
    check_settings,
    dense,
    lowered,
    lowered_before,
    part,
    surrounded,
    tokenizer_json,
)
from bertsmith.tokens.folder.files import (
    COMPILED_FILE,
    FolderFiles,
    Settings,
    input_names,
    names_of,
    refused,
    standard_files,
)
from bertsmith.tokens.modern import ModernRules
from bertsmith.tokens.vocabulary import SPECIALS, Pieces, check_vocabulary

_MODEL: dict[str, Any] = MODEL | {"unk_token": None}
_LEVEL: dict[str, Any] = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_CLS, _SEP = SPECIALS[2:4]


def read_folder(files: FolderFiles) -> tuple[Pieces, ModernRules]:
    """Return a folder's vocabulary and rules. Raises `ModelFolderError`, `VocabularyError`."""
    where = files.path / COMPILED_FILE
    data = files.json(COMPILED_FILE)
    model = part(data, "model", "BPE", where)
    check_settings(model, _MODEL, where)
    if lowered_before(data.get("normalizer")) is not None:
        raise lowered(where)
    words = part(data, "pre_tokenizer", "ByteLevel", where)
    # the default is true
    check_settings({"add_prefix_space": True} | words, _LEVEL, where)
    part(data, "decoder", "ByteLevel", where)
    learned = dense(model.get("vocab"), where)
    if lacking := [letter for letter in byte_letters() if letter not in learned.ids]:
        raise refused(
            f"its vocabulary lacks the byte {lacking[0]!r}", where, "all 256 must be pieces"
        )
    tokens = FolderTokens(files, SPECIALS)
    # special tokens may have any flags, like all others
    more = (*SPECIALS, *tokens.more)
    settings = Settings(files, SPECIALS, blanks=True, normalizes=False, more=more)
    vocabulary, added = tokens.all(learned, partial(normalize, "NFC"))
    check_vocabulary(vocabulary, where, specials=SPECIALS, lines=False)
    merges = merges_in(model.get("merges"), where)
    check_merges(merges, learned, where)
    _check_template(data.get("post_processor"), vocabulary, where)
    rules = ModernRules(merges=merges, added=added)
    _check_settings(settings, vocabulary, rules.mask_takes_blank)
    return vocabulary, rules


def _check_template(result: object, vocabulary: Pieces, where: Path) -> None:
    """Raise `ModelFolderError` unless pairs become `[CLS] a [SEP] b [SEP]`, with any segments."""
    ids = vocabulary.ids
    if result not in [surrounded(_CLS, _SEP, ids, segments=flag) for flag in (True, False)]:
        raise refused(
            "its post_processor is not ModernBERT's", where, "it must put [CLS] a [SEP] b [SEP]"
        )


def _check_settings(settings: Settings, vocabulary: Pieces, takes_blank: bool) -> None:
    """Raise `ModelFolderError` unless the files next to tokenizer.json agree with it."""
    if settings.switch("add_prefix_space"):
        raise settings.refuse("add_prefix_space is set", "ModernBERT's own rules have none")
    settings.check_ids(vocabulary)
    named = settings.config.get("mask_token")
    if isinstance(named, dict) and named.get("lstrip") not in (None, takes_blank):
        raise settings.refuse(
            f"the mask's lstrip is not {takes_blank}", f"it is in {COMPILED_FILE}"
        )


def files_of(
    vocabulary: Sequence[str], rules: ModernRules, *, longest: int | None, segments: bool
) -> dict[str, bytes]:
    """Return the contents of the three files."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    entries = added_entries(rules.added, ids)
    level = {"type": "ByteLevel", **_LEVEL}
    learned = {piece: ids[piece] for piece in vocabulary[: rules.added.learned]}
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
        **further_names(rules.added, SPECIALS),
        **input_names(segments=segments),
    }
    return standard_files(compiled, settings, names_of(SPECIALS, ends=False), longest)
