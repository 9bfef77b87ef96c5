"""Tokenizers: text to token ids and back, with a vocabulary learned from a corpus.

A `Tokenizer` has a `vocabulary` of one of several kinds, each of which encodes text word by word:
`wordpiece`, split by the `basic` rules (BERT), byte-level `bpe` (RoBERTa), with added tokens in
`modern` (ModernBERT), or `unigram`, after SentencePiece's `normalisation` (ALBERT, XLM-RoBERTa),
in some folders as `compiled_unigram`. `folder` reads and writes files in the hub's layout,
`learning` learns vocabularies, and `bulk` encodes whole corpora many words at once, with the same
ids.
"""

from __future__ import annotations

from typing import Literal

KindName = Literal["wordpiece", "byte-bpe", "unigram"]
"""The kinds of vocabularies, defined in `tokenizer`; here for options, which know no numpy."""
