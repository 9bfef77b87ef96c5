"""The same sequences for both sides, and how far what they give is apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from bertsmith.network.batch import Batch, pack
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bounds import close_to_transformers
from parity.other_process import RemoteModel

Close = Callable[[Tensor, Tensor], None]
LENGTHS = (13, 1, 23, 7, 19, 2)
# the shortest and the longest
ALONE = (1, 2)
TOKENIZER = Tokenizer((*SPECIALS, *(f"word{n}" for n in range(94))), BasicRules(lowercase=True))


def sequences(vocabulary: int = 99) -> tuple[Batch, dict[str, Tensor]]:
    """The same sequences packed, and padded as transformers wants them."""
    generator = torch.Generator().manual_seed(5)
    shape = (len(LENGTHS), max(LENGTHS))
    ids = torch.randint(5, vocabulary, shape, generator=generator)
    segments = torch.randint(2, shape, generator=generator)
    mask = torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]
    packed = pack(
        [row[:n].numpy() for row, n in zip(ids, LENGTHS, strict=True)],
        [row[:n].numpy() for row, n in zip(segments, LENGTHS, strict=True)],
    )
    return packed, {"input_ids": ids * mask, "token_type_ids": segments, "attention_mask": mask}


def varied(model: Any) -> Any:  # noqa: ANN401
    """A model none of whose weights is what it starts as."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model.eval()


@torch.no_grad()
def compare(ours: Model, theirs: Any, close: Close = close_to_transformers) -> None:  # noqa: ANN401
    """Hidden states of every layer and what every head gives, at every real token.

    Ours of all sequences packed, against theirs padded; the shortest and the longest alone too.
    """
    packed, padded = sequences(ours.config.encoder.vocabulary)
    compare_batch(ours, theirs, packed, padded, close)
    for number in ALONE:
        one = {
            name: value[number : number + 1, : LENGTHS[number]] for name, value in padded.items()
        }
        alone = pack([one["input_ids"][0].numpy()], [one["token_type_ids"][0].numpy()])
        compare_batch(ours, theirs, alone, one, close)


def every_state(model: Model) -> Taps:
    """Taps of the embeddings and of every layer's output."""
    return Taps(states=frozenset(range(model.config.encoder.layers + 1)))


def compare_batch(
    ours: Model,
    theirs: Any,  # noqa: ANN401
    packed: Batch,
    padded: dict[str, Tensor],
    close: Close,
) -> None:
    """The same sequences, packed and padded."""
    real = padded["attention_mask"]
    padded = padded | {"attention_mask": real.long()}
    if ours.config.predicts == "choice":
        # two questions of three options, or one of one
        shape = (max(1, packed.sequences // 3), -1, real.shape[1])
        padded = {name: value.unflatten(0, shape[:2]) for name, value in padded.items()}
    if not ours.config.encoder.segments and "token_type_ids" not in _taken(theirs):
        padded = {name: value for name, value in padded.items() if name != "token_type_ids"}
    elif ours.config.encoder.segments == 1:
        # whatever ours are told
        padded = padded | {"token_type_ids": torch.zeros_like(padded["token_type_ids"])}
    out = theirs(**padded, output_hidden_states=True)
    encoded = ours.encoder(packed, taps=every_state(ours))
    states = list(encoded.states.values())
    assert len(states) == len(out.hidden_states) == ours.config.encoder.layers + 1
    others = list(out.hidden_states)
    if ours.config.encoder.norm == "before" and not isinstance(theirs, RemoteModel):
        # theirs are told without the norm that comes last
        others[-1] = theirs.base_model.final_norm(others[-1])
    for mine, other in zip(states, others, strict=True):
        close(mine, other[real])
    for mine, other in _outputs(ours, encoded, packed, out, real):
        close(mine, other)


def _taken(theirs: Any) -> Collection[str]:  # noqa: ANN401
    """What their model takes."""
    if isinstance(theirs, RemoteModel):
        return theirs.taken
    return inspect.signature(theirs.forward).parameters.keys()


def _outputs(
    ours: Model,
    encoded: Encoded,
    batch: Batch,
    out: Any,  # noqa: ANN401
    real: Tensor,
) -> Iterator[tuple[Tensor, Tensor]]:
    """What each head of ours gives, and theirs in its shape."""
    if ours.config.masked_lm:
        logits = getattr(out, "prediction_logits", None)
        yield ours.masked_lm(encoded.last), (out.logits if logits is None else logits)[real]
    if ours.config.replaced_tokens:
        yield ours.replaced_tokens(encoded.last), out.logits[real]
    if ours.config.next_sentence:
        pairs = out.get("sop_logits", out.get("seq_relationship_logits"))
        yield ours.next_sentence(encoded, batch), pairs
    match ours.config.predicts:
        case "class" | "classes" | "number":
            yield ours.classify(encoded, batch), out.logits
        case "tags":
            yield ours.tag(encoded.last), out.logits[real]
        case "span":
            both = torch.stack([out.start_logits, out.end_logits], -1)
            yield ours.span(encoded.last), both[real]
        case "choice":
            yield ours.choose(encoded, batch), out.logits.flatten()
    if "pooler_output" in out:
        yield ours.pooled(encoded, batch), out.pooler_output
