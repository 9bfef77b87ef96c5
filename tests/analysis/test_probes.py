"""Probes on vectors and attention that are made to hold an answer, or not to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bertsmith.analysis.layers.probes import ProbedSentence, probe, tree_distances

WORDS = tuple(f"word{n}" for n in range(40))
TAGS = ("NOUN", "VERB", "DET")


def paths(heads: NDArray[np.int64], width: int) -> torch.Tensor:
    """Vectors whose squared distances are those in the tree: a one for each edge to the root."""
    found = torch.zeros(len(heads), width)
    for word in range(len(heads)):
        at = word
        while heads[at] >= 0:
            found[word, at] = 1
            at = int(heads[at])
    return found


def sentences(count: int = 40) -> list[ProbedSentence]:
    """Random trees. Layer 0 knows the word, layer 1 the tag, layer 2 the tree."""
    random = np.random.default_rng(5)
    made = []
    for _ in range(count):
        size = int(random.integers(5, 9))
        heads = np.array([-1, *(int(random.integers(0, place)) for place in range(1, size))])
        numbers = random.integers(0, len(WORDS), size)
        # the tag of a word is another one in each sentence
        tags = random.integers(0, len(TAGS), size)
        states = torch.zeros(3, size, len(WORDS))
        states[0, torch.arange(size), torch.from_numpy(numbers)] = 1
        states[1, torch.arange(size), torch.from_numpy(tags)] = 1
        states[2] = paths(heads, len(WORDS))
        attention = torch.from_numpy(random.dirichlet(np.ones(size), (2, size))).float()
        # the second head attends to the right word
        attention[1] = 0.1
        attention[1, torch.arange(1, size), torch.from_numpy(heads[1:])] = 0.6
        made.append(
            ProbedSentence(
                words=tuple(WORDS[number] for number in numbers),
                tags=tuple(TAGS[tag] for tag in tags),
                heads=heads,
                punctuation=np.zeros(size, bool),
                states=states,
                static=states[0],
                attention=attention,
            )
        )
    return made


def test_distances_in_a_tree() -> None:
    # 0 is the root of 1 and 2; 3 and 4 hang on 2
    expected = [[0, 1, 1, 2, 2], [1, 0, 2, 3, 3], [1, 2, 0, 1, 1], [2, 3, 1, 0, 2], [2, 3, 1, 2, 0]]
    assert tree_distances(np.array([-1, 0, 0, 2, 2])).tolist() == expected


@pytest.fixture(scope="module")
def known() -> list[ProbedSentence]:
    return sentences()


def test_probes_read_what_is_there_and_nothing_else(known: list[ProbedSentence]) -> None:
    found = probe(known, epochs=20)
    assert found.learned + found.measured == len(known)
    assert found.measured == 12
    assert found.edges["attention"].task > 0.9
    assert found.edges["attention"].task > found.edges["distance and words"].task + 0.3
    # what only the word decides is learned from the word
    assert found.edges["distance and words"].control > found.edges["attention"].control + 0.2
    words, tags, trees = range(3)
    assert found.tags[tags].task > 0.95
    assert found.tags[tags].control < 0.6
    assert found.tags[words].task < 0.6
    assert found.tags[words].control > 0.95
    assert found.tags[tags].selectivity > 0.4
    assert found.structure[trees][0] > 0.98
    assert found.structure[trees][1] > 0.9
    assert found.structure[tags][0] < 0.6


def test_punctuation_is_no_edge(known: list[ProbedSentence]) -> None:
    marked = [
        replace(item, punctuation=np.arange(len(item.words)) == len(item.words) - 1)
        for item in known
    ]
    plain = probe(known[:10], epochs=1)
    assert probe(marked[:10], epochs=1).structure != plain.structure
    assert probe(known[:10], epochs=1) == plain
