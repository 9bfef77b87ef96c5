"""The options of tasks: how files are read, what is lost in training, how texts are answered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from bertsmith.core.config import INLINE, Config, check_least, check_range
from bertsmith.engine.config import ContinuationConfig, FillingConfig
from bertsmith.network.config import Fit
from bertsmith.text.config import USUAL, USUAL_TAGS, Columns, OnBad, TagColumns

if TYPE_CHECKING:
    from bertsmith.text.bad_rows import BadRows


@dataclass(frozen=True, kw_only=True)
class Reading(Config):
    """The columns and layouts of examples, and the treatment of bad rows."""

    columns: Columns = field(default=USUAL, metadata=INLINE)
    """Columns of texts and labels."""
    tags: TagColumns = USUAL_TAGS
    """Columns of words and tags."""
    on_bad: OnBad = "fail"
    """Treatment of bad rows: fail stops at the first one; skip leaves them out and counts them;
    quarantine also writes them to FILE.bad.jsonl."""

    @cached_property
    def bad_rows(self) -> BadRows:
        """The collector of bad rows, which counts them over all files that are read with this."""
        # reading files is not needed for the options
        from bertsmith.text.bad_rows import BadRows

        return BadRows(self.on_bad)

    def with_changes(
        self, *, columns: Columns | None = None, tags: TagColumns | None = None
    ) -> Reading:
        """Return the same with other columns or tags; bad rows are counted together."""
        other = replace(self, columns=columns or self.columns, tags=tags or self.tags)
        vars(other)["bad_rows"] = self.bad_rows
        return other


@dataclass(frozen=True, kw_only=True)
class LabelLoss(Config):
    """The loss over labels."""

    class_weights: Literal["none", "balanced"] = "none"
    """balanced weights the classes so that rare ones count as much as common ones."""
    label_smoothing: float = 0.0
    """Share of each label's weight that is spread over all labels."""

    def __post_init__(self) -> None:
        check_range(self, ["label_smoothing"], "[0, 1)")


@dataclass(frozen=True, kw_only=True)
class TextLength(Config):
    """Length of the text that is read, if it differs from training."""

    max_length: int | None = None
    """Maximum number of tokens read at once; as in training by default."""
    truncation: Fit | None = None
    """Part of a longer text that is read: head, tail, head+tail, or windows, which cover all of it;
    as in training by default."""
    stride: int | None = None
    """Number of tokens that two successive windows share, for tags and spans; as in training by
    default."""

    def __post_init__(self) -> None:
        check_least(self, {"max_length": 8})


@dataclass(frozen=True, kw_only=True)
class AnsweringConfig(TextLength):
    """Options of answers; as in training by default."""

    top: int = 5
    """Number of most probable classes, fillings or spans to give for each text."""
    no_answer: float | None = None
    """Doubt above which a question gets no answer, in place of the threshold tuned in training; 1e9
    always gives an answer."""
    min_confidence: float | None = None
    """Probability below which no class or choice is given, in place of the threshold chosen in
    training; 0 always gives one."""
    conformal: float | None = None
    """Also give a set of classes or choices that contains the right one for at least this share of
    texts like those of dev (split conformal prediction); 0.5 to 0.999."""
    continuation: ContinuationConfig | None = field(default=None, metadata=INLINE)
    """The continuation of texts, by a model that continues them."""
    filling: FillingConfig | None = field(default=None, metadata=INLINE)
    """The filling of masks, by a model that fills them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, {"top": 1})
        check_range(self, ["min_confidence"], "[0, 1]")
        check_range(self, ["conformal"], "[0.5, 0.999]")
