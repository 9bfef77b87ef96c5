"""Tokenizers: text to token ids and back, with a vocabulary learned from a corpus.

A `Tokenizer` has a vocabulary of one of the `kinds`: `wordpiece` (BERT), `bpe` (RoBERTa and
ModernBERT) or `unigram` (ALBERT), each of which encodes text word by word. `folder` reads and
writes their files in the hub's layout, `learning` learns vocabularies, and `bulk` encodes whole
corpora many words at once, with the same ids.
"""
