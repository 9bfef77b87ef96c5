"""Runs told to people: self-contained HTML pages, curves, and model cards."""
