"""Files of vectors, written as they come: .npy, .parquet or .jsonl.

Each takes its name once all of it is on the disk; what was there before stays until then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import ConfigError
from bertsmith.core.files import check_outputs, committed, created_folder, followed, writing
from bertsmith.core.log import progress, say
from bertsmith.core.ownership import claimed, temporary_path
from bertsmith.core.printable import count_with_verb, counted
from bertsmith.engine.config import Unit
from bertsmith.engine.features import TextFeatures
from bertsmith.engine.prepared import Prepared
from bertsmith.engine.static import StaticVectors
from bertsmith.hub.models import model_folder
from bertsmith.recipes.cluster import Cluster, Job, cluster_options, join_cluster, print_cluster
from bertsmith.recipes.config import EmbedConfig
from bertsmith.recipes.predict.texts import Texts
from bertsmith.tasks.opening import Embedder, open_embedder
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.reading import reading_note
from bertsmith.text.growing import as_first_opened
from bertsmith.weights.sentence_folder import is_static, read_static

# vectors that are put into one row group
_GROUP_BYTES = 2**24


class VectorFile(Protocol):
    """A destination of features."""

    def add(self, features: TextFeatures) -> None:
        """Write the features of one more text."""


class _NewFiles:
    """Files that take their names together, at the end, the first of them last."""

    def __init__(self) -> None:
        self.names: dict[Path, Path] = {}
        """The files' own names, by their names until the end."""
        self.claims = ExitStack()
        self.open_until_end = ExitStack()

    def open(self, path: Path) -> BinaryIO:
        """Return a new file, under a temporary name until the end."""
        if path.is_dir():
            raise ConfigError(f"--out is {path}, a folder", remedy="name a file in it")
        final = followed(path)
        self.claims.enter_context(claimed(final, shown=path))
        part = temporary_path(final)
        self.names[part] = final
        return self.open_until_end.enter_context(part.open("wb"))


Writer = Callable[[Path, int, Unit, _NewFiles], VectorFile]


@contextmanager
def vector_file(out: Path, width: int, unit: Unit) -> Iterator[VectorFile]:
    """Yield a file to write features to, by its extension; it replaces one of its name at the end.

    .npy holds the vectors alone, (texts, width). Where a text has several, all rows stand in it one
    after another; ``NAME.offsets.npy`` (texts + 1,) says where those of each text begin, and
    ``NAME.spans.npy`` (rows, 2) the characters of each. Raises `ConfigError`, `DiskError`, and
    `OutputTaken` when another process is writing one of them.
    """
    writer, files = check_kind(out), _NewFiles()
    with (
        writing(out),
        created_folder(followed(out).parent),
        files.claims,
        committed(files.names),
        files.open_until_end,
    ):
        yield writer(out, width, unit, files)


def check_kind(out: Path) -> Writer:
    """Return the writer of files with this extension; raises `ConfigError` if there is none."""
    if out.suffix not in _WRITERS:
        raise ConfigError(
            f"--out is {str(out)!r}", remedy=f"name a file that ends in {', '.join(_WRITERS)}"
        )
    return _WRITERS[out.suffix]


class _Rows:
    """An .npy of rows whose number is known only at the end."""

    def __init__(self, path: Path, kind: str, shape: tuple[int, ...], files: _NewFiles) -> None:
        self._shape, self._kind, self.count = shape, np.dtype(kind), 0
        self._file = files.open(path)
        self._write_header()
        files.open_until_end.callback(self._write_header)

    def write(self, rows: NDArray[Any]) -> None:
        """Append rows of the shape."""
        assert rows.shape[1:] == self._shape
        self._file.write(np.ascontiguousarray(rows, self._kind).data)
        self.count += len(rows)

    def _write_header(self) -> None:
        """Write the header, which has room for any number of rows."""
        shape = (self.count, *self._shape)
        header = {"descr": self._kind.str, "fortran_order": False, "shape": shape}
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, header)


class _Arrays:
    """One .npy, or three for rows of texts of different lengths."""

    def __init__(self, path: Path, width: int, unit: Unit, files: _NewFiles) -> None:
        self._unit = unit
        self._vectors = _Rows(path, "<f4", (width,), files)
        if unit != "text":
            self._offsets = _Rows(path.with_suffix(".offsets.npy"), "<i8", (), files)
            self._offsets.write(np.zeros(1, np.int64))
            self._spans = _Rows(path.with_suffix(".spans.npy"), "<i8", (2,), files)

    def add(self, features: TextFeatures) -> None:
        """Append the row, or the rows, of one text."""
        if self._unit == "text":
            self._vectors.write(features.vectors[None])
            return
        self._vectors.write(features.vectors)
        self._spans.write(features.spans)
        self._offsets.write(np.array([self._vectors.count]))


class _Lines:
    """A JSON object a line."""

    def __init__(self, path: Path, width: int, unit: Unit, files: _NewFiles) -> None:
        self._unit = unit
        # nine digits say which float32 it is
        self._form = f"[{','.join(['%.9g'] * width)}]"
        self._file = files.open(path)

    def add(self, features: TextFeatures) -> None:
        """Write the line of one text."""
        line: dict[str, Any] = {"line": features.example.line, "text": features.example.text}
        if features.example.text_pair is not None:
            line["text_pair"] = features.example.text_pair
        if self._unit != "text":
            line[f"{self._unit}s"] = features.names
            line["spans"] = features.spans.tolist()
        rows = features.vectors if self._unit != "text" else features.vectors[None]
        vectors = ",".join([self._form % tuple(row) for row in rows.tolist()])
        vectors = f'"vector": {vectors}' if self._unit == "text" else f'"vectors": [{vectors}]'
        start = json.dumps(line, ensure_ascii=False)[:-1]
        self._file.write(f"{start}, {vectors}}}\n".encode())


class _Table:
    """A Parquet file, row group by row group."""

    def __init__(self, path: Path, width: int, unit: Unit, files: _NewFiles) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._unit, self._width = unit, width
        vector = pa.list_(pa.float32(), width)
        columns = [("line", pa.int64()), ("text", pa.string()), ("text_pair", pa.string())]
        if unit == "text":
            columns.append(("vector", vector))
        else:
            places = pa.list_(pa.int64())
            columns += [(f"{unit}s", pa.list_(pa.string())), ("starts", places), ("ends", places)]
            columns.append(("vectors", pa.list_(vector)))
        self._schema = pa.schema(columns)
        written = parquet.ParquetWriter(files.open(path), self._schema)
        self._writer: Any = files.open_until_end.enter_context(written)
        self._waiting: list[TextFeatures] = []
        self._bytes = 0
        files.open_until_end.callback(self._write)

    def add(self, features: TextFeatures) -> None:
        """Take the features of one text; those of several are written at once."""
        self._waiting.append(features)
        self._bytes += features.vectors.nbytes + len(features.example.text)
        if self._bytes >= _GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        examples = [features.example for features in waiting]
        columns: list[Any] = [
            [example.line for example in examples],
            [example.text for example in examples],
            [example.text_pair for example in examples],
        ]
        flat = np.concatenate([features.vectors.reshape(-1) for features in waiting])
        vectors: Any = pa.FixedSizeListArray.from_arrays(pa.array(flat), self._width)
        if self._unit != "text":
            columns += [
                [features.names for features in waiting],
                [features.spans[:, 0] for features in waiting],
                [features.spans[:, 1] for features in waiting],
            ]
            vectors = pa.ListArray.from_arrays(_offsets(waiting), vectors)
        arrays = [
            pa.array(column, kind)
            for column, kind in zip(columns, self._schema.types, strict=False)
        ]
        self._writer.write_table(pa.Table.from_arrays([*arrays, vectors], schema=self._schema))


def _offsets(waiting: Sequence[TextFeatures]) -> NDArray[np.int32]:
    """Return the first row of each text, (texts + 1,)."""
    counts = [len(features.vectors) for features in waiting]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


_WRITERS: dict[str, Writer] = {".npy": _Arrays, ".parquet": _Table, ".jsonl": _Lines}


def embed(config: EmbedConfig) -> None:
    """Write the vectors of texts, in their order, to an .npy, .parquet or .jsonl file.

    Memory does not grow with the number of texts. How many were truncated is reported at the end.
    """
    check_kind(config.out)
    check_outputs(config.out, [config.out], config.file)
    columns = Columns(**config.columns.to_dict())
    folder = model_folder(config.model)
    with as_first_opened(Path(config.file)):
        if is_static(folder):
            _embed_static(folder, config, columns)
        elif config.ray is None:
            _embed(config, columns, None)
        else:
            with join_cluster(config.ray) as cluster:
                _embed(replace(config, **cluster_options(config.engine)), columns, cluster)


def _embed(config: EmbedConfig, columns: Columns, cluster: Cluster | None) -> None:
    """Write the vectors of texts, computed here or on a cluster."""
    embedder = _open_worker_embedder(config)

    def features(examples: Iterable[Example]) -> Iterator[TextFeatures]:
        if cluster is None:
            return embedder.features(examples)
        return _cluster_features(embedder, config, examples, cluster)

    settings, encoder = embedder.config, embedder.engine.model.config.encoder
    totals = _write_vectors(config, columns, embedder.width, settings.unit, features)
    totals.print(
        f"{settings.pool} of layer {settings.layer}, vectors of {embedder.width}",
        limit=min(settings.max_length or encoder.longest, encoder.longest),
        engine=embedder.engine,
    )


def _write_vectors(
    config: EmbedConfig,
    columns: Columns,
    width: int,
    unit: Unit,
    features: Callable[[Iterable[Example]], Iterator[TextFeatures]],
) -> _Totals:
    """Write what a function makes of the texts, and return the figures for the end."""
    texts = Texts(config.file, columns, keep_blank=True)
    reading, totals = _Reading(texts), _Totals(config.out, texts)
    if note := reading_note(Path(config.file), columns):
        say(note)
    with (
        vector_file(config.out, width, unit) as vectors,
        progress("embedding", texts.total_bytes, "B") as bar,
    ):
        for text_features in features(reading):
            vectors.add(text_features)
            totals.count(text_features)
            bar.move_to(reading.answered(text_features.example))
    return totals


def _open_worker_embedder(config: EmbedConfig) -> Embedder:
    return open_embedder(
        config.model,
        config.features,
        prompt=config.prompt,
        engine=config.engine,
        device=config.device,
    )


def _cluster_features(
    embedder: Embedder, config: EmbedConfig, examples: Iterable[Example], cluster: Cluster
) -> Iterator[TextFeatures]:
    """Yield as `Embedder.features`, computed on a cluster in the same windows."""
    threads = config.engine.threads or 1
    job = Job(open=_open_worker_embedder, argument=config, work=features_of, threads=threads)
    print_cluster(cluster, threads)
    for window_features in cluster.in_order(job, embedder.windows(examples)):
        yield from window_features


def features_of(embedder: Embedder, window: list[Example]) -> list[TextFeatures]:
    """Return the features of a window of examples, in a process of a cluster."""
    return list(embedder.features(window))


def _embed_static(folder: Path, config: EmbedConfig, columns: Columns) -> None:
    """Write the vectors of a static model, which has no layers to choose from."""
    feature_config = config.features
    if feature_config.pool not in ("auto", "mean") or feature_config.layer != "last":
        raise ConfigError(
            "a static model gives the mean of its pieces' vectors",
            remedy="leave --pool and --layer out",
        )
    if feature_config.max_length is not None or feature_config.truncation != "cut":
        raise ConfigError(
            "a static model reads texts of any length whole",
            remedy="leave --max-length and --truncation out",
        )
    elsewhere = config.ray is not None or config.device not in ("auto", "cpu")
    if elsewhere or config.engine.precision not in ("auto", "fp32"):
        raise ConfigError(
            "a static model looks its vectors up, in fp32 and on the processor of this machine",
            remedy="leave --ray, --precision and --device out",
        )
    table, tokenizer, settings = read_static(folder)
    static = StaticVectors(
        table=table.numpy(), tokenizer=tokenizer, prompt=settings.prompt(config.prompt),
        longest=settings.longest, after=settings.after, normalize=feature_config.normalize,
    )  # fmt: skip
    totals = _write_vectors(config, columns, static.width, "text", static.features)
    totals.print(f"static vectors of {static.width}", limit=settings.longest)


class _Reading:
    """Texts as they are read, and how far the file has been read and answered."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._read = self._answered = 0

    def __iter__(self) -> Iterator[Example]:
        for example in self._texts:
            self._read += len(example.text)
            yield example

    def answered(self, example: Example) -> float:
        """Return about how many bytes of the file precede a text that has been answered."""
        self._answered += len(example.text)
        # a file is read ahead of the answers, by a megabyte or more
        return self._texts.bytes_read * self._answered / max(self._read, 1)


class _Totals:
    """The figures printed at the end."""

    def __init__(self, out: Path, texts: Texts) -> None:
        self._out, self._source = out, texts
        self._began = time.monotonic()
        self._texts = self._tokens = self._cut = self._left_out = self._blank = 0

    def count(self, features: TextFeatures) -> None:
        """Count one more text."""
        self._texts += 1
        self._tokens += features.tokens
        self._left_out += features.left_out
        self._cut += features.left_out > 0
        # of a pair both
        self._blank += not features.example.text and not features.example.text_pair

    def print(self, made: str, *, limit: int | None, engine: Prepared | None = None) -> None:
        """Print a summary of what was `made` and of what was left out, beyond `limit` tokens."""
        seconds = time.monotonic() - self._began
        say(
            f"{self._out}: {counted(self._texts, 'text')}, {made}; "
            f"{counted(self._tokens, 'token')} in {seconds:.1f} s"
        )
        windows = ""
        if engine is not None:
            say(f"engine: {engine}")
            share = self._left_out / max(self._tokens + self._left_out, 1)
            windows = f", {100 * share:.1f} % of all tokens; --truncation windows reads them whole"
        if self._cut:
            cut = count_with_verb(self._cut, self._texts, "text")
            say(f"{cut} longer than {limit} tokens and cut{windows}")
        if self._blank:
            say(f"{counted(self._blank, 'blank row')}: the vector of an empty text for each")
        if self._source.blank:
            # the rows of an .npy have no line numbers
            remark = "" if self._out.suffix != ".npy" else ": rows are those of the others"
            say(f"{counted(self._source.blank, 'blank line')} skipped{remark}")
