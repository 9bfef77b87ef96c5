"""Whole corpora become ids at once: the same as one by one, many times as fast.

`documents` turns texts into sentences of ids. `encoding` finds where text may be cut without
changing the result, and `chunks` looks up the stretches met before.
"""
