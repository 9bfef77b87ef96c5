"""tokenizer_config.json and its neighbours: nothing in them may ask for what we do not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.files import read_json
from bertsmith.tokens.following import followed, is_generic

SETTINGS_FILE = "tokenizer_config.json"
SPECIALS_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"
NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

_CHANGES_IDS = "it changes the ids and is not followed: remove it and train again"
_NOT_ADDED = "added tokens are not followed: use a folder whose vocabulary holds every token"


class Settings:
    """What the files of a folder say of its tokenizer; `said` are those of tokenizer_config.json.

    Special tokens must be those of the kind, and no unknown ones may have been added.
    """

    def __init__(
        self,
        folder: Path,
        specials: Sequence[str],
        *,
        blanks: bool,
        normalizes: bool,
        more: Sequence[str] = (),
    ) -> None:
        """`specials` in the order of `NAMES`; `blanks` and `normalizes` as for `check_added`.

        `more` are tokens that may have been added beside them. Raises `ModelFolderError`.
        """
        names = dict(zip(NAMES, specials, strict=True))
        if blanks:  # kinds with names for beginning and end have them for [CLS] and [SEP]
            names |= {"bos_token": specials[2], "eos_token": specials[3]}
        self.where = folder / SETTINGS_FILE
        self.said = read_json(self.where) if self.where.is_file() else {}
        self.generic = is_generic(self.said)
        self.followed = followed(folder, self.said, self.where)
        for key in ("split_special_tokens", "init_inputs"):
            if self.said.get(key):
                raise self.refuse(f"{key} is set", _CHANGES_IDS)
        beside = folder / SPECIALS_FILE
        self._beside = read_json(beside) if beside.is_file() else {}
        _check_specials(self.said, names, self.where)
        _check_specials(self._beside, names, beside)
        extra = folder / ADDED_FILE
        added: dict[str, Any] = dict.fromkeys(read_json(extra)) if extra.is_file() else {}
        table = self.said.get("added_tokens_decoder") or {}
        for entry in table.values() if isinstance(table, dict) else [table]:
            known = isinstance(entry, dict)
            added[str(entry.get("content") if known else entry)] = entry if known else None
        place = extra if extra.is_file() else self.where
        check_added(added, (*specials, *more), place, blanks=blanks, normalizes=normalizes)
        self._added = added

    def switch(self, key: str) -> bool | None:
        """What one of the settings is; None where it is not set. Raises `ModelFolderError`."""
        value = self.said.get(key)
        if value is not None and not isinstance(value, bool):
            raise ModelFolderError(
                f"{key} is {value!r}", where=self.where, remedy="it must be true or false"
            )
        return value

    def takes_blank(
        self, name: str, token: str, compiled: Mapping[str, Any] | None = None
    ) -> bool | None:
        """Return whether blanks before a special token belong to it; None where nothing says so.

        `compiled` are the added tokens of tokenizer.json, which say it where the table of
        tokenizer_config.json does not.
        """
        beside = (self.said.get(name), self._beside.get(name))
        for entry in (self._added.get(token), (compiled or {}).get(token), *beside):
            if isinstance(entry, dict) and isinstance(entry.get("lstrip"), bool):
                return bool(entry["lstrip"])
        return None

    def refuse(self, what: str, remedy: str) -> ModelFolderError:
        """An error about these settings."""
        return ModelFolderError(what, where=self.where, remedy=remedy)


def check_added(
    added: Mapping[str, Any],
    specials: Sequence[str],
    where: Path,
    *,
    blanks: bool,
    normalizes: bool,
) -> None:
    """Raise `ModelFolderError` unless what was added are special tokens, and as they are to be.

    Where `blanks` matter, none but the mask may take those beside it, and those before it only.
    Where a tokenizer `normalizes` text, none may be looked for in the normalized text.
    """
    if foreign := sorted(set(added) - set(specials)):
        raise ModelFolderError(
            f"the token {foreign[0][:50]!r} was added to the vocabulary",
            where=where,
            remedy=_NOT_ADDED,
        )
    for token, entry in added.items():
        flags = ["single_word", *(["normalized"] if normalizes else [])]
        if blanks:
            flags += ["rstrip"] if token == specials[4] else ["lstrip", "rstrip"]
        for flag in flags if isinstance(entry, dict) else ():
            if entry.get(flag):
                raise ModelFolderError(f"{token} is {flag}", where=where, remedy=_NOT_ADDED)


def _check_specials(said: dict[str, Any], names: Mapping[str, str], where: Path) -> None:
    for key, expected in names.items():
        value = said.get(key)
        name = value.get("content") if isinstance(value, dict) else value
        if name not in (None, expected):
            raise ModelFolderError(
                f"{key} is {str(name)[:50]!r}", where=where, remedy=f"it must be {expected!r}"
            )
    known = set(names.values())
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = said.get(key)
        more = value if isinstance(value, list) else [value] if value else []
        # version 5 names some of the special tokens there once more
        tokens = [each.get("content") if isinstance(each, dict) else each for each in more]
        if not all(isinstance(token, str) and token in known for token in tokens):
            raise ModelFolderError(f"{key} are set", where=where, remedy=_NOT_ADDED)
