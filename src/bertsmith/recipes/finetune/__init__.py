"""Fine-tuning a model for a task with several seeds, compared to baselines.

`recipe` is the run. `inputs` reads everything before training; a `trial` trains once, `trials` keep
their folders, and `workers` train several at once. `experiment` runs them in order: grid, seeds,
`baselines` (`tfidf`, and those on the `frozen` model), learning curve. `outcome` has the results
and conclusions, `report` the page and the model card, and `compare` compares two runs.
"""
