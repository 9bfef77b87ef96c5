"""Tokenizer files of a model folder, in the hub's layout, for each kind of vocabulary.

`files` and `compiled` are shared by all kinds (tokenizer_config.json and the files next to it,
tokenizer.json); one module per kind reads and writes its own files; `folder` detects the kind of a
folder. Settings that `transformers` would treat differently are refused by name.
"""
