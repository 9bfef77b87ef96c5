"""Probes on vectors and attention that are made to hold an answer, or not to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bertsmith.analysis.layers.probes import ProbedSentence, _control_task, probe, tree_distances
from bertsmith.core.streams import Purpose, permutation, stream

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
    assert found.tags[tags].selectivity == found.tags[tags].task - found.tags[tags].control > 0.4
    assert found.structure[trees][0] > 0.98
    assert 0.9 < found.structure[trees][1] <= 1
    assert found.structure[tags][0] < 0.6


def test_punctuation_is_no_edge(known: list[ProbedSentence]) -> None:
    marked = [
        replace(item, punctuation=np.arange(len(item.words)) == len(item.words) - 1)
        for item in known
    ]
    plain = probe(known[:10], epochs=1)
    assert probe(marked[:10], epochs=1).structure != plain.structure
    assert probe(known[:10], epochs=1) == plain


def sentence(
    words: str, heads: list[int], tags: str, *, states: torch.Tensor | None = None
) -> ProbedSentence:
    """A sentence whose words are letters, as static vectors too; its attention is even."""
    size = len(words)
    static = torch.eye(26)[[ord(word.lower()) - ord("a") for word in words]]
    return ProbedSentence(
        words=tuple(words), tags=tuple(tags), heads=np.array(heads),
        punctuation=np.zeros(size, bool), static=static,
        states=static[None] if states is None else states[None],
        attention=torch.full((1, size, size), 1 / size),
    )  # fmt: skip


def measured(count: int) -> set[int]:
    """The sentences that probes are measured on."""
    order = permutation(count, stream(Purpose.PROBE_SPLIT))
    return set(order[: round(0.3 * count)].tolist())


def test_edges_are_learned_from_all_sentences_on_both_sides() -> None:
    """Words of short sentences have the one before as head, those of long ones the next."""
    test = sorted(measured(100))
    made = [sentence("cdcdc", [1, 2, 3, 4, -1], "XXXXX") for _ in range(100)]
    # more are short in the test, fewer in training, where they are a batch of their own
    training = [number for number in range(100) if number not in test]
    for number in (*test[:25], *training[:33]):
        made[number] = sentence("ab", [-1, 0], "XX")
    found = probe(made, epochs=20)
    assert found.edges["distance and words"].task == 1
    # the commonest offset of training, of 4 words each in 5 of these sentences
    assert found.fixed_offset == pytest.approx(20 / 45)


def test_the_word_of_a_head_is_read() -> None:
    """It is always z, wherever that stands."""
    random = np.random.default_rng(3)
    made = []
    for _ in range(40):
        place = int(random.integers(5))
        text = "".join("z" if other == place else "a" for other in range(5))
        heads = [-1 if other == place else place for other in range(5)]
        made.append(sentence(text, heads, "XXXXX"))
    found = probe(made, epochs=20)
    assert found.edges["distance and words"].task == 1
    assert found.edges["attention"].task < 0.6


def test_a_head_that_attends_to_its_dependent_is_read() -> None:
    made = []
    random = np.random.default_rng(4)
    for _ in range(40):
        size = int(random.integers(4, 8))
        heads = [-1, *(int(random.integers(0, place)) for place in range(1, size))]
        plain = sentence("a" * size, heads, "X" * size)
        attention = torch.full((1, size, size), 0.1)
        attention[0, heads[1:], torch.arange(1, size)] = 0.6
        # a word attends to itself most, and is no head of its own
        attention[0, torch.arange(size), torch.arange(size)] = 0.9
        made.append(replace(plain, attention=attention))
    assert probe(made, epochs=20).edges["attention"].task > 0.9


def test_tags_are_scored_as_learned_in_training() -> None:
    """Of the measured sentences, which have one tag of two, some have a tag that is unknown."""
    test = sorted(measured(20))
    yes, no = torch.full((4, 3), 2.0), torch.full((4, 3), 1.0)
    both = torch.cat([yes[:2], no[:2]])
    made = [sentence("abcd", [-1, 0, 0, 0], "NNVV", states=both) for _ in range(20)]
    for tag, own in (("N", yes), ("V", no)):
        for number in test:
            made[number] = sentence("abcd", [-1, 0, 0, 0], 4 * tag, states=own)
        assert probe(made, epochs=20).tags[0].task == 1
    for number in test[:2]:
        made[number] = sentence("abez", [-1, 0, 0, 0], "QQQQ", states=yes)
    found = probe(made, epochs=20)
    share = (len(test) - 2) / len(test)
    assert found.tags[0].task == pytest.approx(share)
    # V is as common as N, which comes first; and the tag of a word that is new is a guess
    assert found.commonest_tag == 0
    assert found.tag_of_word == pytest.approx(share / 2)


def test_words_with_equal_vectors_are_joined() -> None:
    made = [sentence("ab", [-1, 0], "XX", states=torch.ones(2, 3)) for _ in range(20)]
    for number in set(range(20)) - measured(20):
        made[number] = sentence("abcd", [-1, 0, -1, 2], "XXXX", states=torch.eye(4)[:, :3])
    ((right, _),) = probe(made, epochs=2).structure
    # the only edge of each, though the distance is 0
    assert right == 1


def test_words_with_equal_vectors_have_no_rank_and_leave_those_of_other_sentences() -> None:
    """As of one word five times, in a layer that knows no positions."""
    made = sentences()
    without = probe(made, epochs=2).structure[2][1]
    number = next(iter(measured(len(made))))
    made[number] = replace(made[number], states=torch.ones_like(made[number].states))
    found = probe(made, epochs=2).structure
    assert without > 0.9
    assert found[2][1] == pytest.approx(without, abs=0.05)


def test_the_control_task_gives_each_word_one_of_three_rules() -> None:
    random = np.random.default_rng(8)
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = ["".join(random.choice([*letters, *letters.upper()], 6)) for _ in range(60)]
    made = _control_task([sentence(text, [-1] * 6, "X" * 6) for text in texts])
    rules: dict[str, set[int]] = {}
    for item in made:
        for place, (word, head) in enumerate(zip(item.words, item.heads.tolist(), strict=True)):
            choices = (0, 5, place + 1)
            fitting = {n for n, wanted in enumerate(choices) if wanted == head}
            assert head != place
            if head < 0:
                # itself, or behind the end
                fitting = {n for n, wanted in enumerate(choices) if wanted in (place, 6)}
            rules[word.lower()] = rules.get(word.lower(), {0, 1, 2}) & fitting
    assert {len(rule) for rule in rules.values()} == {1}
    assert set().union(*rules.values()) == {0, 1, 2}
