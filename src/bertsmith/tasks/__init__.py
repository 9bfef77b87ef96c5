"""What a model can be fine-tuned for and asked: each kind of task in a module; `table` lists them.

`task` says what every kind has to say: how it reads, encodes, learns, answers and scores.
"""
