"""Files become labelled examples: texts, pairs, tagged words, questions with spans or options.

`example` and `tagged` are what comes out. `columns` says which column holds what, `reading` reads
texts with labels, `formats` everything that has a layout of its own, and `recognising` tells which
task a file is for. Faults name the file and the line.
"""
