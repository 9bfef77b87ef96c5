"""The C interface of the native kernels: the library, its structures, the instruction sets.

The library (kernels/ of the repository) is compiled when the package is built, where there is a C++
compiler. It has kernels for several instruction sets and chooses when it is loaded; the environment
variable BERTSMITH_KERNELS, avx2, avx512, avx512-bf16 or none, makes it choose a lower one.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint32, c_void_p
from functools import cache
from pathlib import Path

from bertsmith.core.log import say
from bertsmith.core.printable import printable

_LIBRARY = Path(__file__).with_name("_kernels.so")
INSTRUCTION_SETS = {1: "avx2", 2: "avx512", 3: "avx512-bf16", 4: "amx"}
"""Instruction sets by their number, the best last."""
NUMBERS = {name: number for number, name in INSTRUCTION_SETS.items()}
WITH_BF16 = ("avx512-bf16", "amx")
"""Those that have products of bf16."""
_FAILED_TEST = -1
OUT_OF_MEMORY, UNREADABLE, SHORT, NOT_FINITE = 1, 9, 10, 11
"""Statuses of packing weights; the last three of tensors in a file."""
# BS_INTERFACE of kernels/bertsmith_kernels.h
_INTERFACE = 9
_ERRORS: dict[int, Exception] = {
    1: MemoryError("no memory for the native kernels' workspace"),
    2: IndexError("a token id is not in the vocabulary"),
    3: IndexError("a segment has no embedding"),
    4: IndexError("a position exceeds the longest sequence of the model"),
    5: ValueError("the offsets of the batch's sequences are not in order"),
    6: ValueError("the places asked for are not in order, or not in the batch"),
    7: IndexError("a label is not among the classes"),
    8: TypeError("the instruction set has no such numbers, or the processor not the set"),
}


class EncoderShape(Structure):
    """Sizes and wiring of an encoder: bs_shape."""

    _fields_ = [
        *((name, c_int32) for name in (
            "instruction_set", "precision", "hidden", "heads", "feed_forward", "embedding",
            "layers", "blocks", "vocabulary", "segments", "position_rows", "position_offset",
            "gated", "tanh_gelu", "norm_before", "causal", "reach", "global_every",
        )),
        ("epsilon", c_float),
    ]  # fmt: skip


class TensorPlace(Structure):
    """The place of a tensor's numbers, in memory as float32 or in a file: bs_tensor."""

    _fields_ = [("place", c_int32), ("file", c_int32), ("offset", c_int64), ("values", c_void_p)]


IN_MEMORY = 1
IN_FILE = {"F32": 2, "F64": 3, "F16": 4, "BF16": 5}
"""Places by the types that numbers have in files of tensors."""


class Affine(Structure):
    """The weight and bias of a linear layer or a norm: bs_affine."""

    _fields_ = [("weight", TensorPlace), ("bias", TensorPlace)]


LINEAR = ("query", "key", "value", "output", "up", "gate", "down")
NORMS = ("attention_norm", "feed_forward_norm")


class BlockWeights(Structure):
    """The weights of a block: bs_block."""

    _fields_ = [(name, Affine) for name in (*LINEAR, *NORMS)]


class EncoderEnds(Structure):
    """Tables, norms and weights before and after the blocks: bs_ends."""

    _fields_ = [
        ("tokens", c_void_p), ("segments", c_void_p), ("positions", c_void_p),
        ("norm", Affine), ("widen", Affine), ("final_norm", Affine),
        ("turns", c_void_p), ("local_turns", c_void_p), ("turned_positions", c_int32),
    ]  # fmt: skip


class EncoderCall(Structure):
    """A packed batch and where its results go: bs_call."""

    _fields_ = [
        ("tokens", c_int64), ("sequences", c_int64),
        ("ids", c_void_p), ("segments", c_void_p), ("positions", c_void_p), ("offsets", c_void_p),
        ("at", c_void_p), ("places", c_int64),
        ("layers", c_int32), ("threads", c_int32),
        ("last", c_void_p), ("states", c_void_p),
    ]  # fmt: skip


class LossCall(Structure):
    """Rows of logits, and what is computed of each: bs_losses."""

    _fields_ = [
        *((name, c_void_p) for name in ("logits", "bias", "gradient", "sums")),
        *((name, c_void_p) for name in ("labels", "losses", "correct")),
        *((name, c_int64) for name in ("rows", "classes", "stride", "groups")),
        ("parallel", c_void_p),
        ("instruction_set", c_int32), ("bf16", c_int32), ("threads", c_int32),
    ]  # fmt: skip


class MaskCall(Structure):
    """Masks of dropout: bs_masks."""

    _fields_ = [
        ("mask", c_void_p), ("count", c_int64), ("parallel", c_void_p),
        ("first", c_uint32), ("second", c_uint32),
        *((name, c_int32) for name in ("dropped", "bytes", "instruction_set", "threads")),
    ]  # fmt: skip


_STRUCTURES = (EncoderShape, EncoderEnds, BlockWeights, EncoderCall, LossCall, MaskCall)


@cache
def library() -> ctypes.CDLL | None:
    """Return the library; None where it was not built or cannot be used."""
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError:
        return None
    if _interface_of(library) != [_INTERFACE, *map(ctypes.sizeof, _STRUCTURES)]:
        say(
            "the native kernels were compiled from other sources and are not used; install "
            "bertsmith again, or in a checkout: python hatch_build.py"
        )
        return None
    requested = os.environ.get("BERTSMITH_KERNELS", "")
    if requested not in ("", "none", *INSTRUCTION_SETS.values()):
        choices = ", ".join([*INSTRUCTION_SETS.values(), "none"])
        say(
            f"BERTSMITH_KERNELS is {printable(requested, 40)} and has no effect: it can be "
            f"{choices}"
        )
    library.bs_instruction_set.restype = c_int32
    result = library.bs_instruction_set()
    if result == _FAILED_TEST:
        say("the native kernels fail their test on this processor and are not used")
    if result not in INSTRUCTION_SETS:
        return None
    library.bs_encoder_new.restype = c_void_p
    library.bs_encoder_new.argtypes = [POINTER(EncoderShape), POINTER(EncoderEnds)]
    library.bs_encoder_set_block.restype = c_int32
    library.bs_encoder_set_block.argtypes = [
        c_void_p, c_int32, POINTER(BlockWeights), c_int32, POINTER(c_int32),
    ]  # fmt: skip
    library.bs_encoder_free.restype = None
    library.bs_encoder_free.argtypes = [c_void_p]
    library.bs_encoder_forward.restype = c_int32
    library.bs_encoder_forward.argtypes = [c_void_p, POINTER(EncoderCall)]
    library.bs_cross_entropy.restype = c_int32
    library.bs_cross_entropy.argtypes = [POINTER(LossCall)]
    library.bs_dropout_masks.restype = c_int32
    library.bs_dropout_masks.argtypes = [POINTER(MaskCall)]
    library.bs_all_finite.restype = c_int32
    library.bs_all_finite.argtypes = [c_void_p, c_int64]
    return library


def check(status: int) -> None:
    """Raise the exception that a function's status stands for, if it is one."""
    if status:
        error = _ERRORS[status]
        raise type(error)(*error.args)


def _interface_of(library: ctypes.CDLL) -> list[int]:
    """Return the version of a library's interface and the sizes of its structures."""
    result = (c_int64 * (1 + len(_STRUCTURES)))()
    try:
        library.bs_interface(result)
    except AttributeError:
        return []
    return list(result)


def instruction_set() -> str | None:
    """Return the best of INSTRUCTION_SETS that can be used here, None without kernels."""
    loaded = library()
    return None if loaded is None else INSTRUCTION_SETS[loaded.bs_instruction_set()]


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that can be used here, the best one last."""
    loaded = library()
    best = 0 if loaded is None else loaded.bs_instruction_set()
    return tuple(name for number, name in INSTRUCTION_SETS.items() if number <= best)
