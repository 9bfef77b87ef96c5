"""Tokenizer files of a model folder, in the hub's layout, for each kind of vocabulary.

All kinds share `files` (tokenizer_config.json and the files next to it) and `compiled`
(tokenizer.json); one module per kind reads and writes its own files, and the `Tokenizer` imports it
for a folder of that kind. Settings that `transformers` would treat differently are refused by name.
"""
