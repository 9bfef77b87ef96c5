"""Normal forms are those of Python, also of what takes that by the square of its length."""

from __future__ import annotations

import random
import time
import unicodedata
from typing import Literal, get_args

import pytest

from bertsmith.core.normal_forms import normalize
from bertsmith.text.examples.example import folded
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.modern import composed

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
# marks of several classes, some of which compose, and signs that decompose into them
SIGNS = "\u0301\u0323\u0327\u0308\u05b0\u3099\u1161\u0344\u00a8\u037a\ufe70\u2100.\u093f"


@pytest.mark.parametrize("form", get_args(Form))
def test_long_runs_have_the_form_that_python_gives_them(form: Form) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        runs = ["".join(chance.choices(SIGNS[: 4 + seed % 9], k=k)) for k in (3, 999, 1000, 1500)]
        text = "".join(chance.choice("aé\u1100か") + run for run in runs)
        assert normalize(form, text) == unicodedata.normalize(form, text)


def test_a_letter_of_thousands_of_marks_is_read_in_time() -> None:
    began = time.process_time()
    text = "a" + "\u0301" * 100_000 + "\u0323" * 100_000
    assert BasicRules(lowercase=True).words(text) == ["a"]
    (word,) = BasicRules(lowercase=False).words(text)
    assert word == "\u1ea1" + "\u0323" * 99_999 + "\u0301" * 100_000
    whole = composed(text)
    assert whole is not None
    assert whole.text == folded(text) == word
    assert time.process_time() - began < 5  # what grew with the square would take minutes
