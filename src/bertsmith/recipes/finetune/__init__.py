"""Fine-tuning a model for a task with several seeds, compared to baselines.

`recipe` is the run. `inputs` reads everything before training; a `trial` trains once, `trials` keep
their folders, and `parallel` trains several at once, each in a `worker`. `experiment` runs them in
order: grid, seeds, `baselines`, learning curve. `outcome`, `scores` and `report` present the
results, and `compare` compares two runs.
"""
