"""A model and a batch become losses.

An `objective` runs the encoder once and gives its terms what they read; a term returns a sum and a
count. The terms of `pretraining` are masked or left-to-right words, next sentence and sentence
order, a generator and what it replaced; those of `tasks` classes, numbers, choices, tags and spans.
A term may own trained parameters, and change the batch before the encoder reads it. Those of
`distillation` and, over all pairs of tokens, `token_pairs` compare the model with a teacher, whose
outputs are given with the batch. `cross_entropy` is arithmetic that several terms share.
"""
