"""`config.json`: the settings of a model as `transformers` writes and reads them.

`keys` is a table a family of what settings are called, `reading` checks and reads the file,
`settings` writes it.
"""
