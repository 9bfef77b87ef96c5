"""The names of the kinds of vocabularies, for options."""

from __future__ import annotations

from typing import Literal

KindName = Literal["wordpiece", "byte-bpe", "unigram"]
"""The kinds of vocabularies, defined in `bertsmith.tokens.tokenizer`."""
