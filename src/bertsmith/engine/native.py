"""The encoder in native code: a forward pass of all layers in one call of a C library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from ctypes import c_int32, c_void_p
from typing import Literal

import torch
from torch import Tensor, nn

from bertsmith.core import kernels
from bertsmith.core.kernels import WITH_BF16, instruction_set, instruction_sets
from bertsmith.core.shapes import SelectedTokens
from bertsmith.network.attention.rotary import rotation
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.encoder import Encoder
from bertsmith.weights.tensors import StoredTensor

KernelPrecision = Literal["fp32", "bf16", "int8"]

_PRECISIONS: tuple[KernelPrecision, ...] = ("fp32", "bf16", "int8")
_NO_MEMORY = "no memory for the packed weights"
_ROOMS = {
    **dict.fromkeys(kernels.LINEAR[:4], "attention."),
    **dict.fromkeys(kernels.LINEAR[4:], "feed_forward."),
    **dict.fromkeys(kernels.NORMS, ""),
}
# by the fields of kernels.BlockWeights, in their order
_BLOCK_NAMES = {
    (module, attribute): f"{room}{module}.{attribute}"
    for module, room in _ROOMS.items()
    for attribute in ("weight", "bias")
}
# sums of int8 products are 32-bit numbers
_WIDEST_INT8 = 2**31 // (255 * 127)


def unsupported_reason(
    config: EncoderConfig, precision: KernelPrecision, instructions: str | None = None
) -> str | None:
    """Return why the kernels cannot compute an encoder in a precision, None if they can.

    `instructions` is a lower instruction set than that of the processor.
    """
    usable = instruction_sets()
    if not usable:
        return "there are no native kernels for this processor, or they were not built"
    chosen = instructions or usable[-1]
    if chosen not in usable:
        return f"this processor has no {chosen}"
    if precision == "bf16" and chosen not in WITH_BF16:
        return f"{chosen} has no products of bf16 numbers"
    if precision == "int8" and max(config.hidden, config.feed_forward) > _WIDEST_INT8:
        return f"rows of more than {_WIDEST_INT8} numbers are too wide for products in int8"
    return None


class NativeEncoder(nn.Module):
    """An encoder whose forward passes are computed by the native kernels.

    It takes the place of an `Encoder` in a model that answers. The weights are copied in the form
    that the kernels read, the embedding tables are shared.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        precision: KernelPrecision,
        threads: int,
        instructions: str | None = None,
        release: bool = False,
        stored: Callable[[int], Mapping[str, StoredTensor]] | None = None,
    ) -> None:
        """Pack an encoder's weights; `threads` are those of packing and of a forward pass, at most.

        `instructions` is a lower instruction set than that of the processor. With `release` each
        block of the encoder loses its weights when they are packed, so that no more than one is
        held twice. `stored` returns where the weights of a block are in files, by their names in
        the block, and the encoder's are not read. Raises `ModelFolderError` for what is there.
        """
        super().__init__()
        assert unsupported_reason(encoder.config, precision, instructions) is None
        self.config, self.embeddings = encoder.config, encoder.embeddings
        self.threads = threads
        self._handle = _Handle(encoder, precision, instructions)
        for number, block in enumerate(encoder.blocks):
            if stored is None:
                self._handle.pack(number, dict(block.named_parameters()), threads)
            else:
                weights = stored(number)
                # the library would read what is not there
                assert weights.keys() == dict(block.named_parameters()).keys()
                self._handle.read(number, weights, threads)
            if release:
                for parameter in block.parameters():
                    parameter.data = parameter.new_empty(0)

    def forward(
        self, batch: Batch, *, selected: SelectedTokens | None = None, taps: Taps = NO_TAPS
    ) -> Encoded:
        """Return the same as `Encoder.forward`; of taps only those of states are possible.

        Raises `IndexError` for token ids, segments and positions that there are no embeddings for.
        """
        assert taps == Taps(states=taps.states), "the native kernels keep hidden states only"
        top, hidden = self.config.layers, self.config.hidden
        end = max(taps.states, default=0) if selected is not None and not len(selected) else top
        read = None if top in taps.states or end < top else selected
        states = {n: _room(batch.tokens, hidden) for n in taps.states if n <= end}
        rows = batch.tokens if read is None else len(read)
        last = _room(rows if end == top else 0, hidden)
        pointers = (c_void_p * (top + 1))(*(_pointer(states.get(n)) for n in range(top + 1)))
        positions = batch.positions
        if self.embeddings.positions is not None:
            # rows of the table: that of padding in a text lies before the first position's
            positions = self.embeddings.counted_positions(batch) + self.config.position_offset
            # the kernels refuse negative ones
            positions = positions.masked_fill(batch.positions < 0, -1)
        inputs = [
            tensor.to(torch.int64).contiguous()
            for tensor in (batch.ids, batch.segments, positions, batch.offsets)
        ]
        indices = None if read is None else read.to(torch.int64).contiguous()
        call = kernels.EncoderCall(
            batch.tokens, batch.sequences, *map(_pointer, inputs),
            _pointer(indices), 0 if indices is None else len(indices),
            end, self.threads, _pointer(last) if end == top else None,
            ctypes.cast(pointers, c_void_p),
        )  # fmt: skip
        self._handle.forward(call)
        if selected is not None and read is None and end == top:
            last = last[selected]
        return Encoded(last=last, selected=selected, states=states)


class _Handle:
    """The library's encoder, released with this object."""

    def __init__(
        self, encoder: Encoder, precision: KernelPrecision, instructions: str | None
    ) -> None:
        self._address: int | None = None
        library = kernels.library()
        assert library is not None
        self._library = library
        chosen = instructions or instruction_set()
        assert chosen is not None
        shape = _shape(encoder, kernels.NUMBERS[chosen], precision)
        # what the library reads where it is
        config = encoder.config
        thetas = (config.theta, config.local_theta) if config.positions == "rotary" else ()
        turns = [_rotation_tables(config, theta) for theta in thetas]
        ends, self._kept = _ends(encoder, turns)
        self._address = library.bs_encoder_new(shape, ends)
        if not self._address:
            raise MemoryError(_NO_MEMORY)

    def pack(self, number: int, weights: Mapping[str, Tensor], threads: int) -> None:
        """Pack the weights of a block, given by their names in it."""
        kept: list[Tensor] = []
        places = {name: _in_memory(tensor, kept) for name, tensor in weights.items()}
        self._set_block(number, places, threads)

    def read(self, number: int, weights: Mapping[str, StoredTensor], threads: int) -> None:
        """Pack the weights of a block as they are read; raises `ModelFolderError`."""
        with ExitStack() as stack:
            opened = {
                file: stack.enter_context(file.opened()).fileno()
                for file in dict.fromkeys(tensor.file for tensor in weights.values())
            }
            places = {
                name: kernels.TensorPlace(
                    kernels.IN_FILE[tensor.kind], opened[tensor.file], tensor.offset
                )
                for name, tensor in weights.items()
            }
            status, name, error = self._set_block(number, places, threads)
            if status == kernels.UNREADABLE:
                raise OSError(error, os.strerror(error))
        if status == kernels.SHORT:
            raise weights[name].file.shortened()
        if status == kernels.NOT_FINITE:
            raise weights[name].file.not_finite(weights[name].name)

    def _set_block(
        self, number: int, places: Mapping[str, kernels.TensorPlace], threads: int
    ) -> tuple[int, str, int]:
        """Return the status, and which tensor it is of, with the system's error."""
        # no callback does this: an interruption does not pass through C
        block = kernels.BlockWeights()
        for (module, attribute), name in _BLOCK_NAMES.items():
            if name in places:
                setattr(getattr(block, module), attribute, places[name])
        told = (c_int32 * 2)()
        status = self._library.bs_encoder_set_block(self._address, number, block, threads, told)
        if status == kernels.OUT_OF_MEMORY:
            raise MemoryError(_NO_MEMORY)
        return status, list(_BLOCK_NAMES.values())[told[0]], told[1]

    def __del__(self) -> None:
        if self._address:
            self._library.bs_encoder_free(self._address)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a native encoder cannot be copied or pickled")

    def forward(self, call: kernels.EncoderCall) -> None:
        kernels.check(self._library.bs_encoder_forward(self._address, call))


def _room(rows: int, width: int) -> Tensor:
    """Return room for what the library writes, which is float32 whatever torch's defaults are."""
    return torch.empty(rows, width, dtype=torch.float32, device="cpu")


def _pointer(values: Tensor | None) -> int | None:
    return None if values is None else values.data_ptr()


def _shape(encoder: Encoder, result: int, precision: KernelPrecision) -> kernels.EncoderShape:
    config = encoder.config
    table = encoder.embeddings.positions
    return kernels.EncoderShape(
        instruction_set=result,
        precision=_PRECISIONS.index(precision),
        hidden=config.hidden,
        heads=config.heads,
        feed_forward=config.feed_forward,
        embedding=config.embedding or 0,
        layers=config.layers,
        blocks=len(encoder.blocks),
        vocabulary=len(encoder.embeddings.tokens.weight),
        segments=config.segments,
        position_rows=0 if table is None else config.longest + config.position_offset,
        position_offset=0,
        gated=config.gated,
        tanh_gelu=config.activation == "gelu_tanh",
        norm_before=config.norm == "before",
        causal=config.causal,
        reach=-1 if config.window is None else config.window // 2,
        global_every=config.global_every,
        epsilon=config.norm_epsilon,
    )


def _rotation_tables(config: EncoderConfig, theta: float) -> Tensor:
    """Return the cosines and sines of all positions, (2, positions, head / 2)."""
    result = rotation(torch.arange(config.longest), config.hidden // config.heads, theta)
    return torch.stack([result.cosine[:, 0], result.sine[:, 0]])


def _ends(encoder: Encoder, turns: Sequence[Tensor]) -> tuple[kernels.EncoderEnds, list[Tensor]]:
    """Return the parts before and after the blocks, and the tensors that must be kept for them."""
    tensors = [*turns]
    embeddings = encoder.embeddings

    def table(module: nn.Module | None) -> int | None:
        return None if module is None else _float32_address(module.weight, tensors)

    ends = kernels.EncoderEnds(
        tokens=table(embeddings.tokens),
        segments=table(embeddings.segments),
        positions=table(embeddings.positions),
        norm=_affine(embeddings.norm, tensors),
        widen=_affine(embeddings.widen, tensors),
        final_norm=_affine(encoder.final_norm, tensors),
    )
    if turns:
        ends.turns, ends.local_turns = (_pointer(turn) for turn in turns)
        ends.turned_positions = encoder.config.longest
    return ends, tensors


def _affine(module: nn.Module | None, tensors: list[Tensor]) -> kernels.Affine:
    """Return the weight and bias of a linear layer or norm, nothing for none and for identities."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    return kernels.Affine(*(_in_memory(values, tensors) for values in (weight, bias)))


def _in_memory(values: Tensor | None, tensors: list[Tensor]) -> kernels.TensorPlace:
    """Return the place of numbers as contiguous float32, which stay in `tensors`."""
    if values is None:
        return kernels.TensorPlace()
    return kernels.TensorPlace(kernels.IN_MEMORY, values=_float32_address(values, tensors))


def _float32_address(values: Tensor | nn.Module, tensors: list[Tensor]) -> int:
    """Return the address of numbers as contiguous float32, which stay in `tensors`."""
    assert isinstance(values, Tensor)
    tensors.append(values.detach().to("cpu", torch.float32).contiguous())
    return tensors[-1].data_ptr()
