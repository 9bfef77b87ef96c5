"""The whole procedure on real text without any download: `bertsmith demo`.

`recipe` is the run; `corpus` its text, the documentation of this machine's Python. Then the model
is evaluated: `package_task` (a labelled task), `gaps` and `missing_word` (a word-order task),
`search`.
"""
