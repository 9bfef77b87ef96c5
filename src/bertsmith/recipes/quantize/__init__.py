"""Answers in int8, where that is faster on this processor and as good: `bertsmith quantize`.

`recipe` is the run. `gate` measures precisions beside each other on the user's texts, by the labels
of a task or by the vectors of an encoder, and refuses int8 where it is not worth it; the int8 of
`bertsmith export` goes through it too.
"""
