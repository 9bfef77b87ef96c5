"""The piece at which a word is tagged, and the pieces of a word, are those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from bertsmith.analysis.attributions import subjects
from bertsmith.tasks.task import ReadingLimits
from bertsmith.tasks.word_windows import encode_words
from bertsmith.text.examples.tagged import Tagged, joined
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.tokenizer import Tokenizer

TEXT = "the old man went to the sea and the sea was old and the man saw the sea"
WORDS = ["sea", "xq", "the", "zeal", "old", "(", "man", ")", "qx"]


@pytest.mark.parametrize("learn", [learn_unigram, learn_byte_bpe])
def test_a_blank_that_is_a_piece_of_its_own_begins_the_next_word(
    learn: Callable[..., Tokenizer], tmp_path: Path
) -> None:
    """As the one before a rare word: models of others were trained to tag it."""
    learn([TEXT, "xqz()q x"] * 4, size=60 if learn is learn_unigram else 290).save(tmp_path)
    # theirs reads words only so
    more = {"add_prefix_space": True} if learn is learn_byte_bpe else {}
    theirs = AutoTokenizer.from_pretrained(tmp_path, **more)
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    text, spans = joined(WORDS)
    given = theirs(WORDS, is_split_into_words=True)
    owners = given.word_ids()
    first = [owners.index(number) for number in range(len(WORDS))]
    row = Tagged(text=text, words=spans, tags=None, entities=None, document=0, source="m", line=1)
    encoded = encode_words(ours, [row], ReadingLimits(longest=99))
    assert encoded.ids[0].tolist() == given["input_ids"]
    assert encoded.positions is not None
    assert encoded.positions[0].tolist() == first
    places = ours.encode_spans(text)
    marks = [n for n in range(len(places)) if not text[places.starts[n] : places.ends[n]].strip()]
    assert marks
    found = subjects._words(text, places, 1, np.arange(len(places)))
    for number, word in enumerate(found):
        assert word.positions.tolist() == [n for n, own in enumerate(owners) if own == number]
