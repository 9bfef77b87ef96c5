"""The inside of a model over a corpus: what heads attend to, which layer knows what, and why.

`heads` are compared with tokens, trees, tags and mentions; `layers` with each other, with those of
another model, and by what a small model can read from them. What costs more than a pass over the
corpus is computed on a fixed sample of its texts; `inspection` does all of it for one model.
`attributions` explain single answers of a fine-tuned model by the words of their text.

Nothing here trains the model, writes files or knows the command line.
"""
