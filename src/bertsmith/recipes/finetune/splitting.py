"""The cut of labelled rows into train and dev.

Copies of a text never lie on both sides. Rows of one document, or pairs that share a text, stay on
one side too: what recurs in them, such as names, would be known from train. Copies may link all of
these (a dateline most documents of a newspaper), so groups are cut first, and rows of dev that have
copies in train join them there: they bring nothing new to train.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TypeVar

from bertsmith.core.errors import ExampleError
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, permutation, stream
from bertsmith.tasks.task import Row, Task
from bertsmith.text.examples.example import Example

R = TypeVar("R", bound=Row)
# a part that groups leave further off the share is cut row by row
_MOST_OFF = 2


def split(task: Task[R], rows: Sequence[R], share: float, seed: int) -> tuple[list[R], list[R]]:
    """Hold out a share of each stratum, determined by the seed; both parts keep their order.

    Rows of one identity stay on one side, and no stratum is held out completely. If every such
    group is larger than the share, the smallest one is held out. Where a task knows `clusters`,
    these stay on one side too, unless that leaves less than half the share or more than twice as
    much. Says what was done with clusters. Raises `ExampleError` for too few rows, and for groups
    that were stated and cannot be held out whole.
    """
    identities = [task.identity(row) for row in rows]
    clusters = task.cluster_keys(rows)
    held_out = set[int]()
    # not by their numbers: there may be more copies than rows that share a cluster
    if len(set(zip(clusters, identities, strict=True))) > len(set(clusters)):
        held_out = _held_out_clusters(task, rows, (identities, clusters), share, seed)
    if not held_out:
        held_out = _held_out(task, rows, identities, share, seed)
    if not held_out:
        raise ExampleError(
            _why_none(task, len(rows), len(set(identities))),
            where=rows[0].source,
            remedy="give more, or a file with --dev",
        )
    train_rows = [row for index, row in enumerate(rows) if index not in held_out]
    return train_rows, [rows[index] for index in sorted(held_out)]


def _why_none(task: Task[R], rows: int, different: int) -> str:
    """Return the problem of rows of which none can be held out."""
    if different == rows:
        return f"has too few {task.unit} ({rows:,}) to hold some out"
    # a copy stays with its text, and no stratum is held out completely
    why = f"only {different:,} are no copies, and no two of these have the same label"
    if different == 1:
        why = "they are copies of one"
    return f"none of its {rows:,} {task.unit} can be held out: {why}"


def _held_out_clusters(
    task: Task[R],
    rows: Sequence[R],
    keys: tuple[Sequence[Hashable], Sequence[Hashable]],
    share: float,
    seed: int,
) -> set[int]:
    """Return the rows of whole clusters but those with copies in train; none if too far off.

    `keys` are the identities and the clusters of the rows.
    """
    identities, clusters = keys
    drawn = _held_out(task, rows, clusters, share, seed)
    in_train = {key for index, key in enumerate(identities) if index not in drawn}
    held_out = {index for index in drawn if identities[index] not in in_train}
    wanted = _wanted(rows, share)
    if not wanted <= _MOST_OFF * len(held_out) <= _MOST_OFF**2 * wanted:
        if any(isinstance(row, Example) and row.group is not None for row in rows):
            raise _uncut(task, rows, (len(set(clusters)), len(drawn), len(held_out)), share)
        say(
            f"warning: the {task.unit} are of groups (of one document or text) too large, or too "
            "much alike, to be held out whole: dev has some of groups that are also in train"
        )
        return set()
    groups = len({clusters[index] for index in held_out})
    note = (
        f"dev is cut by document, shared text or group: {counted(groups, 'group')} held out whole"
    )
    if copies := len(drawn) - len(held_out):
        note += f", but for {copies:,} {task.unit} with copies in train, which joined them there"
    say(note)
    return held_out


def _uncut(
    task: Task[R], rows: Sequence[R], counts: tuple[int, int, int], share: float
) -> ExampleError:
    """Return the error for stated groups that cannot be held out whole.

    `counts` are those of the groups, of the rows of the ones drawn, and of these without copies.
    """
    groups, drawn, held_out = counts
    problem = (
        f"none of {counted(groups, 'group')} of --group-column can be held out whole for a share "
        f"of {share:g}"
    )
    remedy = "give rows of other groups with --dev"
    if 0 < held_out < drawn:
        problem = (
            f"of the {drawn:,} {task.unit} in the groups of --group-column that were drawn for "
            f"dev, {drawn - held_out:,} are copies of others"
        )
        remedy += ", or remove copies"
    elif not drawn:
        # no stratum is held out completely
        problem = f"no two groups of --group-column ({groups:,}) begin with the same label"
        if groups == 1:
            problem = f"all {len(rows):,} {task.unit} are of one group of --group-column"
    elif drawn > _wanted(rows, share):
        enough = math.ceil(100 * drawn / len(rows)) / 100
        remedy += f", or hold the smallest group out with --dev-share {enough:g}"
    else:
        remedy += ", or another --dev-share"
    return ExampleError(problem, where=rows[0].source, remedy=remedy)


def _wanted(rows: Sequence[object], share: float) -> int:
    return max(1, round(share * len(rows)))


def _held_out(
    task: Task[R], rows: Sequence[R], keys: Sequence[Hashable], share: float, seed: int
) -> set[int]:
    """Return the indices of a share of the rows, those of one key together; none if too few."""
    strata: dict[str, dict[Hashable, list[int]]] = {}
    stratum_of: dict[Hashable, str] = {}
    for index, row in enumerate(rows):
        key = keys[index]
        stratum = stratum_of.setdefault(key, task.stratum(row))
        strata.setdefault(stratum, {}).setdefault(key, []).append(index)
    wanted = _wanted(rows, share)
    held_out: set[int] = set()
    passed = 0
    for number, stratum in enumerate(sorted(strata)):
        groups = list(strata[stratum].values())
        passed += sum(map(len, groups))
        # cumulative over the strata, so that what rounding takes from one goes to the next
        goal = math.floor(wanted * passed / len(rows) + 0.5)
        order = permutation(len(groups), stream(Purpose.DEV_SPLIT, seed, number))
        for group in order[:-1]:
            if len(held_out) + len(groups[group]) <= goal:
                held_out.update(groups[group])
    if not held_out:
        several = [list(groups.values()) for groups in strata.values() if len(groups) > 1]
        fewest: list[int] = min(chain(*several), key=len, default=[])
        held_out.update(fewest)
    return held_out
