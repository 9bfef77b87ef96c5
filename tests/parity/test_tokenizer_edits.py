"""Edited tokenizer files: the ids of the transformers that wrote them, or a refusal by name.

The folder's `transformers_version` says whose ids they have to be: those of version 5, or those of
4.57's slow tokenizer, or of its fast one where there is no slow one to be had or tokens were added.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bertsmith.core.errors import UserError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer
from parity.other_process import TheirError, Transformers

CORPUS = (
    "The hands of the clock, the hand.",
    "the café's hands don't stop 12 times, 12, 13",
    "covid19 co vid 19",
    "漢字 漢字",
) * 4
TEXTS = (
    "The hands, the CAFÉS! 漢字",
    "the [MASK] <mask> hand",
    "covid19 in 1,2, 20",
    "hand[SEP]the</s>",
    "[mask] [PAD]x <pad>y",
    " lead  x [unk]",
)
SECOND = "the hand"
SPECIALS = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "albert": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
}
KINDS = tuple(SPECIALS)
SLOW = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model")
COMPILED, SETTINGS = "tokenizer.json", "tokenizer_config.json"
VERSIONS = {"4": "4.57.6", "5": "5.23.0"}

Json = dict[str, Any]
Change = Callable[[Path], None]


def changed(name: str, change: Callable[[Json], object]) -> Change:
    """A change of one of the files."""

    def apply(folder: Path) -> None:
        data = json.loads((folder / name).read_text(encoding="utf-8"))
        change(data)
        (folder / name).write_text(json.dumps(data), encoding="utf-8")

    return apply


def settings(**values: object) -> Change:
    return changed(SETTINGS, lambda data: data.update(values))


def unsaid(*keys: str) -> Change:
    return changed(SETTINGS, lambda data: [data.pop(key, None) for key in keys])


def compiled(**values: object) -> Change:
    return changed(COMPILED, lambda data: data.update(values))


def inside(part: str, **values: object) -> Change:
    return changed(COMPILED, lambda data: data[part].update(values))


def without(*names: str) -> Change:
    def apply(folder: Path) -> None:
        for name in names:
            (folder / name).unlink(missing_ok=True)

    return apply


def all_of(*changes: Change) -> Change:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


def added(**flags: bool) -> Change:
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    entry = {"content": "covid19", **usual, "normalized": True, **flags}

    def apply(data: Json) -> None:
        pieces = data["model"]["vocab"]
        number = pieces.get("covid19", len(pieces)) if isinstance(pieces, dict) else len(pieces)
        data["added_tokens"].append({"id": number, **entry})

    return changed(COMPILED, apply)


def flagged(mask_only: bool = False, **flags: bool) -> Change:
    def apply(data: Json) -> None:
        for token in data["added_tokens"]:
            if not mask_only or "mask" in token["content"].lower():
                token.update(flags)

    return changed(COMPILED, apply)


def ends_of(data: Json) -> Json:
    """The arguments of a post-processor, of the tokens that a file has."""
    ids = {token["content"]: token["id"] for token in data["added_tokens"]}
    cls, sep = ("<s>", "</s>") if "<s>" in ids else ("[CLS]", "[SEP]")
    return {"cls": [cls, ids[cls]], "sep": [sep, ids[sep]]}


def roberta_ends(data: Json) -> None:
    more = {"trim_offsets": True, "add_prefix_space": False}
    data["post_processor"] = {"type": "RobertaProcessing"} | ends_of(data) | more


def bert_ends(data: Json) -> None:
    data["post_processor"] = {"type": "BertProcessing"} | ends_of(data)


def other_ends(data: Json) -> None:
    if data["post_processor"]["type"] == "TemplateProcessing":
        data["post_processor"]["single"] = data["post_processor"]["single"][:2]
    else:
        bert_ends(data)


def swapped(data: Json) -> None:
    """Two pieces have changed places."""
    table = data["model"]["vocab"]
    if isinstance(table, dict):
        one, other = (next(p for p in table if word in p) for word in ("the", "hand"))
        table[one], table[other] = table[other], table[one]
    else:
        one, other = (next(p for p in table if word in p[0]) for word in ("the", "hand"))
        one[0], other[0] = other[0], one[0]


def without_step(kind: str) -> Change:
    def apply(data: Json) -> None:
        steps = data["normalizer"]["normalizers"]
        data["normalizer"]["normalizers"] = [step for step in steps if step["type"] != kind]

    return changed(COMPILED, apply)


def lowered_first(data: Json) -> None:
    """As sentence-transformers does for do_lower_case."""
    behind = [data["normalizer"]] if data["normalizer"] else []
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *behind]}


NO_SLOW = without(*SLOW, "special_tokens_map.json")
NO_TABLE = unsaid("added_tokens_decoder")
GENERIC = settings(tokenizer_class="PreTrainedTokenizerFast")
NO_NORMALIZER = compiled(normalizer=None)
ENDS, SAME = "post_processor", "not of the same tokenizer as"
TRUNCATION = {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
PADDING = {
    "strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
    "pad_type_id": 0, "pad_token": "x",
}  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """A change of a folder's files, and how it is refused: in all cases but in some that load."""

    change: Change
    refusal: str = ""
    loads: tuple[str, ...] = ()
    kinds: tuple[str, ...] = KINDS
    fast: bool = False


B, R, A = (("bert",), ("roberta",), ("albert",))
EDITS: dict[str, Edit] = {
    "nothing": Edit(without()),
    "no slow file": Edit(NO_SLOW),
    "no settings": Edit(without(SETTINGS, "special_tokens_map.json")),
    "tokenizer.json alone": Edit(all_of(NO_SLOW, without(SETTINGS))),
    "no tokenizer.json": Edit(without(COMPILED)),
    "no table of added tokens": Edit(NO_TABLE),
    "a token added": Edit(
        added(), "is not that of tokenizer.json", ("bert-4", "bert-5"), fast=True
    ),
    "a token added, no table": Edit(all_of(NO_TABLE, added()), fast=True),
    "a word added": Edit(all_of(NO_TABLE, added(single_word=True)), fast=True),
    "a special token added": Edit(
        all_of(NO_TABLE, added(special=True, normalized=False, lstrip=True)), fast=True
    ),
    "a token added, no slow file": Edit(
        all_of(NO_SLOW, NO_TABLE, added(rstrip=True)), fast=True
    ),
    "a token added, generic": Edit(all_of(GENERIC, NO_TABLE, added(rstrip=True)), fast=True),
    "no ends": Edit(compiled(post_processor=None), ENDS),
    "no ends, generic": Edit(all_of(GENERIC, compiled(post_processor=None)), ENDS),
    "RoBERTa's ends": Edit(changed(COMPILED, roberta_ends), ENDS, ("roberta-4", "roberta-5")),
    "RoBERTa's ends, generic": Edit(
        all_of(GENERIC, changed(COMPILED, roberta_ends)), ENDS, ("roberta-4", "roberta-5")
    ),
    "BERT's ends, generic": Edit(
        all_of(GENERIC, changed(COMPILED, bert_ends)),
        ENDS,
        ("bert-4", "bert-5", "albert-4", "albert-5"),
    ),
    "other ends": Edit(changed(COMPILED, other_ends), ENDS),
    "other ends, generic": Edit(all_of(GENERIC, changed(COMPILED, other_ends)), ENDS),
    "generic": Edit(GENERIC),
    "generic, no slow file": Edit(all_of(NO_SLOW, GENERIC)),
    "generic as version 5 writes it": Edit(settings(tokenizer_class="TokenizersBackend")),
    "special tokens normalized": Edit(
        all_of(NO_TABLE, flagged(normalized=True)), "is normalized", ("roberta-4", "roberta-5")
    ),
    "mask normalized, generic": Edit(
        all_of(GENERIC, NO_TABLE, flagged(mask_only=True, normalized=True)),
        "is normalized",
        ("roberta-4", "roberta-5"),
    ),
    "special tokens split": Edit(settings(split_special_tokens=True), "split_special_tokens"),
    "mask takes no blank": Edit(all_of(NO_TABLE, flagged(mask_only=True, lstrip=False))),
    "mask takes blanks behind": Edit(
        all_of(NO_TABLE, flagged(mask_only=True, rstrip=True)), "is rstrip", ("bert-4", "bert-5")
    ),
    "mask is a word": Edit(
        all_of(NO_TABLE, flagged(mask_only=True, single_word=True)), "single_word"
    ),
    "truncation": Edit(compiled(truncation=TRUNCATION)),
    "padding": Edit(compiled(padding=PADDING)),
    "pieces in other places": Edit(
        changed(COMPILED, swapped), SAME, ("bert-5", "roberta-5", "albert-5")
    ),
    "more special tokens": Edit(
        all_of(NO_TABLE, settings(additional_special_tokens=["covid19"])), fast=True
    ),
    "arguments": Edit(settings(init_inputs=["x"]), "init_inputs"),
    "casing unsaid": Edit(unsaid("do_lower_case"), kinds=("bert", "albert")),
    "cased": Edit(
        settings(do_lower_case=False), "do_lower_case", ("bert-4", "bert-5"), ("bert", "albert")
    ),
    "cased, generic": Edit(all_of(GENERIC, settings(do_lower_case=False)), kinds=("bert",)),
    "normalizer is cased": Edit(inside("normalizer", lowercase=False), kinds=B),
    "normalizer is cased, generic": Edit(
        all_of(GENERIC, inside("normalizer", lowercase=False)), kinds=B
    ),
    "normalizer keeps accents": Edit(inside("normalizer", strip_accents=False), kinds=B),
    "normalizer keeps accents, generic": Edit(
        all_of(GENERIC, inside("normalizer", strip_accents=False)), kinds=B
    ),
    "normalizer keeps accents, unsaid": Edit(
        all_of(unsaid("strip_accents"), inside("normalizer", strip_accents=False)), kinds=B
    ),
    "normalizer leaves ideographs": Edit(inside("normalizer", handle_chinese_chars=False), kinds=B),
    "normalizer cleans nothing": Edit(
        inside("normalizer", clean_text=False), "clean_text", kinds=B
    ),
    "no normalizer": Edit(NO_NORMALIZER, "normalizer is no", kinds=("bert", "albert")),
    "no normalizer, generic": Edit(
        all_of(GENERIC, NO_NORMALIZER), "normalizer is no", kinds=("bert", "albert")
    ),
    "words between blanks": Edit(
        compiled(pre_tokenizer={"type": "WhitespaceSplit"}), "pre_tokenizer is no"
    ),
    "short words": Edit(inside("model", max_input_chars_per_word=4), "max_input", kinds=B),
    "model of no type": Edit(changed(COMPILED, lambda data: data["model"].pop("type"))),
    "another class": Edit(settings(tokenizer_class="DistilBertTokenizerFast"), kinds=B),
    "blank before": Edit(settings(add_prefix_space=True), kinds=R),
    "blank before, generic": Edit(
        all_of(GENERIC, settings(add_prefix_space=True)), "add_prefix_space", kinds=R
    ),
    "blank before in tokenizer.json": Edit(
        inside("pre_tokenizer", add_prefix_space=True), kinds=R
    ),
    "blank before in tokenizer.json, unsaid": Edit(
        all_of(unsaid("add_prefix_space"), inside("pre_tokenizer", add_prefix_space=True)), kinds=R
    ),
    "a normalizer": Edit(compiled(normalizer={"type": "Lowercase"}), "has a normalizer", kinds=R),
    "lower-cased first": Edit(
        changed(COMPILED, lowered_first),
        "begins with a Lowercase",
        ("bert-4", "bert-5"),
        ("bert", "roberta"),
    ),
    "fewer merges": Edit(
        changed(COMPILED, lambda data: data["model"].update(merges=data["model"]["merges"][:-9])),
        SAME,
        ("roberta-5",),
        R,
    ),
    "accents kept": Edit(settings(keep_accents=True), "keep_accents", kinds=A),
    "blanks kept": Edit(settings(remove_space=False), kinds=A),
    "cased in tokenizer.json": Edit(without_step("Lowercase"), "do_lower_case", kinds=A),
    "cased, no slow file": Edit(
        all_of(NO_SLOW, settings(do_lower_case=False)), "do_lower_case", kinds=A
    ),
    "cased in tokenizer.json, generic": Edit(
        all_of(GENERIC, without_step("Lowercase")), kinds=A
    ),
}  # fmt: skip
CASES = [(kind, name) for name, edit in EDITS.items() for kind in edit.kinds]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, as we save it."""
    folder = tmp_path_factory.mktemp("bases")
    learned = learn_wordpiece(CORPUS, size=100, lowercase=True, min_frequency=1)
    # with what transformers takes for granted
    Tokenizer(learned.vocabulary, BasicRules(lowercase=True)).save(folder / "bert")
    learn_byte_bpe(CORPUS, size=320).save(folder / "roberta")
    learn_unigram(CORPUS, size=80, strip_accents=True).save(folder / "albert")
    return folder


def with_ends(tokenizer: Tokenizer) -> tuple[list[list[int]], list[int]]:
    """The ids of the texts, and those of the first in a pair, with special tokens around them."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids = [[cls, *item.tolist(), sep] for item in tokenizer.encode(TEXTS)]
    (second,) = tokenizer.encode([SECOND])
    return ids, [*ids[0], *[sep] * (tokenizer.separators - 1), *second.tolist(), sep]


def theirs(
    asked: Transformers, folder: Path, *, fast: bool = False
) -> tuple[list[list[int]], list[int]] | None:
    """What transformers makes of a folder; None where it cannot open it."""
    slow: list[dict[str, bool]] = [{"use_fast": False}] if asked.version < "5" and not fast else []
    options = [*slow, {}]
    given = {"folder": str(folder), "kind": "AutoTokenizer", "texts": TEXTS, "pair": SECOND}
    for option in options:
        try:
            found = asked.ask("encode", **given, **option)
        except TheirError:
            continue
        return found["ids"], found["pair"]
    return None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}-{name}" for kind, name in CASES])
def test_ids_are_equal_or_the_folder_is_refused_by_name(
    request: pytest.FixtureRequest, bases: Path, tmp_path: Path, kind: str, name: str, version: str
) -> None:
    asked: Transformers = request.getfixturevalue(f"transformers{version}")
    edit, folder = EDITS[name], tmp_path / "model"
    shutil.copytree(bases / kind, folder)
    config = {"model_type": kind, "transformers_version": VERSIONS[version]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    edit.change(folder)
    if edit.refusal and f"{kind}-{version}" not in edit.loads:
        with pytest.raises(UserError, match=edit.refusal) as caught:
            Tokenizer.load(folder)
        assert caught.value.remedy
        return
    ours = with_ends(Tokenizer.load(folder))
    expected = theirs(asked, folder, fast=edit.fast)
    assert expected is not None or not edit.fast
    assert expected is None or (ours[0], ours[1]) == expected
    # what is loaded is saved as what it is
    Tokenizer.load(folder).save(tmp_path / "again")
    assert with_ends(Tokenizer.load(tmp_path / "again")) == ours


@pytest.mark.parametrize("made_of", ["all files", "slow files"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_transformers_5_saves_has_its_ids_here(
    transformers5: Transformers, bases: Path, tmp_path: Path, kind: str, made_of: str
) -> None:
    """An ALBERT made of spiece.model names its special tokens as `extra_special_tokens`."""
    source, folder = tmp_path / "source", tmp_path / "model"
    shutil.copytree(bases / kind, source)
    (source / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
    if made_of == "slow files":
        without(COMPILED, SETTINGS, "special_tokens_map.json")(source)
    given = {"folder": str(source), "kind": "AutoTokenizer", "add_special": []}
    files = transformers5.ask("save_tokenizer", **given, to=str(folder), add=[])
    assert files == [COMPILED, SETTINGS]
    shutil.copy(source / "config.json", folder)
    assert with_ends(Tokenizer.load(folder)) == theirs(transformers5, folder)
    # saved over the files of before, of which the slow ones know nothing of it
    transformers5.ask("save_tokenizer", **given, to=str(source), add=["covid19", "cov"])
    assert with_ends(Tokenizer.load(source)) == theirs(transformers5, source)


def test_a_guessed_casing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the settings leave it out, transformers lower-cases whatever the vocabulary."""
    folder, cased = tmp_path / "model", (*SPECIALS["bert"], "The", "hand", "the")
    Tokenizer(cased, BasicRules(lowercase=False)).save(folder)
    unsaid("do_lower_case")(folder)
    said = Tokenizer.load(folder)
    without(COMPILED)(folder)
    guessed = Tokenizer.load(folder)
    assert said.pieces("The hand") == guessed.pieces("The hand") == ["The", "hand"]
    assert capsys.readouterr().err.count("does not set do_lower_case; text is not lower-cased") == 2
