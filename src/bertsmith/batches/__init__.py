"""Packed batches, from the token ids of a store or from encoded examples.

`pretraining` makes them from a store: `segments` cuts windows of text and pairs them, `fitting`
adds special tokens, `masking` selects what is to be predicted. Each is a function of seed, epoch
and index, so that the position in the data is two integers. `examples` makes batches of labelled or
unlabelled texts, of similar length together.
"""
