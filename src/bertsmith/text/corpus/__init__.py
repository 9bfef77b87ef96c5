"""Read files as documents: normalised paragraphs, in a fixed order and constant memory.

`files` collects the files of a corpus and streams their `documents`, which follow from the meaning
of lines and blank lines. `markup` drops the tags of HTML and XML, `sections` cuts a corpus into
pieces that any process can read independently, and `sentences` splits paragraphs. `unread` tells
how the text of files that are left out can be read. `documentation` reads the documentation that
is part of every Python installation.
"""
