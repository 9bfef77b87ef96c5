"""Metrics of predictions, their confidence intervals and significance tests."""
