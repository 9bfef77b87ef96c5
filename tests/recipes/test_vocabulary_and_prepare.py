from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Generator
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import numpy as np
import pytest

from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, CorpusError, StoreError, VocabularyError
from bertsmith.core.log import Bar, LogBar, short_number, shown_on
from bertsmith.recipes.config import VocabularySettings
from bertsmith.recipes.prepare import describe as describe_store
from bertsmith.recipes.vocabulary import describe, in_pieces, learn_from
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.text.opening import TextFile
from bertsmith.tokens import KindName
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from invented import invented_documents, tokenizer
from verbs import learn_vocabulary, prepare

__all__ = ["tokenizer"]

SMALL = {"size": 150}
VOCABULARY_FILES = {
    "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of twenty documents, one document in both."""
    folder = tmp_path_factory.mktemp("corpus")
    documents = invented_documents(39)
    for name, part in (("a", documents[:20]), ("b", [*documents[20:], documents[7]])):
        text = "\n\n".join("\n".join((*item.paragraphs, "Gu.")) for item in part)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("vocab")
    tokenizer.save(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_a_vocabulary_of_the_size_asked_for(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "below" / "my words"
    learned = learn_vocabulary([str(corpus)], out=out, **SMALL)
    assert learned.size == 150
    assert {path.name for path in out.iterdir()} == VOCABULARY_FILES
    assert Tokenizer.load(out).fingerprint == learned.fingerprint
    accents, alphabet, first, last = said(capsys)
    assert accents == "accents: stripped, as BERT's uncased models do: no letter has one"
    assert alphabet.startswith("alphabet: all ")
    assert first.startswith("vocabulary: 150 pieces, uncased; ")
    assert first.endswith(" pieces per word, 0.00 % of the pieces [UNK]")
    assert last == f"next: bertsmith prepare CORPUS --vocab '{out}' --out store"


def test_the_command_that_follows_reads_the_corpus_as_this_one_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = tmp_path / "corpus", [f"wörd{a}{b}" for a, b in product("abcdefg", repeat=2)]
    folder.mkdir()
    rows = [f"{n},{' '.join(words[n:])}. {' '.join(words[:n])}." for n in range(1, 40)]
    (folder / "a.csv").write_text("\n".join(["id,-its body", *rows]), encoding="latin-1")
    (folder / "b.page").write_text("\n\n".join(words), encoding="latin-1")
    reading = ["--text-column=-its body", "--encoding", "latin-1", "--layout", "documents"]
    patterns = ["--text-files", "*.page", "--text-files", "*.log 1"]
    vocabulary = tmp_path / "vocab"
    out = ["--size", "90", "--out", str(vocabulary)]
    assert main(["vocab", "learn", str(folder), *out, *reading, *patterns]) == 0
    following = said(capsys)[-1]
    assert following == (
        "next: bertsmith prepare CORPUS --text-column='-its body' --layout documents "
        f"--encoding latin-1 --text-files '*.page,*.log 1' --vocab {vocabulary} --out store"
    )
    _, verb, _, *arguments, _ = shlex.split(following.removeprefix("next: "))
    assert main([verb, str(folder), *arguments, str(tmp_path / "store")]) == 0
    assert f"corpus: {len(rows) + len(words)} documents, " in said(capsys)[0]


class Watched(LogBar):
    """A bar that keeps how far it came."""

    def __init__(self, description: str, total: float | None, unit: str) -> None:
        super().__init__(description, total, unit)
        self.name, self.total, self.moves = description, total, [0.0]

    def move_to(self, done: float) -> None:
        super().move_to(done)
        self.moves.append(done)


class Watch:
    """Keeps every bar that is shown."""

    def __init__(self) -> None:
        self.bars: list[Watched] = []

    def say(self, line: str) -> None:
        pass

    def bar(self, description: str, total: float | None, unit: str) -> Bar:
        self.bars.append(Watched(description, total, unit))
        return self.bars[-1]


PHASES = {
    "wordpiece": [
        "splitting words", "counting pairs", "joining pairs", "weighing pieces", "finding pieces",
        "exchanging pieces",
    ],
    "byte-bpe": ["counting pairs", "joining pairs"],
    "unigram": ["splitting words", "estimating pieces"],
}  # fmt: skip


@pytest.mark.parametrize("kind", PHASES)
def test_every_phase_of_learning_has_a_bar_that_is_true(tmp_path: Path, kind: str) -> None:
    """It rises from nothing to its total, whether what is read is compressed or not."""
    letters = ("abdefg", "aeiou", "lmn", "aeiou", "prstvwxyzbcdf")
    words = list(map("".join, product(*letters)))
    text = "\n\n".join(" ".join(words[n % 7 :: 2]) for n in range(60))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    watch = Watch()
    with shown_on(watch):
        learn_vocabulary([str(tmp_path)], out=tmp_path / "out", size=900, kind=kind)
    assert [bar.name for bar in watch.bars] == ["reading", *PHASES[kind]]
    assert watch.bars[0].total == (tmp_path / "a.txt.gz").stat().st_size
    for bar in watch.bars:
        assert bar.moves == sorted(bar.moves), bar.name
        if bar.total is not None:
            # items are counted by the thousand, rounds may be fewer than were planned
            assert 0.5 * bar.total <= bar.moves[-1] <= bar.total, (bar.name, bar.total)


def test_a_text_with_few_pieces_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("Ada sang. ada sang\n", encoding="utf-8")
    learned = learn_vocabulary(
        [str(tmp_path / "a.txt")],
        out=tmp_path / "vocab",
        size=1000,
        cased=True,
    )
    assert not learned.lowercase
    assert learned.pieces("Ada") != learned.pieces("ada")
    alphabet, first, second, _ = said(capsys)
    assert alphabet == "alphabet: all 7 kinds of characters in the text"
    assert first.startswith(f"vocabulary: {learned.size} pieces, cased; ")
    assert second == "no other piece is frequent enough; 1,000 were requested"


def test_tables_and_layouts_reach_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"body": "gabo gabo dela dela.", "text": "moti moti moti"}] * 3
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    body = learn_vocabulary([str(path)], out=tmp_path / "1", **SMALL, text_column="body")
    text = learn_vocabulary([str(path)], out=tmp_path / "2", **SMALL)
    assert ("gabo" in body.vocabulary, "moti" in body.vocabulary) == (True, False)
    assert ("gabo" in text.vocabulary, "moti" in text.vocabulary) == (False, True)
    with pytest.raises(CorpusError, match="column"):
        learn_vocabulary(
            [str(path)],
            out=tmp_path / "3",
            **SMALL,
            text_column="title",
        )
    assert not (tmp_path / "3").exists()


def test_a_folder_with_something_in_it_is_kept(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    for out in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(VocabularyError, match="exists already; choose another out"):
            learn_vocabulary([str(corpus)], out=out, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_folder_is_filled(corpus: Path, tmp_path: Path) -> None:
    learn_vocabulary([str(corpus)], out=tmp_path, **SMALL)
    assert {path.name for path in tmp_path.iterdir()} == VOCABULARY_FILES


def test_figures_of_a_sample_are_said_to_be_of_one() -> None:
    """Those of `prepare` are of the whole text, and differ."""
    for count, said in ((2000, "of the pieces [UNK]"), (2001, ", in a sample of 2,000 paragraphs")):
        document = Document(source="a", line=1, paragraphs=("walked walks talk talks",) * count)
        learned = learn_from([document], total=10, settings=VocabularySettings(size=100))
        assert describe(learned).endswith(said)


def test_words_in_pieces() -> None:
    document = Document(source="a", line=1, paragraphs=("walked walked walk talks talk talk",) * 9)
    learned = learn_from([document], total=10, settings=VocabularySettings(size=100))
    assert learned.fit.size.words == 54
    assert learned.fit.unknown == 0
    assert describe(learned).endswith("1.00 pieces per word, 0.00 % of the pieces [UNK]")
    shown = in_pieces(learned.tokenizer, ["walk", "walkeds", "talk"])
    assert shown == "walkeds -> walked ##s, walk -> walk, talk -> talk"


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram"])
def test_words_that_are_not_counted_are_told(
    kind: KindName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.tokens.learning.counting._MAX_CHUNKS", 20)
    paragraphs = [f"{'the iron is hot ' * 9}a{number}b" for number in range(60)]
    documents = [Document(paragraphs=(text,), source="a", line=1) for text in paragraphs]
    settings = VocabularySettings(kind=kind, size=300)
    notes = learn_from(documents, total=10, settings=settings).notes
    lost = [note for note in notes if "more distinct words than are counted at once" in note]
    share = float(re.findall(r"([\d.]+) % of the text, were left out", lost[0])[0])
    # three or four of a hundred and twelve letters
    assert 1 < share < 4
    few = learn_from(documents[:9], total=10, settings=settings).notes
    assert not any("more distinct words" in note for note in few)


def test_the_fit_to_a_long_paragraph_is_that_of_all_of_it() -> None:
    paragraph = "walk " * 1000 + "w" * 5000 + " " + "talked " * 3000
    document = Document(source="a", line=1, paragraphs=(paragraph.strip(),))
    learned = learn_from([document], total=10, settings=VocabularySettings(size=100))
    assert learned.fit.size.words in range(4001, 4005)  # a word that is too long is cut


def test_a_store_and_what_is_said_of_it(
    corpus: Path, vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "store"
    store = prepare([str(corpus)], vocab=vocab, out=out, held_out=0.2, workers=1)
    held_out = store.held_out()
    assert held_out is not None
    parts = (store.index, held_out.index)
    assert sum(part.documents for part in parts) == 39
    assert (store.index.duplicates, held_out.index.duplicates) == (1, 0)
    first, last = said(capsys)
    assert first == describe_store(TokenStore(out), "[UNK]")
    assert first.startswith(f"corpus: 39 documents, {sum(part.sentences for part in parts):,} sent")
    assert "(0.00 % [UNK]); 1 duplicate left out; " in first
    assert first.endswith(f" {held_out.index.documents} documents held out")
    assert last == f"next: bertsmith pretrain {out} --out run --minutes 30"


def test_after_the_vocabulary_of_a_model_that_model_is_trained_further(
    corpus: Path, vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = tmp_path / "my model", tmp_path / "$store"
    shutil.copytree(vocab, model)
    (model / "config.json").write_text("{}")
    prepare([str(corpus)], vocab=model, out=out, workers=1)
    *_, last = said(capsys)
    assert last == f"next: bertsmith pretrain '{out}' --from '{model}' --out run --minutes 30"


def test_the_store_is_the_same_by_any_number_of_processes(
    corpus: Path, vocab: Path, tmp_path: Path
) -> None:
    paths = [str(corpus / "b.txt"), str(corpus / "a.txt")]
    stores = [
        prepare(paths, vocab=vocab, out=tmp_path / str(workers), workers=workers)
        for workers in (1, 2)
    ]
    assert stores[0].index == stores[1].index


def test_nothing_held_out(
    corpus: Path, vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = prepare([str(corpus)], vocab=vocab, out=tmp_path / "s", held_out=0.0, workers=1)
    assert store.held_out() is None
    assert said(capsys)[0].endswith(" 0 documents held out")


def test_one_document_is_told_what_it_cannot_do(
    vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Gabo dela. Kuri moti.\nZe mila zzz.\n", encoding="utf-8")
    store = prepare([str(path)], vocab=vocab, out=tmp_path / "store", held_out=0.0, workers=1)
    assert store.index.documents == 1
    first, second, _ = said(capsys)
    assert first.startswith("corpus: 1 document, 3 sentences, 7 words, ")
    # "zzz" is no word of the vocabulary, one of 15 pieces
    assert "15 tokens (6.67 % [UNK])" in first
    assert second == (
        "the corpus is one document: next-sentence prediction needs at least two; if blank lines "
        "separate documents in it, give --layout documents"
    )


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Gabo dela.\n\nKuri moti.\n", "give shorter documents, or a larger --held-out"),
        # as a log of which every line is a paragraph
        (
            "Gabo dela. Kuri moti.\n",
            "divide it into files: split -l 1000 --additional-suffix=.txt FILE part-",
        ),
    ],
)
def test_a_corpus_of_which_nothing_is_held_out_says_so(
    vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, remedy: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    layout: Any = {"layout": "documents"}
    prepare([str(path)], vocab=vocab, out=tmp_path / "store", held_out=0.001, workers=1, **layout)
    told = (
        f"none fell into the 0.1 % held out, so that pre-training will not be evaluated: {remedy}"
    )
    few = "of one document" if "split" in remedy else "of so few documents"
    assert f"{few} {told}" in said(capsys)


def test_a_corpus_that_is_all_held_out_says_so(vocab: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Gabo dela.\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"beside 1 document held out; .* smaller held_out"):
        prepare([str(path)], vocab=vocab, out=tmp_path / "store", held_out=0.9999, workers=1)


def test_one_word_is_counted_as_one(
    vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ga\n", encoding="utf-8")
    prepare([str(path)], vocab=vocab, out=tmp_path / "store", held_out=0.0, workers=1)
    assert said(capsys)[0].startswith("corpus: 1 document, 1 sentence, 1 word, 1 token (")


def test_a_model_folder_is_a_vocabulary_too(
    corpus: Path, base_folder: Path, tmp_path: Path
) -> None:
    store = prepare([str(corpus)], vocab=base_folder, out=tmp_path / "store", workers=1)
    assert store.index.fingerprint == Tokenizer.load(base_folder).fingerprint
    # none of the corpus's words is in that vocabulary
    assert store.index.unknown == store.tokens


def test_what_cannot_be_prepared_leaves_nothing(corpus: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    with pytest.raises(ConfigError, match="workers is 0"):
        prepare([str(corpus)], vocab=vocab, out=out, workers=0)
    for share in (1.0, -0.1):
        with pytest.raises(ConfigError, match="held_out is"):
            prepare([str(corpus)], vocab=vocab, out=out, held_out=share)
    with pytest.raises(CorpusError, match="does not exist"):
        prepare([str(tmp_path / "nowhere")], vocab=vocab, out=out, workers=1)
    assert not out.exists()
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(StoreError, match="exists already"):
        prepare([str(corpus)], vocab=vocab, out=out, workers=1)


@pytest.mark.parametrize("there", [False, True])
def test_a_store_is_made_where_a_link_leads(
    corpus: Path, vocab: Path, tmp_path: Path, there: bool
) -> None:
    """Stores are large, and disks for them are linked."""
    disk, out = tmp_path / "disk", tmp_path / "store"
    disk.mkdir()
    if there:
        (disk / "store").mkdir()
    out.symlink_to(disk / "store")
    store = prepare([str(corpus)], vocab=vocab, out=out, workers=1)
    assert out.is_symlink()
    assert os.listdir(disk) == ["store"]
    assert TokenStore(out).tokens == store.tokens
    with pytest.raises(StoreError, match="exists already"):
        prepare([str(corpus)], vocab=vocab, out=out, workers=1)


@pytest.mark.parametrize("verb", ["vocab learn", "prepare"])
def test_a_corpus_that_shrinks_leaves_nothing(
    verb: str, corpus: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes((corpus / "a.txt").read_bytes())
    blocks = TextFile.blocks

    def shrinking(file: TextFile, start: int = 0) -> Generator[bytes, None, None]:
        os.truncate(path, 500)
        yield from blocks(file, start)

    monkeypatch.setattr(TextFile, "blocks", shrinking)
    make: dict[str, Callable[[], object]] = {
        "vocab learn": lambda: learn_vocabulary([str(path)], out=tmp_path / "out", **SMALL),
        "prepare": lambda: prepare([str(path)], vocab=vocab, out=tmp_path / "out", workers=2),
    }
    with pytest.raises(CorpusError, match=r"a\.txt: changed while it was read"):
        make[verb]()
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_bytes_keep_every_character() -> None:
    for given in ({"strip_accents": "yes"}, {"character_coverage": 0.9}):
        with pytest.raises(VocabularyError, match="not for byte-bpe"):
            VocabularySettings(kind="byte-bpe", **given)


@pytest.fixture
def ideographs(tmp_path: Path) -> Path:
    """900 kinds of characters, and six words of letters."""
    path = tmp_path / "zh.txt"
    text = "".join(chr(0x4E00 + number) for number in range(900))
    path.write_text(f"{text}。\n\n{text}。 the lower lowest wide wider widest\n" * 2, "utf-8")
    return path


def test_what_is_left_out_of_an_alphabet_is_said(
    ideographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"size": 1000, "character_coverage": 0.75}
    learned = learn_vocabulary([str(ideographs)], out=tmp_path / "v", **settings)
    _, alphabet, fit, size, _ = said(capsys)
    kept = sum("\u4e00" <= piece < "\ua000" for piece in learned.vocabulary)
    assert 600 < kept < 700
    known, left_out, share = re.findall(
        r"alphabet: (\d+) .* text; (\d+) rarer .* \((.*) %\)", alphabet
    )[0]
    assert int(known) + int(left_out) == 900 + 1 + 10
    assert float(share) == pytest.approx(25, abs=0.1)
    assert " pieces per character, " in fit
    unknown = 100 * (900 - kept) * 4 / store_tokens(learned, ideographs)
    assert float(re.findall(r"([\d.]+) % of the pieces", fit)[0]) == pytest.approx(unknown, abs=2)
    assert size == "no other piece of known characters is frequent enough; 1,000 were requested"


def test_text_without_blanks_is_counted_in_characters(
    ideographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocab = tmp_path / "v"
    settings = {"size": 1000, "character_coverage": 0.75, "kind": "unigram"}
    learn_vocabulary([str(ideographs)], out=vocab, **settings)
    # what is unknown to unigram segmentation takes no word along
    assert said(capsys)[1].endswith("%), which become <unk>")
    prepare([str(ideographs)], vocab=vocab, out=tmp_path / "s", held_out=0.0, workers=1)
    letters = len("".join(ideographs.read_text("utf-8").split()))
    assert re.findall(r"sentences, (\S+) characters, ", said(capsys)[0]) == [short_number(letters)]


def store_tokens(learned: Tokenizer, path: Path) -> int:
    return len(learned.encode([path.read_text("utf-8")], specials_in_text=False)[0])


def test_an_alphabet_that_leaves_little_room(
    ideographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn_vocabulary([str(ideographs)], out=tmp_path / "v", size=928)
    warning = said(capsys)[-2]
    assert re.match(r"warning: the alphabet takes 92\d of 928 .*--size 1900 would do", warning)


def test_a_decision_about_accents_goes_with_the_vocabulary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hi.txt"
    path.write_text("नदी के किनारे गाँव है। हवा मीठी है।\n\nगाँव की हवा मीठी है।\n" * 9, "utf-8")
    learned = learn_vocabulary([str(path)], out=tmp_path / "v", **SMALL)
    assert said(capsys)[0].startswith("accents: kept (strip_accents is false), stripping would")
    store = prepare([str(path)], vocab=tmp_path / "v", out=tmp_path / "s", held_out=0.0, workers=1)
    assert store.index.fingerprint == learned.fingerprint
    kept = Tokenizer.load(store.folder / "vocabulary")
    assert kept.rules == BasicRules(lowercase=True, strip_accents=False)
    stripped = Tokenizer(learned.vocabulary, BasicRules(lowercase=True, strip_accents=True))
    assert stripped.fingerprint != learned.fingerprint
    assert "मीठी" in kept.decode(store.read(0, store.tokens).tolist())


@pytest.mark.parametrize(("kind", "effect"), [("wordpiece", "drops"), ("unigram", "reads as")])
def test_zero_width_spaces_between_words_are_warned_of(
    kind: KindName, effect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Khmer divides words by them; BERT's rules drop them, and whole clauses become one word."""
    path = tmp_path / "a.txt"
    path.write_text("មិន\u200bអាច\u200bបង្កើត យក\u200bធាតុ\u200bមួយ\u200bចេញ\n\n" * 9, "utf-8")
    learned = learn_vocabulary([str(path)], out=tmp_path / "v", kind=kind, size=300)
    (warning,) = [line for line in said(capsys) if "zero-width" in line]
    assert effect in warning
    assert warning.startswith("warning: 71.4 % of the words end at a zero-")
    assert r"write blanks in their place: sed 's/\xe2\x80\x8b/ /g'" in warning
    dropped, blank = learned.encode(["យក\u200bធាតុ", "យក ធាតុ"])
    assert not np.array_equal(dropped, blank)
    # a few, as web pages have them, are no reason
    path.write_text(f"{'យក ធាតុ មួយ ' * 9}\u200bចេញ\n\n" * 9, "utf-8")
    learn_vocabulary([str(path)], out=tmp_path / "w", kind=kind, size=300)
    assert not [line for line in said(capsys) if "zero-width" in line]


def test_words_that_byte_level_bpe_takes_apart_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rules take a vowel sign for no letter, so that no piece has two letters of Hindi.

    The text has 17 letters and 13 marks.
    """
    path = tmp_path / "a.txt"
    path.write_text("यह किताब मीठी है, हिन्दी में लिखी गई है।\n\n" * 9, "utf-8")
    learned = learn_vocabulary([str(path)], out=tmp_path / "v", kind="byte-bpe", size=400)
    (warning,) = [line for line in said(capsys) if "combining marks" in line]
    assert warning.startswith("warning: 43.3 % of the letters are combining marks, such as vowel ")
    assert warning.endswith("; --kind unigram and --kind wordpiece keep them whole")
    assert len(learned.pieces(" हिन्दी")) == 6
    for kind in ("unigram", "wordpiece"):
        whole = learn_vocabulary([str(path)], out=tmp_path / kind, kind=kind, size=400)
        assert len(whole.pieces("हिन्दी")) == 1
        assert not [line for line in said(capsys) if "combining marks" in line]
    # accents may be marks of their own, which composition joins to their letters
    path.write_text(normalize("NFD", "Cét été, à Genève, était très agréable.\n\n" * 9), "utf-8")
    learn_vocabulary([str(path)], out=tmp_path / "w", kind="byte-bpe", size=400)
    assert not [line for line in said(capsys) if "combining marks" in line]


@pytest.mark.parametrize(
    ("kind", "form", "cased", "warned"),
    [
        ("wordpiece", "NFD", True, "transformers' fast tokenizer"),
        ("wordpiece", "NFC", True, ""),
        ("byte-bpe", "NFD", False, "this kind of vocabulary"),
        ("unigram", "NFD", True, "this kind of vocabulary"),
        ("unigram", "NFC", True, ""),
    ],
)
def test_letters_written_in_parts_are_warned_of(
    kind: KindName,
    form: Literal["NFC", "NFD"],
    cased: bool,
    warned: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "Bên bờ sông có một ngôi làng nhỏ, gió luôn dịu dàng.\n\n" * 9
    (tmp_path / "a.txt").write_text(normalize(form, text), "utf-8")
    options: dict[str, Any] = {"kind": kind, "size": 300}
    options |= {} if kind == "byte-bpe" else {"cased": cased}
    learned = learn_vocabulary([str(tmp_path / "a.txt")], out=tmp_path / "v", **options)
    warnings = [line for line in said(capsys) if "composed form (NFC)" in line]
    assert len(warnings) == bool(warned)
    assert all(warned in line and line.startswith("warning: 100.0 %") for line in warnings)
    given, composed = learned.encode([normalize("NFD", text), normalize("NFC", text)])
    # what the warning says of the kind itself
    same = np.array_equal(given, composed)
    assert same == (kind == "wordpiece")
