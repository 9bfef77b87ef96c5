"""Counts of words, as learning a vocabulary takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.counting import WordCounter


def count_words(texts: Iterable[str], rules: BasicRules) -> Counter[str]:
    """The count of each word, in order of first occurrence."""
    counter = WordCounter(ideographs=rules.space_cjk)
    for text in texts:
        counter.add(text)
    return counter.words(rules)
