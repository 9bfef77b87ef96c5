"""Metrics of predictions, their confidence intervals and significance tests.

`metrics` are those of classes, sets of labels and numbers, `entities` those of tags, `squad` of
answers in texts, `ranking` of ordered passages, `calibration` of probabilities. `significance` has
bootstrap intervals and the tests that compare two models. All in numpy, and equal to the usual
libraries or official scripts.
"""
