"""The check before any training time is spent: is this run worth it?

`check` puts together what `corpus` says of text and vocabulary, and `speed` of machine and budget.
"""
