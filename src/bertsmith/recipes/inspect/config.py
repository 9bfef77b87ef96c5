"""The options of looking inside a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least
from bertsmith.core.errors import ConfigError
from bertsmith.text.config import USUAL_TAGS, TagColumns, TextColumns


@dataclass(frozen=True, kw_only=True)
class InspectConfig(Config):
    """The options of looking inside a model."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a model, or hub:owner/name, or with @revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table; a dependency treebank (.conllu); words with
    tags, such as entities (.conll); documents with coreference (CoNLL-2012, or CoNLL-U with
    Entity=); - is standard input."""
    out: Path
    """Page to write, an .html; OUT.json and OUT-*.png, without the .html, are written beside it."""
    limit: int | None = None
    """Texts or sentences to read, the first ones; all if not given."""
    max_words: int | None = None
    """Longest sentence of a treebank or of words with tags that is read, in words; any if not
    given."""
    max_length: int | None = None
    """Tokens of a text, or of a passage with coreference, that are read; as many as the model takes
    if not given."""
    sample: int = 100
    """Texts, drawn from all, of which distances between heads, gradients and examples are made."""
    frequent: int = 20
    """Most frequent tokens to show."""
    control: bool = True
    """Compare what heads find, of relations, tags and coreference, with the same model with random
    weights."""
    probes: int = 0
    """Sentences of a treebank, drawn from all, on which probes are trained and measured, 1000 say;
    none if not given."""
    against: Path | None = None
    """Second model, to show what moved: how alike the layers of the two are on the same words."""
    words: tuple[str, ...] = ()
    """Words whose uses are shown, with commas between: neighbours, clusters, a map."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto is a GPU if there is one."""
    json: bool = False
    """Print the figures as one JSON object on standard output."""
    tags: TagColumns = USUAL_TAGS
    """Columns of words and tags."""
    columns: TextColumns = field(default=TextColumns(), metadata=INLINE)
    """The columns of the texts."""

    def __post_init__(self) -> None:
        check_least(self, {"limit": 1, "max_words": 2, "max_length": 8, "sample": 2, "frequent": 1})
        check_least(self, {"probes": 0})
        if self.out.suffix != ".html":
            raise ConfigError(f"--out is {str(self.out)!r}", remedy="name a page: page.html")
