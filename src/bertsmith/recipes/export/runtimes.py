"""Exported files opened in their runtimes, as functions and as models, compared with the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.shapes import ClassLogits, Hidden, Scores, SelectedTokens, SpanLogits, TagLogits
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import pooled
from bertsmith.recipes.export.config import Target
from bertsmith.recipes.export.graph import SENTENCE_OUTPUT, input_names, output_names
from bertsmith.recipes.export.program import (
    ONNX_FILE,
    OPENVINO_FILE,
    TORCH_FILE,
    import_onnxruntime,
    import_openvino,
    quiet,
)
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.sentence_folder import SentenceSettings

Arrays = dict[str, NDArray[Any]]
Runtime = Callable[[Mapping[str, NDArray[np.int64]]], Arrays]
"""Inputs by name to outputs by name."""


def output_file(folder: Path, target: Target) -> Path:
    """Return the file that an export writes into its folder."""
    if target == "transformers.js":
        return folder / "onnx" / ONNX_FILE
    names = {"onnx": ONNX_FILE, "openvino": OPENVINO_FILE, "torch-export": TORCH_FILE}
    return folder / names[target]


def open_exported(path: Path, target: Target, outputs: Sequence[str]) -> Runtime:
    """Return a file opened in its own runtime: onnxruntime, OpenVINO in float32, or torch.

    `outputs` are their names, which a program of torch does not keep.
    """
    if target == "openvino":
        return _openvino(path)
    return _torch(path, outputs) if target == "torch-export" else open_onnx(path)


def open_onnx(path: Path, threads: int | None = None) -> Runtime:
    """Return a file of ONNX opened in onnxruntime on the processor."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run


def _openvino(path: Path) -> Runtime:
    openvino = import_openvino()
    # processors with bf16 would take that, and be further off than rounding
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(path, "CPU", settings)

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        results = compiled(dict(inputs))
        return {output.get_any_name(): np.array(results[output]) for output in compiled.outputs}

    return run


def _torch(path: Path, outputs: Sequence[str]) -> Runtime:
    with quiet():
        module = torch.export.load(path).module()

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        with torch.no_grad():
            results = module(**{name: torch.from_numpy(item) for name, item in inputs.items()})
        return {name: result.numpy() for name, result in zip(outputs, results, strict=True)}

    return run


def padded_inputs(
    batch: Batch, names: list[str], *, pad_id: int, choices: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Return a packed batch as the inputs of an exported model, padded on the right.

    Each is (sequences, longest); with `choices` (sequences / choices, choices, longest).
    """
    lengths = np.array(batch.lengths)
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded: dict[str, NDArray[np.int64]] = {}
    for name, values, empty in (
        ("input_ids", batch.ids.numpy(), pad_id),
        ("attention_mask", 1, 0),
        ("token_type_ids", batch.segments.numpy(), 0),
    ):
        if name in names:
            padded[name] = np.full(mask.shape, empty, np.int64)
            padded[name][mask] = values
    if choices is None:
        return padded
    return {name: result.reshape(-1, choices, mask.shape[1]) for name, result in padded.items()}


class ExportedModel(Model):
    """An exported file in the place of a model with a head for a task, or of one without heads.

    Its encoder runs the file, head and all, and its head returns what came of that. Where the file
    gives the vector of a text, that stands at each of its tokens.
    """

    def __init__(self, config: ModelConfig, runtime: Runtime, *, pad_id: int) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.encoder = _Outputs(config, runtime, pad_id)  # type: ignore[assignment]

    @property
    def device(self) -> torch.device:
        """The processor."""
        return torch.device("cpu")

    def classify(self, encoded: Encoded, batch: Batch) -> ClassLogits:
        """Return the outputs, (sequences, labels)."""
        return encoded.last

    def tag(self, hidden: Hidden) -> TagLogits:
        """Return the outputs, (tokens, labels)."""
        return hidden

    def span(self, hidden: Hidden) -> SpanLogits:
        """Return the outputs, (tokens, 2)."""
        return hidden

    def choose(self, encoded: Encoded, batch: Batch) -> Scores:
        """Return the outputs, (sequences,)."""
        return encoded.last[:, 0]


class _Outputs(nn.Module):
    """The encoder of an exported file: its last states are the outputs of the head."""

    def __init__(self, config: ModelConfig, runtime: Runtime, pad_id: int) -> None:
        super().__init__()
        self._config, self._runtime, self._pad_id = config, runtime, pad_id

    def forward(
        self, batch: Batch, *, selected: SelectedTokens | None = None, taps: Taps = NO_TAPS
    ) -> Encoded:
        """Return the outputs of all tokens or sequences, whatever the query."""
        config = self._config
        choices = 1 if config.predicts == "choice" else None
        inputs = padded_inputs(batch, input_names(config), pad_id=self._pad_id, choices=choices)
        result = self._runtime(inputs)
        outputs = next(iter(result.values()))
        if config.predicts == "span":
            outputs = np.stack(list(result.values()), -1)
        if (vectors := result.get(SENTENCE_OUTPUT)) is not None:
            outputs = np.repeat(vectors, batch.lengths, axis=0)
        elif config.head in (None, "tag", "span"):
            outputs = outputs[inputs["attention_mask"].astype(bool)]
        last: Tensor = torch.from_numpy(outputs)
        return Encoded(last=last, states={config.encoder.layers: last})


BOUND = 1e-5
"""Largest difference from the engine's output, times the largest value where that exceeds 1."""
# attention of an exported model takes memory by the square of the length
_MAX_LENGTH = 2048
# of a masked-LM head, computed at once
_LOGITS = 2**26
# options of each question
_CHOICES = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The largest difference found, in parts of max(1, the largest value), of all batches."""

    difference: float
    batches: int
    longest: int


def compare(
    runtime: Runtime, model: Model, tokenizer: Tokenizer, sentence: SentenceSettings | None = None
) -> Comparison:
    """Compare an exported file with an opened model, in float32, at several shapes.

    Raises `ModelFolderError` where they are further apart than `BOUND`.
    """
    config = model.config
    names, worst, count = output_names(config, sentence), (0.0, ""), 0
    choices = _CHOICES if config.predicts == "choice" else None
    longest = 0
    for batch in _batches(config, tokenizer):
        inputs = padded_inputs(batch, input_names(config), pad_id=tokenizer.pad_id, choices=choices)
        outputs = runtime(inputs)
        with forward_only(model, "fp32"):
            expected = engine_outputs(model, batch, sentence)
        real = inputs["attention_mask"].astype(bool)
        for name in names:
            actual, expected_output = outputs[name], expected[name].numpy()
            if actual.shape[: real.ndim] == real.shape and len(expected_output) == batch.tokens:
                actual = actual[real]
            distance = np.abs(actual.reshape(expected_output.shape) - expected_output).max()
            # a NaN is no number that is larger than another
            share = float(
                np.nan_to_num(distance / max(1.0, np.abs(expected_output).max()), nan=np.inf)
            )
            worst = max(worst, (share, name))
        count, longest = count + 1, max(longest, *batch.lengths)
    if worst[0] > BOUND:
        raise ModelFolderError(
            f"the exported {worst[1]} differ from the engine's by {worst[0]:.1e}, more than the "
            f"{BOUND:.0e} allowed",
            remedy="nothing was written; choose another format with --to",
        )
    return Comparison(difference=worst[0], batches=count, longest=longest)


def _batches(config: ModelConfig, tokenizer: Tokenizer) -> Iterator[Batch]:
    """Yield batches of sequences as the tokenizer frames them, short ones and long ones."""
    random = np.random.default_rng(int(stream(Purpose.EXPORT_CHECK)))
    limit, share = min(config.encoder.longest, _MAX_LENGTH), 2
    if config.masked_lm:
        limit, share = max(2, min(limit, _LOGITS // config.encoder.vocabulary)), 6
    middle = [max(2, limit // (share * parts)) for parts in (1, 2, 3, 4, 10)]
    for lengths in ([1], [2], [*middle, 1], [limit], [min(limit, 64)] * 3):
        options = _CHOICES if config.predicts == "choice" else 1
        yield pack(*_sequences(lengths * options, tokenizer, random))


def _sequences(
    lengths: Sequence[int], tokenizer: Tokenizer, random: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    ids, segments = [], []
    for length in lengths:
        sequence = random.integers(0, tokenizer.size, length)
        sequence[-1], sequence[0] = tokenizer.sep_id, tokenizer.cls_id
        ids.append(sequence)
        segments.append((np.arange(length) > length // 2).astype(np.int64))
    return ids, segments


def engine_outputs(
    model: Model, batch: Batch, sentence: SentenceSettings | None = None
) -> dict[str, Tensor]:
    """Return the engine's outputs by the names of an exported model's: of tokens packed."""
    config, encoded = model.config, model.encoder(batch)
    hidden = encoded.last
    match config.head:
        case "classify":
            return {"logits": model.classify(encoded, batch)}
        case "choose":
            return {"logits": model.choose(encoded, batch)}
        case "tag":
            return {"logits": model.tag(hidden)}
        case "span":
            return dict(zip(output_names(config), model.span(hidden).unbind(-1), strict=True))
    if config.replaced_tokens:
        return {"logits": model.replaced_tokens(hidden)}
    outputs: dict[str, Tensor] = {}
    names = output_names(config, sentence)
    if config.masked_lm:
        outputs[names[0]] = model.masked_lm(hidden)
    if config.next_sentence:
        outputs[names[-1]] = model.next_sentence(encoded, batch)
    if outputs:
        return outputs
    outputs["last_hidden_state"] = hidden
    if sentence is not None:
        vectors = pooled(sentence.pool, hidden, batch.offsets)
        for layer in sentence.after:
            vectors = layer(vectors)
        outputs["sentence_embedding"] = vectors
    elif model.pooler is not None:
        outputs["pooler_output"] = model.pooled(encoded, batch)
    return outputs
