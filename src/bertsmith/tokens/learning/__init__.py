"""Vocabularies learned from a corpus: a module a kind.

`counting` counts words in bounded memory, `alphabet` decides which characters are kept, `mining`
looks for pieces that would save most, `extension` adds them to a vocabulary there is, and
`statistics` tells how well a vocabulary fits a text.
"""
