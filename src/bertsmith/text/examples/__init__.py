"""Read files as labelled examples: texts, pairs, tagged words, questions with spans or options.

`example` and `tagged` define the examples. `columns` maps columns to roles, `reading` reads texts
with labels, `formats` every other layout, `recognising` detects the task of a file, and `described`
describes how a file is read. Errors name the file and the line.
"""
