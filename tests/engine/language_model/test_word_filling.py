"""Words of several pieces, choices and several masks, against loops over transformers' model."""

from __future__ import annotations

import itertools

import pytest
import torch
from transformers import BertForMaskedLM

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.config import FillingConfig
from bertsmith.engine.language_model.fill_mask import Fillings, MaskFilling
from bertsmith.engine.language_model.words import Filling, before, best_first, choice_pieces
from bertsmith.engine.predictor import Predictor
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe import ByteRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, SPECIALS
from bertsmith.weights.folder import save_model
from bounds import close_unit_vectors

MASK, CLS, SEP = 4, 2, 3
FIRST = ("play", "work", "tea", "run", "cold")
LATER = ("##ing", "##ed", "##er")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *FIRST, *LATER), BasicRules(lowercase=True))


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Model:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size + 3,
        hidden=24,
        layers=2,
        heads=3,
        feed_forward=37,
        longest=17,
        initial_std=0.4,
    )
    return build_model(ModelConfig(encoder=encoder, pooler=False, masked_lm=True), seed=11)


@pytest.fixture(scope="module")
def reference(
    model: Model, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> BertForMaskedLM:
    folder = tmp_path_factory.mktemp("reference") / "model"
    save_model(folder, model, tokenizer)
    return BertForMaskedLM.from_pretrained(folder).eval()


def ask(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    config: FillingConfig,
    pair: str | None = None,
) -> Fillings:
    filling = MaskFilling(model, tokenizer, top=999, config=config)
    example = Example(text=text, text_pair=pair, label=None, source="memory", line=3)
    (found,) = Predictor(model=model, answering=filling)([example])
    return found


@torch.no_grad()
def shares(reference: BertForMaskedLM, ids: list[int], place: int, size: int) -> torch.Tensor:
    """Return the log-probabilities of the pieces at a place."""
    # what stands behind the first [SEP] is the second text of a pair
    kinds = torch.tensor([[int(SEP in ids[:position]) for position in range(len(ids))]])
    logits: torch.Tensor = reference(torch.tensor([ids]), token_type_ids=kinds).logits
    return logits[0, place, :size].log_softmax(-1)


def word_score(
    reference: BertForMaskedLM, ids: list[int], place: int, word: list[int], size: int
) -> float:
    """Return the log-probability of a word, one piece after another."""
    total = 0.0
    for done in range(len(word)):
        here = ids[:place] + word[:done] + [MASK] * (len(word) - done) + ids[place + 1 :]
        total += float(shares(reference, here, place + done, size)[word[done]])
    return total


def test_choices_of_any_length_are_scored_piece_by_piece(
    model: Model, tokenizer: Tokenizer, reference: BertForMaskedLM
) -> None:
    choices = ("tea", "playing", "play", "runeder", "tea cold", "played")
    found = ask(model, tokenizer, "cold [MASK] run", FillingConfig(choices=choices))
    ids = [CLS, *tokenizer.encode(["cold"])[0].tolist(), MASK, 8, SEP]
    expected = {
        choice: (word_score(reference, ids, 2, word, tokenizer.size), len(word))
        for choice in choices
        for word in [tokenizer.encode([choice])[0].tolist()]
    }
    (mask,) = found.masks
    assert {len(filling.ids) for filling in mask} == {1, 2, 3}
    for filling in mask:
        total, pieces = expected[filling.piece]
        close_unit_vectors([filling.probability], [torch.tensor(total).exp()])
        assert filling.score == pytest.approx(total / pieces, abs=1e-4)
    ranked = sorted(choices, key=lambda choice: -expected[choice][0] / expected[choice][1])
    assert [filling.piece for filling in mask] == ranked


@pytest.mark.parametrize("choices", [(), ("tea", "played", "worker")])
def test_masks_of_a_pair_are_filled_beside_both_texts(
    model: Model, tokenizer: Tokenizer, reference: BertForMaskedLM, choices: tuple[str, ...]
) -> None:
    found = ask(model, tokenizer, "cold tea", FillingConfig(choices=choices), "[MASK] run")
    ids = [CLS, 9, 7, SEP, MASK, 8, SEP]
    (mask,) = found.masks
    assert len(mask) == (len(choices) or tokenizer.size)
    totals = [word_score(reference, ids, 4, list(filling.ids), tokenizer.size) for filling in mask]
    close_unit_vectors([filling.probability for filling in mask], torch.tensor(totals).exp())


def test_words_of_two_pieces_are_those_of_an_exhaustive_search(
    model: Model, tokenizer: Tokenizer, reference: BertForMaskedLM
) -> None:
    found = ask(model, tokenizer, "tea [MASK]", FillingConfig(most_pieces=2))
    ids = [CLS, 7, MASK, SEP]
    first, later = range(5, 10), range(10, 13)
    words = [[item] for item in first] + [list(item) for item in itertools.product(first, later)]
    expected = {
        tokenizer.decode(word): (word_score(reference, ids, 2, word, tokenizer.size) / len(word))
        for word in words
    }
    (mask,) = found.masks
    assert [filling.piece for filling in mask] == sorted(expected, key=lambda word: -expected[word])
    close_unit_vectors([filling.score for filling in mask], sorted(expected.values(), reverse=True))


@pytest.mark.parametrize("choices", [(), ("tea", "played", "run", "worker")])
def test_masks_are_filled_together_the_most_confident_first(
    model: Model, tokenizer: Tokenizer, reference: BertForMaskedLM, choices: tuple[str, ...]
) -> None:
    config = FillingConfig(joint=True, choices=choices)
    found = ask(model, tokenizer, "[MASK] tea [MASK] cold [MASK]", config).joint
    assert found is not None
    ids, open_ones = [CLS, MASK, 7, MASK, 9, MASK, SEP], [0, 1, 2]
    spelled = [tokenizer.encode([choice])[0].tolist() for choice in choices]
    filled: dict[int, list[int]] = {}
    size = tokenizer.size
    total = 0.0
    while open_ones:
        best = (-float("inf"), -1, 0, [0])
        places = [place for place, id_ in enumerate(ids) if id_ == MASK]
        for mask, place in zip(open_ones, places, strict=True):
            every = spelled or [[piece] for piece in range(size)]
            for word in every:
                score = word_score(reference, ids, place, word, size) / len(word)
                best = max(best, (score, mask, place, word))
        score, mask, place, word = best
        total += score * len(word)
        ids[place : place + 1] = word
        filled[mask] = word
        open_ones.remove(mask)
    assert list(found.order) == list(filled)
    assert [list(item.ids) for item in found.words] == [filled[mask] for mask in range(3)]
    assert found.probability == pytest.approx(float(torch.tensor(total).exp()), rel=1e-4)


def test_impossible_fillings_are_refused(model: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="cannot spell the choice 'zoo'"):
        ask(model, tokenizer, "[MASK]", FillingConfig(choices=("tea", "zoo")))
    with pytest.raises(ConfigError, match="both given"):
        FillingConfig(choices=("tea",), most_pieces=2)
    long = "tea " * 12 + "[MASK] [MASK]"
    ask(model, tokenizer, long, FillingConfig(most_pieces=2))
    with pytest.raises(ExampleError, match=r"memory:3: .* words of 2 pieces included"):
        ask(model, tokenizer, long, FillingConfig(most_pieces=2, joint=True))


@pytest.mark.parametrize("takes_blank", [False, True], ids=["blank-kept", "blank-taken"])
@pytest.mark.parametrize(
    "text", ["a [MASK] b", "[MASK] a", "a ([MASK]) b", "([MASK] b", "a, [MASK]"]
)
def test_words_have_the_pieces_that_they_have_in_the_text(takes_blank: bool, text: str) -> None:
    letters = "ab(),woOrd"
    merges = (("w", "o"), ("wo", "r"), ("Ġ", "w"), ("Ġw", "or"))
    vocabulary = (*BYTE_SPECIALS, "Ġ", *letters, *map("".join, merges))
    tokenizer = Tokenizer(vocabulary, ByteRules(merges=merges, mask_takes_blank=takes_blank))
    masked = text.replace("[MASK]", "<mask>")
    (ids,) = tokenizer.encode([masked])
    place = ids.tolist().index(tokenizer.mask_id)
    for word in ("word", "worword", "wo rd"):
        how = before(tokenizer, masked, masked.index("<mask>"), ids, place)
        pieces = choice_pieces(tokenizer, word, how)
        filled = [*ids[:place].tolist(), *pieces, *ids[place + 1 :].tolist()]
        assert filled == tokenizer.encode([text.replace("[MASK]", word)])[0].tolist()


@pytest.mark.parametrize("choice", [")", ").", "word)"])
def test_no_piece_of_a_choice_holds_what_stands_before_it(choice: str) -> None:
    pieces = [*BYTE_SPECIALS, *map(chr, range(33, 127)), "\u0120", "()", ").", "().", "(w"]
    merges = (("(", ")"), (")", "."), ("()", "."), ("(", "w"))
    tokenizer = Tokenizer(pieces, ByteRules(merges=merges))
    found = choice_pieces(tokenizer, choice, "glued")
    assert tokenizer.decode(found) == choice


def test_long_words_are_compared_by_what_no_float_holds() -> None:
    """The product of 100 probabilities of 1e-4 is 0 to a float, their mean logarithm is not."""
    long = Filling("long", 0.0, tuple(range(100)), -921.0)
    short = Filling("short", 1e-3, (1,), -6.9)
    assert [item.piece for item in best_first([long, short])] == ["short", "long"]
