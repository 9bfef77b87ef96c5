"""Hidden states layer by layer.

`states` are those of words. `probes` show what a small model can read from them and from attention,
beside control tasks; `similarity` compares the layers of two models, and `context` the uses of one
word.
"""
