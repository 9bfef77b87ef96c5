"""Asking and scoring a model: `bertsmith predict` and `bertsmith evaluate`.

`recipe` answers the texts of a file, in constant memory, by the heads that the model has;
`evaluate` scores the answers to a labelled file; `score` measures how well a pre-trained model
predicts the tokens of texts, and `write` lets it write some. `rows` reads files as the model was
trained to, and `config` has the options of all.
"""
