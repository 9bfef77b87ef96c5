"""Heads against a treebank: against a plain computation, and the figures of real weights."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bertsmith.analysis.heads.best_heads import held_out_share
from bertsmith.analysis.heads.relations import ALL, parsed_trees
from bertsmith.analysis.heads.words import fitting_words, split_words
from bertsmith.analysis.inspection import Item, annotation_figures
from bertsmith.core.errors import ExampleError
from bertsmith.network.batch import pack
from bertsmith.network.encoded import Taps
from bertsmith.network.model import build_model
from bertsmith.text.treebank import read_trees
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_model
from families import MODELS
from parity.comparing import varied

PIECES = ("the", "smith", "heat", "##s", "iron", "##work", "she", "sing", ".", "'", "well")
TOKENIZER = Tokenizer(
    (*SPECIALS, *PIECES, *(f"word{n}" for n in range(99 - 5 - len(PIECES)))),
    BasicRules(lowercase=True),
)
SENTENCES = (
    # word, head, relation
    [("The", 2, "det"), ("smith", 3, "nsubj"), ("heats", 0, "root"), ("ironwork", 3, "obj"),
     (".", 3, "punct")],
    [("She", 2, "nsubj:pass"), ("sings", 0, "root"), ("well", 2, "advmod")],
    [("Iron", 2, "nsubj"), ("sings", 0, "root"), ("smith's", 4, "nmod"), ("ironwork", 2, "obj")],
    [("Well", 0, "root")],
    [("The", 2, "det"), ("ironworks", 3, "nsubj"), ("sing", 0, "root"), ("\u200b", 3, "obj")],
)  # fmt: skip


def treebank(path: Path, *, noise: bool = True) -> Path:
    blocks = []
    for sentence in SENTENCES:
        lines = ["# text = made up"]
        for number, (word, head, relation) in enumerate(sentence, 1):
            cells = [str(number), word, "_", "X", "_", "_", str(head), relation, "_", "_"]
            lines.append("\t".join(cells))
            if noise and number == 1:
                lines.append("\t".join(["1-2", "both", *"________"]))
                lines.append("\t".join(["1.1", "empty", *"________"]))
        blocks.append("\n".join(lines))
    path.write_text("\n\n".join(blocks) + "\n\n", encoding="utf-8")
    return path


def test_trees_are_read(tmp_path: Path) -> None:
    trees = list(read_trees(treebank(tmp_path / "made.conllu")))
    assert [tree.words for tree in trees][:2] == [
        ("The", "smith", "heats", "ironwork", "."), ("She", "sings", "well"),
    ]  # fmt: skip
    assert trees[0].heads == (1, 2, -1, 2, 2)
    assert trees[1].relations == ("nsubj", "root", "advmod")
    assert trees[0].line == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tone\t_\tX\t_\t_\t7\tdet\t_\t_", "the head is '7' in a sentence of 1 word"),
        ("1\tone\t_\tX\t_\t_\t1\tdet\t_\t_", "the head is '1'"),
        ("1\tone\t_\tX\t_\t_\t_\tdet\t_\t_", "the head is '_'"),
        ("2\tone\t_\tX\t_\t_\t0\troot\t_\t_", "word 2 where word 1 is next"),
        ("1\tone\tX", "3 columns where CoNLL-U has 10"),
        ("x\tone\t_\tX\t_\t_\t0\troot\t_\t_", "'x' is not the number of a word"),
        (f"1\tone\t_\tX\t_\t_\t{'9' * 5000}\tdet\t_\t_", "the head is '9999"),
        (f"{'9' * 5000}\tone\t_\tX\t_\t_\t0\troot\t_\t_", "where word 1 is next"),
        ("", "holds no sentence"),
    ],
)
def test_what_is_no_tree_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"bad\.conllu") as error:
        list(read_trees(path))
    assert message in str(error.value)


def test_pieces_belong_to_their_words() -> None:
    split = split_words(TOKENIZER, ("heats", "\u200b", "smith's", "[SEP]"), 30)
    assert split is not None
    assert split.owner.tolist() == [-1, 0, 0, 2, 2, 2, 3, 3, 3, -1]
    assert (split.ids == TOKENIZER.sep_id).sum() == 1
    assert split_words(TOKENIZER, ("heats",) * 5, 11) is None


@pytest.mark.parametrize(("longest", "kept"), [(4, 1), (5, 2), (6, 2), (7, 3), (8, 4), (9, 4)])
def test_as_many_words_are_kept_as_fit_whole(longest: int, kept: int) -> None:
    # of 2, 1, 2 and 1 pieces, beside the two special ones
    words = ("heats", "smith", "ironwork", "sing")
    assert fitting_words(TOKENIZER, words, longest) == words[:kept]


def test_the_best_head_is_chosen_on_one_half_and_scored_on_the_other() -> None:
    # by half, layer and head: of 10 and 20 words
    hits = np.array([[[9, 2], [1, 3]], [[4, 16], [5, 6]]])
    # the best head of the first half finds 4 of 20 words, that of the second one 2 of 10
    assert held_out_share(hits, np.array([10, 20])) == pytest.approx((4 + 2) / 30)
    # with words in the first half alone, no other half has any
    alone = np.array([[[9, 2], [1, 3]], [[0, 0], [0, 0]]])
    assert np.isnan(held_out_share(alone, np.array([10, 0])))


def best(w: NDArray[np.float64], own: list[NDArray[np.int64]], asked: int) -> int:
    """The word that a word attends to most, by the paper's words."""
    given = [
        w[own[asked]][:, keys].sum(1).mean() if len(keys) and word != asked else -1
        for word, keys in enumerate(own)
    ]
    return int(np.argmax(given))


def test_relations_are_found_as_a_plain_loop_finds_them(tmp_path: Path) -> None:
    model = varied(build_model(MODELS["bert-none"], seed=4))
    trees = [tree for tree in read_trees(treebank(tmp_path / "made.conllu")) if len(tree.words) > 1]
    parsed = [
        parsed_tree for parsed_tree in parsed_trees(trees, TOKENIZER, 23) if parsed_tree is not None
    ]
    items = [
        Item(ids=tree.split.ids, segments=tree.split.segments, line=tree.tree.line, parsed=tree)
        for tree in parsed
    ]
    figures = {item.name: item for item in annotation_figures(model, items).relations}
    hits: dict[str, NDArray[np.float64]] = {}
    counts: dict[str, NDArray[np.int64]] = {}
    for half, tree in zip(itertools.cycle((0, 1)), parsed, strict=False):
        layers = frozenset(range(1, 4))
        with torch.no_grad():
            batch = pack([tree.split.ids], [tree.split.segments])
            weights = model.encoder(batch, taps=Taps(weights=layers)).weights
        for layer in range(1, 4):
            for head in range(4):
                w = weights[layer][0][head].double().numpy()
                own = [np.flatnonzero(tree.split.owner == word) for word in range(tree.split.words)]

                pairs = zip(tree.tree.heads, tree.tree.relations, strict=True)
                for dependent, (governor, name) in enumerate(pairs):
                    if (
                        name in ("punct", "root")
                        or not len(own[dependent])
                        or not len(own[governor])
                    ):
                        continue
                    for key in (name, ALL):
                        found = hits.setdefault(key, np.zeros((2, 2, 3, 4)))[half]
                        words = counts.setdefault(key, np.zeros(2, int))
                        words[half] += layer == 1 and head == 0
                        found[0, layer - 1, head] += best(w, own, dependent) == governor
                        found[1, layer - 1, head] += best(w, own, governor) == dependent
    assert figures.keys() == hits.keys()
    for name, relation in figures.items():
        assert relation.count == counts[name].sum(), name
        assert np.abs(relation.accuracy - hits[name].sum(0) / relation.count).max() < 1e-12
        assert held_out_share(hits[name].astype(int), counts[name]) == pytest.approx(
            relation.held_out, nan_ok=True
        )
    # of words in both halves
    assert np.isfinite(figures[ALL].held_out)
    assert figures["nsubj"].count == 4
    # three of four subjects stand before their verb
    assert (figures["nsubj"].offset, figures["nsubj"].offset_accuracy) == (1, 1.0)
    assert (figures["obj"].offset, figures["obj"].offset_accuracy) == (-1, 0.5)


@pytest.mark.faults
def test_real_weights_have_the_reference_figures(data_folder: Path, minilm_folder: Path) -> None:
    """Made with transformers' own weights, in float64, by a program of its own."""
    model, tokenizer = load_model(minilm_folder)
    trees = [
        tree
        for tree in read_trees(data_folder / "ud-english-ewt" / "en_ewt-ud-dev.conllu")
        if 2 <= len(tree.words) <= 40
    ]
    parsed = [
        parsed_tree
        for parsed_tree in parsed_trees(trees[:900], tokenizer, 512)
        if parsed_tree is not None
    ]
    items = [
        Item(ids=tree.split.ids, segments=tree.split.segments, line=tree.tree.line, parsed=tree)
        for tree in parsed
    ]
    figures = {relation.name: relation for relation in annotation_figures(model, items).relations}
    reference = {
        "all": (43.79, 33.68), "obj": (71.64, 34.26), "det": (80.33, 58.26),
        "case": (66.25, 38.51), "nsubj": (54.06, 33.47), "aux": (73.48, 56.74),
    }  # fmt: skip
    for name, (accuracy, offset) in reference.items():
        assert 100 * figures[name].best_accuracy == pytest.approx(accuracy, abs=0.1), name
        assert 100 * figures[name].offset_accuracy == pytest.approx(offset, abs=0.01), name
    assert figures["obj"].best[1:] == (3, 1)
    assert figures["det"].best[1:] == figures["case"].best[1:] == (3, 9)
    random = annotation_figures(build_model(model.config, seed=0).eval(), items).relations
    assert max(item.best_accuracy for item in random[:9]) < 0.125
