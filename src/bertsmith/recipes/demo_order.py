"""The demo's second task: are the words of a sentence in their order, or are two of them swapped?

Each sentence is there both ways, so that the same words stand under either label: whoever counts
words can only guess. Sentences to measure with come from other modules than those to learn from.
"""

from __future__ import annotations

import re

import numpy as np

from bertsmith.batches.randomness import permuted, stream, uniform
from bertsmith.recipes.demo_task import Task, dev_modules
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.text.documentation import ModuleText

LABELS = ("as written", "two words swapped")
TRAIN_SENTENCES, DEV_SENTENCES = 1000, 400
SETTINGS = FinetuneConfig(epochs=6, batch=32, rate=1e-3)
LONGEST = 48

_LEAST_WORDS, _MOST_WORDS = 6, 20
# sentences of words, without code: what is out of order there, nobody can tell
_SENTENCE = re.compile(r"[A-Z][a-z]+(?:,? (?:[a-z]+|[A-Z]{2,5}|I)){5,}\.")
_PARAGRAPH, _PLACE = 11, 12


def make_order_task(modules: list[ModuleText]) -> Task:
    """Cut sentences from the documentation, and swap two neighbouring words of a copy of each."""
    sides: dict[bool, list[str]] = {False: [], True: []}
    seen: set[str] = set()
    for module, is_dev in zip(modules, dev_modules(len(modules)), strict=True):
        for paragraph in module.paragraphs:
            for sentence in _SENTENCE.findall(paragraph):
                if _LEAST_WORDS <= sentence.count(" ") + 1 <= _MOST_WORDS and sentence not in seen:
                    seen.add(sentence)
                    sides[is_dev].append(sentence)
    train, dev = (
        _both_ways(sides[is_dev], count)
        for is_dev, count in ((False, TRAIN_SENTENCES), (True, DEV_SENTENCES))
    )
    return Task(
        labels=LABELS,
        train=train,
        train_classes=np.arange(len(train)) % 2,
        dev=dev,
        dev_classes=np.arange(len(dev)) % 2,
    )


def _both_ways(sentences: list[str], count: int) -> list[str]:
    """Return some of the sentences, each followed by its copy with two words swapped."""
    order = permuted(np.arange(len(sentences)), len(sentences), stream(_PARAGRAPH))
    texts: list[str] = []
    for number, place in enumerate(order.tolist()):
        words = sentences[place].rstrip(".").replace(",", "").split()
        # the first word keeps its place: its capital would tell
        places = [n for n in range(1, len(words) - 1) if words[n].lower() != words[n + 1].lower()]
        if not places:
            continue
        chosen = places[int(uniform(stream(_PLACE), number) * len(places))]
        swapped = [*words]
        swapped[chosen], swapped[chosen + 1] = swapped[chosen + 1], swapped[chosen]
        texts += [" ".join(words) + ".", " ".join(swapped) + "."]
        if len(texts) == 2 * count:
            break
    return texts
