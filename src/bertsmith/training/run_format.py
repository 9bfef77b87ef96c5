"""The format version of a run's saved state, in run.json and in each checkpoint.

A resumed run must reach the result that it would have had without the interruption. If a later
version would draw other random numbers, or interpret the same files differently, the number is
raised, and runs that were begun before are refused.
"""

from __future__ import annotations

RUN_FORMAT = 2
"""The current version; in version 1, not recorded, streams of different purposes could coincide."""


def other_version(version: object) -> str:
    """Return which version of the program wrote a format, or "" for the current format."""
    if version == RUN_FORMAT:
        return ""
    later = type(version) is int and version > RUN_FORMAT
    return "a later version of bertsmith" if later else "an earlier version of bertsmith"
