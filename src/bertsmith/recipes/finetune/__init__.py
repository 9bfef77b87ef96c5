"""Fine-tuning a model for a task, with several seeds, beside baselines.

`recipe` is the run. `inputs` reads everything before training; a `trial` trains once, `trials` keep
their folders, and `parallel` trains several at once, each in a `worker`. `experiment` is their
order: grid, seeds, `baselines`, learning curve. `outcome`, `scores` and `report` tell what came of
it, and `compare` sets two runs side by side.
"""
