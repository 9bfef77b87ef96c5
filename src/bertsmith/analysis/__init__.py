"""The inside of a model over a corpus: what heads attend to, which layer knows what, and why.

`attention` turns the tapped queries and keys of a batch into the attention weights of a block of
sequences, layer by layer, and forgets them once they are counted; so a corpus of any size is read
in constant memory. `heads` counts what each head attends to, `words` makes attention between tokens
attention between words. `relations` compares it with a dependency treebank, `tag_pairs` with the
tags and entities of words, `coreference` with the mentions of documents; `best_heads` scores the
head that does best where it was not chosen. What costs more than a pass over the corpus is computed
on a fixed `sampling` of its texts: `distances` between heads and their map, `gradients` of a loss
by attention, and `probes`, which show what a small model can read from attention and from each
layer. `inspection` does all of it for one model.

`states` are hidden states of words; `similarity` compares the layers of two models by them, and
`context` the uses of one word.

`subjects` are the answers of a fine-tuned model that are to be explained: a class, the tag of a
word, the span that answers a question, each as a number that the words of one sequence lead to.
`attribution` shares this number out among the words, by gradients or by masking words;
`rollout` follows attention from the answer down to the words; `deletion` tests whether the words
that are said to matter do.

Nothing here trains the model, writes files or knows the command line.
"""
