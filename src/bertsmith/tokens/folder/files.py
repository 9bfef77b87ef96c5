"""The names of a folder's tokenizer files, and tokenizer_config.json with what lies beside it.

Settings not supported are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bertsmith.core import files
from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.core.files import committed, partial_file, writing
from bertsmith.tokens.vocabulary import MAX_PIECES, Pieces

# large enough for a million pieces with scores, each in a list of its own, small enough that
# malformed JSON stays below a gigabyte
MAX_FILE_BYTES, MAX_VALUES = 64 * 2**20, 3_100_000

ErrorKind = type[VocabularyError | ModelFolderError]


def read_bytes(path: Path, error_kind: ErrorKind = ModelFolderError) -> bytes:
    """Return the bytes of a file. Raises `error_kind` if it is too long or unreadable."""
    return files.read_bytes(path, error_kind, largest=MAX_FILE_BYTES)


def read_text(path: Path, error_kind: ErrorKind = ModelFolderError) -> str:
    """Return the text of a file. Raises `error_kind` if it is too long, unreadable or not UTF-8."""
    raw = read_bytes(path, error_kind)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise error_kind(
            "is not UTF-8",
            where=path,
            line=raw.count(b"\n", 0, error.start) + 1,
            remedy="save it as UTF-8",
        ) from error


def read_lined_text(path: Path, error_kind: ErrorKind = ModelFolderError) -> str:
    """Return the text of a file of lines, with line feeds alone between them.

    Raises `error_kind` also for more lines than a vocabulary can have.
    """
    text = read_text(path, error_kind).replace("\r\n", "\n")
    if text.count("\n") > MAX_PIECES + 1:
        raise error_kind(
            f"holds more than {MAX_PIECES:,} pieces",
            where=path,
            remedy="name a vocabulary, which has one piece a line",
        )
    return text


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises `ModelFolderError`."""
    remedy = "the file is damaged: save or download the folder again"
    data: dict[str, Any] = files.read_json(
        path, ModelFolderError, largest=MAX_FILE_BYTES, values=MAX_VALUES, remedy=remedy
    )
    return data


class FolderFiles:
    """The JSON files of a folder, each of which is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: dict[str, dict[str, Any]] = {}

    def json(self, name: str) -> dict[str, Any]:
        """Return the object in a file, an empty one without such a file.

        Raises `ModelFolderError`.
        """
        if name not in self._read:
            path = self.path / name
            self._read[name] = read_json(path) if path.is_file() else {}
        return self._read[name]


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, creating it; each is complete or absent. Raises `DiskError`."""
    names = {partial_file(folder / name): folder / name for name in contents}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with committed(names):
            for temporary, content in zip(names, contents.values(), strict=True):
                temporary.write_bytes(content)


def json_bytes(data: Mapping[str, Any]) -> bytes:
    """Return the contents of a JSON file."""
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


SETTINGS_FILE = "tokenizer_config.json"
SPECIALS_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"
COMPILED_FILE = "tokenizer.json"
WORDPIECE_FILE, BPE_FILE = "vocab.txt", "vocab.json"
UNIGRAM_FILE, XLM_FILE = "spiece.model", "sentencepiece.bpe.model"
MERGES_FILE = "merges.txt"
VOCABULARY_FILES = (WORDPIECE_FILE, BPE_FILE, UNIGRAM_FILE, XLM_FILE, COMPILED_FILE)
"""Files each of which holds a vocabulary."""
TOKENIZER_FILES = (SETTINGS_FILE, SPECIALS_FILE, ADDED_FILE, MERGES_FILE, *VOCABULARY_FILES)
"""All files of a tokenizer."""
NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

_CHANGES_IDS = "it changes the ids and is not supported: remove it and train again"
_NOT_ADDED = (
    "it is not among the added tokens of tokenizer.json: open the folder with AutoTokenizer, and "
    "save it again"
)


def names_of(specials: Sequence[str], *, ends: bool) -> dict[str, str]:
    """Return the special tokens by the names that settings have for them.

    With `ends` the tokens before and after a text are named as beginning and end, too.
    """
    names = dict(zip(NAMES, specials, strict=True))
    return names | ({"bos_token": specials[2], "eos_token": specials[3]} if ends else {})


def input_names(*, segments: bool) -> dict[str, list[str]]:
    """Return the setting that names what a model takes, with or without the ids of segments.

    Classes have defaults of their own for it, which are those of their family, and for ALBERT
    differ between versions of `transformers`.
    """
    given = ["token_type_ids"] if segments else []
    return {"model_input_names": ["input_ids", *given, "attention_mask"]}


def standard_files(
    compiled: dict[str, Any], settings: dict[str, Any], names: dict[str, str], longest: int | None
) -> dict[str, bytes]:
    """Return tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    length = {} if longest is None else {"model_max_length": longest}
    return {
        COMPILED_FILE: json_bytes(compiled),
        SETTINGS_FILE: json_bytes(settings | names | length),
        SPECIALS_FILE: json_bytes(names),
    }


class Settings:
    """The tokenizer settings of a folder's files; `config` are those of tokenizer_config.json.

    Special tokens must be those of the kind, and no other tokens may have been added.
    """

    def __init__(
        self,
        files: FolderFiles,
        specials: Sequence[str],
        *,
        blanks: bool,
        normalizes: bool,
        more: Sequence[str] = (),
    ) -> None:
        """`specials` are in the order of `NAMES`; `blanks` and `normalizes` as for `check_added`.

        `more` are the added tokens that are not of the kind. Raises `ModelFolderError`.
        """
        names = names_of(specials, ends=blanks)
        folder = files.path
        self.where = folder / SETTINGS_FILE
        self.config = files.json(SETTINGS_FILE)
        self.generic = is_generic(tokenizer_class(files)[0])
        self.followed = followed(files)
        self.of_version_5 = _of_version_5(files)
        for key in ("split_special_tokens", "init_inputs"):
            if self.config.get(key):
                raise self.refuse(f"{key} is set", _CHANGES_IDS)
        beside = folder / SPECIALS_FILE
        self._beside = files.json(SPECIALS_FILE)
        self._has_table = "added_tokens_decoder" in self.config
        loose = self.followed == "fast" and not (folder / COMPILED_FILE).is_file()
        for source, place in ((self.config, self.where), (self._beside, beside)):
            _check_specials(source, names, place, more)
            # with a table of added tokens their flags beside it are not read
            if source is self.config or not self._has_table:
                stated = _flagged(source, names)
                check_added(stated, specials, place, blanks=blanks, normalizes=normalizes and loose)
        extra = folder / ADDED_FILE
        self._numbers: dict[str, object] = dict(files.json(ADDED_FILE))
        added: dict[str, Any] = dict.fromkeys(self._numbers)
        table = self.config.get("added_tokens_decoder") or {}
        for number, entry in table.items() if isinstance(table, dict) else [("", table)]:
            known = isinstance(entry, dict)
            token = str(entry.get("content") if known else entry)
            added[token], self._numbers[token] = entry if known else None, number
        self._table = extra if extra.is_file() else self.where
        check_added(added, specials, self._table, blanks=blanks, normalizes=normalizes, more=more)
        self._added = added

    def switch(self, key: str, *, null: bool = False) -> bool | None:
        """Return a boolean setting, None if it is not set; with `null` it may be null too.

        A null is no default: versions of `transformers` take it for false, or for unset. Raises
        `ModelFolderError`.
        """
        value = self.config.get(key)
        if key in self.config and not isinstance(value, bool) and not (null and value is None):
            raise ModelFolderError(
                f"{key} is {value!r}", where=self.where, remedy="it must be true or false"
            )
        return value

    def mask_takes_blank(self, mask: str, compiled: Mapping[str, Any]) -> bool:
        """Return whether blanks before the mask token belong to it.

        The first that states it is followed, as in `transformers`: the table of
        tokenizer_config.json; or, where there is none, tokenizer.json, whose added tokens are
        `compiled`, added_tokens.json, which has no flags and which version 5 alone asks, and
        special_tokens_map.json; and the token's name in tokenizer_config.json. The default is that
        of the class.
        """
        beside: list[object] = []
        if self.generic or not self._has_table:
            beside.append(compiled.get(mask))
        if not self._has_table:
            unflagged = self.of_version_5 and mask in self._numbers
            beside += [{"lstrip": False} if unflagged else None]
            beside += [self._beside.get("mask_token")]
        for entry in (self._added.get(mask), *beside, self.config.get("mask_token")):
            if isinstance(entry, dict) and isinstance(entry.get("lstrip"), bool):
                return bool(entry["lstrip"])
        return not (self.generic or self.of_version_5)

    def gives_segments(self, of_class: bool) -> bool:
        """Return whether the tokenizer gives a model the segments of a pair.

        It gives what `model_input_names` states, or by default what its class does; `of_class` is
        that of the family's own in version 5. Every class of version 4 gives them.
        """
        stated = self.config.get("model_input_names")
        if isinstance(stated, list):
            return "token_type_ids" in stated
        return not self.of_version_5 or (of_class and not self.generic)

    def check_listed(self, compiled: Mapping[str, Any], specials: Sequence[str]) -> None:
        """Raise `ModelFolderError` unless a generic class knows of all special tokens.

        It has no names of its own: what no file names is text like any other.
        """
        if not self.generic:
            return
        for name, token in names_of(specials, ends=False).items():
            named = self.config.get(name) or (not self._has_table and self._beside.get(name))
            if not (named or token in compiled or token in self._added):
                raise self.refuse(f"{name} is not set", f"it must be {token!r}")

    def check_ids(self, vocabulary: Pieces) -> None:
        """Raise `ModelFolderError` unless added tokens have the ids of the vocabulary.

        The slow tokenizers of `transformers` go by the tables, the fast ones by the vocabulary.
        """
        ids = vocabulary.ids
        for token, number in self._numbers.items():
            if str(number) != str(ids[token]):
                raise _other_id(token, number, ids[token], self._table)

    def follows_compiled(self, name: str) -> bool:
        """Return whether tokenizer.json is followed, and not the vocabulary's own file of a name.

        Raises `ModelFolderError` if the folder has neither.
        """
        folder = self.where.parent
        path, compiled = folder / name, folder / COMPILED_FILE
        if not path.is_file() and not compiled.is_file():
            remedy = "name the folder that the tokenizer was saved in"
            # the folder of a run, or of a store, is what people have at hand
            for inner in (folder / "model", folder / "vocabulary"):
                if (inner / name).is_file() or (inner / COMPILED_FILE).is_file():
                    remedy = f"name {inner}"
            raise ModelFolderError(
                f"holds neither {name} nor {COMPILED_FILE}", where=folder, remedy=remedy
            )
        return compiled.is_file() and (self.followed == "fast" or not path.is_file())

    def refuse(self, problem: str, remedy: str) -> ModelFolderError:
        """Return an error about these settings."""
        return ModelFolderError(problem, where=self.where, remedy=remedy)


def _other_id(token: str, number: object, expected: int, where: Path) -> ModelFolderError:
    return ModelFolderError(
        f"the token {token[:50]!r} has the id {str(number)[:20]}, in the vocabulary {expected}",
        where=where,
        remedy="both must be of one tokenizer: save or download the folder again",
    )


def check_added_ids(added: Mapping[str, Any], ids: Mapping[str, int], where: Path) -> None:
    """Raise `ModelFolderError` unless added tokens of tokenizer.json have their ids as pieces."""
    for token, entry in added.items():
        number = entry.get("id") if isinstance(entry, dict) else None
        if number not in (None, ids[token]):
            raise _other_id(token, number, ids[token], where)


def check_added(
    added: Mapping[str, Any],
    specials: Sequence[str],
    where: Path,
    *,
    blanks: bool,
    normalizes: bool,
    more: Sequence[str] = (),
) -> None:
    """Raise `ModelFolderError` unless the special tokens among the added have the expected flags.

    If `blanks` matter, only the mask may strip blanks, and only those before it. If a tokenizer
    `normalizes` text, none may be matched in the normalized text. There may be no other added
    tokens than these and `more`.
    """
    further = frozenset(more)
    if foreign := sorted(set(added) - {*specials, *further}):
        raise ModelFolderError(
            f"the token {foreign[0][:50]!r} was added to the vocabulary",
            where=where,
            remedy=_NOT_ADDED,
        )
    for token, entry in added.items():
        if token in further:
            continue
        flags = ["single_word", *(["normalized"] if normalizes else [])]
        if blanks:
            flags += ["rstrip"] if token == specials[4] else ["lstrip", "rstrip"]
        for flag in flags if isinstance(entry, dict) else ():
            if entry.get(flag):
                raise ModelFolderError(f"{token} is {flag}", where=where, remedy=_CHANGES_IDS)


def _flagged(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the special tokens that settings name with flags, by their text."""
    entries = [config.get(name) for name in names]
    return {str(each.get("content")): each for each in entries if isinstance(each, dict)}


def _check_specials(
    config: dict[str, Any], names: Mapping[str, str], where: Path, more: Sequence[str]
) -> None:
    for key, expected in names.items():
        value = config.get(key)
        if key in NAMES and key in config and value is None:
            raise ModelFolderError(f"{key} is null", where=where, remedy=f"it must be {expected!r}")
        name = value.get("content") if isinstance(value, dict) else value
        if name not in (None, expected):
            raise ModelFolderError(
                f"{key} is {str(name)[:50]!r}", where=where, remedy=f"it must be {expected!r}"
            )
    known = {*names.values(), *more}
    for key, value in config.items():
        # a named token that is no piece is added behind the vocabulary, and found in every text
        token = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(token, str) and token not in known:
            raise ModelFolderError(f"{key} is {token[:50]!r}", where=where, remedy=_NOT_ADDED)
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = config.get(key)
        items = value if isinstance(value, list) else [value] if value else []
        # version 5 repeats some of the special tokens there
        tokens = [item.get("content") if isinstance(item, dict) else item for item in items]
        if not all(isinstance(token, str) and token in known for token in tokens):
            raise ModelFolderError(f"{key} are set", where=where, remedy=_NOT_ADDED)


Followed = Literal["slow", "fast"]

FOLLOWS = "bertsmith_follows"
"""The key of tokenizer_config.json that states the tokenizer to follow."""
_GENERIC_CLASS = re.compile("PreTrainedTokenizerFast|TokenizersBackend")
"""Classes that read everything from tokenizer.json, and are fast."""

_FOLLOWED: tuple[Followed, ...] = ("slow", "fast")
_MODEL_FILE = "config.json"
_LEAST_LENGTH = 8
_VERSION = re.compile(r"(\d{1,3})\.")


def tokenizer_class(files: FolderFiles) -> tuple[object, Path]:
    """Return the class that a folder states for its tokenizer, None for none, and the file of it.

    tokenizer_config.json states it, or else config.json.
    """
    key, stating = "tokenizer_class", SETTINGS_FILE
    if files.json(SETTINGS_FILE).get(key) is None and (files.path / _MODEL_FILE).is_file():
        stating = _MODEL_FILE
    return files.json(stating).get(key), files.path / stating


def is_generic(name: object) -> bool:
    """Return whether a tokenizer's class is that of no family."""
    return isinstance(name, str) and _GENERIC_CLASS.fullmatch(name) is not None


def followed(files: FolderFiles) -> Followed:
    """Return which tokenizer's ids a folder follows.

    It is the one stated under `FOLLOWS` in tokenizer_config.json; else the fast one if version 5
    wrote the folder or its class has no slow one; else the slow one. Raises `ModelFolderError`.
    """
    stated = files.json(SETTINGS_FILE).get(FOLLOWS)
    known: Followed | None = next((choice for choice in _FOLLOWED if choice == stated), None)
    if known is not None:
        return known
    if stated is not None:
        raise ModelFolderError(
            f"{FOLLOWS} is {str(stated)[:50]!r}",
            where=files.path / SETTINGS_FILE,
            remedy="it can be slow or fast",
        )
    generic = is_generic(tokenizer_class(files)[0])
    return "fast" if generic or _of_version_5(files) else "slow"


def stated_longest(files: FolderFiles) -> int | None:
    """Return the tokens of a text that a folder's tokenizer keeps, None for all.

    Raises `ModelFolderError` for a number that leaves no room for a text, and if it keeps the end.
    """
    config = files.json(SETTINGS_FILE)
    side = config.get("truncation_side", "right")
    if side != "right":
        raise ModelFolderError(
            f"truncation_side is {str(side)[:50]!r}",
            where=files.path / SETTINGS_FILE,
            remedy="only the end of a long text can be cut off: set it to right",
        )
    truncation = files.json(COMPILED_FILE).get("truncation")
    # transformers takes its direction where the settings state no side
    if "truncation_side" not in config and cuts_beginning(truncation):
        raise ModelFolderError(
            "truncates texts at their beginning",
            where=files.path / COMPILED_FILE,
            remedy="only their end can be cut off: set the direction in truncation to Right",
        )
    stated = config.get("model_max_length", config.get("max_len"))
    # tokenizers without a limit have a number of thirty digits
    if type(stated) is not int or stated >= 2**31:
        return None
    if stated < _LEAST_LENGTH:
        raise ModelFolderError(
            f"model_max_length is {stated}",
            where=files.path / SETTINGS_FILE,
            remedy=f"it must be at least {_LEAST_LENGTH}",
        )
    return stated


def cuts_beginning(truncation: object) -> bool:
    """Return whether the truncation of a tokenizer.json cuts off the beginning of a text."""
    direction = truncation.get("direction", "Right") if isinstance(truncation, dict) else "Right"
    return direction not in ("Right", "right")


def _of_version_5(files: FolderFiles) -> bool:
    """Return whether version 5 of `transformers` wrote a folder."""
    # no other writes the backend
    backend = files.json(SETTINGS_FILE).get("backend")
    return backend == "tokenizers" or (_major_version(files) or 0) >= 5


def _major_version(files: FolderFiles) -> int | None:
    """Return the major version of the `transformers` that wrote a folder's config.json."""
    version = files.json(_MODEL_FILE).get("transformers_version")
    match = _VERSION.match(version) if isinstance(version, str) else None
    return int(match[1]) if match else None


def refused(problem: str, where: Path, remedy: str) -> ModelFolderError:
    """Return the error for a file that cannot be reproduced."""
    return ModelFolderError(problem, where=where, remedy=remedy)
