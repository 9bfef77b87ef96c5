"""The pre-flight check: is this run worth its time?

`check` combines the findings of `corpus` on text and vocabulary with those of `speed` on machine
and budget.
"""
