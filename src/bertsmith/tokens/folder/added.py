"""The added tokens of a folder: tokenizer.json's, or those of the files beside it.

What splits texts at them is `bertsmith.tokens.added`. A folder that has other added tokens than its
special tokens follows the compiled tokenizers, which AutoTokenizer opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.tokens.added import LEFT_OVER, AddedToken, AddedTokens
from bertsmith.tokens.folder.compiled import by_id
from bertsmith.tokens.folder.files import (
    ADDED_FILE,
    COMPILED_FILE,
    SETTINGS_FILE,
    SPECIALS_FILE,
    FolderFiles,
    refused,
)
from bertsmith.tokens.vocabulary import Pieces

# a pattern is made of them all, which takes a second
_MAX_ADDED, _MAX_CHARACTERS = 10_000, 2**20
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_NAMED = ("additional_special_tokens", "extra_special_tokens")
_TABLE = "added_tokens_decoder"

Entry = dict[str, Any]


class FolderTokens:
    """The added tokens that a folder states."""

    def __init__(self, files: FolderFiles, specials: Sequence[str]) -> None:
        """`specials` are in the order of `NAMES`. Raises `ModelFolderError`."""
        self._files, self._specials = files, specials
        self._table = files.json(SETTINGS_FILE).get(_TABLE)
        self._compiled = _compiled(files)
        # with a table the names beside it are not read
        named = [] if self._table else self._further_names(SPECIALS_FILE)
        beside = frozenset(named)
        named += [name for name in self._further_names(SETTINGS_FILE) if name not in beside]
        self._named, self._names = named, frozenset(named)
        self._stated, self._where = self._read()
        self.more = sorted({*self._contents(), *self._named} - set(specials))
        """The tokens that are not special tokens of the kind."""

    def _read(self) -> tuple[object, Path]:
        """Return the list of entries, which may be invalid, and the file they are in."""
        folder = self._files.path
        if self._compiled:
            stated = self._compiled.get("added_tokens")
            return [] if stated is None else stated, folder / COMPILED_FILE
        if self._table:
            return _of_table(self._table), folder / SETTINGS_FILE
        numbers = self._files.json(ADDED_FILE)
        entries = [self._plain(token) | {"id": numbers[token]} for token in numbers]
        if all(type(number) is int for number in numbers.values()):
            entries.sort(key=lambda entry: int(entry["id"]))
        return entries, folder / (ADDED_FILE if numbers else SETTINGS_FILE)

    def _plain(self, token: str) -> Entry:
        """Return the entry of a token whose flags no file states."""
        special = token in self._specials or token in self._names
        flags = dict.fromkeys(_FLAGS, False)
        return {"content": token, **flags, "normalized": not special, "special": special}

    def _contents(self) -> set[str]:
        entries = self._stated if isinstance(self._stated, list) else []
        return {str(each.get("content")) for each in entries if isinstance(each, dict)}

    def _further_names(self, name: str) -> list[str]:
        """Return the further special tokens that a file names."""
        settings = self._files.json(name)
        lists = [settings.get(key) for key in _NAMED]
        tokens = [token for each in lists if isinstance(each, list) for token in each]
        texts = [token.get("content") if isinstance(token, dict) else token for token in tokens]
        return [each for each in texts if isinstance(each, str) and each not in self._specials]

    def extended(
        self,
        learned: Pieces,
        normalised: Callable[[str], str] = str,
        *,
        mask_takes_blank: bool = False,
    ) -> tuple[Pieces, AddedTokens | None]:
        """Return a vocabulary with the added tokens behind, None where there are no further ones.

        Ids of tokens that are not among the `learned` pieces must follow those in the order of the
        file: the compiled tokenizers assign them so regardless of it. Raises `ModelFolderError`.
        """
        if not self.more:
            return learned, None
        return self.all(learned, normalised, mask_takes_blank=mask_takes_blank)

    def all(
        self,
        learned: Pieces,
        normalised: Callable[[str], str] = str,
        *,
        mask_takes_blank: bool = False,
    ) -> tuple[Pieces, AddedTokens]:
        """Return a vocabulary and its added tokens, as `extended`, even if all are of the kind."""
        entries = self._entries(learned, mask_takes_blank)
        for entry in entries:
            if entry["normalized"] and not normalised(entry["content"]):
                raise refused(
                    f"nothing is left of the added token {entry['content'][:50]!r} once normalised",
                    self._where,
                    "remove it: compiled tokenizers cannot match it",
                )
        if self._table and self._compiled:
            _check_table(self._table, entries, self._files.path)
        beyond = [entry["content"] for entry in entries if entry["content"] not in learned.ids]
        added = AddedTokens(
            tokens=tuple(
                AddedToken(piece=entry["content"], **{flag: entry[flag] for flag in _FLAGS})
                for entry in entries
            ),
            learned=len(learned),
        )
        return Pieces((*learned, *beyond)) if beyond else learned, added

    def _entries(self, learned: Pieces, mask_takes_blank: bool) -> list[Entry]:
        """Return the checked entries in the order of ids."""
        stated = self._stated
        if not isinstance(stated, list) or len(stated) > _MAX_ADDED:
            raise refused(
                "its added_tokens are not a short list", self._where, "save the tokenizer again"
            )
        stated = [_checked(entry, self._where) for entry in stated]
        present = self._contents()
        if sum(map(len, present)) > _MAX_CHARACTERS:
            raise refused("its added_tokens are too long", self._where, "save the tokenizer again")
        absent = [token for token in self._specials if token not in present]
        if absent and self._compiled:
            raise refused(
                f"{absent[0]} is not among its added_tokens",
                self._where,
                "all special tokens must be",
            )
        mask = {"lstrip": mask_takes_blank}
        first = [self._plain(t) | (mask if t == self._specials[4] else {}) for t in absent]
        last = [self._plain(token) for token in self._named if token not in present]
        ids = dict(learned.ids)
        entries: dict[str, Entry] = {}
        for entry in (*first, *stated, *last):
            piece = entry["content"]
            expected = ids.setdefault(piece, len(ids))
            if piece in entries or entry.get("id", expected) != expected:
                raise refused(
                    f"the added token {piece[:50]!r} has the id {str(entry.get('id'))[:20]}, "
                    "or occurs twice",
                    self._where,
                    f"it must have {expected}: the ids continue after the vocabulary's, in order",
                )
            if piece in self._specials and not entry["special"]:
                raise refused(f"{piece} is not special", self._where, "save the tokenizer again")
            entries[piece] = entry | {"id": expected}
        return sorted(entries.values(), key=lambda entry: int(entry["id"]))


def _check_table(table: object, entries: Sequence[Entry], folder: Path) -> None:
    """Raise `ModelFolderError` unless tokenizer_config.json has the same added tokens."""
    expected = by_id(entries)
    stated = table if isinstance(table, dict) else {"": table}
    if stated == expected:
        return
    keys = sorted(set(stated) | set(expected))
    other = next(key for key in keys if stated.get(key) != expected.get(key))
    raise refused(
        f"the added token {other[:20]} is not that of {COMPILED_FILE}",
        folder / SETTINGS_FILE,
        "both must be of one tokenizer: save or download the folder again",
    )


def _compiled(files: FolderFiles) -> Mapping[str, Any]:
    """Return what is in tokenizer.json; nothing if it is damaged, which its reader will say."""
    try:
        return files.json(COMPILED_FILE)
    except ModelFolderError:
        return {}


def _of_table(table: object) -> object:
    """Return the entries of tokenizer_config.json's table in the order of ids."""
    if not isinstance(table, dict) or not all(
        isinstance(entry, dict) and number.isdecimal() for number, entry in table.items()
    ):
        return table
    return [
        {"id": int(number), **entry}
        for number, entry in sorted(table.items(), key=lambda item: int(item[0]))
    ]


def _checked(entry: object, where: Path) -> Entry:
    """Return an entry of the list if it is valid. Raises `ModelFolderError`."""
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
    return entry


def added_entries(added: AddedTokens, ids: Mapping[str, int]) -> list[Entry]:
    """Return tokenizer.json's entries of the added tokens."""
    return [
        {"id": ids[token.piece], "content": token.piece}
        | {flag: getattr(token, flag) for flag in _FLAGS}
        for token in added.tokens
    ]


def further_names(added: AddedTokens | None, specials: Sequence[str]) -> dict[str, list[str]]:
    """Return the settings that name the special tokens besides those of the kind."""
    tokens = added.tokens if added is not None else ()
    known = (*specials, *LEFT_OVER)
    more = [token.piece for token in tokens if token.special and token.piece not in known]
    return {_NAMED[0]: more} if more else {}
