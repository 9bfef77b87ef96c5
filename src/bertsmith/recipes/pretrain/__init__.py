"""Pre-training from a store to a model folder.

`recipe` is the run; `settings` its configuration, `published` the named recipes. Beforehand
`preflight` checks whether the run is worth its time, and `size_choice` picks a size; `time` divides
the minutes; `continuing` starts from an existing model; `evaluation` and `report` present the
results.
"""
