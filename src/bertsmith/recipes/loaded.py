"""The Python API: a model folder opened once, and asked as often as wanted.

    import bertsmith

    model = bertsmith.load("run/model")
    model.predict(["How late is the train?", "Play some jazz."])

Answers are dictionaries, equal to what `bertsmith predict --format jsonl` writes beside the columns
of its input. Every mistake in a request is a `UserError`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial, wraps
from inspect import Signature, signature
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import (
    Any,
    Literal,
    NoReturn,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    get_args,
    get_type_hints,
)

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.core.config import typed_value
from bertsmith.core.errors import ConfigError, ModelFolderError, UserError
from bertsmith.core.files import canonical, json_problem
from bertsmith.core.keywords import in_python, python_terms
from bertsmith.core.log import reworded
from bertsmith.core.options import check_name, check_size, configured
from bertsmith.core.printable import counted
from bertsmith.engine.config import EngineConfig, FeatureConfig, FillingConfig, WritingConfig
from bertsmith.engine.devices import device_named
from bertsmith.engine.prepared import Prepared
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model
from bertsmith.network.torch_state import forget_other_threads, usual_torch_state
from bertsmith.recipes.config import ExplainingConfig
from bertsmith.recipes.predict.config import MAX_SAMPLES, MeasuringConfig, ScoringConfig
from bertsmith.recipes.predict.evaluate import evaluate_model
from bertsmith.recipes.predict.recipe import answer_rows, open_rows
from bertsmith.recipes.predict.rows import EXAMPLES, InputRow, value_rows
from bertsmith.recipes.predict.score import score_answering
from bertsmith.recipes.predict.write import written_texts
from bertsmith.tasks.answering import Presented, PretrainedAnswering, TaskAnswering, answering_of
from bertsmith.tasks.config import AnsweringConfig, Reading
from bertsmith.tasks.opening import Embedder, embedder_of, open_model
from bertsmith.text.examples.example import Example
from bertsmith.text.white_space import tidy
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.sentence_folder import read_sentence_folder
from bertsmith.weights.versions import FolderVersion

P = ParamSpec("P")
T = TypeVar("T")


_CONFIGS = (
    MeasuringConfig,
    FeatureConfig,
    EngineConfig,
    FillingConfig,
    ScoringConfig,
    ExplainingConfig,
    WritingConfig,
)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that raises `ConfigError` for arguments of a type that it does not take.

    Paths may be strings, and groups of settings dictionaries.
    """

    @wraps(function)
    def call(*values: P.args, **named: P.kwargs) -> T:
        parameters, hints = _typed(function)
        try:
            bound = parameters.bind(*values, **named)
        except TypeError as error:
            names = ", ".join(name for name in parameters.parameters if name != "self")
            problem = f"{function.__name__}: {error}"
            raise ConfigError(problem, remedy=f"it takes {names}") from error
        for name, value in bound.arguments.items():
            for key, item in value.items() if name == "options" else [(name, value)]:
                check_size(key, item)
            if Path in get_args(hints.get(name)):
                check_name(name, value)
                if "\0" in _text_of(value):
                    raise ConfigError(f"{name} holds a zero byte", remedy="leave it out")
            if hints.get(name, Any) is not Any:
                bound.arguments[name] = typed_value(value, hints[name], name, None)
        with python_terms(*_CONFIGS), usual_torch_state():
            return function(*bound.args, **bound.kwargs)

    return call


def _text_of(path: object) -> str:
    """Return a path as text, "" for what is none."""
    return str(path) if isinstance(path, str | Path) else ""


@cache
def _typed(function: Callable[..., Any]) -> tuple[Signature, dict[str, Any]]:
    """Return the parameters of a function and their types."""
    return signature(function), get_type_hints(function)


# combinations of options whose answering is kept
_KEPT = 32


_OPEN: weakref.WeakSet[LoadedModel] = weakref.WeakSet()


def _compute_in_one_thread() -> None:
    """Make the models of a forked process compute in one thread.

    Of OpenMP's threads, which torch computes in, the child has none, and would wait for them for
    ever.
    """
    torch.set_num_threads(1)
    forget_other_threads()
    for model in list(_OPEN):
        model._forked()


@cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_compute_in_one_thread)


class LoadedModel:
    """A model folder made ready to answer; `bertsmith.load` opens one."""

    def __init__(
        self, name: str | Path, folder: Path, device: torch.device, config: EngineConfig
    ) -> None:
        self.name = str(name)
        # the working folder may be another one later
        self._folder, self._device, self._config = canonical(folder), device, config
        self._version = FolderVersion.of(self._folder)
        self._sentences = read_sentence_folder(self._folder)
        self.engine, self.tokenizer = open_model(self._folder, device, config)
        # else vectors would be made by the settings of another model
        self._version.check()
        self._measuring = self.engine
        self._network: tuple[Model, Tokenizer] | None = None
        # opened once: that takes as long as the answer to a short text
        self._answerings: dict[object, Presented[Any]] = {}
        self._embedders: dict[object, Embedder] = {}
        self.model = self.engine.model
        _watch_forks()
        _OPEN.add(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise `ConfigError`: weights made ready for one processor are not copied."""
        raise ConfigError(
            f"the loaded model {self.name!r} can be neither copied nor pickled",
            remedy="hand over the name of its folder, and bertsmith.load it there",
        )

    def _forked(self) -> None:
        """Answer in one thread, in a process that was forked from the one that opened the model."""
        self.engine, self._measuring = self.engine.in_one_thread(), self._measuring.in_one_thread()
        self._embedders.clear()

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, tags or numbers of the model; empty where it has none."""
        return self.model.config.labels

    def __repr__(self) -> str:
        config = self.model.config
        encoder = config.encoder
        heads: list[str] = [config.predicts] if config.predicts else []
        heads += ["fill-mask"] * (config.masked_lm and not encoder.causal)
        heads += ["continuation"] * (config.masked_lm and encoder.causal)
        heads += ["next-sentence"] * config.next_sentence
        labels = f", {counted(len(config.labels), 'label')}" if config.labels else ""
        return (
            f"<LoadedModel {self.name!r}: {', '.join(heads) or 'no head'}{labels}; "
            f"{counted(encoder.layers, 'layer')} of {encoder.hidden}, "
            f"up to {encoder.longest} tokens; engine: {self.engine}>"
        )

    @checked
    def predict(self, examples: Any, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return the model's answer to each example, in order; all values are None for a blank one.

        An example is a text, a pair of texts as a tuple, or a dictionary of the fields that a row
        of the task's JSONL has: ``{"question": ..., "context": ...}``, ``{"text": ...,
        "choices": [...]}``, ``{"tokens": [...]}``. `options` are those of `AnsweringConfig`, such
        as ``top=3``, or ``max_new_tokens=9`` for a model that continues texts. Raises
        `ConfigError` and `ExampleError`.
        """
        answering = self._answering(options)
        predictor = self.engine.predictor(answering)
        with _open_examples(_check_several(examples), answering, self.model.config) as rows:
            records = [record for _, record in answer_rows(predictor, answering, rows)]
        return _with_blanks(records, answering.keys)

    @checked
    def fill_mask(self, text: str, *, top: int = 5, **options: Any) -> list[Any]:  # noqa: ANN401
        """Return the `top` likeliest pieces for each [MASK] of a text, from left to right.

        Each is a dictionary of `piece` and `probability`. Several masks are filled independently.
        `options` are those of `FillingConfig`: with ``choices=["tea", "hot chocolate"]`` or
        ``most_pieces=3`` each is a dictionary of `word`, `pieces`, `probability` and `score`; with
        ``joint=True`` the list has one filling for each mask, found together: the most confident
        mask first, the others given it. Raises `ModelFolderError` for a model that cannot fill
        masks, `ConfigError` for options, `ExampleError` for a text without a mask or with too many
        tokens.
        """
        network = self.model.config
        if not network.masked_lm or network.encoder.causal:
            raise ModelFolderError(
                "cannot fill masks", where=self.name, remedy="load a model pre-trained to do so"
            )
        config = AnsweringConfig(top=top)
        _check_choices(options)
        filling = configured(FillingConfig, options, spelled=in_python)
        answering = PretrainedAnswering(self.model, self.tokenizer, config.top, filling)
        rows = value_rows([text], None)
        with _counted_from_zero():
            ((_, record),) = answer_rows(self.engine.predictor(answering), answering, rows)
        if record is None:
            raise ConfigError("text is blank", remedy="give a text with a mask")
        fillings: list[Any] = record["joint"]["fillings"] if filling.joint else record["masks"]
        return fillings

    @checked
    def score(self, texts: Any, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return how well the model predicts the tokens of each text, or of both of a pair.

        `score` is the pseudo-log-likelihood of a masked model, in nats, or the log-likelihood of
        one that reads from left to right; of a pair, given as a tuple, `better` says which text has
        the higher one. `options` are those of `ScoringConfig`: ``masking="word-l2r"``. All is None
        for a blank text. Where the precision is auto, it is fp32, for which the folder is opened
        again. Raises `ModelFolderError`, `ConfigError` and `ExampleError`.
        """
        config = configured(ScoringConfig, options, spelled=in_python)
        engine = self._full_precision()
        answering = score_answering(engine.model, self.tokenizer, config.masking, where=self.name)
        rows = value_rows(_check_several(texts, or_dictionaries=False), None)
        with _counted_from_zero():
            answers = list(answer_rows(engine.predictor(answering), answering, rows))
        records = [record for _, record in answers]
        return _with_blanks(records, answering.keys)

    @checked
    def write(self, prompt: str = "", *, samples: int = 1, **options: Any) -> list[str]:  # noqa: ANN401
        """Return texts that begin with a prompt, written by the model.

        `options` are those of `WritingConfig`, such as ``length=20``, ``how="gibbs"`` or
        ``temperature=0.7``. Raises `ModelFolderError`, `ConfigError` and `ExampleError`.
        """
        config = configured(WritingConfig, options, spelled=in_python)
        if not 1 <= samples <= MAX_SAMPLES:
            raise ConfigError(f"samples is {samples}", remedy=f"it must be in [1, {MAX_SAMPLES}]")
        written = written_texts(
            self.engine, self.tokenizer, prompt, samples, config, where=self.name
        )
        return [text.text for text in written]

    @checked
    def explain(self, examples: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the shares of words in the model's answers, as `bertsmith explain --json` does.

        `explanations` are of one answer each, in order: the number of its `text` among the
        examples, from 0, the `answer`, its `words`, and the `shares` by each of the `methods`.
        Examples are those of `predict`; blank ones are left out. `options` are those of
        `ExplainingConfig`: ``methods=["leave-one-out"]``, ``deletion=True``. Gradients need the
        weights as they are, so the folder is opened again for the first call. Raises
        `ModelFolderError` for a model without a task's head, `ConfigError` and `ExampleError`.
        """
        # not above: prediction alone would wait 20 ms for it
        from bertsmith.recipes import explain

        config = configured(ExplainingConfig, options, spelled=in_python)
        if self._network is None:
            network = explain.open_network(self._folder, self._device)
            self._version.check()
            self._network = network
        answering = explain.explaining_answering(*self._network, config, where=self.name)
        model = self._network[0]
        with _open_examples(_check_several(examples), answering, model.config) as rows:
            explained = explain.explain_rows(model, answering, enumerate(rows), config)
            return explain.explanation_figures(explained)

    @checked
    def embed(
        self,
        texts: Any,  # noqa: ANN401
        *,
        prompt: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> NDArray[np.float32]:
        """Return the vector of each text, or pair of texts as a tuple, (texts, width).

        `options` are those of `FeatureConfig`, such as ``pool="cls"``, ``layer="second-to-last"``
        or ``normalize=True``; by default vectors are what the folder says, else means over tokens.
        Raises `ConfigError`.
        """
        key = _key(options, prompt)
        embedder = _cached(self._embedders, key, lambda: self._embedder(options, prompt))
        examples = (
            row.example or _blank(row)
            for row in value_rows(_check_several(texts, or_dictionaries=False), None)
        )
        with _counted_from_zero():
            return embedder.vectors(examples)

    @checked
    def evaluate(self, rows: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the scores on labelled rows with their 95 % intervals, and show them.

        `rows` is a file that `bertsmith evaluate` reads, or dictionaries as the rows of a JSONL
        file. `options` are those of `MeasuringConfig`, such as ``text_column="review"``. Where the
        precision is auto, it is measured in fp32, for which the folder is opened again. Raises
        `ExampleError`, `ConfigError` and `ModelFolderError`.
        """
        config = configured(MeasuringConfig, options, spelled=in_python)
        answering = answering_of(self.model, self.tokenizer, config.answering, where=self.name)
        if config.reading.on_bad == "quarantine" and not isinstance(rows, str | Path):
            raise ConfigError(
                "bad rows are written beside their file, and dictionaries have none",
                remedy="give --on-bad skip, or name a file",
            )
        with _file_of(rows, "give dictionaries only, or name a file") as file:
            return evaluate_model(
                self._full_precision(), answering, file, where=self.name, reading=config.reading
            )

    def _full_precision(self) -> Prepared:
        """Return the model in the requested precision, and in fp32 where that is auto."""
        if self._config.precision == "auto" and self._measuring.precision != "fp32":
            exact = replace(self._config, precision="fp32")
            measuring = open_model(self._folder, self._device, exact)[0]
            self._version.check()
            self._measuring = measuring
        return self._measuring

    def _embedder(self, options: dict[str, Any], prompt: str | None) -> Embedder:
        config = configured(FeatureConfig, options, spelled=in_python)
        if config.unit != "text":
            raise ConfigError(
                f"pool is {config.pool!r}, which gives a text several vectors",
                remedy="write them to a file with: bertsmith embed",
            )
        loaded = (self.engine, self.tokenizer)
        return embedder_of(loaded, self._sentences, config, prompt=prompt, where=self._folder)

    def _answering(self, options: dict[str, Any]) -> Presented[Any]:
        def opened() -> Presented[Any]:
            _check_choices(options)
            config = configured(AnsweringConfig, options, spelled=in_python)
            return answering_of(self.model, self.tokenizer, config, where=self.name)

        return _cached(self._answerings, _key(options), opened)


# threads may share a model
_caching = Lock()


def _cached(cache: dict[object, T], key: object, make: Callable[[], T]) -> T:
    """Return the entry for a key; one that is made now takes the place of the oldest of many.

    Threads may make the same at once.
    """
    value = cache.get(key)
    if value is None:
        value = make()
        with _caching:
            while len(cache) >= _KEPT:
                del cache[next(iter(cache))]
            cache[key] = value
    return value


def _key(options: Mapping[str, Any], *more: object) -> object:
    """Return a key that options share if they are written alike, types included."""
    return repr(sorted(options.items())), more


def _with_blanks(
    records: Sequence[dict[str, Any] | None], keys: Sequence[str]
) -> list[dict[str, Any]]:
    """Return records, with no values in place of None: by the keys of the others, or these."""
    first = next((record for record in records if record is not None), dict.fromkeys(keys))
    return [dict.fromkeys(first) if record is None else record for record in records]


def _check_choices(options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for no choices, which a program may have found, in place of any word."""
    choices = options.get("choices")
    if isinstance(choices, list | tuple) and not choices:
        raise ConfigError("choices is empty", remedy="give words, or leave it out")


def _check_several(
    examples: Any,  # noqa: ANN401
    *,
    or_dictionaries: bool = True,
) -> Iterable[Any]:
    """Return several examples, which may be dictionaries unless the caller reads texts alone.

    Raises `ConfigError` for what is one example, or none.
    """
    # iterating over a table of pandas gives the names of its columns
    if hasattr(examples, "columns"):
        rows = f"its rows, as of {_rows_call(examples)}, or " if or_dictionaries else ""
        raise ConfigError(
            f"examples are a {type(examples).__name__}, a table",
            remedy=f"give {rows}the texts of a column",
        )
    if (
        isinstance(examples, str | bytes | Mapping)
        or not isinstance(examples, Iterable)
        # an array of numpy without a dimension, which cannot be iterated over
        or getattr(examples, "ndim", 1) == 0
    ):
        raise ConfigError(
            f"examples are of type {type(examples).__name__}", remedy="give a list of them"
        )
    # iterating over a column of Arrow gives objects of its own, not strings
    values: Iterable[Any] = examples.to_pylist() if hasattr(examples, "to_pylist") else examples
    return values


def _rows_call(table: object) -> str:
    """Return the call that gives the rows of a table of pyarrow, polars or pandas."""
    for name in ("to_pylist", "to_dicts"):
        if hasattr(table, name):
            return f"table.{name}()"
    return "pandas table.to_dict('records')"


def _blank(row: InputRow[Any]) -> Example:
    """Return an example with a blank text, which has a vector too."""
    text, pair = row.columns["text"], row.columns.get("text_pair")
    return Example(
        text=tidy(str(text)),
        text_pair=None if pair is None else tidy(str(pair)),
        label=None,
        source=EXAMPLES,
        line=1,
    )


@contextmanager
def _open_examples(
    examples: Iterable[Any], answering: Presented[Any], config: ModelConfig
) -> Iterator[Iterator[InputRow[Any]]]:
    """Yield rows to answer for: those of dictionaries are read as from a file."""
    task = answering.task if isinstance(answering, TaskAnswering) else None
    rest = iter(examples)
    first = list(islice(rest, 1))
    if not (first and isinstance(first[0], Mapping)):
        trained = config.preprocessing
        pairs = trained.pairs if trained is not None and task is not None else None
        with _counted_from_zero():
            yield value_rows(chain(first, rest), task, pairs=pairs, or_dictionaries=True)
        return
    remedy = "give dictionaries only, or strings and tuples only"
    with _file_of(chain(first, rest), remedy) as file:
        yield open_rows(config, answering, str(file), Reading())[1]


@contextmanager
def _counted_from_zero(source: str = EXAMPLES) -> Iterator[None]:
    """Make errors in the rows of a source name examples as Python counts them."""
    try:
        yield
    except UserError as error:
        if error.where is not None and str(error.where) == source:
            error.where, error.line = _named(error.line), None
            error.args = (str(error),)
        raise


def _named(line: int | None) -> str:
    return EXAMPLES if line is None else f"example {line - 1}"


@contextmanager
def _file_of(rows: Any, remedy: str) -> Iterator[Path]:  # noqa: ANN401
    """Yield the file of some rows: the one named, or a temporary JSONL file of dictionaries.

    The user did not write that one: what is said of it is said of the examples. Raises
    `ConfigError` with `remedy` for rows that are no dictionaries.
    """
    if isinstance(rows, str | Path):
        yield Path(rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        # a name that no text has
        file = Path(folder) / f"{Path(folder).name}.jsonl"
        with reworded(partial(_of_examples, file)), _counted_from_zero(str(file)):
            with file.open("wb") as stream:
                for number, row in enumerate(_check_several(rows)):
                    stream.write(_line(row, number, remedy))
            try:
                yield file
            except UserError as error:
                error.reword(partial(_of_examples, file))
                raise


def _of_examples(file: Path, text: str) -> str:
    """Rewrite a message about a file that the user did not write as one about examples."""

    def named(found: re.Match[str]) -> str:
        return _named(int(found["line"]) if found["line"] else None)

    text = re.sub(r"^  line (?P<line>\d+) *", lambda found: f"  {named(found):<12}", text)
    mention = rf"({re.escape(f'{file.parent}{os.sep}')})?{re.escape(file.name)}"
    return re.sub(rf"{mention}(:(?P<line>\d+)|: JSONL)?", named, text)


def _line(row: object, number: int, remedy: str) -> bytes:
    if not isinstance(row, Mapping):
        raise ConfigError(f"example {number} is of type {type(row).__name__}", remedy=remedy)
    try:
        # lone surrogates are read from escapes alone
        return json.dumps(dict(row), default=_plain).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        why = error if isinstance(error, TypeError) else json_problem(error)
        problem = f"example {number} cannot be written as JSON: {why}"
        raise ConfigError(problem, remedy="give strings, numbers and lists of these") from error


def _plain(value: Any) -> object:  # noqa: ANN401
    """Return numbers and arrays of numpy as JSON has them, and dates as text."""
    for name in ("tolist", "isoformat"):
        if hasattr(value, name):
            plain: object = getattr(value, name)()
            return plain
    raise TypeError(f"{type(value).__name__} has no form in JSON")


@checked
def load(
    model: str | Path,
    *,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto",
    threads: int | None = None,
    reproducible: bool = False,
) -> LoadedModel:
    """Open a model folder, or ``hub:owner/name``, to answer, to fill masks or to give vectors.

    `device` is auto (a GPU if there is one), cpu, cuda or cuda:1; the other options are
    those of `EngineConfig`. Raises `ModelFolderError`, `ConfigError`, `HubError` and
    `VocabularyError`.
    """
    options = {"precision": precision, "threads": threads, "reproducible": reproducible}
    config = configured(EngineConfig, options, spelled=in_python)
    return LoadedModel(model, model_folder(model), device_named(device), config)
