"""The likeliest cutting of a text into pieces that each have a probability (Kudo 2018).

`rules` is what text becomes before it is cut, `pieces` the cutting, `text` the ids.
"""
