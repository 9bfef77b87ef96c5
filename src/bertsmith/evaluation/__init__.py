"""Metrics of predictions, their confidence intervals and significance tests.

`metrics` are those of classes, sets of labels, numbers, ordered passages and probabilities, `spans`
those of answers and entities in texts. `significance` has bootstrap intervals and the tests that
compare two models. All in numpy, and equal to the usual libraries or official scripts.
"""
