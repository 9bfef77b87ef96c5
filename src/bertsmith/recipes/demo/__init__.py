"""The main job on real text without any download: `bertsmith demo`.

`recipe` is the run; `corpus` its text, the documentation of this machine's Python. Then the model
is asked: `package_task` (a labelled task), `gaps` and `missing_word` (a task of order), `search`.
"""
