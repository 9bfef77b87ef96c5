"""Pre-training from a store to a model folder.

`recipe` is the run; `settings` what can be set, `published` settings by name. Before it `preflight`
asks whether it is worth the time, and `size_choice` picks a size; `time` shares the minutes;
`continuing` goes on from a model there is; `evaluation` and `report` tell what came of it.
"""
