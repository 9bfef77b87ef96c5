"""Unigram tokenisation: the most probable segmentation of a text into pieces (Kudo 2018).

`rules` normalises text, `pieces` segments it, `text` gives the ids.
"""
