"""Pre-training from a store to a model folder.

`recipe` is the run, `resolving` makes it of options; `config` has its settings, `published` the
named recipes. Beforehand `preflight` checks whether the run is worth its time, by its text, its
vocabulary and its `speed` here; `planning` picks a size and divides the minutes; `starting`
continues an existing model or counts neighbours; `report` evaluates and presents the results.
"""
