"""Learning of vocabularies from a corpus: one module per kind.

`counting` counts words in bounded memory and chooses the characters to keep, `mining` finds the
pieces that save most, and `statistics` measures how well a vocabulary fits a text.
"""
