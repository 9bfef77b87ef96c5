"""Copies of texts: which words are replaced, and by what."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from bertsmith.core.errors import UserError
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.distil.transfer_set import Augmenter, check_masked_lm
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.tagged import Tagged
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from invented import SYLLABLES, tokenizer

__all__ = ["tokenizer"]

COPIES = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=40, longest=33,
        initial_std=0.3,
    )  # fmt: skip
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True, pooler=False), seed=1)
    save_model(place := tmp_path_factory.mktemp("lm") / "model", model, tokenizer)
    return place


def rows() -> list[Example]:
    texts = [("ba di go badi ku", None), ("mi fa", "so la ti .")]
    return [
        Example(text=text, text_pair=pair, label="a", source="memory", line=line)
        for line, (text, pair) in enumerate(texts, 1)
    ]


def augmented(folder: Path, *, masked_lm: bool, seed: int = 0) -> list[Example]:
    teacher, words = load_model(folder)
    augmenter = Augmenter(
        teacher=teacher, tokenizer=words, masked_lm=folder if masked_lm else None, seed=seed
    )
    return augmenter.copies(rows(), COPIES)


def test_words_of_one_piece_are_replaced_by_what_transformers_finds_likeliest(
    folder: Path, tokenizer: Tokenizer
) -> None:
    theirs = BertForMaskedLM.from_pretrained(folder).eval()
    found = augmented(folder, masked_lm=True)
    assert found[:2] == rows()
    assert len(found) == 2 * (1 + COPIES)
    assert {(row.label, row.line) for row in found} == {("a", 1), ("a", 2)}
    places = [0, 1, 2, 4]
    words = ["ba", "di", "go", "badi", "ku"]
    (ids,) = tokenizer.encode(["ba di go badi ku"])
    whole = torch.tensor([tokenizer.vocabulary.index(item) for item in SYLLABLES])
    changed = 0
    for place in places:
        masked = torch.tensor([[2, *ids.tolist(), 3]])
        at = 1 + place + (place > 3)
        masked[0, at] = 4
        with torch.no_grad():
            logits = theirs(input_ids=masked).logits[0, at, whole]
        likely = [SYLLABLES[index] for index in logits.topk(16).indices.tolist()]
        candidates = [item for item in likely if item != words[place]][:15]
        used = [row.text.split()[place] for row in found[2::2]]
        replaced = [item for item in used if item != words[place]]
        assert set(replaced) <= set(candidates)
        assert len(set(replaced)) > 4
        changed += len(replaced)
    # algorithm 1: each word with a probability of 0.4
    assert changed / (len(places) * COPIES) == pytest.approx(0.4, abs=0.1)
    # marks stay, and the second text changes too
    pairs = [row.text_pair or "" for row in found[3::2]]
    assert all(pair.endswith(" .") for pair in pairs)
    assert len(set(pairs)) > 5


def test_other_words_are_replaced_by_those_with_the_nearest_vectors(
    folder: Path, tokenizer: Tokenizer
) -> None:
    table = load_model(folder)[0].encoder.embeddings.tokens.weight.detach()
    table = table / table.norm(dim=1, keepdim=True)
    ids = [tokenizer.vocabulary.index(item) for item in ("ba", "##di")]
    whole = [tokenizer.vocabulary.index(item) for item in SYLLABLES]
    near = (table[whole] @ table[ids].mean(0)).topk(15).indices.tolist()
    for masked_lm in (True, False):
        used = {row.text.split()[3] for row in augmented(folder, masked_lm=masked_lm)[::2]}
        assert used - {"badi"} <= {SYLLABLES[item] for item in near}
        assert len(used) > 4


def test_words_with_tags_keep_these_and_everything_between_them(folder: Path) -> None:
    text = "«ba di»  go, badi ku"
    words = ((1, 3), (4, 6), (9, 11), (11, 12), (13, 17), (18, 20))
    tags = ("B-X", "I-X", "O", "O", "B-Y", "O")
    row = Tagged(
        text=text, words=words, tags=tags, entities=None, document=0, source="memory", line=1
    )
    teacher, tokens = load_model(folder)
    augmenter = Augmenter(teacher=teacher, tokenizer=tokens, masked_lm=folder, seed=0)
    found = augmenter.copies([row], COPIES)
    assert found[0] == row
    places = [[copy.text[start:end] for start, end in copy.words] for copy in found]
    assert {copy.tags for copy in found} == {tags}
    # what stands between the words stays, and so does a mark
    for copy, own in zip(found, places, strict=True):
        ba, di, go, comma, badi, ku = own
        assert copy.text == f"«{ba} {di}»  {go}{comma} {badi} {ku}"
        assert comma == ","
    changed = [sum(new != old for new, old in zip(own, places[0], strict=True)) for own in places]
    assert sum(changed) / (5 * COPIES) == pytest.approx(0.4, abs=0.1)


def test_a_seed_decides_the_copies(folder: Path, tmp_path: Path) -> None:
    first, again, other = (augmented(folder, masked_lm=False, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    model, words = load_model(folder)
    bare = build_model(ModelConfig(encoder=model.config.encoder, pooler=False), seed=1)
    save_model(tmp_path / "bare", bare, words)
    with pytest.raises(UserError, match="has no masked-LM head to replace words with"):
        check_masked_lm(tmp_path / "bare")
