"""The native encoder against the network in float64: every wiring, precision, instruction set."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import cosine_similarity

import forking
from bertsmith.core import kernels
from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.core.kernels import instruction_set, instruction_sets
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.native import (
    KernelPrecision,
    NativeEncoder,
    unsupported_reason,
)
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.encoder import Encoder
from bertsmith.network.model import build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_model, save_model
from bertsmith.weights.tensors import StoredTensor, TensorFile
from bounds import close_in_kernels, close_to_float64
from interrupting import Interrupted, interrupt_soon, interruptions

pytestmark = pytest.mark.skipif(instruction_set() is None, reason="no native kernels were built")

PRECISIONS: tuple[KernelPrecision, ...] = ("fp32", "bf16", "int8")
KERNELS: list[tuple[str, KernelPrecision]] = [
    ("avx2", "fp32"), ("avx2", "int8"), ("avx512", "fp32"), ("avx512", "int8"),
    ("avx512-bf16", "fp32"), ("avx512-bf16", "bf16"), ("avx512-bf16", "int8"),
    ("amx", "bf16"), ("amx", "int8"),
]  # fmt: skip
COSINES = {"fp32": 1 - 1e-6, "bf16": 0.9999, "int8": 0.997}
SIZES: dict[str, Any] = {
    "vocabulary": 99, "hidden": 48, "layers": 3, "heads": 3, "feed_forward": 71, "longest": 301,
    "norm_epsilon": 0.01,
}  # fmt: skip
MODERN: dict[str, Any] = {
    "layers": 4, "segments": 0, "positions": "rotary", "theta": 160_000.0, "global_every": 3,
    "gated": True, "norm": "before", "biases": False,
}  # fmt: skip
WIRINGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "no multiple of a vector": {"hidden": 39, "feed_forward": 7},
    "heads of 26": {"hidden": 312, "heads": 12, "feed_forward": 130, "layers": 2},
    "heads of 64": {"hidden": 128, "heads": 2},
    "heads of 40": {"hidden": 80, "heads": 2},
    "shared blocks, narrow tables": {
        "layers": 6, "groups": 2, "embedding": 24, "activation": "gelu_tanh",
    },
    "wide tables": {"embedding": 70},
    "position offset, one segment": {"segments": 1, "position_offset": 2},
    "three segments": {"segments": 3},
    "sinusoids": {"positions": "sinusoidal", "segments": 0},
    "no positions": {"positions": "none"},
    "norm before": {"norm": "before"},
    "norm before, shared blocks": {"norm": "before", "groups": 1, "embedding": 20},
    "no biases": {"biases": False},
    "gated": {"gated": True, "feed_forward": 53},
    "local": {**MODERN, "window": 8, "local_theta": 500.0},
    "local, wide": {**MODERN, "window": 130, "hidden": 128, "heads": 2},
    "causal": {"causal": True},
    "causal, rotary": {"causal": True, "positions": "rotary", "hidden": 36},
}  # fmt: skip
LENGTHS = (1, 300, 13, 2, 47, 129, 16, 33, 5)


@functools.cache
def network(wiring: str) -> Encoder:
    """An encoder with weights large enough that every part of it shows in what it returns."""
    torch.manual_seed(7)
    encoder = Encoder(EncoderConfig(**SIZES | WIRINGS[wiring])).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0.0, 0.1)
        for module in encoder.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.add_(1.0)
    return encoder


def every_state(config: EncoderConfig) -> Taps:
    return Taps(states=frozenset(range(config.layers + 1)))


@functools.cache
def in_float64(wiring: str) -> Encoded:
    encoder = network(wiring)
    with torch.no_grad():
        exact = copy.deepcopy(encoder).double()
        return exact(batch_of(LENGTHS, encoder.config), taps=every_state(encoder.config))  # type: ignore[no-any-return]


def batch_of(lengths: tuple[int, ...], config: EncoderConfig, seed: int = 3) -> Batch:
    draw = np.random.default_rng(seed)
    kinds = max(config.segments, 1)
    return pack(
        [draw.integers(0, config.vocabulary, length) for length in lengths],
        [draw.integers(0, kinds, length) for length in lengths],
    )


def native(
    encoder: Encoder, precision: KernelPrecision, threads: int = 1, instructions: str | None = None
) -> NativeEncoder:
    reason = unsupported_reason(encoder.config, precision, instructions)
    if reason is not None:
        pytest.skip(reason)
    return NativeEncoder(encoder, precision=precision, threads=threads, instructions=instructions)


@pytest.mark.parametrize(("instructions", "precision"), KERNELS)
@pytest.mark.parametrize("wiring", WIRINGS)
def test_hidden_states_are_those_of_the_network(
    wiring: str, instructions: str, precision: KernelPrecision
) -> None:
    encoder = network(wiring)
    batch = batch_of(LENGTHS, encoder.config)
    expected = in_float64(wiring)
    computed = native(encoder, precision, instructions=instructions)
    found = computed(batch, taps=every_state(encoder.config))
    close_in_kernels(found.last, expected.last, precision)
    assert found.states.keys() == expected.states.keys()
    for number, state in found.states.items():
        close_in_kernels(state, expected.states[number], precision, number)


def gelu(value: float, activation: str) -> float:
    """The GELU of Hendrycks & Gimpel 2016, or their approximation with the hyperbolic tangent."""
    if activation == "gelu":
        return value * (1 + math.erf(value / math.sqrt(2))) / 2
    return value * (1 + math.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3))) / 2


def added_by_first_layer(
    parameters: dict[str, torch.Tensor],
    precision: KernelPrecision,
    instructions: str,
    activation: str = "gelu",
) -> torch.Tensor:
    """Return what the first layer adds to each token where all its other parameters are zero."""
    sizes = {**SIZES, "hidden": 96, "feed_forward": 96, "norm": "before", "activation": activation}
    encoder = Encoder(EncoderConfig(**sizes)).eval()
    with torch.no_grad():
        # states that nothing is lost beside
        encoder.embeddings.norm.weight.zero_()
        for name, parameter in encoder.blocks[0].named_parameters():
            parameter.zero_()
            if name in parameters:
                parameter.copy_(parameters[name])
    computed = native(encoder, precision, instructions=instructions)
    batch = batch_of((3,), encoder.config)
    states = computed(batch, taps=Taps(states=frozenset({0, 1}))).states
    added: torch.Tensor = states[1] - states[0]
    return added


@pytest.mark.parametrize("instructions", ["avx2", "avx512", "avx512-bf16"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_the_gelu_is_that_of_its_formula(activation: str, instructions: str) -> None:
    inner = torch.linspace(-5.5, 5.5, 96)
    parameters = {"feed_forward.up.bias": inner, "feed_forward.down.weight": torch.eye(96)}
    found = added_by_first_layer(parameters, "fp32", instructions, activation)
    expected = torch.tensor([gelu(value, activation) for value in inner.tolist()])
    close_to_float64(found, expected.expand(3, 96))


@pytest.mark.parametrize(("instructions", "precision"), KERNELS)
def test_weights_are_rounded_to_the_nearest_number_of_their_format(
    instructions: str, precision: KernelPrecision
) -> None:
    draw = np.random.default_rng(5)
    # far from halves, and largest where int8 has 127
    whole = draw.integers(-126, 127, (96, 96))
    weights = torch.from_numpy((whole + draw.uniform(-0.4, 0.4, whole.shape)) / 127).float()
    weights[range(96), range(96)] = 1.0
    rounded = {
        "fp32": weights,
        "bf16": weights.bfloat16(),
        "int8": (weights.double() * 127).round() / 127,
    }[precision]
    # every token has these, which no format rounds
    values = torch.from_numpy(draw.integers(-100, 155, 96)).float() / 4
    values[:2] = torch.tensor([-25.0, 38.75])
    parameters = {"attention.value.bias": values, "attention.output.weight": weights}
    found = added_by_first_layer(parameters, precision, instructions)
    close_to_float64(found, (rounded.double() @ values.double()).expand(3, 96))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("wiring", WIRINGS)
def test_tokens_have_the_same_bits_in_any_company_and_with_any_threads(
    wiring: str, precision: KernelPrecision
) -> None:
    encoder = network(wiring)
    alone, shared = (native(encoder, precision, threads) for threads in (1, 2))
    batch = batch_of(LENGTHS, encoder.config)
    expected = alone(batch).last
    assert torch.equal(shared(batch).last, expected)
    at = torch.arange(0, batch.tokens, 7)
    assert torch.equal(alone(batch, selected=at).last, expected[at])
    assert torch.equal(shared(batch, selected=at).last, expected[at])
    offsets = [0, *np.cumsum(LENGTHS).tolist()]
    for begin, end in itertools.pairwise(offsets):
        one = pack([batch.ids[begin:end].numpy()], [batch.segments[begin:end].numpy()])
        # alone and with the threads together: the first calls try both
        for _ in range(2):
            assert torch.equal(shared(one).last, expected[begin:end])
        last = torch.tensor([end - begin - 1])
        for _ in range(2):
            assert torch.equal(shared(one, selected=last).last, expected[end - 1 : end])


def test_places_and_taps_mean_what_they_do_in_the_network() -> None:
    encoder = network("bert")
    computed = native(encoder, "fp32")
    batch = batch_of((5, 0, 9), encoder.config)
    whole, top = computed(batch), encoder.config.layers
    at = torch.tensor([0, 3, 13])
    for taps in (Taps(states=frozenset({1})), Taps(states=frozenset({top}))):
        found = computed(batch, selected=at, taps=taps)
        assert torch.equal(found.last, whole.last[at])
        assert torch.equal(found.rows(at[1:]), whole.last[at[1:]])
        assert found.states.keys() == taps.states
    nowhere = torch.empty(0, dtype=torch.int64)
    found = computed(batch, selected=nowhere, taps=Taps(states=frozenset({0, 2})))
    expected = encoder(batch, selected=nowhere, taps=Taps(states=frozenset({0, 2})))
    assert found.last.shape == expected.last.shape == (0, 48)
    close_in_kernels(found.states[2], expected.states[2], "fp32")
    assert computed(batch, selected=nowhere).last.shape == (0, 48)
    empty = replace(
        batch_of((1,), encoder.config),
        ids=nowhere, segments=nowhere, positions=nowhere,
        offsets=torch.zeros(1, dtype=torch.int64), lengths=(),
    )  # fmt: skip
    assert computed(empty).last.shape == (0, 48)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"ids": [1, 99, 2]}, IndexError),
        ({"ids": [1, -1, 2]}, IndexError),
        ({"ids": [1, 2**40, 2]}, IndexError),
        ({"segments": [0, 2, 0]}, IndexError),
        ({"positions": [0, 1, 301]}, IndexError),
        ({"positions": [-1, 1, 2]}, IndexError),
        ({"offsets": [0, 4]}, ValueError),
        ({"offsets": [0, 5, 3], "lengths": (5, -2)}, ValueError),
        ({"offsets": [1, 3]}, ValueError),
    ],
)
def test_batches_that_no_table_holds_are_errors(
    changed: dict[str, Any], error: type[Exception]
) -> None:
    computed = native(network("bert"), "fp32")
    values: dict[str, Any] = {
        name: torch.tensor(value) if isinstance(value, list) else value
        for name, value in changed.items()
    }
    with pytest.raises(error):
        computed(replace(batch_of((3,), computed.config), **values))


@pytest.mark.parametrize("place", [-1, 301])
@pytest.mark.parametrize("wiring", ["position offset, one segment", "sinusoids", "causal, rotary"])
def test_positions_that_no_table_of_any_kind_holds_are_errors(wiring: str, place: int) -> None:
    computed = native(network(wiring), "fp32")
    batch = batch_of((3,), computed.config)
    with pytest.raises(IndexError):
        computed(replace(batch, positions=torch.tensor([0, 1, place])))


@pytest.mark.parametrize("at", [[2, 1], [1, 1], [3], [-1]])
def test_places_that_are_out_of_order_or_nowhere_are_errors(at: list[int]) -> None:
    computed = native(network("bert"), "fp32")
    with pytest.raises(ValueError, match="places"):
        computed(batch_of((3,), computed.config), selected=torch.tensor(at))


def test_several_python_threads_share_an_encoder() -> None:
    computed = native(network("bert"), "fp32", threads=2)
    batches = [batch_of((length, 200, 3), computed.config, seed=length) for length in range(1, 25)]
    expected = [computed(batch).last for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for found, one in zip(pool.map(computed, batches), expected, strict=True):
            assert torch.equal(found.last, one)


FORKED = """
import os, sys, torch
from bertsmith.engine.native import NativeEncoder
from bertsmith.network.batch import pack
from bertsmith.network.config import EncoderConfig
from bertsmith.network.encoder import Encoder
import numpy as np
config = EncoderConfig(vocabulary=99, hidden=48, layers=2, heads=3, feed_forward=71)
computed = NativeEncoder(Encoder(config).eval(), precision="fp32", threads=3)
ids = np.arange(90) % 7
batch = pack([ids, ids[:50], ids[:9]], [ids * 0, ids[:50] * 0, ids[:9] * 0])
before = computed(batch).last
for _ in range(3):
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(computed(batch).last, before) else 1)
    assert os.waitpid(child, 0)[1] == 0
assert torch.equal(computed(batch).last, before)
"""


def test_a_forked_process_makes_threads_of_its_own() -> None:
    forking.run([sys.executable, "-c", FORKED], check=True)


PACKED = """
import torch
from pathlib import Path
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.prepared import prepare_model
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model
def peak():
    # that of getrusage begins with the peak of the process that started this one
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
config = EncoderConfig(vocabulary=99, hidden=512, layers=8, heads=8, feed_forward=2048)
with torch.no_grad():
    model = Model(ModelConfig(encoder=config))
torch.ones(100, 100) @ torch.ones(100, 100)
before = peak()
prepared = prepare_model(model, EngineConfig(precision="fp32"), backend="native")
print(peak() - before, sum(each.numel() for each in model.parameters()) * 4 / 2**20)
"""


def test_no_more_than_a_block_is_held_twice() -> None:
    shown = subprocess.check_output([sys.executable, "-c", PACKED], text=True, timeout=300)
    grown, left = map(float, shown.split())
    # of 96 MiB in blocks of 12; what is freed goes back to the system sooner or later
    assert grown < 64
    assert left < 4


STORED = (
    PACKED.partition("config =")[0]
    + """
import sys
from bertsmith.tasks.opening import open_model
torch.ones(100, 100) @ torch.ones(100, 100)
before = peak()
prepared, _ = open_model(Path(sys.argv[1]), torch.device("cpu"), EngineConfig(precision="int8"))
print(peak() - before)
"""
)


def test_a_folder_is_packed_block_by_block_as_it_is_read(tmp_path: Path) -> None:
    words = (*SPECIALS, *(f"word{n}" for n in range(94)))
    tokenizer = Tokenizer(words, BasicRules(lowercase=True))
    config = EncoderConfig(vocabulary=99, hidden=512, layers=8, heads=8, feed_forward=2048)
    save_model(tmp_path / "model", build_model(ModelConfig(encoder=config), seed=1), tokenizer)
    command = [sys.executable, "-c", STORED, str(tmp_path / "model")]
    shown = subprocess.check_output(command, text=True, timeout=300)
    # of 96 MiB in blocks of 12, all of which are kept in a quarter of that
    assert 24 < float(shown) < 72


def stored_blocks(
    encoder: Encoder, folder: Path, kind: torch.dtype = torch.float32, file: type = TensorFile
) -> Callable[[int], dict[str, StoredTensor]]:
    """Write the weights of the blocks into two files; return where those of a block are."""
    tensors = {name: value.to(kind) for name, value in encoder.blocks.named_parameters()}
    # in an order of their own, so that no neighbours in a block are neighbours in a file
    names = sorted(tensors, key=lambda name: name[::-1])
    homes: dict[str, TensorFile] = {}
    for part, some in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name].contiguous() for name in some}, folder / f"part{part}")
        homes |= dict.fromkeys(some, file(folder / f"part{part}"))

    def block(number: int) -> dict[str, StoredTensor]:
        begin = f"{number}."
        return {
            name.removeprefix(begin): homes[name].locate(name)
            for name in names
            if name.startswith(begin)
        }

    return block


KINDS = {
    "float32": torch.float32, "float64": torch.float64, "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("wiring", WIRINGS)
def test_blocks_packed_from_files_are_those_packed_from_memory(
    tmp_path: Path, wiring: str, precision: KernelPrecision, kind: str
) -> None:
    encoder = copy.deepcopy(network(wiring))
    for parameter in encoder.blocks.parameters():
        # numbers below the smallest power of two of float16 too
        parameter.data[..., ::7] *= 2.0**-16
        parameter.data = parameter.data.to(KINDS[kind]).float()
    wanted = native(encoder, precision)
    blocks = stored_blocks(encoder, tmp_path, KINDS[kind])
    empty = copy.deepcopy(encoder)
    for parameter in empty.blocks.parameters():
        parameter.data = parameter.data.new_empty(0)
    found = NativeEncoder(empty, precision=precision, threads=2, stored=blocks)
    batch = batch_of((5, 1, 9), encoder.config)
    assert torch.equal(found(batch).last, wanted(batch).last)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["attention.key.weight", "feed_forward.down.bias", "attention_norm.weight"],
)
def test_a_value_in_a_file_that_is_not_finite_is_an_error(
    tmp_path: Path, name: str, kind: str
) -> None:
    encoder = copy.deepcopy(network("bert"))
    blocks = stored_blocks(encoder, tmp_path, KINDS[kind])
    assert NativeEncoder(encoder, precision="fp32", threads=1, stored=blocks)
    for wrong in (torch.nan, -torch.inf):
        encoder.blocks[1].get_parameter(name).data[-1] = wrong
        blocks = stored_blocks(encoder, tmp_path, KINDS[kind])
        for precision in PRECISIONS:
            if unsupported_reason(encoder.config, precision):
                continue
            with pytest.raises(ModelFolderError, match=rf"part[01]: tensor 1\.{name} contains"):
                NativeEncoder(encoder, precision=precision, threads=2, stored=blocks)


class Shortened(TensorFile):
    """A file that loses its end when it has been opened."""

    @contextmanager
    def opened(self) -> Iterator[BufferedReader]:
        with super().opened() as file:
            os.truncate(self.path, 100)
            yield file


class Unreadable(TensorFile):
    """A file that cannot be read when it has been opened."""

    @contextmanager
    def opened(self) -> Iterator[BufferedReader]:
        with super().opened() as file, self.path.open("ab") as other:
            os.dup2(other.fileno(), file.fileno())
            yield file


@pytest.mark.parametrize(
    ("file", "problem"),
    [(Shortened, "became shorter while it was read"), (Unreadable, "cannot be read: Bad file")],
)
def test_what_befalls_a_file_while_it_is_packed_is_an_error(
    tmp_path: Path, file: type, problem: str
) -> None:
    blocks = stored_blocks(network("bert"), tmp_path, file=file)
    with pytest.raises(ModelFolderError, match=f"part[01]: {problem}"):
        NativeEncoder(network("bert"), precision="fp32", threads=2, stored=blocks)


def test_errors_of_locating_a_block_are_those_of_packing() -> None:
    class Broken(BaseException):
        pass

    def broken(number: int) -> dict[str, StoredTensor]:
        raise Broken

    with pytest.raises(Broken):
        NativeEncoder(network("bert"), precision="fp32", threads=1, stored=broken)


# an interruption leaves what it meets to the collector
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interruption_while_weights_are_packed_is_raised(tmp_path: Path) -> None:
    def begin(number: int) -> dict[str, StoredTensor]:
        # while the first block is packed
        if number == 0:
            interrupt_soon()
        return blocks(number)

    def pack_for_long() -> None:
        while True:
            NativeEncoder(encoder, precision="fp32", threads=1, stored=begin)

    encoder = Encoder(EncoderConfig(**{**SIZES, "hidden": 768, "feed_forward": 3072}))
    blocks = stored_blocks(encoder, tmp_path)
    with interruptions(), pytest.raises(Interrupted):
        pack_for_long()


LOWER = [("none", "None"), *((name, name) for name in instruction_sets()[:-1] or ["avx2"])]


@pytest.mark.parametrize(("asked", "found"), LOWER)
def test_the_environment_chooses_lower_instructions(asked: str, found: str) -> None:
    script = "from bertsmith.core.kernels import instruction_set; print(instruction_set())"
    shown = subprocess.check_output(
        [sys.executable, "-c", script], env={**os.environ, "BERTSMITH_KERNELS": asked}, text=True
    )
    assert shown.strip() == found


@pytest.fixture(scope="module")
def minilm(minilm_folder: Path) -> tuple[Encoder, Batch, torch.Tensor]:
    """The encoder of MiniLM, some texts, and the vectors that the network gives them."""
    model, tokenizer = load_model(minilm_folder)
    texts = [
        "The kernel of a matrix is the set of vectors that it maps to zero.",
        "Rain again.",
        "She had never read a novel in one night before, least of all one about accountants.",
        "How many roads must a man walk down?",
    ]
    ids = [np.array([tokenizer.cls_id, *own, tokenizer.sep_id]) for own in tokenizer.encode(texts)]
    batch = pack(ids, [np.zeros_like(own) for own in ids])
    with torch.no_grad():
        return model.encoder, batch, means(model.encoder(batch), batch)


@pytest.mark.parametrize(("instructions", "precision"), KERNELS)
def test_vectors_of_real_weights(
    minilm: tuple[Encoder, Batch, torch.Tensor], instructions: str, precision: KernelPrecision
) -> None:
    encoder, batch, expected = minilm
    found = means(native(encoder, precision, 2, instructions)(batch), batch)
    assert cosine_similarity(found, expected).min() >= COSINES[precision]


def means(result: Encoded, batch: Batch) -> torch.Tensor:
    return torch.stack([part.mean(0) for part in result.last.split(list(batch.lengths))])


def test_the_best_instructions_are_the_last() -> None:
    assert instruction_sets()[-1] == instruction_set()


def test_kernels_of_other_sources_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert instruction_set() is not None
    monkeypatch.setattr(kernels, "_INTERFACE", -1)
    kernels.library.cache_clear()
    try:
        assert instruction_set() is None
        assert "compiled from other sources" in capsys.readouterr().err
    finally:
        kernels.library.cache_clear()


def test_a_setting_that_names_no_kernels_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERTSMITH_KERNELS", "avx3\x1b[31m")
    kernels.library.cache_clear()
    try:
        assert instruction_set() is not None
        said = capsys.readouterr().err
    finally:
        kernels.library.cache_clear()
    assert r"BERTSMITH_KERNELS is avx3\x1b[31m and has no effect" in said


def test_more_threads_than_any_processor_has_are_refused() -> None:
    assert EngineConfig(threads=1024).threads == 1024
    for count in (0, 1025):
        with pytest.raises(ConfigError, match=rf"--threads is {count}; .* \[1, 1024\]"):
            EngineConfig(threads=count)
