"""The tasks that a model can be fine-tuned for: each kind in a module; `table` lists them.

`task` says what every kind has to say: how it reads, encodes, learns, answers and scores.
"""
