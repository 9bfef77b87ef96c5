"""Extending a model's vocabulary: the folder that comes of it, here and in `transformers`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer, BertTokenizer

from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, ModelFolderError, VocabularyError
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.recipes.extend import ExtendOutcome, describe
from bertsmith.text.corpus.files import Corpus
from bertsmith.tokens.learning.counting import measure_fit
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from bertsmith.weights.sentence_folder import (
    SentenceSettings,
    read_sentence_folder,
    save_sentence_folder,
)
from bounds import close_to_float64
from invented import SYLLABLES, invented_documents, tokenizer
from verbs import extend_vocabulary

__all__ = ["tokenizer"]

SPARE = 3


@pytest.fixture(scope="module")
def parent(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the heads of pre-training, and three rows more than it has pieces."""
    encoder = EncoderConfig(
        vocabulary=tokenizer.size + SPARE, hidden=24, layers=1, heads=3, feed_forward=40, longest=30
    )
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=3)
    drawn = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(model.heads["masked_lm"].bias, generator=drawn)  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("parent") / "syllables"
    save_model(folder, model, tokenizer)
    return folder


def paragraphs(seed: int, count: int) -> list[str]:
    """Invented text in which a dozen words, of two or three syllables, come often."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(SYLLABLES, 2 + number % 2)) for number in range(12)]
    random = np.random.default_rng(seed)
    texts = [
        text
        for invented_document in invented_documents(count, seed)
        for text in invented_document.paragraphs
    ]
    return [f"{text} {' '.join(random.choice(words, 5))}." for text in texts]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of as many documents as it has lines, more than twenty."""
    path = tmp_path_factory.mktemp("corpus") / "invented.jsonl"
    lines = [json.dumps({"text": text}) for text in paragraphs(6, count=20)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def extended(parent: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> ExtendOutcome:
    out = tmp_path_factory.mktemp("out") / "more"
    outcome: ExtendOutcome = extend_vocabulary(parent, [str(corpus)], add=7, out=out)
    return outcome


def test_new_rows_and_biases_are_means_and_old_ones_stay(
    parent: Path, extended: ExtendOutcome
) -> None:
    old, old_tokenizer = load_model(parent)
    new, new_tokenizer = load_model(extended.folder)
    size = old_tokenizer.size
    assert new_tokenizer.size == size + 7
    assert new.config.encoder.vocabulary == size + 7
    assert new_tokenizer.vocabulary[:size] == old_tokenizer.vocabulary
    before, after = old.state_dict(), new.state_dict()
    assert before.keys() == after.keys()
    grown = {"encoder.embeddings.tokens.weight", "heads.masked_lm.bias"}
    for name in before.keys() - grown:
        assert torch.equal(before[name], after[name]), name
    for name in grown:
        assert torch.equal(before[name][:size], after[name][:size])
        for number, piece in enumerate(new_tokenizer.vocabulary[size:], start=size):
            inside = old_tokenizer.pieces(piece.removeprefix("##"))
            if piece.startswith("##"):
                inside[0] = f"##{inside[0]}"
            ids = [old_tokenizer.vocabulary.index(item) for item in inside]
            assert len(ids) > 1
            mean = torch.stack([before[name][id_] for id_ in ids]).mean(0)
            close_to_float64(after[name][number], mean, piece)


def test_spare_rows_are_used_first(parent: Path, corpus: Path, tmp_path: Path) -> None:
    extend_vocabulary(parent, [str(corpus)], add=2, out=tmp_path / "few")
    model, made = load_model(tmp_path / "few")
    assert model.config.encoder.vocabulary == made.size + SPARE - 2


def test_the_folder_is_the_same_model_in_transformers(extended: ExtendOutcome) -> None:
    _, ours = load_model(extended.folder)
    theirs = AutoModelForPreTraining.from_pretrained(extended.folder).eval()
    assert theirs.get_input_embeddings().weight.shape[0] == ours.size
    assert theirs.get_output_embeddings().bias.shape == (ours.size,)
    texts = [text[-80:] for text in paragraphs(9, count=5)]
    expected = [ids.tolist() for ids in ours.encode(texts)]
    for kind in (AutoTokenizer, BertTokenizer):
        found = kind.from_pretrained(extended.folder)
        assert [found.encode(text, add_special_tokens=False) for text in texts] == expected
    new = {number for ids in expected for number in ids if number >= ours.size - 7}
    assert len(new) > 3


def test_what_is_measured_is_text_that_was_not_mined(
    parent: Path, corpus: Path, extended: ExtendOutcome
) -> None:
    assert extended.held_out == "documents"
    documents = list(Corpus([str(corpus)]))
    assert len(documents) > 60
    apart = [text for document in documents[19::20] for text in document.paragraphs]
    assert extended.before == measure_fit(Tokenizer.load(parent), apart)
    assert extended.after == measure_fit(Tokenizer.load(extended.folder), apart)
    assert extended.after.pieces < extended.before.pieces
    card = (extended.folder / "README.md").read_text(encoding="utf-8")
    assert describe(extended) in card
    assert "The weights of `syllables`" in card


def test_words_that_were_unknown_may_take_more_pieces(extended: ExtendOutcome) -> None:
    assert extended.after.pieces < extended.before.pieces
    assert " % fewer" in describe(extended)
    worse = replace(extended, before=extended.after, after=extended.before)
    more = 100 * (extended.before.pieces / extended.after.pieces - 1)
    assert f"after, {more:.1f} % more" in describe(worse)


def test_few_documents_hold_out_paragraphs(parent: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("badabada dabo.\n\n" * 39 + "dodo.\n", encoding="utf-8")
    outcome = extend_vocabulary(parent, [str(path)], add=1, out=tmp_path / "more")
    assert outcome.held_out == "paragraphs"
    # paragraphs 20 and 40, of two words and one
    assert (outcome.before.size.words, outcome.before.pieces) == (3, 4 + 2 + 1 + 2 + 1)
    assert outcome.after.pieces == 4 - 3 + 2 + 1 + 2 + 1


def test_words_that_are_not_counted_are_told(
    parent: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("bertsmith.tokens.learning.counting._MAX_CHUNKS", 9)
    extend_vocabulary(str(parent), str(corpus), add=3, out=tmp_path / "out")
    assert "% of the text, were left out" in capsys.readouterr().err


def test_mistakes(parent: Path, corpus: Path, tmp_path: Path) -> None:
    for add, out, kind, what in (
        (0, "a", ConfigError, "add is 0"),
        (3, "taken", ModelFolderError, "exists already"),
        (1_000_000, "a", VocabularyError, "cannot be added"),
    ):
        (tmp_path / "taken" / "mine").mkdir(parents=True, exist_ok=True)
        with pytest.raises(kind, match=what):
            extend_vocabulary(parent, [str(corpus)], add=add, out=tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_sentence_folder_stays_one(
    parent: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SentenceSettings(
        network=tmp_path, pool=("cls",), after=(UnitLength(),), longest=20, prompts={"q": "ba"}
    )
    save_sentence_folder(tmp_path / "parent", *load_model(parent), settings)
    extend_vocabulary(tmp_path / "parent", [str(corpus)], add=3, out=tmp_path / "more")
    read = read_sentence_folder(tmp_path / "more")
    assert read is not None
    assert (read.pool, read.longest, read.prompts) == (("cls",), 20, {"q": "ba"})
    assert isinstance(read.after[0], UnitLength)
    (tmp_path / "parent" / "modules.json").write_text("[]", encoding="utf-8")
    extend_vocabulary(tmp_path / "parent", [str(corpus)], add=3, out=tmp_path / "other")
    assert "its modules are none; pooling is left out" in capsys.readouterr().err
    assert read_sentence_folder(tmp_path / "other") is None


def test_the_verb(
    parent: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "more"
    assert main(["vocab", "extend", str(parent), str(corpus), "--add", "4", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "4 pieces added" in said
    assert "before" in said
    assert f"pretrain store --from {out}" in said
    assert Tokenizer.load(out).size == Tokenizer.load(parent).size + 4
    out = tmp_path / "one"
    assert main(["vocab", "extend", str(parent), str(corpus), "--add", "1", "--out", str(out)]) == 0
    assert "vocabulary: 1 piece added, now " in capsys.readouterr().err
