"""The options that say how files of examples are read, as the recipes want them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bertsmith.recipes.tasks.task import Reading

Layout = Literal["table", "label-first"]
OnBad = Literal["fail", "skip", "quarantine"]
Scheme = Literal["auto", "bio1", "bio2", "bioes", "plain"]


def reading_of(
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: str | None = None,
    group: str | None = None,
    layout: Layout = "table",
    label_until: str | None = None,
    tag: int = -1,
    scheme: Scheme = "auto",
    on_bad: OnBad = "fail",
) -> Reading:
    """What the options of a verb come to."""
    from bertsmith.recipes.tasks.task import Reading
    from bertsmith.text.columns import Columns
    from bertsmith.text.conll import TagColumns

    columns = Columns(
        text=text,
        text_pair=text_pair,
        label=label,
        labels=tuple(labels.split(",")) if labels else (),
        group=group,
        layout=layout,
        label_until=label_until,
    )
    return Reading(columns=columns, tags=TagColumns(tag=tag, scheme=scheme), on_bad=on_bad)
