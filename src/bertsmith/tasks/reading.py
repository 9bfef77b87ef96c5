"""The options of reading files of examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bertsmith.core.config import Config
from bertsmith.text.bad_rows import BadRows, OnBad
from bertsmith.text.examples.columns import USUAL, Columns
from bertsmith.text.examples.formats.conll_columns import USUAL_TAGS, TagColumns


@dataclass(frozen=True, kw_only=True)
class Reading(Config):
    """The columns and layouts of examples, and the treatment of bad rows."""

    columns: Columns = USUAL
    """Columns of texts and labels."""
    tags: TagColumns = USUAL_TAGS
    """Columns of words and tags."""
    on_bad: OnBad = "fail"
    """What becomes of bad rows: fail, skip, or quarantine, which puts them into FILE.bad.jsonl."""

    @cached_property
    def bad_rows(self) -> BadRows:
        """The collector of bad rows, which counts them over all files that are read with this."""
        return BadRows(self.on_bad)

    def settled(self, *, columns: Columns | None = None, tags: TagColumns | None = None) -> Reading:
        """Return the same with other columns or tags; bad rows are counted together."""
        other = replace(self, columns=columns or self.columns, tags=tags or self.tags)
        vars(other)["bad_rows"] = self.bad_rows
        return other
