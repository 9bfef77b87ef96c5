"""Files become documents: paragraphs of tidy text, in a fixed order and constant memory.

`files` finds a corpus's files and streams their documents. `layout` decides what lines and blank
lines mean, `markup` drops the tags of HTML and XML, `sections` cuts a corpus into pieces that any
process can read by itself, and `sentences` splits paragraphs. `documentation` is the text that lies
on every machine with Python.
"""
