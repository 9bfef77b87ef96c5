"""The options of the recipes that are single modules, and of the demo."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range
from bertsmith.core.errors import ConfigError, VocabularyError
from bertsmith.engine.config import EngineConfig, FeatureConfig
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
    """Files, folders or globs of .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet, .csv or
    .tsv, or source code, also .gz or .zst."""
    text_column: str = "text"
    """Column of the text in tables: a name or, in a CSV or TSV, a position from 0."""
    header: HeaderOption = "auto"
    """Header of a CSV or TSV, a first line that names its columns; auto looks at some lines."""
    layout: Layout = "auto"
    """Meaning of lines and blank lines in plain text."""
    encoding: str = AUTO
    """Encoding of the files by name; auto detects it, file by file."""
    text_files: tuple[str, ...] = ()
    """Patterns of names, such as *.py, of files that are read as plain text."""
    markup_files: tuple[str, ...] = ()
    """Patterns of names, such as *.page, of files that are read as HTML or XML, without tags."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Config):
    """The kind of vocabulary to learn."""

    size: int = 30_000
    """Entries, special tokens included."""
    kind: KindName = "wordpiece"
    """wordpiece as BERT's and DistilBERT's; byte-bpe as RoBERTa's, which spells everything and
    knows no unknown words; unigram as ALBERT's (SentencePiece), the likeliest segmentation."""
    cased: bool = False
    """Keep capitals and accents; byte-bpe always does."""
    strip_accents: StripAccents = "auto"
    """Drop the combining marks of letters, which makes café cafe; auto does so for an uncased
    vocabulary unless it would change the script, as in Hindi, Arabic or Japanese."""
    character_coverage: float | None = None
    """Share of the text's characters to know, the most frequent first; if not given 0.9995, and
    rarer ones too that fit into a sixteenth of the size."""
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
    """Pieces to add."""
    out: Path
    """Folder for the model with the larger vocabulary."""

    def __post_init__(self) -> None:
        check_least(self, {"add": 1})


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(Config):
    """The options of encoding a corpus into a token store."""

    text: CorpusConfig = field(metadata=INLINE)
    """The corpus."""
    vocab: Path
    """Folder made by vocab learn, or a model folder, or hub:owner/name."""
    out: Path
    """Folder for the store."""
    workers: int | None = None
    """Processes that encode; one a core if not given."""
    ray: str | None = None
    """Encode on a Ray cluster whose machines see the same files: auto for the one that this machine
    is part of, local for processes of this machine, or its host:port."""
    held_out: float = 0.05
    """Share of the documents to measure with, never trained on."""
    fresh: bool = False
    """Start anew, whatever an interrupted preparation has left in STORE.partial."""
    dry_run: bool = False
    """Show the files, how they are read, and the first documents with their tokens, and stop."""

    def __post_init__(self) -> None:
        check_least(self, {"workers": 1})
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
    """Print one JSON object on standard output, memory in bytes."""


@dataclass(frozen=True, kw_only=True)
class ConvertConfig(Config):
    """The options of converting weights."""

    source: Path = field(metadata=POSITIONAL)
    """Folder or file of the model; of a TensorFlow checkpoint also the files' prefix."""
    out: Path = field(metadata=POSITIONAL)
    """Folder to write, which must not exist."""
    to: Format = "bertsmith"
    """bertsmith for a model folder, which transformers reads too; tensorflow for a checkpoint that
    google-research/bert reads, made of a model folder."""
    reference: Path | None = None
    """Folder of the same model, to compare the outputs of the two."""


@dataclass(frozen=True, kw_only=True)
class PushConfig(Config):
    """The options of sending a model to the hub."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a model."""
    repository: str = field(metadata=POSITIONAL)
    """Destination as owner/name; created if it does not exist."""
    private: bool = False
    """Let nobody else see it."""
    revision: str | None = None
    """Branch to send to, created if it does not exist; main if not given."""
    message: str = ""
    """Message of the commit."""
    license: str | None = None
    """The license's name on the hub, as apache-2.0, mit or cc-by-4.0."""
    language: tuple[str, ...] = ()
    """Language of its text, as en, or several with commas between."""
    datasets: tuple[str, ...] = ()
    """Data sets of the hub that it was trained on, with commas between."""
    dry_run: bool = False
    """Send and write nothing; list the files and print the card."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(Config):
    """The options of writing vectors."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a model, or hub:owner/name, or with @revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table; - is standard input."""
    out: Path
    """.npy, .parquet or .jsonl for the vectors; beside an .npy of tokens or words there are
    OUT.offsets.npy (where a text's rows begin) and OUT.spans.npy (characters)."""
    prompt: str | None = None
    """Name of a prompt of a sentence-transformers folder, to be written before each text."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto is a GPU if there is one."""
    ray: str | None = None
    """Compute on a Ray cluster whose machines see the same model folder: auto for the one that this
    machine is part of, local for processes of this machine, or its host:port."""
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
    """Folder of a fine-tuned model or of one that gives vectors, or hub:owner/name."""
    calibrate: Path
    """Texts as the model will be asked, one a line or in the columns of a table; speed is measured
    at their lengths, and how near vectors are to those of fp32."""
    dev: Path | None = None
    """Labelled examples, to measure what int8 costs; for vectors pairs of texts with a number,
    which may be left out."""
    out: Path
    """Folder for the model that is opened in int8."""
    threads: int | None = None
    """Processor threads; all that torch would use if not given."""
    json: bool = False
    """Print the figures as one JSON object on standard output."""
    length: TextLength = field(default=TextLength(), metadata=INLINE)
    """The part of a text that is read."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of the labelled examples; of the texts too, as far as it is theirs."""

    def __post_init__(self) -> None:
        check_least(self, {"threads": 1})


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Config):
    """The options of the demo."""

    minutes: float = 3.0
    """Time for pre-training; the rest takes two or three more."""
    out: Path = Path("demo")
    """Folder for everything made."""
    seed: int = 0
    """Seed of all random numbers."""
    json: bool = False
    """Print the figures as one JSON object on standard output."""

    def __post_init__(self) -> None:
        # before an earlier demo is cleared away
        check_least(self, {"seed": 0})
        if not 0 < self.minutes < math.inf:
            raise ConfigError(f"--minutes is {self.minutes}", remedy="it must be above 0")


Attributing = Literal["integrated-gradients", "gradient-x-input", "leave-one-out", "rollout"]


@dataclass(frozen=True, kw_only=True)
class ExplainingConfig(Config):
    """The ways of sharing out answers among words."""

    methods: tuple[Attributing, ...] = ("integrated-gradients",)
    """Attribution of an answer to words: integrated-gradients, gradient-x-input,
    leave-one-out, rollout."""
    baseline: Literal["mask", "pad"] = "mask"
    """Token in place of all words where integrated gradients begin."""
    tolerance: float = 1e-3
    """Largest gap between the sum of integrated gradients and the difference of the logits; more
    steps are taken until they are nearer, up to 1,024."""
    deletion: bool = False
    """Also test the shares: without the top words, answers must change more often than without
    random ones."""
    answers: int = 3
    """Answers of a text to explain at most, where it has several."""
    seed: int = 0
    """Seed of the words that are left out at random."""
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
    """Folder of a fine-tuned model, or hub:owner/name, or with @revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table, or a file of the model's task; - is standard
    input."""
    out: Path | None = None
    """Write a page with the words shaded to this .html file."""
    json: bool = False
    """Print everything as one JSON object on standard output."""
    limit: int = 100
    """Texts to explain at most."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto is a GPU if there is one."""
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
