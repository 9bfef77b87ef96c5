"""Copies of texts by vocabularies whose pieces are not written as the words they stand for."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.network.batch import pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil.transfer_set import CANDIDATES, Augmenter
from bertsmith.text.examples.example import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model

STORY = "the film is a great story about love, bad or good, as told by two old friends"
WORDS = STORY.split()
TEXT = "The film is a great story about love."
COPIES = 40


def _learned(kind: str) -> Tokenizer:
    random = np.random.default_rng(0)
    texts = [" ".join(random.permutation(WORDS)) for _ in range(200)]
    if kind == "byte-bpe":
        return learn_byte_bpe(texts, size=400)
    return learn_unigram(texts, size=90, lowercase=False, plain=kind == "plain")


def _model(tokenizer: Tokenizer) -> Model:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=40, longest=33,
        initial_std=0.3,
    )  # fmt: skip
    return build_model(ModelConfig(encoder=encoder, masked_lm=True, pooler=False), seed=1).eval()


def _copies(
    model: Model, tokenizer: Tokenizer, masked_lm: Path | None = None, text: str = TEXT
) -> list[str]:
    """Return copies of the text."""
    augmenter = Augmenter(teacher=model, tokenizer=tokenizer, masked_lm=masked_lm, seed=0)
    row = Example(text=text, text_pair=None, label="a", source="memory", line=1)
    return [copy.text for copy in augmenter.copies([row], COPIES)[1:]]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["byte-bpe", "unigram", "plain"])
def test_words_are_replaced_by_words_as_they_are_written(
    kind: str, masked: bool, tmp_path: Path
) -> None:
    tokenizer = _learned(kind)
    model = _model(tokenizer)
    if masked:
        save_model(tmp_path / "lm", model, tokenizer)
    copies = _copies(model, tokenizer, tmp_path / "lm" if masked else None)
    assert all(copy.endswith(".") for copy in copies)
    own, known = TEXT.strip(".").split(), {word.strip(",") for word in WORDS}
    replaced = [
        (old, new)
        for copy in copies
        for old, new in zip(own, copy.strip(".").split(), strict=True)
        if new != old
    ]
    # some pieces are beginnings of words
    assert all(any(word.startswith(new) for word in known) for _, new in replaced)
    # not by themselves in another case
    assert all(new != old.lower() for old, new in replaced)
    assert len(replaced) / (len(own) * COPIES) == pytest.approx(0.4, abs=0.1)


def test_a_masked_lm_reads_the_text_as_it_is_encoded(tmp_path: Path) -> None:
    tokenizer = _learned("byte-bpe")
    model = _model(tokenizer)
    save_model(tmp_path / "lm", model, tokenizer)
    ids = np.concatenate([tokenizer.begin, tokenizer.encode([TEXT])[0], tokenizer.end])
    place = tokenizer.pieces(TEXT).index("Ġstory") + len(tokenizer.begin)
    ids[place] = tokenizer.mask_id
    with torch.no_grad():
        batch = pack([ids], [np.zeros(len(ids), np.int8)])
        logits = model.masked_lm(model.encoder(batch).last)[place]
    pieces = zip(tokenizer.vocabulary, logits.tolist(), strict=True)
    words = {piece[1:]: logit for piece, logit in pieces if piece[0] == "Ġ" and piece[1:].isalpha()}
    likely = sorted(words, key=words.__getitem__, reverse=True)
    candidates = [word for word in likely[: CANDIDATES + 1] if word != "story"][:CANDIDATES]
    used = {copy.split()[5] for copy in _copies(model, tokenizer, tmp_path / "lm")} - {"story"}
    assert used <= set(candidates)
    assert len(used) > 4


def test_a_character_of_a_script_without_blanks_is_a_word() -> None:
    text = "这部电影非常好看，我们都喜欢。"
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "，", "。"]
    letters = sorted(set(text) - set(marks))
    tokenizer = Tokenizer([*marks, *letters], BasicRules(lowercase=True))
    copies = _copies(_model(tokenizer), tokenizer, text=text)
    assert {len(copy) for copy in copies} == {len(text)}
    assert {(copy[8], copy[-1]) for copy in copies} == {("，", "。")}
    changed = sum(new != old for copy in copies for old, new in zip(text, copy, strict=True))
    assert changed / (COPIES * (len(text) - 2)) == pytest.approx(0.4, abs=0.1)


def test_a_word_that_the_vocabulary_does_not_know_stays() -> None:
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer([*marks, "good", "bad", "film", "story"], BasicRules(lowercase=True))
    copies = _copies(_model(tokenizer), tokenizer, text="a good film")
    # nothing is near to the vector of what is unknown
    assert {copy.split()[0] for copy in copies} == {"a"}
    assert len({copy.split()[1] for copy in copies}) == 4


def test_long_texts_are_copied_in_time() -> None:
    began = time.process_time()
    tokenizer = _learned("byte-bpe")
    augmenter = Augmenter(teacher=_model(tokenizer), tokenizer=tokenizer, masked_lm=None, seed=0)
    text = " ".join(["great story"] * 10_000)
    row = Example(text=text, text_pair=None, label="a", source="memory", line=1)
    _, copy = augmenter.copies([row], 1)
    assert len(copy.text.split()) == 20_000
    assert time.process_time() - began < 5  # what grew with the square would take minutes
