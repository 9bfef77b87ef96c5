"""The files of an XLM-RoBERTa vocabulary: sentencepiece.bpe.model, tokenizer.json, settings.

Ids are those of the SentencePiece model shifted by one, behind <s>, <pad>, </s>, <unk> and before
<mask>. That model is followed where there is one, unless version 5 of `transformers` wrote the
folder, or a generic class: then tokenizer.json is, as the compiled tokenizers follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.tokens.folder.added import FolderTokens, further_names
from bertsmith.tokens.folder.compiled import added_in, by_id, check_same
from bertsmith.tokens.folder.files import (
    COMPILED_FILE,
    XLM_FILE,
    FolderFiles,
    Settings,
    names_of,
    refused,
    standard_files,
)
from bertsmith.tokens.folder.unigram import (
    as_its_class_reads,
    check_scores,
    check_without_added,
    read_compiled_unigram,
    read_spiece,
    spiece_model,
    unigram_tokenizer,
)
from bertsmith.tokens.normalisation import PlainRules, UnigramRules
from bertsmith.tokens.vocabulary import Pieces, check_vocabulary

_HEAD, _MASK, _OF_MODEL = ("<s>", "<pad>", "</s>", "<unk>"), "<mask>", ("<unk>", "<s>", "</s>")


def arranged(pieces: Sequence[str], scores: Sequence[float]) -> tuple[Pieces, PlainRules]:
    """Return a vocabulary of ordinary pieces with the special tokens around, and its rules."""
    rules = PlainRules(scores=(*[0.0] * len(_HEAD), *scores, 0.0))
    return Pieces((*_HEAD, *pieces, _MASK)), rules


def read_file(path: Path) -> tuple[Pieces, PlainRules]:
    """Return the vocabulary of a SentencePiece model, with the ids and rules of the slow class."""
    pieces, result = read_spiece(path)
    begin = len(_OF_MODEL)
    if pieces[:begin] != _OF_MODEL:
        raise refused("does not begin with <unk>, <s>, </s>", path, "XLM-RoBERTa's does")
    vocabulary, rules = arranged(pieces[begin:], result.scores[begin:])
    check_vocabulary(vocabulary, path, specials=rules.specials, lines=False)
    return vocabulary, replace(
        rules,
        control=frozenset(number + 1 for number in result.control if number >= begin),
        wanted=frozenset(number + 1 for number in result.wanted),
        charsmap=result.charsmap,
        prefix_space=result.prefix_space,
    )


def read_folder(files: FolderFiles) -> tuple[Pieces, UnigramRules]:
    """Return a folder's vocabulary and rules. Raises `ModelFolderError`, `VocabularyError`."""
    folder = files.path
    tokens = FolderTokens(files, PlainRules.specials)
    settings = Settings(files, PlainRules.specials, blanks=True, normalizes=False, more=tokens.more)
    if settings.config.get("sp_model_kwargs"):
        raise settings.refuse("sp_model_kwargs are set", "they change the ids: remove them")
    model, compiled = folder / XLM_FILE, folder / COMPILED_FILE
    data = files.json(COMPILED_FILE)
    added = added_in(data)
    if settings.follows_compiled(XLM_FILE) or (tokens.more and data):
        vocabulary, rules = read_compiled_unigram(data, compiled, tokens, PlainRules)
        settings.check_listed(added, PlainRules.specials)
        _check_agreement(settings, rules)
        rules = as_its_class_reads(rules, settings)
    else:
        check_without_added(tokens, model)
        vocabulary, rules = read_file(model)
        if data:
            pieces, others = read_compiled_unigram(data, compiled, tokens, PlainRules)
            check_same(vocabulary, pieces, XLM_FILE, compiled)
            check_scores(vocabulary, rules, others, compiled, XLM_FILE)
    settings.check_ids(vocabulary)
    takes_blank = settings.mask_takes_blank(_MASK, added)
    return vocabulary, replace(rules, mask_takes_blank=takes_blank)


def _check_agreement(settings: Settings, rules: UnigramRules) -> None:
    """Raise `ModelFolderError` if version 5 would not read what tokenizer.json says.

    Its class takes from there the pieces and the exchanged characters, and has no other rules.
    """
    if settings.generic or not settings.of_version_5:
        return
    if rules.lowercase or not rules.keep_accents:
        raise refused(
            "has a normalizer that XLMRobertaTokenizer of version 5 does not read",
            settings.where.with_name(COMPILED_FILE),
            "remove it; a model that was trained with it has the class PreTrainedTokenizerFast",
        )
    stated = settings.switch("add_prefix_space")
    if (stated is not False) != rules.prefix_space:
        raise settings.refuse(
            f"add_prefix_space is {'not set' if stated is None else stated}",
            f"{COMPILED_FILE} has {rules.prefix_space}: both must be the same",
        )


def files_of(
    vocabulary: Sequence[str], rules: PlainRules, *, longest: int | None, segments: bool
) -> dict[str, bytes]:
    """Return the contents of the files, which never give a model ids of segments.

    There is no SentencePiece model where the vocabulary came without it, or in another order.
    """
    del segments
    names = names_of(rules.specials, ends=True)
    compiled = unigram_tokenizer(vocabulary, rules)
    settings: dict[str, Any] = {
        "tokenizer_class": "XLMRobertaTokenizer",
        "added_tokens_decoder": by_id(compiled["added_tokens"]),
        **further_names(rules.added, rules.specials),
        **({} if rules.prefix_space else {"add_prefix_space": False}),
        **({} if longest is None else {"model_max_length": longest}),
        **names,
    }
    contents = standard_files(compiled, settings, names, longest)
    first, begin = len(_HEAD), len(_OF_MODEL)
    if (*vocabulary[:first], vocabulary[-1]) == (*_HEAD, _MASK) and rules.compiled is None:
        moved = replace(
            rules,
            scores=(*[0.0] * begin, *rules.scores[first:-1]),
            control=frozenset(number - 1 for number in rules.control),
            wanted=frozenset(number - 1 for number in rules.wanted),
        )
        pieces = (*_OF_MODEL, *vocabulary[first:-1])
        contents[XLM_FILE] = spiece_model(pieces, moved)
    return contents
