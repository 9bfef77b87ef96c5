"""The format of what a run keeps to go on from, in run.json and in each checkpoint.

A run may go on only to the result that it would have had without the stop. Where a later version
would draw other random numbers, or read another meaning from the same files, the number rises, and
runs that were begun before are refused.
"""

from __future__ import annotations

RUN_FORMAT = 2
"""1, which was not written down: streams of different purposes could be the same one."""


def other_version(found: object) -> str:
    """Return which version of the program wrote a format, or "" where it is this one's."""
    if found == RUN_FORMAT:
        return ""
    later = type(found) is int and found > RUN_FORMAT
    return "a later version of bertsmith" if later else "an earlier version of bertsmith"
