"""Libraries that turn texts into unit vectors, each set up as its own users would do best.

All of them read the same sentence-transformers folder (mean over tokens, length 1), sort texts by
length where they pad, and have their batch size chosen by a trial on texts of each length asked.
What has to be converted is converted before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Ids = list[list[int]]
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_MAX_LENGTH = 512


class Opened(Protocol):
    """A library with the model in memory."""

    def single(self, text: str) -> Vectors:
        """Return the vector of a text as fast as possible."""
        ...

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of many texts, in their order."""
        ...

    def tune(self, texts: list[str]) -> object:
        """Choose what is fastest for such texts, and return it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A library at a precision."""

    library: str
    precision: str
    needs: tuple[str, ...]
    """Modules that have to be installed."""
    open: Callable[[Path, Path, str, int], Opened]
    """Opens a folder, given it, a folder of converted files, the precision and the threads."""
    convert: Callable[[Path, Path, str, list[str]], None] | None = None
    """Writes converted files, given the same and texts to calibrate with."""

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.library} {self.precision}"


def _tokenizer(folder: Path) -> Any:  # noqa: ANN401
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_LENGTH)
    return tokenizer


def _ids(tokenizer: Any, texts: list[str]) -> Ids:  # noqa: ANN401
    return [item.ids for item in tokenizer.encode_batch_fast(texts)]


def _batches(ids: Ids, size: int) -> Iterator[tuple[list[int], Ids]]:
    """Yield batches of texts of like length, the longest first, and their numbers."""
    order = sorted(range(len(ids)), key=lambda number: -len(ids[number]))
    for begin in range(0, len(order), size):
        numbers = order[begin : begin + size]
        yield numbers, [ids[number] for number in numbers]


def _padded(ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    longest = max(map(len, ids))
    tokens = np.zeros((len(ids), longest), np.int64)
    mask = np.zeros((len(ids), longest), np.int64)
    for row, own in enumerate(ids):
        tokens[row, : len(own)] = own
        mask[row, : len(own)] = 1
    return tokens, mask


def _fastest(choices: Sequence[Any], run: Callable[[Any], object]) -> Any:  # noqa: ANN401
    """Return the choice with which something runs fastest, the better of two tries of each."""
    seconds = dict.fromkeys(choices, float("inf"))
    for _ in range(2):
        for choice in choices:
            began = time.perf_counter()
            run(choice)
            seconds[choice] = min(seconds[choice], time.perf_counter() - began)
    return min(choices, key=lambda choice: seconds[choice])


class Ours:
    """bertsmith, by its Python API."""

    def __init__(self, folder: Path, work: Path, precision: str, threads: int) -> None:
        import bertsmith

        number: Any = precision
        self._model = bertsmith.load(folder, precision=number, threads=threads, device="cpu")

    def single(self, text: str) -> Vectors:
        """Return the vector of a text."""
        return self._model.embed([text])

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts."""
        return self._model.embed(texts)

    def tune(self, texts: list[str]) -> object:
        """Leave all as it is by default."""
        return repr(self._model).partition("engine: ")[2].rstrip(">")


class Network(Ours):
    """The network in which bertsmith trains, as the reference."""

    def __init__(self, folder: Path, work: Path, precision: str, threads: int) -> None:
        import torch

        from bertsmith.engine.prepared import Prepared
        from bertsmith.tasks.opening import open_embedder, vectors
        from bertsmith.weights.folder import load_model

        torch.set_num_threads(threads)
        model, tokenizer = load_model(folder)
        engine = Prepared(model=model, backend="network", precision="fp32", threads=threads)
        self._embedder = open_embedder(folder, loaded=(engine, tokenizer))
        self._vectors = vectors

    def single(self, text: str) -> Vectors:
        """Return the vector of a text."""
        return self._vectors(self._embedder, [text])

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts."""
        return self._vectors(self._embedder, texts)

    def tune(self, texts: list[str]) -> object:
        """Leave all as it is."""
        return "reference"


class SentenceTransformers:
    """sentence-transformers, whose `encode` sorts texts by length."""

    def __init__(self, folder: Path, work: Path, precision: str, threads: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        self._model = SentenceTransformer(
            str(folder), device="cpu", model_kwargs={"torch_dtype": kind}
        )
        self._batch = 32

    def _encode(self, texts: list[str], batch: int) -> Vectors:
        found = self._model.encode(
            texts, batch_size=batch, show_progress_bar=False, convert_to_numpy=False
        )
        return np.stack([result.float().numpy() for result in found])

    def single(self, text: str) -> Vectors:
        """Return the vector of a text."""
        return self._encode([text], 1)

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts."""
        return self._encode(texts, self._batch)

    def tune(self, texts: list[str]) -> object:
        """Choose the batch size."""
        self._batch = _fastest(_BATCHES, lambda size: self._encode(texts, size))
        return f"batch {self._batch}"


def _with_pooling(folder: Path) -> Any:  # noqa: ANN401
    """Return the model of transformers with mean pooling and normalising in one graph."""
    import torch
    from transformers import BertModel

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            found = self.model(input_ids=input_ids, attention_mask=attention_mask)
            weight = attention_mask[..., None].to(torch.float32)
            mean = (found.last_hidden_state * weight).sum(1) / weight.sum(1)
            return torch.nn.functional.normalize(mean, dim=-1)

    return Pooled()


def _example() -> dict[str, Any]:
    import torch

    ids = torch.ones(2, 9, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def convert_openvino(folder: Path, work: Path, precision: str, texts: list[str]) -> None:
    """Write OpenVINO's form, quantised by NNCF for int8 with its settings for transformers."""
    import openvino as ov
    import torch

    out = work / f"openvino-{precision}.xml"
    # one form serves fp32 and bf16, which is a setting of the compiler
    plain = work / "openvino-fp32.xml"
    if not plain.exists():
        with torch.no_grad():
            converted = ov.convert_model(_with_pooling(folder), example_input=_example())
        for item in converted.inputs:
            item.get_node().set_partial_shape(ov.PartialShape([-1, -1]))
        converted.validate_nodes_and_infer_types()
        ov.save_model(converted, plain, compress_to_fp16=False)
    if precision == "int8":
        import nncf

        tokenizer = _tokenizer(folder)
        samples = [_padded([ids]) for ids in _ids(tokenizer, texts)]
        data = nncf.Dataset(samples, list)
        quantised = nncf.quantize(
            ov.Core().read_model(plain), data,
            model_type=nncf.ModelType.TRANSFORMER, subset_size=len(samples),
        )  # fmt: skip
        ov.save_model(quantised, out)


class OpenVino:
    """OpenVINO with its hints for throughput or latency, several requests at once."""

    def __init__(self, folder: Path, work: Path, precision: str, threads: int) -> None:
        self._tokenizer = _tokenizer(folder)
        name = "openvino-int8.xml" if precision == "int8" else "openvino-fp32.xml"
        self._path, self._precision, self._threads = str(work / name), precision, threads
        self._one: Any = None
        self._many: Any = None
        self._batch = 8

    def _compiled(self, hint: str) -> Any:  # noqa: ANN401
        import openvino as ov

        settings = {"PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": str(self._threads)}
        if self._precision != "int8":
            kinds = {"fp32": "f32", "bf16": "bf16"}
            settings["INFERENCE_PRECISION_HINT"] = kinds[self._precision]
        return ov.Core().compile_model(self._path, "CPU", settings)

    def single(self, text: str) -> Vectors:
        """Return the vector of a text."""
        if self._one is None:
            self._one = self._compiled("LATENCY").create_infer_request()
        found = self._one.infer(_padded(_ids(self._tokenizer, [text])))
        return np.asarray(found[0]).copy()

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts."""
        return self._encode(texts, self._batch)

    def _encode(self, texts: list[str], batch: int) -> Vectors:
        import openvino as ov

        if self._many is None:
            self._many = ov.AsyncInferQueue(self._compiled("THROUGHPUT"))
        found: list[Any] = [None] * len(texts)

        def done(request: Any, numbers: list[int]) -> None:  # noqa: ANN401
            for number, row in zip(numbers, request.get_output_tensor().data.copy(), strict=True):
                found[number] = row

        self._many.set_callback(done)
        for numbers, ids in _batches(_ids(self._tokenizer, texts), batch):
            self._many.start_async(_padded(ids), numbers)
        self._many.wait_all()
        return np.stack(found)

    def tune(self, texts: list[str]) -> object:
        """Choose the batch size."""
        self._batch = _fastest(_BATCHES, lambda size: self._encode(texts, size))
        return f"batch {self._batch}, {len(self._many)} requests at once"


def convert_onnx(folder: Path, work: Path, precision: str, texts: list[str]) -> None:
    """Write an ONNX file with onnxruntime's fusions for BERT, its weights in int8 if asked for."""
    import torch
    from onnxruntime.transformers.optimizer import optimize_model

    plain, fused = work / "plain.onnx", work / "onnx-fp32.onnx"
    if not fused.exists():
        model = _with_pooling(folder)
        names = ["input_ids", "attention_mask"]
        with torch.no_grad():
            torch.onnx.export(
                model, tuple(_example().values()), str(plain), input_names=names,
                output_names=["vector"], opset_version=17, dynamo=False,
                dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names},
            )  # fmt: skip
        config = model.model.config
        optimised = optimize_model(
            str(plain), model_type="bert", num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
        )  # fmt: skip
        optimised.save_model_to_file(str(fused))
    if precision == "int8":
        from onnx import TensorProto
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            str(fused), str(work / "onnx-int8.onnx"), per_channel=True,
            weight_type=QuantType.QInt8,
            # of what onnxruntime's own fused operators give, whose types ONNX does not know
            extra_options={"DefaultTensorType": TensorProto.FLOAT},
        )  # fmt: skip


class OnnxRuntime:
    """onnxruntime on the fused graph."""

    def __init__(self, folder: Path, work: Path, precision: str, threads: int) -> None:
        import onnxruntime

        self._tokenizer = _tokenizer(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(work / f"onnx-{precision}.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._batch = 8

    def _run(self, ids: Ids) -> Vectors:
        tokens, mask = _padded(ids)
        found = self._session.run(None, {"input_ids": tokens, "attention_mask": mask})
        return np.asarray(found[0])

    def single(self, text: str) -> Vectors:
        """Return the vector of a text."""
        return self._run(_ids(self._tokenizer, [text]))

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts."""
        return self._encode(texts, self._batch)

    def _encode(self, texts: list[str], batch: int) -> Vectors:
        found: list[Any] = [None] * len(texts)
        for numbers, ids in _batches(_ids(self._tokenizer, texts), batch):
            for number, row in zip(numbers, self._run(ids), strict=True):
                found[number] = row
        return np.stack(found)

    def tune(self, texts: list[str]) -> object:
        """Choose the batch size."""
        self._batch = _fastest(_BATCHES, lambda size: self._encode(texts, size))
        return f"batch {self._batch}"


def convert_ctranslate2(folder: Path, work: Path, precision: str, texts: list[str]) -> None:
    """Write CTranslate2's form."""
    from ctranslate2.converters import TransformersConverter

    kind = {"fp32": "float32", "int8": "int8"}[precision]
    out = work / f"ctranslate2-{precision}"
    TransformersConverter(str(folder)).convert(str(out), quantization=kind, force=True)


class CTranslate2:
    """CTranslate2, a batch a thread for many texts and all threads for one."""

    def __init__(self, folder: Path, work: Path, precision: str, threads: int) -> None:
        self._tokenizer = _tokenizer(folder)
        self._path, self._precision = str(work / f"ctranslate2-{precision}"), precision
        self._threads = threads
        self._one: Any = None
        self._many: Any = None
        self._batch = 8

    def _opened(self, workers: int, threads: int) -> Any:  # noqa: ANN401
        import ctranslate2

        return ctranslate2.Encoder(
            self._path, device="cpu", inter_threads=workers, intra_threads=threads,
            compute_type={"fp32": "float32", "int8": "int8_float32"}[self._precision],
        )  # fmt: skip

    @staticmethod
    def _run(encoder: Any, ids: Ids) -> list[Vectors]:  # noqa: ANN401
        hidden = np.asarray(encoder.forward_batch(ids).last_hidden_state)
        means = [states[: len(own)].mean(0) for states, own in zip(hidden, ids, strict=True)]
        return [mean / np.linalg.norm(mean) for mean in means]

    def single(self, text: str) -> Vectors:
        """Return the vector of a text."""
        if self._one is None:
            self._one = self._opened(1, self._threads)
        return np.stack(self._run(self._one, _ids(self._tokenizer, [text])))

    def bulk(self, texts: list[str]) -> Vectors:
        """Return the vectors of texts."""
        return self._encode(texts, self._batch)

    def _encode(self, texts: list[str], batch: int) -> Vectors:
        if self._many is None:
            self._many = self._opened(self._threads, 1)
            self._pool = ThreadPoolExecutor(self._threads)
        found: list[Any] = [None] * len(texts)

        def run(part: tuple[list[int], Ids]) -> None:
            for number, row in zip(part[0], self._run(self._many, part[1]), strict=True):
                found[number] = row

        list(self._pool.map(run, _batches(_ids(self._tokenizer, texts), batch)))
        return np.stack(found)

    def tune(self, texts: list[str]) -> object:
        """Choose the batch size."""
        self._batch = _fastest(_BATCHES, lambda size: self._encode(texts, size))
        return f"batch {self._batch}"


REFERENCE = "network fp32"
OURS = "bertsmith"
_OURS = ("bertsmith.recipes.loaded",)
_OPENVINO, _NNCF, _ORT = ("openvino",), ("openvino", "nncf"), ("onnxruntime", "onnx")

CONTESTANTS: dict[str, Contestant] = {
    item.name: item
    for item in (
        Contestant(library="network", precision="fp32", needs=_OURS, open=Network),
        *(
            Contestant(library=OURS, precision=number, needs=_OURS, open=Ours)
            for number in ("fp32", "bf16", "int8")
        ),
        *(
            Contestant(
                library="sentence-transformers", precision=number,
                needs=("sentence_transformers",), open=SentenceTransformers,
            )
            for number in ("fp32", "bf16")
        ),
        *(
            Contestant(
                library="openvino", precision=number, open=OpenVino, convert=convert_openvino,
                needs=_NNCF if number == "int8" else _OPENVINO,
            )
            for number in ("fp32", "bf16", "int8")
        ),
        *(
            Contestant(
                library="onnxruntime", precision=number, needs=_ORT,
                open=OnnxRuntime, convert=convert_onnx,
            )
            for number in ("fp32", "int8")
        ),
        *(
            Contestant(
                library="ctranslate2", precision=number, needs=("ctranslate2",),
                open=CTranslate2, convert=convert_ctranslate2,
            )
            for number in ("fp32", "int8")
        ),
    )
}  # fmt: skip

ABSENT = {
    "ctranslate2 bf16": "its processor kernels have no bf16",
    "onnxruntime bf16": "its processor kernels have no bf16",
    "llama.cpp": "no wheel carries it",
}
"""Rivals that cannot take part, and why."""
