"""Attention heads over a corpus of any size, in constant memory (Clark et al. 2019).

`attention` turns the tapped queries and keys of a batch into the attention weights of a block of
sequences, layer by layer, and forgets them once they are counted. `statistics` counts what each
head attends to, `words` makes attention between tokens attention between words. With it `relations`
compares heads with a dependency treebank, `tag_pairs` with the tags and entities of words, and
`coreference` with the mentions of documents; `best_heads` scores the best of many heads where it
was not chosen. `distances` are those between heads, with their map, and `gradients` those of a loss
by attention.
"""
