"""The options of the recipes that are single modules, and of the demo."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range
from bertsmith.core.errors import ConfigError, VocabularyError
from bertsmith.engine.config import MAX_THREADS, EngineConfig, FeatureConfig
from bertsmith.tasks.config import Reading, TextLength
from bertsmith.text.config import (
    AUTO,
    USUAL_TAGS,
    HeaderOption,
    Layout,
    TagColumns,
    TextColumns,
    check_encoding,
)
from bertsmith.tokens import KindName

_ADDRESS = re.compile(r"auto|local|[\w.-]{1,253}:\d{1,5}|\[[\da-fA-F:.]{2,45}\]:\d{1,5}")

StripAccents = Literal["auto", "yes", "no"]
SpecialsName = Literal["albert", "xlm-roberta"]
Format = Literal["bertsmith", "tensorflow"]


def check_cluster(address: str | None, device: str = "cpu") -> None:
    """Raise `ConfigError` for what cannot be the address of a Ray cluster, or work on one."""
    if address is None:
        return
    if not _ADDRESS.fullmatch(address):
        raise ConfigError(
            f"--ray is {address!r}", remedy="it can be auto, local, or host:port of a cluster"
        )
    if device not in ("auto", "cpu"):
        raise ConfigError(
            f"--device {device} is for one machine, and --ray computes on processors",
            remedy="leave one out",
        )


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(Config):
    """The corpus, and how its files are read."""

    corpus: tuple[Path, ...] = field(metadata=POSITIONAL)
    """Files, folders or globs: .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet, .csv, .tsv or
    source code, also compressed as .gz or .zst."""
    text_column: str = "text"
    """Column of the text in tables: a name or, in a CSV or TSV, a position from 0."""
    header: HeaderOption = "auto"
    """First line of a CSV or TSV: yes if it names the columns, no if it is a row; auto decides from
    the lines."""
    layout: Layout = "auto"
    """Layout of plain text: documents, separated by blank lines; prose, one paragraph a line;
    wrapped, paragraphs wrapped into lines; auto detects it for each file."""
    encoding: str = AUTO
    """Encoding of the files, such as latin-1; auto detects it for each file."""
    text_files: tuple[str, ...] = ()
    """Name patterns, such as *.py, of further files to read as plain text."""
    markup_files: tuple[str, ...] = ()
    """Patterns of names, such as *.page, of files that are read as HTML or XML, without tags."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Config):
    """The kind of vocabulary to learn."""

    size: int = 30_000
    """Number of entries, special tokens included."""
    kind: KindName = "wordpiece"
    """wordpiece, as in BERT and DistilBERT; byte-bpe, as in RoBERTa, which has no unknown words;
    unigram, as in ALBERT (SentencePiece), which chooses the most probable segmentation."""
    cased: bool = False
    """Keep capitals and accents; byte-bpe always keeps them."""
    strip_accents: StripAccents = "auto"
    """Drop accents, so that café becomes cafe; auto drops them for an uncased vocabulary unless
    this would damage the script, as in Hindi, Arabic or Japanese."""
    character_coverage: float | None = None
    """Share of the text that the characters of the vocabulary cover, the most frequent first; by
    default 0.9995, and rarer characters as long as they fit into a sixteenth of --size."""
    specials: SpecialsName = "albert"
    """Special tokens and rules of a unigram vocabulary: albert, or xlm-roberta, which keeps
    capitals and accents."""

    def __post_init__(self) -> None:
        plain = self.kind == "unigram" and self.strip_accents != "yes"
        if self.specials == "xlm-roberta" and not plain:
            raise VocabularyError(
                "--specials xlm-roberta is for --kind unigram, and keeps accents",
                remedy="leave it or the other option out",
            )
        if self.kind != "byte-bpe":
            return
        for option, given in (
            ("--strip-accents yes", self.strip_accents == "yes"),
            ("--character-coverage", self.character_coverage is not None),
        ):
            if given:
                raise VocabularyError(
                    f"{option} is not for byte-bpe, which keeps and knows every character",
                    remedy="leave it out, or choose --kind wordpiece or unigram",
                )


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Config):
    """The options of learning a vocabulary."""

    text: CorpusConfig = field(metadata=INLINE)
    """The corpus."""
    out: Path
    """Folder for the vocabulary."""
    settings: VocabularySettings = field(default=VocabularySettings(), metadata=INLINE)
    """The kind of vocabulary."""


@dataclass(frozen=True, kw_only=True)
class ExtendConfig(Config):
    """The options of extending a model's vocabulary."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a model, or hub:owner/name."""
    text: CorpusConfig = field(metadata=INLINE)
    """The corpus."""
    add: int
    """Number of pieces to add."""
    out: Path
    """Folder for the model with the larger vocabulary."""

    def __post_init__(self) -> None:
        check_least(self, {"add": 1})


MAX_WORKERS = 1024
"""Largest number of processes that encode: each has text in memory that waits for it."""


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(Config):
    """The options of encoding a corpus into a token store."""

    text: CorpusConfig = field(metadata=INLINE)
    """The corpus."""
    vocab: Path
    """Folder made by vocab learn, a model folder, or hub:owner/name."""
    out: Path
    """Folder for the store."""
    workers: int | None = None
    """Number of processes that encode; one for each core by default."""
    ray: str | None = None
    """Encode on a Ray cluster whose machines see the same files: auto for the cluster of this
    machine, local for processes on this machine, or the host:port of a cluster."""
    held_out: float = 0.05
    """Share of the documents that is held out for evaluation and never used for training."""
    fresh: bool = False
    """Start from the beginning and discard what an interrupted run left in STORE.partial."""
    dry_run: bool = False
    """Show the files, how they are read, and the first documents with their tokens; then stop."""

    def __post_init__(self) -> None:
        check_range(self, ["workers"], f"[1, {MAX_WORKERS}]")
        check_range(self, ["held_out"], "[0, 1)")
        check_cluster(self.ray)
        if self.ray is not None and self.workers is not None:
            raise ConfigError(
                "--workers is for this machine, and --ray for a cluster", remedy="leave one out"
            )


@dataclass(frozen=True, kw_only=True)
class ModelsConfig(Config):
    """The options of listing published models."""

    json: bool = False
    """Print one JSON object to standard output, with memory in bytes."""


@dataclass(frozen=True, kw_only=True)
class ConvertConfig(Config):
    """The options of converting weights."""

    source: Path = field(metadata=POSITIONAL)
    """Folder or file of the model; for a TensorFlow checkpoint, also the prefix of its files."""
    out: Path = field(metadata=POSITIONAL)
    """Folder to write; it must not exist."""
    to: Format = "bertsmith"
    """bertsmith writes a model folder, which transformers reads too; tensorflow writes a checkpoint
    that google-research/bert reads, from a model folder."""
    reference: Path | None = None
    """Folder of the same model, whose outputs are compared with those of the result."""


@dataclass(frozen=True, kw_only=True)
class PushConfig(Config):
    """The options of sending a model to the hub."""

    model: Path = field(metadata=POSITIONAL)
    """Model folder."""
    repository: str = field(metadata=POSITIONAL)
    """Destination as owner/name; it is created if it does not exist."""
    private: bool = False
    """Make the repository private."""
    revision: str | None = None
    """Branch to upload to, created if it does not exist; main by default."""
    message: str = ""
    """Commit message."""
    license: str | None = None
    """Name of the license on the hub, such as apache-2.0, mit or cc-by-4.0."""
    language: tuple[str, ...] = ()
    """Language of the text, such as en, or several separated by commas."""
    datasets: tuple[str, ...] = ()
    """Hub data sets on which the model was trained, separated by commas."""
    dry_run: bool = False
    """Upload and write nothing; list the files and print the model card."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(Config):
    """The options of writing vectors."""

    model: Path = field(metadata=POSITIONAL)
    """Model folder, hub:owner/name or hub:owner/name@revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table; - is standard input."""
    out: Path
    """File for the vectors: .npy, .parquet or .jsonl. For tokens or words, an .npy comes with
    OUT.offsets.npy (first row of each text) and OUT.spans.npy (characters of each row)."""
    prompt: str | None = None
    """Name of a prompt in a sentence-transformers folder, which is written before each text."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    ray: str | None = None
    """Compute on a Ray cluster whose machines see the same model folder: auto for the cluster of
    this machine, local for processes on this machine, or the host:port of a cluster."""
    features: FeatureConfig = field(default=FeatureConfig(), metadata=INLINE)
    """The vectors."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation of vectors."""
    columns: TextColumns = field(default=TextColumns(), metadata=INLINE)
    """The columns of the texts."""

    def __post_init__(self) -> None:
        check_cluster(self.ray, self.device)


@dataclass(frozen=True, kw_only=True)
class QuantizeConfig(Config):
    """The options of quantising."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a fine-tuned model or of a model for vectors, or hub:owner/name."""
    calibrate: Path
    """Typical texts, one a line or in the columns of a table. Their lengths decide the speed that
    is measured; if the model is for vectors, theirs are compared with those of fp32."""
    dev: Path | None = None
    """Labelled examples on which the loss through int8 is measured; for vectors, pairs of texts
    with a number (optional)."""
    out: Path
    """Folder for the model that answers in int8."""
    threads: int | None = None
    """Processor threads; all that torch would use if not given."""
    json: bool = False
    """Print the figures as one JSON object to standard output."""
    length: TextLength = field(default=TextLength(), metadata=INLINE)
    """The part of a text that is read."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of the labelled examples, and of the texts where it applies to them."""

    def __post_init__(self) -> None:
        check_range(self, ["threads"], f"[1, {MAX_THREADS}]")


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Config):
    """The options of the demo."""

    minutes: float | None = None
    """Minutes of pre-training; by default 3, or fewer where the machine is slow, so that all steps
    together take less than six."""
    out: Path = Path("demo")
    """Folder for all results."""
    seed: int = 0
    """Seed of all random numbers."""
    json: bool = False
    """Print the figures as one JSON object to standard output."""

    def __post_init__(self) -> None:
        # before an earlier demo is cleared away
        check_least(self, {"seed": 0})
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(
                f"--minutes is {self.minutes}", remedy="it must be above 0, and finite"
            )


Attributing = Literal["integrated-gradients", "gradient-x-input", "leave-one-out", "rollout"]


@dataclass(frozen=True, kw_only=True)
class ExplainingConfig(Config):
    """The ways of sharing out answers among words."""

    methods: tuple[Attributing, ...] = ("integrated-gradients",)
    """Attribution methods, separated by commas: integrated-gradients, gradient-x-input,
    leave-one-out, rollout."""
    baseline: Literal["mask", "pad"] = "mask"
    """Token that replaces every word in the text from which integrated gradients start."""
    tolerance: float = 1e-3
    """Largest difference between the sum of integrated gradients and the difference of the logits;
    the number of steps is doubled, up to 1,024, until it is reached."""
    deletion: bool = False
    """Also test the shares: masking the top words must change answers more often than masking
    random ones."""
    answers: int = 3
    """Maximum number of answers to explain in a text that has several."""
    seed: int = 0
    """Seed of the random words that are masked."""
    length: TextLength = field(default=TextLength(), metadata=INLINE)
    """The part of a text that is read."""

    def __post_init__(self) -> None:
        check_least(self, {"answers": 1, "seed": 0})
        check_range(self, ["tolerance"], "(0, 1]")
        if not self.methods:
            raise ConfigError("--methods names none", remedy="name one or more")


@dataclass(frozen=True, kw_only=True)
class ExplainConfig(Config):
    """The options of explaining answers by the words of the texts."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a fine-tuned model, hub:owner/name or hub:owner/name@revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table, or a file of the model's task; - is standard
    input."""
    out: Path | None = None
    """HTML file for a page with the words shaded."""
    json: bool = False
    """Print everything as one JSON object to standard output."""
    limit: int = 100
    """Maximum number of texts to explain."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    explaining: ExplainingConfig = field(default=ExplainingConfig(), metadata=INLINE)
    """The attribution of answers to words."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of the file."""

    def __post_init__(self) -> None:
        check_least(self, {"limit": 1})
        if self.out is not None and self.out.suffix != ".html":
            raise ConfigError(f"--out is {self.out}", remedy="name a file that ends in .html")


@dataclass(frozen=True, kw_only=True)
class InspectConfig(Config):
    """The options of looking inside a model."""

    model: Path = field(metadata=POSITIONAL)
    """Model folder, hub:owner/name or hub:owner/name@revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table; a dependency treebank (.conllu); words with
    tags, such as entities (.conll); documents with coreference (CoNLL-2012, or CoNLL-U with
    Entity=); - is standard input."""
    out: Path
    """HTML file for the page; a .json and several .png files with the same name are written beside
    it."""
    limit: int | None = None
    """Number of texts or sentences to read from the beginning; all by default."""
    max_words: int | None = None
    """Maximum number of words in a sentence of a treebank or of tagged words; longer ones are left
    out; unlimited by default."""
    max_length: int | None = None
    """Maximum number of tokens read from a text, or in a passage with coreference; the limit of the
    model by default."""
    sample: int = 100
    """Number of texts, drawn from all, for distances between heads, gradients and examples."""
    frequent: int = 20
    """Number of most frequent tokens to show."""
    control: bool = True
    """Compare the heads for relations, tags and coreference with those of the same model with
    random weights."""
    probes: int = 0
    """Number of sentences of a treebank, drawn from all, on which probes are trained and measured,
    for example 1000; 0 for no probes."""
    against: Path | None = None
    """Second model; shows how similar the layers of the two are on the same words."""
    words: tuple[str, ...] = ()
    """Words whose uses are shown in neighbours, clusters and a map, separated by commas."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    json: bool = False
    """Print the figures as one JSON object to standard output."""
    tags: TagColumns = USUAL_TAGS
    """Columns of words and tags."""
    columns: TextColumns = field(default=TextColumns(), metadata=INLINE)
    """The columns of the texts."""

    def __post_init__(self) -> None:
        check_least(self, {"limit": 1, "max_words": 2, "max_length": 8, "sample": 2, "frequent": 1})
        check_least(self, {"probes": 0})
        if self.out.suffix != ".html":
            raise ConfigError(f"--out is {str(self.out)!r}", remedy="name a page: page.html")
