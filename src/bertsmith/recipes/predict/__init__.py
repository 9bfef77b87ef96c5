"""Asking and scoring a model: `bertsmith predict` and `bertsmith evaluate`.

`recipe` answers the texts of a file, in constant memory, by the heads that the model has;
`evaluate` scores the answers to a labelled file; `score` measures how well a pre-trained model
predicts the tokens of texts, and `write` lets it write some. `rows` gives the rows that are
answered: lines from `texts`, or the records of a table, joined with the examples read from them.
`reading` has the settings by which a file is read, those of training, and `config` the options of
all.
"""
