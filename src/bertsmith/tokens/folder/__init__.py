"""Tokenizer files of a model folder, in the hub's layout, for each kind of vocabulary.

`files` is shared by all kinds (tokenizer_config.json and the files next to it, tokenizer.json); one
module per kind reads and writes its own files, and the `Tokenizer` imports it for a folder of that
kind. Settings that `transformers` would treat differently are refused by name.
"""
