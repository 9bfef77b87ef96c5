"""Figures of the source: counted from its syntax, and observed while verbs run."""
