"""Reading and writing the tokenizer's files: ours, those of transformers, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer, BertTokenizer, BertTokenizerFast

from bertsmith.core.errors import DiskError, ModelFolderError, UserError, VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.folder.added import FolderTokens
from bertsmith.tokens.folder.files import FolderFiles, check_added
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

LOWER = (*SPECIALS, "the", "##s", "café", "cafe", "hand", "漢", "!", "##字")
UPPER = (*LOWER, "The", "Hand")
TEXTS = ("The hands, the CAFÉS! 漢字", "the [MASK] hand", "hand[SEP]the")
RULES = (
    BasicRules(lowercase=True),
    BasicRules(lowercase=False),
    BasicRules(lowercase=True, strip_accents=False, space_cjk=False),
)


Kind = type[BertTokenizer | BertTokenizerFast | AutoTokenizer]


def change_json(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(data | changes), encoding="utf-8")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    Tokenizer(UPPER, BasicRules(lowercase=False)).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_save_and_load(rules: BasicRules, tmp_path: Path) -> None:
    made = Tokenizer(UPPER, rules)
    made.save(tmp_path / "new" / "folder", longest=77)
    loaded = Tokenizer.load(tmp_path / "new" / "folder")
    assert (loaded.vocabulary, loaded.rules) == (UPPER, rules)
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        *("special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    ]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("kind", [BertTokenizer, BertTokenizerFast, AutoTokenizer])
def test_transformers_reads_what_we_save(kind: Kind, rules: BasicRules, tmp_path: Path) -> None:
    made = Tokenizer(UPPER, rules)
    made.save(tmp_path, longest=77)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = kind.from_pretrained(tmp_path)
    assert theirs.model_max_length == 77
    for text, ids in zip(TEXTS, made.encode(TEXTS), strict=True):
        around = [made.cls_id, *ids.tolist(), made.sep_id]
        assert theirs(text)["input_ids"] == around
        pair = theirs(text, "the")
        assert pair["input_ids"] == [*around, 5, made.sep_id]
        assert pair["token_type_ids"] == [0] * len(around) + [1, 1]
        if not theirs.is_fast:  # the compiled decoder takes blanks before punctuation away
            assert theirs.decode(around, clean_up_tokenization_spaces=False) == made.decode(around)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize(
    ("kind", "without"),
    [
        (BertTokenizer, "nothing"),
        (BertTokenizerFast, "nothing"),
        (BertTokenizerFast, "vocab.txt"),
        (BertTokenizerFast, "tokenizer_config.json"),
    ],
)
def test_we_read_what_transformers_saves(
    kind: Kind, rules: BasicRules, without: str, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("\n".join(UPPER) + "\n", encoding="utf-8")
    theirs = kind(
        str(tmp_path / "words.txt"),
        do_lower_case=rules.lowercase,
        strip_accents=rules.strip_accents,
        tokenize_chinese_chars=rules.space_cjk,
    )
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / without).unlink(missing_ok=True)
    loaded = Tokenizer.load(tmp_path / "theirs")
    if without == "vocab.txt":
        # nothing but the fast one reads such a folder
        rules = replace(rules, slow=False)
    assert (loaded.vocabulary, loaded.rules) == (UPPER, rules)


@pytest.mark.parametrize(("vocabulary", "lowercase"), [(LOWER, True), (UPPER, False)])
def test_casing_is_guessed_from_a_vocabulary_alone(
    vocabulary: tuple[str, ...], lowercase: bool, tmp_path: Path
) -> None:
    path = tmp_path / "some-vocab.txt"
    path.write_bytes("\r\n".join((*vocabulary, "[unused7]", "")).encode())
    loaded = Tokenizer.load(path)
    assert loaded.vocabulary == (*vocabulary, "[unused7]")
    assert loaded.lowercase is lowercase
    path.rename(tmp_path / "vocab.txt")
    assert Tokenizer.load(tmp_path).lowercase is lowercase


def ten_million_pieces() -> bytes:
    """10^7 lines, each another piece."""
    some = b"".join(b"@%x\n" % number for number in range(10_000))
    return b"".join(some.replace(b"@", b"%x-" % number) for number in range(1000))


HOSTILE_VOCABULARIES: dict[str, tuple[bytes | Callable[[], bytes], int | None, str]] = {
    "empty": (b"", None, "holds no pieces"),
    "not UTF-8": (b"[PAD]\n[UNK]\n\xff\xfe\n", 3, "not UTF-8"),
    "a double": ("\n".join((*LOWER, "the")).encode(), 14, "'the' is already on line 6"),
    "a blank line": ("\n".join((*LOWER, "", "x")).encode(), 14, "empty"),
    "truncated": ("\n".join(LOWER)[:20].encode(), None, r"lacks the special tokens .*\[MASK\]"),
    "no [UNK]": ("\n".join(p for p in LOWER if p != "[UNK]").encode(), None, r"lacks .* \[UNK\]"),
    "nothing else": ("\n".join(SPECIALS).encode(), None, "nothing but special"),
    "a BOM": (b"\xef\xbb\xbf" + "\n".join(LOWER).encode(), None, r"lacks .*\[PAD\]"),
    # made when it is asked for: whoever collects the tests need not
    "10^7 pieces": (ten_million_pieces, None, "MiB|1,000,000 pieces"),
    "10^7 short lines": (b"\n" * 10**7, None, "1,000,000 pieces"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_VOCABULARIES)
def test_hostile_vocabularies(case: str, saved: Path) -> None:
    content, line, message = HOSTILE_VOCABULARIES[case]
    (saved / "vocab.txt").write_bytes(content() if callable(content) else content)
    with pytest.raises(VocabularyError, match=message) as caught:
        Tokenizer.load(saved)
    assert (caught.value.where, caught.value.line) == (saved / "vocab.txt", line)
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


def model(**changes: object) -> dict[str, object]:
    vocabulary = {piece: number for number, piece in enumerate(UPPER)}
    return {"model": {"type": "WordPiece", "vocab": vocabulary} | changes}


HOSTILE_COMPILED: dict[str, dict[str, object] | str] = {
    "truncated": '{"model": {"type": "Word',
    "a list": "[]",
    "nested": "[" * 100_000,
    "a huge number": '{"model": ' + "9" * 5000 + "}",
    "no model": {"model": None},
    "another model": model(type="BPE"),
    "a list of pieces": model(vocab=list(UPPER)),
    "ids as text": model(vocab={piece: str(n) for n, piece in enumerate(UPPER)}),
    "ids as truths": model(vocab={"a": False, "b": True}),
    "a gap": model(vocab={piece: 2 * n for n, piece in enumerate(UPPER)}),
    "doubles": model(vocab=dict.fromkeys(UPPER, 0)),
    "negative": model(vocab={piece: -n for n, piece in enumerate(UPPER)}),
    "a surrogate": model(vocab={p: n for n, p in enumerate((*UPPER, "\ud800"))}),
    "an empty vocabulary": model(vocab={}),
    "another prefix": model(continuing_subword_prefix="@@"),
    "another limit": model(max_input_chars_per_word=10**30),
    "another normaliser": {"normalizer": {"type": "NFC"}},
    "uncleaned": {"normalizer": {"type": "BertNormalizer", "clean_text": False}},
    "casing as text": {"normalizer": {"type": "BertNormalizer", "lowercase": "yes"}},
    "another splitter": {"pre_tokenizer": {"type": "Whitespace"}},
    "an added token": {"added_tokens": [{"id": 15, "content": "[E1]"}]},
    "added nonsense": {"added_tokens": [[[]]]},
}


@pytest.mark.parametrize("case", HOSTILE_COMPILED)
def test_hostile_tokenizer_json(case: str, saved: Path) -> None:
    content = HOSTILE_COMPILED[case]
    (saved / "vocab.txt").unlink()
    (saved / "tokenizer_config.json").unlink()
    if isinstance(content, str):
        (saved / "tokenizer.json").write_text(content)
    else:
        change_json(saved / "tokenizer.json", **content)
    with pytest.raises((ModelFolderError, VocabularyError)) as caught:
        Tokenizer.load(saved)
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


UNFOLLOWED_SETTINGS: dict[str, dict[str, object]] = {
    "BertJapanese": {"tokenizer_class": "BertJapaneseTokenizer"},
    "do_basic_tokenize": {"do_basic_tokenize": False},
    "never_split": {"never_split": ["x"]},
    "cls_token": {"cls_token": {"content": "<s>"}},
    "mask_token": {"mask_token": "<mask>"},
    "E1": {"added_tokens_decoder": {"15": {"content": "[E1]"}}},
    "single_word": {"added_tokens_decoder": {"4": {"content": "[MASK]", "single_word": True}}},
    "nonsense": {"added_tokens_decoder": "nonsense"},
    "additional_special_tokens": {"additional_special_tokens": "[E1]"},
    "do_lower_case": {"do_lower_case": "yes"},
    "strip_accents": {"strip_accents": 1},
    "tokenize_chinese_chars": {"tokenize_chinese_chars": []},
    "tokenizer_class|class": {"tokenizer_class": ["BertTokenizer"]},
}


def test_of_two_damaged_files_the_followed_one_is_named(saved: Path) -> None:
    (saved / "tokenizer.json").write_text("{")
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json"):
        Tokenizer.load(saved)
    (saved / "vocab.txt").write_text("\n".join((*SPECIALS, "the", "the")))
    with pytest.raises(VocabularyError, match="'the' is already on line 6"):
        Tokenizer.load(saved)


def test_a_line_feed_in_a_piece_does_not_make_it_two_lines(saved: Path) -> None:
    path = saved / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    pieces = [*UPPER[:-2], "\n".join(UPPER[-2:])]
    data["model"]["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"is not of the same tokenizer as vocab\.txt"):
        Tokenizer.load(saved)


@pytest.mark.parametrize("named", UNFOLLOWED_SETTINGS)
def test_settings_that_are_not_followed_are_refused_by_name(named: str, saved: Path) -> None:
    change_json(saved / "tokenizer_config.json", **UNFOLLOWED_SETTINGS[named])
    with pytest.raises(ModelFolderError, match=named) as caught:
        Tokenizer.load(saved)
    assert caught.value.remedy
    assert caught.value.where == saved / "tokenizer_config.json"


def test_tokens_added_by_older_versions_are_refused(saved: Path) -> None:
    (saved / "added_tokens.json").write_text('{"[MASK]": 4, "[E1]": 15}')
    with pytest.raises(ModelFolderError, match="E1"):
        Tokenizer.load(saved)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        # a piece of the vocabulary, as [unused1] often is: that it holds the token is no remedy
        ({"bos_token": UPPER[-1]}, "open the folder with AutoTokenizer, and save it again"),
        (UNFOLLOWED_SETTINGS["single_word"], "it changes the ids and is not supported"),
    ],
)
def test_the_remedy_of_an_added_token_and_of_a_flag(
    saved: Path, settings: dict[str, object], remedy: str
) -> None:
    change_json(saved / "tokenizer_config.json", **settings)
    with pytest.raises(ModelFolderError, match=remedy):
        Tokenizer.load(saved)


@pytest.mark.parametrize("name", ["nothing", "file.json", "empty"])
def test_what_is_no_model_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.json").write_text("{}")
    with pytest.raises(ModelFolderError) as caught:
        Tokenizer.load(tmp_path / name)
    assert caught.value.remedy


def test_a_failed_save_leaves_nothing_half_written(tmp_path: Path) -> None:
    made = Tokenizer(UPPER, BasicRules(lowercase=False))
    (tmp_path / "tokenizer_config.json.partial").mkdir()  # stands in the way of the third file
    with pytest.raises(DiskError):
        made.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer_config.json.partial"]


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="taken"):
        Tokenizer(UPPER, BasicRules(lowercase=False)).save(tmp_path / "taken")


class Compared(str):
    """A text that counts how often one is compared with another."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Files(FolderFiles):
    """A folder in memory."""

    def __init__(self, contents: dict[str, dict[str, object]]) -> None:
        super().__init__(Path("model"))
        self._contents = contents

    def json(self, name: str) -> dict[str, object]:
        return self._contents.get(name, {})


def test_thousands_of_added_tokens_are_not_searched_for_each_in_all() -> None:
    def tokens(what: str) -> list[Compared]:
        return [Compared(f"[{what}{number}]") for number in range(500)]

    files: dict[str, dict[str, object]] = {
        "special_tokens_map.json": {"additional_special_tokens": tokens("E")},
        "tokenizer_config.json": {"additional_special_tokens": [*tokens("E"), *tokens("F")]},
        "added_tokens.json": {token: 5 + n for n, token in enumerate(tokens("E") + tokens("G"))},
    }
    Compared.times = 0
    more = FolderTokens(Files(files), SPECIALS).more
    added: dict[str, object] = {token: {} for token in (*tokens("G"), *tokens("E"))}
    check_added(added, SPECIALS, Path("model"), blanks=False, normalizes=False, more=more)
    assert len(more) == 1500
    assert Compared.times < 50_000
