"""What several tokenizer files state of the same thing: special tokens, their flags, the class.

Edits as in `test_tokenizer_edits`, of more kinds: equal ids in the version of transformers that
wrote the folder, or a refusal by name.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bertsmith.core.errors import UserError
from bertsmith.tokens.added import AddedToken, AddedTokens
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.modern import ModernRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, SPECIALS
from parity.other_process import TheirError, Transformers
from parity.test_tokenizer_edits import (
    COMPILED,
    CORPUS,
    EDITS,
    GENERIC,
    NO_SLOW,
    NO_TABLE,
    SECOND,
    SETTINGS,
    TEXTS,
    TRUNCATION,
    VERSIONS,
    Change,
    Json,
    all_of,
    changed,
    compiled,
    flagged,
    inside,
    settings,
    unsaid,
    without,
)

MORE_TEXTS = (
    *TEXTS,
    "cafe\u0301 CAFE\u0301S caf\u00c9",
    "the\u00a0hand \t the  hand ",
    "hand\u200b \U0001f600 \u2603 q",
    "eos[EOS]</s> <s>the",
    "\u6f22\u5b57the\u5b57",
    "``the'' hand",
    "hand <mask>hand",
    "hand [MASK]hand [mask]",
)
MODELS = {
    "bert": "bert", "cased": "bert", "roberta": "roberta", "albert": "albert",
    "xlm": "xlm-roberta", "modern": "modernbert",
}  # fmt: skip
FAULTS = pytest.mark.faults
MAP, ADDED_FILE, CONFIG = "special_tokens_map.json", "added_tokens.json", "config.json"
SLOW_FILES = without(COMPILED, MAP)
NAMES = (
    "pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "bos_token", "eos_token",
)  # fmt: skip
SLOW_FILES_BUT_MAP = without(COMPILED)
LEFT = TRUNCATION | {"direction": "Left"}
WORDS, BYTES = ("bert", "cased"), ("roberta", "modern")
NAMELESS = all_of(GENERIC, NO_TABLE, without(MAP), unsaid(*NAMES))


def mask_of(folder: Path) -> str:
    data = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    return str(data["mask_token"])


def named(**values: object) -> Change:
    """Names of special_tokens_map.json."""
    return changed(MAP, lambda data: data.update(values))


def mask_named(name: str, **flags: bool) -> Change:
    """The mask with flags, by its name in a file."""
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)

    def apply(folder: Path) -> None:
        entry: Json = {"content": mask_of(folder), **usual, **flags}
        if name == SETTINGS:
            entry["__type"] = "AddedToken"
        changed(name, lambda data: data.update(mask_token=entry))(folder)

    return apply


def table(change: Callable[[Json], Json]) -> Change:
    """The table of added tokens in tokenizer_config.json, made of tokenizer.json's."""

    def apply(folder: Path) -> None:
        data = json.loads((folder / COMPILED).read_text(encoding="utf-8"))
        entries = {str(entry.pop("id")): entry for entry in data["added_tokens"]}
        settings(added_tokens_decoder=change(entries))(folder)

    return apply


def mask_moved(entries: Json) -> Json:
    last = max(map(int, entries))
    key = next(key for key, entry in entries.items() if "mask" in entry["content"].lower())
    return {**entries, str(last + 20): entries.pop(key)}


def exchanged(entries: Json) -> Json:
    one, other = sorted(entries, key=int)[:2]
    return entries | {one: entries[other], other: entries[one]}


def added_file(number: int) -> Change:
    def apply(folder: Path) -> None:
        (folder / ADDED_FILE).write_text(json.dumps({mask_of(folder): number}))

    return apply


def moved_in_compiled(data: Json) -> None:
    for entry in data["added_tokens"]:
        if "mask" in entry["content"].lower():
            entry["id"] += 20


def metaspace(**values: object) -> Change:
    def apply(data: Json) -> None:
        steps = data["pre_tokenizer"].get("pretokenizers", [data["pre_tokenizer"]])
        next(step for step in steps if step["type"] == "Metaspace").update(values)

    return changed(COMPILED, apply)


def metaspace_alone(data: Json) -> None:
    steps = data["pre_tokenizer"].get("pretokenizers", [data["pre_tokenizer"]])
    data["pre_tokenizer"] = next(step for step in steps if step["type"] == "Metaspace")


def of_config(name: str) -> Change:
    return all_of(
        unsaid("tokenizer_class"), changed(CONFIG, lambda data: data.update(tokenizer_class=name))
    )


@dataclass(frozen=True)
class Statement:
    """A change of files, how it is refused, and the cases that load: all where it is not."""

    change: Change
    refusal: str = ""
    loads: str = ""
    kinds: tuple[str, ...] = tuple(MODELS)
    fast: bool = False
    """True if the fast tokenizer of version 4 is followed, though there is a slow one."""


PIECED, SLOW_KINDS = ("albert", "xlm"), ("bert", "cased", "roberta", "albert", "xlm")
# blanks around a mask are nothing to them
OF_WORDS = "bert-4 bert-5 cased-4 cased-5"
# ModernBERT takes no token from tokenizer.json that its list lacks
SLOW_CASES = " ".join(f"{kind}-{version}" for kind in SLOW_KINDS for version in VERSIONS)
STATEMENTS: dict[str, Statement] = {
    "an end of its own": Statement(settings(eos_token="[EOS]"), "eos_token is"),
    "an end of its own in the map": Statement(
        all_of(NO_TABLE, named(eos_token="</s>")),
        "eos_token is",
        "roberta-4 roberta-5 xlm-4 xlm-5",
    ),
    "a token of another name": Statement(settings(image_token="covid19"), "image_token is"),
    "no mask": Statement(settings(mask_token=None), "mask_token is null"),
    "names nowhere": Statement(all_of(NAMELESS, compiled(added_tokens=[])), "is not set|not among"),
    "names in tokenizer.json": Statement(NAMELESS),
    "none added": Statement(
        all_of(NO_TABLE, compiled(added_tokens=[])), "not among", SLOW_CASES
    ),
    "none added, generic": Statement(
        all_of(GENERIC, NO_TABLE, compiled(added_tokens=[])), "not among", SLOW_CASES
    ),
    "an empty table": Statement(settings(added_tokens_decoder={})),
    "mask in the map takes blanks behind": Statement(
        all_of(NO_TABLE, SLOW_FILES_BUT_MAP, mask_named(MAP, rstrip=True)),
        "is rstrip", OF_WORDS, SLOW_KINDS,
    ),
    "mask in the map is a word": Statement(
        all_of(NO_TABLE, SLOW_FILES_BUT_MAP, mask_named(MAP, single_word=True)),
        "is single_word", kinds=SLOW_KINDS,
    ),
    "mask in the map is normalized": Statement(
        all_of(NO_TABLE, SLOW_FILES_BUT_MAP, mask_named(MAP, normalized=True)),
        "is normalized", "bert-4 cased-4 roberta-4 roberta-5 albert-4 xlm-4 xlm-5", SLOW_KINDS,
    ),
    "mask in the settings takes blanks behind": Statement(
        all_of(NO_TABLE, SLOW_FILES, mask_named(SETTINGS, rstrip=True)),
        "is rstrip", OF_WORDS, SLOW_KINDS,
    ),
    "mask in the settings takes no blank": Statement(
        all_of(NO_TABLE, SLOW_FILES, mask_named(SETTINGS, lstrip=False)), kinds=SLOW_KINDS
    ),
    "mask takes blanks in the map alone": Statement(
        all_of(
            NO_TABLE, without(COMPILED), mask_named(MAP, lstrip=True), mask_named(SETTINGS)
        ),
        kinds=SLOW_KINDS,
    ),
    "mask takes blanks in the settings alone": Statement(
        all_of(
            NO_TABLE, without(COMPILED), mask_named(MAP), mask_named(SETTINGS, lstrip=True)
        ),
        kinds=SLOW_KINDS,
    ),
    "mask takes blanks, but not in tokenizer.json": Statement(
        all_of(NO_TABLE, mask_named(MAP, lstrip=True), flagged(mask_only=True, lstrip=False))
    ),
    "mask elsewhere in the table": Statement(table(mask_moved), "has the id|is not that of"),
    "two exchanged in the table": Statement(
        all_of(table(exchanged), without(COMPILED)), "has the id", kinds=SLOW_KINDS
    ),
    "mask elsewhere in added_tokens.json": Statement(
        all_of(NO_TABLE, SLOW_FILES, added_file(60)), "has the id", kinds=SLOW_KINDS
    ),
    "mask elsewhere in tokenizer.json": Statement(
        all_of(NO_TABLE, changed(COMPILED, moved_in_compiled)), "has the id"
    ),
    "mask in added_tokens.json": Statement(
        all_of(NO_TABLE, SLOW_FILES, added_file(4)), kinds=SLOW_KINDS[:-1]
    ),
    "ideographs null": Statement(
        settings(tokenize_chinese_chars=None), "tokenize_chinese_chars is None", kinds=WORDS
    ),
    "casing null": Statement(
        settings(do_lower_case=None), "do_lower_case is None", kinds=(*WORDS, "albert")
    ),
    "blank before null": Statement(
        settings(add_prefix_space=None), "add_prefix_space is None",
        "roberta-4 roberta-5 xlm-4", ("roberta", *PIECED),
    ),
    "no blank before": Statement(
        settings(add_prefix_space=False), "add_prefix_space is False",
        "roberta-4 roberta-5 xlm-4", ("roberta", *PIECED),
    ),
    "no blank before in tokenizer.json": Statement(
        metaspace(prepend_scheme="never"), "add_prefix_space is not", "xlm-4", PIECED
    ),
    "blanks part no words in tokenizer.json": Statement(
        changed(COMPILED, metaspace_alone), kinds=PIECED
    ),
    "a normalizer": Statement(
        compiled(normalizer={"type": "Lowercase"}), "has a normalizer|replaces", kinds=("xlm",)
    ),
    "a Japanese class in config.json": Statement(
        of_config("BertJapaneseTokenizer"), "class is 'BertJapaneseTokenizer'"
    ),
    "generic in config.json": Statement(of_config("PreTrainedTokenizerFast")),
    "generic in config.json, lower case": Statement(
        all_of(of_config("PreTrainedTokenizerFast"), inside("normalizer", lowercase=True)),
        kinds=WORDS,
    ),
    "the beginning cut off": Statement(
        settings(truncation_side="left"), "truncation_side is 'left'", kinds=WORDS
    ),
    "the beginning cut off in tokenizer.json": Statement(
        compiled(truncation=LEFT), "truncates texts at their beginning", kinds=("bert", "modern")
    ),
    "the end cut off by settings": Statement(
        all_of(compiled(truncation=LEFT), settings(truncation_side="right")), kinds=("cased",)
    ),
    "what changes no ids": Statement(
        settings(
            chat_template="{{ x }}", model_max_length=1e30, clean_up_tokenization_spaces=True,
            padding_side="left", truncation_side="right", tokenizer_file=None, use_fast=False,
            wordpieces_prefix="@@", trim_offsets=False, additional_special_tokens=None,
            extra_special_tokens=[], never_split=[], sp_model_kwargs={}, legacy=False,
        )
    ),
}  # fmt: skip
# each of one rule, which has a test of its own; compared everywhere in `make faults`
OTHERS: dict[str, Statement] = {
    "words as they are": Statement(settings(do_basic_tokenize=False), "do_basic", kinds=WORDS),
    "words kept": Statement(settings(never_split=["covid19"]), "never_split", kinds=WORDS),
    "ideographs left": Statement(settings(tokenize_chinese_chars=False), kinds=WORDS),
    "accents stripped": Statement(settings(strip_accents=True), kinds=WORDS),
    "accents stripped, slow files": Statement(
        all_of(without(COMPILED), settings(strip_accents=True)), kinds=WORDS
    ),
    "accents kept": Statement(settings(strip_accents=False), kinds=WORDS),
    "another prefix": Statement(
        inside("model", continuing_subword_prefix="@@"), "continuing_subword", kinds=WORDS
    ),
    "merges ignored": Statement(inside("model", ignore_merges=True), "ignore_merges", kinds=BYTES),
    "bytes for the unknown": Statement(
        inside("model", byte_fallback=True), "byte_fallback", OF_WORDS
    ),
    "dropout": Statement(inside("model", dropout=0.5), "dropout", kinds=BYTES),
    "no regex": Statement(inside("pre_tokenizer", use_regex=False), "use_regex", kinds=BYTES),
    "an end of words": Statement(
        inside("model", end_of_word_suffix="</w>"), "end_of_word", kinds=BYTES
    ),
    "a blank before the first part": Statement(
        metaspace(prepend_scheme="first"), "prepend_scheme", kinds=PIECED
    ),
    "not split": Statement(metaspace(split=False), "split is", kinds=PIECED),
    "another blank": Statement(metaspace(replacement="_"), "replacement", kinds=PIECED),
    "no blank before, generic": Statement(
        all_of(NO_SLOW, GENERIC, metaspace(prepend_scheme="never")), kinds=PIECED
    ),
    "an older metaspace": Statement(metaspace(add_prefix_space=True), kinds=PIECED),
    "no unknown": Statement(inside("model", unk_id=None), "unk_id", kinds=PIECED),
    "sampling": Statement(
        settings(sp_model_kwargs={"enable_sampling": True}), "sp_model_kwargs", kinds=PIECED
    ),
    "class unsaid": Statement(unsaid("tokenizer_class")),
    "another class": Statement(settings(tokenizer_class="MPNetTokenizerFast"), "class is"),
    "ends by settings": Statement(settings(add_bos_token=True, add_eos_token=True)),
    "ends by settings, generic": Statement(
        all_of(GENERIC, settings(add_bos_token=True, add_eos_token=True))
    ),
    "no decoder": Statement(compiled(decoder=None), "decoder", SLOW_CASES),
    "a sequence of one": Statement(
        changed(COMPILED, lambda data: data.update(pre_tokenizer={
            "type": "Sequence", "pretokenizers": [data["pre_tokenizer"]]
        })),
        "pre_tokenizer is no",
    ),
}  # fmt: skip
# the edits of the other test, but those that lead to its exceptions: a casing that is guessed
GUESSED = ("no settings", "tokenizer.json alone", "casing unsaid", "another class")
CASES = [
    pytest.param(kind, name, id=f"{kind}-{name}", marks=() if name in STATEMENTS else FAULTS)
    for name, each in {**STATEMENTS, **OTHERS}.items()
    for kind in each.kinds
]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, as we save it."""
    folder = tmp_path_factory.mktemp("bases")
    for name, lowercase in (("bert", True), ("cased", False)):
        words = learn_wordpiece(CORPUS, size=100, lowercase=lowercase, min_frequency=1)
        Tokenizer(words.vocabulary, BasicRules(lowercase=lowercase)).save(folder / name)
    byte_level = learn_byte_bpe(CORPUS, size=320)
    byte_level.save(folder / "roberta")
    learned = tuple(piece for piece in byte_level.vocabulary if piece not in BYTE_SPECIALS)
    rules: Any = byte_level.rules
    tokens = tuple(
        AddedToken(piece=each, special=True, normalized=False, lstrip=each == SPECIALS[-1])
        for each in SPECIALS
    )
    added = AddedTokens(tokens=tokens, learned=len(learned))
    modern = ModernRules(merges=rules.merges, added=added)
    Tokenizer((*learned, *SPECIALS), modern).save(folder / "modern")
    learn_unigram(CORPUS, size=80, strip_accents=True).save(folder / "albert")
    learn_unigram(CORPUS, size=80, plain=True).save(folder / "xlm")
    return folder


Ids = tuple[list[list[int]], list[int]]


def with_ends(tokenizer: Tokenizer) -> Ids:
    """The ids of the texts, and those of the first in a pair, with special tokens around them."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids = [[cls, *each.tolist(), sep] for each in tokenizer.encode(MORE_TEXTS)]
    (second,) = tokenizer.encode([SECOND])
    return ids, [*ids[0], *[sep] * (tokenizer.separators - 1), *second.tolist(), sep]


def theirs(asked: Transformers, folder: Path, *, fast: bool = False) -> Ids | None:
    """What transformers makes of a folder; None where it cannot open it."""
    given = {"folder": str(folder), "kind": "AutoTokenizer", "texts": MORE_TEXTS, "pair": SECOND}
    slow: list[dict[str, bool]] = [{"use_fast": False}] if asked.version < "5" and not fast else []
    for each in (*slow, {}):
        try:
            found = asked.ask("encode", **given, **each)
        except TheirError:
            continue
        return found["ids"], found["pair"]
    return None


def check(statement: Statement, base: Path, folder: Path, asked: Transformers) -> str:
    """Return how a changed folder is refused, or "" where it has the ids of transformers."""
    shutil.copytree(base, folder)
    config = {"model_type": MODELS[base.name], "transformers_version": asked.version}
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    statement.change(folder)
    try:
        ours = with_ends(Tokenizer.load(folder))
    except UserError as error:
        return str(error) if error.remedy else "no remedy"
    expected = theirs(asked, folder, fast=statement.fast)
    assert expected is None or ours == expected
    Tokenizer.load(folder).save(folder / "again")
    assert with_ends(Tokenizer.load(folder / "again")) == ours
    return ""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_files_state_is_followed_or_refused(
    request: pytest.FixtureRequest, bases: Path, tmp_path: Path, kind: str, name: str, version: str
) -> None:
    statement = {**STATEMENTS, **OTHERS}[name]
    asked: Transformers = request.getfixturevalue(f"transformers{version}")
    told = check(statement, bases / kind, tmp_path / "model", asked)
    if statement.refusal and f"{kind}-{version}" not in statement.loads.split():
        assert re.search(statement.refusal, told), told
    else:
        assert told == ""


@FAULTS
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_no_edit_gives_other_ids(
    request: pytest.FixtureRequest, bases: Path, tmp_path: Path, kind: str, version: str
) -> None:
    """Every edit of the grids on every kind to which it can be made."""
    asked: Transformers = request.getfixturevalue(f"transformers{version}")
    edits = {
        f"edit: {name}": Statement(each.change, each.refusal, fast=each.fast)
        for name, each in EDITS.items()
        if kind != "cased" or name not in GUESSED
    }
    made, refused = 0, 0
    for number, (name, statement) in enumerate({**edits, **OTHERS, **STATEMENTS}.items()):
        folder = tmp_path / f"{number}"
        try:
            told = check(statement, bases / kind, folder, asked)
        except (KeyError, TypeError, AttributeError, StopIteration, FileNotFoundError):
            # it changes what files of this kind have not
            continue
        except AssertionError as error:
            raise AssertionError(f"{kind}-{version}: {name}") from error
        made, refused = made + 1, refused + bool(told)
    assert made > 70
    assert refused < 0.75 * made
