"""Read files as labelled examples: texts, pairs, tagged words, questions with spans or options.

`example` and `tagged` define the examples. `columns` maps columns to roles, `reading` reads texts
with labels and describes how, `formats` every other layout, `label_lists` several labels in a cell,
and `detection` detects the task of a file. Errors name the file and the line.
"""
