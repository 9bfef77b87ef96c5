"""The files of a tokenizer in a model folder, in the hub's layout, for each kind of vocabulary.

`files` and `compiled` are what the kinds have in common (tokenizer_config.json and its neighbours,
tokenizer.json); a module a kind reads and writes its own; `folder` finds out which kind a folder
has. What `transformers` would do differently is refused by name.
"""
