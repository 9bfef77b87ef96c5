"""Ids of unigram vocabularies equal those of transformers' AlbertTokenizer, on any text.

Its fast twin has others in places: it keeps a blank at the end, takes clusters of characters for
one, and sums in 64 bits. It is followed where there is a tokenizer.json alone.
"""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as CompiledTokenizer
from tokenizers.models import Unigram as CompiledUnigram
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import UnigramTrainer
from transformers import AlbertTokenizer, AlbertTokenizerFast

from bertsmith.text.corpus.sentences import split_sentences
from bertsmith.text.white_space import tidy
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.normalisation import SPACE, UnigramRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.unigram import Unigram
from bertsmith.tokens.vocabulary import UNIGRAM_SPECIALS
from parity.test_token_ids import HARD_PAGE, HOSTILE_LINES, real_lines

sentencepiece = pytest.importorskip("sentencepiece")
pytest.importorskip("google.protobuf")

MARKED = (
    "a [MASK] b",
    " a[MASK][MASK]  [CLS] b[SEP]<unk>",
    "[MASK]",
    " \t [MASK]a<PAD>b <Unk> <un\u212a>",
    "in 1,000 of 9,99 cases 7, 8,9,. x9, \u00b2, \u0661,",
    "``so'' ''' ````` ''",
    "\u2581a\u2581 b\u2581\u2581 \u2581",
    "...... -------- !!!!!!!! aaaaaaaa ????",
)
SENTENCES = [line for line in HARD_PAGE if line.strip()] * 2 + [*MARKED] * 2


def half(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which SentencePiece refuses."""
    return any("\ud800" <= character <= "\udfff" for character in text)


LINES = tuple(line for line in (*HOSTILE_LINES, *MARKED) if not half(line))
# characters that become a blank and others, such as U+00B4, at every place of a text
BLANKS = tuple(
    character
    for character in map(chr, range(0xFFFF))
    if " " in unicodedata.normalize("NFKC", character) and character != " "
)
OF_BLANKS = tuple(
    f"{before}{character}{after}"
    for character in BLANKS
    for before, after in (("", ""), ("ba", ""), ("", "lo"), ("ba", "lo"), ("ba ", ""), ("", " lo"))
)
NEW_MARKS = ("\u0898", "\u08ca", "\u0c3c", "\u1ac0", "\U0001e2ae")
SHORT_LINES = tuple(line for line in LINES if len(line) < 1000)


def sentence_piece(texts: Sequence[str], size: int, **settings: Any) -> bytes:  # noqa: ANN401
    """A model as ALBERT's was made, with pieces that are always cut out."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in texts if text.strip() and not half(text)]),
        model_writer=made,
        **{"vocab_size": size, "model_type": "unigram", "hard_vocab_limit": False}
        | {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "minloglevel": 2}
        | {"control_symbols": "[CLS],[SEP],[MASK]", "num_threads": 1, "input_format": ""}
        | settings,
    )
    return made.getvalue()


MODELS: dict[str, dict[str, Any]] = {
    "as ALBERT's": {"size": 600, "user_defined_symbols": '(,),",-,.,–,£,€'},
    "identity": {"size": 400, "normalization_rule_name": "identity"},
    "nfkc_cf": {"size": 500, "normalization_rule_name": "nfkc_cf"},
    "no prefix": {"size": 400, "add_dummy_prefix": False},
    "over blanks": {"size": 600, "split_by_whitespace": False},
}


@cache
def model_of(name: str) -> bytes:
    return sentence_piece(SENTENCES, **MODELS[name])


def saved(model: bytes, folder: Path, **settings: bool) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(model)
    said = {"tokenizer_class": "AlbertTokenizer"} | settings
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder


def assert_equal_ids(ours: Tokenizer, slow: AlbertTokenizer, texts: Sequence[str]) -> None:
    for text, ids in zip(texts, ours.encode(texts), strict=True):
        assert ids.tolist() == slow.convert_tokens_to_ids(slow.tokenize(text)), repr(text)


SETTINGS: tuple[dict[str, bool], ...] = (
    {},
    {"do_lower_case": False, "keep_accents": True},
    {"remove_space": False},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_hostile_lines(name: str, settings: dict[str, bool], tmp_path: Path) -> None:
    folder = saved(model_of(name), tmp_path, **settings)
    ours = Tokenizer.load(folder)
    assert (ours.kind, ours.unknown_id, ours.pad_id) == ("unigram", 1, 0)
    # all lines once, as the pages of all marks take their time
    lines = LINES if name == "as ALBERT's" and not settings else SHORT_LINES
    assert_equal_ids(ours, AlbertTokenizer.from_pretrained(folder), lines)


def blank(text: str) -> bool:
    """Whether the normaliser makes nothing but blanks of a text."""
    return all(part.isspace() or unicodedata.category(part)[0] in "CZM" for part in text)


def assert_equal_places(ours: Tokenizer, fast: Any, texts: Sequence[str]) -> int:  # noqa: ANN401
    """Compare places, less the blanks that the fast one counts in; returns where ids differ."""
    differing = 0
    encoded = fast(list(texts), return_offsets_mapping=True, add_special_tokens=False)
    for number, text in enumerate(texts):
        found = ours.encode_spans(text)
        assert found.ids.tolist() == ours.encode([text])[0].tolist(), repr(text)
        if found.ids.tolist() != encoded["input_ids"][number]:
            differing += 1
            continue
        spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        pieces = [ours.vocabulary[piece] for piece in found.ids.tolist()]
        for (start, end), (first, last), piece in zip(
            spans, encoded["offset_mapping"][number], pieces, strict=True
        ):
            where = (text, piece, start, end, first, last)
            if piece == SPACE:
                assert start == end <= last, where
            else:
                assert end == last, where
                # two quotes that become one are at the place of the second there
                assert blank(text[first:start]) or text[start] in "`'", where
    return differing


def test_places(tmp_path: Path) -> None:
    folder = saved(model_of("identity"), tmp_path)
    ours = Tokenizer.load(folder)
    fast = AlbertTokenizerFast(str(folder / "spiece.model"))
    lines = [line for line in (*HARD_PAGE, *MARKED) if not half(line)]
    assert assert_equal_places(ours, fast, lines) < len(lines) / 2
    found = ours.encode_spans("  Aﬁ\u0301x  [MASK]é,9,")
    text = "  Aﬁ\u0301x  [MASK]é,9,"
    shown = [text[a:b] for a, b in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
    assert "[MASK]" in shown
    assert shown[-2:] == ["9", ","]


@pytest.mark.parametrize("alone", [False, True])
def test_the_marker_of_blanks_in_a_text_is_a_character(alone: bool, tmp_path: Path) -> None:
    """Bars of one eighth are written with it; the references count it to the word after it."""
    learn_unigram(SENTENCES, size=400).save(tmp_path)
    if alone:
        (tmp_path / "spiece.model").unlink()
    ours, fast = Tokenizer.load(tmp_path), AlbertTokenizerFast.from_pretrained(tmp_path)
    for text in (
        "a \u2581a",
        "a\u2581ba",
        "a \u2581\u2581 b",
        "\u2581\u2582\u2583 a",
        "b\u2581. \u2581",
    ):
        found = ours.encode_spans(text)
        spans = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
        shown = "".join(text[start:end] for start, end in spans)
        # SentencePiece removes it at the end of a text
        assert shown == text.replace(" ", "").removesuffix("" if alone else "\u2581"), text
        if alone:
            theirs = fast(text, return_offsets_mapping=True, add_special_tokens=False)
            assert found.ids.tolist() == theirs["input_ids"]
            places = [text[start:end].strip() for start, end in theirs["offset_mapping"]]
            assert [text[start:end] for start, end in spans] == places, text


def test_a_name_of_the_unknown_token_beside_unknown_characters(tmp_path: Path) -> None:
    """The compiled tokenizer makes one token of them, where lower-casing makes the name."""
    learn_unigram(SENTENCES, size=400).save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    ours, fast = Tokenizer.load(tmp_path), AlbertTokenizerFast.from_pretrained(tmp_path)
    for text in ("a\U000f692b<UNK>b", "<Unk>\U000f692b", "<UNK><UNK> <UNK>a", "\U000f692b<unk>"):
        assert_equal_ids(ours, fast, [text])
        assert ours.encode_spans(text).ids.tolist() == ours.encode([text])[0].tolist()


@pytest.mark.parametrize("name", ["as ALBERT's", "nfkc_cf"])
def test_characters_that_become_blanks(name: str, tmp_path: Path) -> None:
    folder = saved(model_of(name), tmp_path, do_lower_case=False, keep_accents=True)
    ours = Tokenizer.load(folder)
    assert len(BLANKS) > 60
    assert_equal_ids(ours, AlbertTokenizer.from_pretrained(folder), OF_BLANKS)
    for text in OF_BLANKS:
        found = ours.encode_spans(text)
        assert found.ids.tolist() == ours.encode([text])[0].tolist(), repr(text)
        assert (found.starts <= found.ends).all()
        assert (np.diff(found.starts) >= 0).all()
        assert (found.ends <= len(text)).all()


@pytest.mark.parametrize("lowercase", [True, False])
def test_what_is_learned_here_is_read_by_both(lowercase: bool, tmp_path: Path) -> None:
    made = learn_unigram(SENTENCES, size=400, lowercase=lowercase, strip_accents=lowercase)
    made.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == made.fingerprint
    assert_equal_ids(made, AlbertTokenizer.from_pretrained(tmp_path), SHORT_LINES)
    fast = AlbertTokenizerFast.from_pretrained(tmp_path)
    assert_equal_places(made, fast, HARD_PAGE[:9])


def test_what_the_compiled_trainer_learned(tmp_path: Path) -> None:
    """Its vocabulary, in a tokenizer.json as the fast one writes it, without spiece.model."""
    compiled = CompiledTokenizer(CompiledUnigram())
    compiled.pre_tokenizer = Metaspace()
    compiled.train_from_iterator(
        [text.lower() for text in SENTENCES if not half(text)],
        UnigramTrainer(
            vocab_size=500,
            special_tokens=list(UNIGRAM_SPECIALS),
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    learn_unigram(SENTENCES, size=400).save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    vocab = json.loads(compiled.to_str())["model"]["vocab"]
    data["model"] |= {"vocab": vocab, "unk_id": 1}
    path.write_text(json.dumps(data), encoding="utf-8")
    ours, fast = Tokenizer.load(tmp_path), AlbertTokenizerFast.from_pretrained(tmp_path)
    texts = ["The naïve fiancée went home.", "So, don't stop: 5.00 is all (or not)!", "İstanbul"]
    assert assert_equal_places(ours, fast, texts) == 0
    ours.save(tmp_path / "again")
    assert not (tmp_path / "again" / "spiece.model").exists()
    assert Tokenizer.load(tmp_path / "again").fingerprint == ours.fingerprint


def test_scores_of_a_tokenizer_json_keep_their_64_bits(tmp_path: Path) -> None:
    """Rounded to 32 bits, the sums of these choose the other order of 0 and 00."""
    learn_unigram(SENTENCES, size=400).save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    scores = {SPACE: -3.1964255321343673, "0": -5.263596417050158, "00": -7.0352025269821}
    vocab = [row for row in data["model"]["vocab"] if row[0] not in scores]
    data["model"]["vocab"] = vocab + [[piece, score] for piece, score in scores.items()]
    path.write_text(json.dumps(data), encoding="utf-8")
    ours, fast = Tokenizer.load(tmp_path), AlbertTokenizerFast.from_pretrained(tmp_path)
    assert_equal_ids(ours, fast, ["000"])
    ours.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "tokenizer.json").read_text("utf-8")) == data


@pytest.mark.parametrize("settings", SETTINGS[:2], ids=str)
@pytest.mark.parametrize("name", ["identity", "nfkc_cf", "over blanks"])
def test_a_tokenizer_json_alone_is_followed(
    name: str, settings: dict[str, bool], tmp_path: Path
) -> None:
    """Its ids are those of the fast tokenizer, on any line."""
    saved(model_of(name), tmp_path / "slow", **settings)
    slow = AlbertTokenizer.from_pretrained(tmp_path / "slow")
    slow.save_pretrained(tmp_path / "slow")
    AlbertTokenizerFast.from_pretrained(tmp_path / "slow").save_pretrained(tmp_path / "fast")
    (tmp_path / "fast" / "spiece.model").unlink()
    ours, fast = (
        Tokenizer.load(tmp_path / "fast"),
        AlbertTokenizerFast.from_pretrained(tmp_path / "fast"),
    )
    # without marks that Unicode has since the tables of compiled tokenizers were made
    kept = [text for text in (*SHORT_LINES, *MARKED) if not any(m in text for m in NEW_MARKS)]
    assert len(kept) > 0.9 * len(SHORT_LINES)
    for text in kept:
        found = fast(text, add_special_tokens=False)["input_ids"]
        assert ours.encode([text])[0].tolist() == found, text
    ours.save(tmp_path / "again")
    assert not (tmp_path / "again" / "spiece.model").exists()
    assert Tokenizer.load(tmp_path / "again").fingerprint == ours.fingerprint
    again = AlbertTokenizerFast.from_pretrained(tmp_path / "again")
    assert again(kept)["input_ids"] == fast(kept)["input_ids"]


def test_long_texts_whose_sums_are_rounded() -> None:
    """In 32 bits a large sum cannot tell close cuttings apart, and the first wins."""
    pieces = [SPACE, "a", "b", "ab", "ba", "aba"]
    unigram = Unigram(pieces, [-3.0, -2.0, -2.0, -4.0000001, -4.0000002, -6.0000005])
    text = (SPACE + "ababab") * 400
    exact, rounded = unigram.cut(text), unigram.cut(text, rounded=True)
    assert "".join(exact.pieces) == "".join(rounded.pieces) == text
    assert exact.margin < 0.00001
    assert exact.pieces != rounded.pieces


def ties() -> Iterator[str]:
    yield from ("a" * 50, "......" * 9 + " -----", "ha" * 40, "!?" * 30 + " " + "!!!" * 20)


def test_ties(tmp_path: Path) -> None:
    folder = saved(model_of("identity"), tmp_path)
    ours, slow = Tokenizer.load(folder), AlbertTokenizer.from_pretrained(folder)
    assert_equal_ids(ours, slow, [f"{HARD_PAGE[4]} {HARD_PAGE[15]} {text} b." for text in ties()])


def test_documents_are_their_sentences() -> None:
    ours = learn_unigram(SENTENCES, size=400)
    texts = [text for text in map(tidy, (*HARD_PAGE, "One. Two three! 5. (Six.) Don't")) if text]
    encoder = DocumentEncoder(ours)
    for text in texts:
        if not set("。！？」｡") & set(text):
            encoded = ours.encode(split_sentences(text), specials_in_text=False)
            expected = [ids.tolist() for ids in encoded if len(ids)]
            made = encoder.encode([text.encode()])
            assert made.ids.tolist() == list(chain.from_iterable(expected)), repr(text)
            assert made.sentences.tolist() == list(map(len, expected))
    # inside a line no blank is put where there is none
    (first,) = ours.encode(["中文。"])
    both = encoder.encode(["中文。中文。".encode()])
    assert len(both.ids) == 2 * len(first) - 1


def test_what_goes_on_a_word() -> None:
    vocabulary = (*UNIGRAM_SPECIALS, SPACE, SPACE + "a", "ing", ",", "9", "é")
    made = Tokenizer(vocabulary, UnigramRules(scores=(0.0,) * len(vocabulary)))
    on = {piece for piece, goes in zip(vocabulary, made.continues.tolist(), strict=True) if goes}
    assert on == {"ing", "9", "é"}
    assert made.decode([6, 7, 8, 5, 9]) == "aing, 9"
    assert [made.shown(number) for number in (4, 5, 6, 7, 8)] == [
        "[MASK]",
        SPACE,
        "a",
        "##ing",
        ",",
    ]


@pytest.fixture(scope="module")
def trained(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = sorted((data_folder / "text" / "novels").glob("*.txt"))[0].read_text(encoding="utf-8")
    model = sentence_piece(text[:200_000].splitlines(), 2000)
    return saved(model, tmp_path_factory.mktemp("albert"))


@pytest.mark.parametrize(
    ("number", "hostile"),
    [(250, SHORT_LINES), pytest.param(20_000, LINES, marks=pytest.mark.faults)],
    ids=["250", "20000"],
)
@pytest.mark.parametrize("settings", SETTINGS[:2], ids=str)
def test_real_lines(
    trained: Path,
    data_folder: Path,
    settings: dict[str, bool],
    tmp_path: Path,
    number: int,
    hostile: Sequence[str],
) -> None:
    folder = saved((trained / "spiece.model").read_bytes(), tmp_path, **settings)
    ours = Tokenizer.load(folder)
    lines = real_lines(data_folder, number)
    assert len(lines) == number
    assert_equal_ids(ours, AlbertTokenizer.from_pretrained(folder), [*lines, *hostile])
    fast = AlbertTokenizerFast(str(folder / "spiece.model"), **settings)
    assert assert_equal_places(ours, fast, [tidy(line) for line in lines[:2000]]) < 100
