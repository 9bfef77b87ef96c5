"""Text becomes token ids, with a vocabulary learned from a corpus.

A `Tokenizer` has a vocabulary of one of the `kinds`: `wordpiece` (BERT), `bpe` (RoBERTa and
ModernBERT) or `unigram` (ALBERT), each turning text into ids word by word. `folder` reads and
writes their files as the hub lays them out, `learning` makes vocabularies, and `bulk` encodes whole
corpora many words at once, with the same ids.
"""
