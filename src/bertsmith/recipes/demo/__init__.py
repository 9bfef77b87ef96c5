"""The whole procedure on real text without any download: `bertsmith demo`.

`recipe` is the run, on the documentation of this machine's Python, and its report. The model is
evaluated by `package_task` (a labelled task), `missing_word` (a word-order task) and `search`.
"""
