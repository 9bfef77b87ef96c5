"""Learning of vocabularies from a corpus: one module per kind, and `extension` of an existing one.

`counting` counts words in bounded memory, chooses the characters to keep and measures how well a
vocabulary fits a text; `mining` finds the pieces that save most; `elementary` computes logarithms
alike on every chip.
"""
