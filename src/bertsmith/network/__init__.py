"""Batches become hidden states, and those become predictions.

A `Batch` holds the tokens of its sequences end to end; there is no padding. The `encoder`, which is
embeddings and blocks with `attention` inside, turns it into hidden states (tokens, hidden),
`Encoded`; `heads` and `model` turn those into predictions. `shape_buckets` makes training faster.
`config` has the settings of encoders and models, `families` their sizes and wiring by name. Neither
knows torch.
"""
