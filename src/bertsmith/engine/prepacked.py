"""The encoder on torch's own kernels, its weights prepared once for the device.

Compared with the network: query, key and value are one product, and matrices are stored in the
format of the products; on a processor in the layout that oneDNN multiplies fastest, where GELU and
the residual sum are computed within the products and sequences attend in groups. On a GPU residual
sums, norms and casts are one kernel where a batch is large enough. Every wiring of `EncoderConfig`
is supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core.shapes import Heads, Hidden, Queries, SelectedStates, SelectedTokens
from bertsmith.network.attention.cpu import Grouping, fused_attention, group
from bertsmith.network.attention.layout import SequenceLayout
from bertsmith.network.batch import Batch
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.encoder import Block, Encoder, layouts_of_layers
from bertsmith.network.fused.support import fuses_answers

TorchNumber = Literal["fp32", "bf16"]
_TYPES: dict[TorchNumber, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
# rows for which oneDNN chooses the layout of float32 weights
_ROWS = 1024


class PackedEncoder(nn.Module):
    """An encoder that only answers; the blocks of the one it is made of are emptied.

    Results are those of `Encoder` up to rounding. Tapped are states only.
    """

    def __init__(self, encoder: Encoder, *, precision: TorchNumber) -> None:
        super().__init__()
        self.config, self.embeddings = encoder.config, encoder.embeddings
        self._type = _TYPES[precision]
        self._final_norm = Norm(encoder.final_norm)
        blocks: list[Layer] = []
        for number in range(len(encoder.blocks)):
            block = encoder.blocks[number]
            assert isinstance(block, Block)
            last = number == len(encoder.blocks) - 1
            blocks.append(Layer(block, self._type, last=last))
            # the matrices exist twice for one block at a time only
            encoder.blocks[number] = nn.Identity()
        repeated = encoder.config.layers // len(blocks)
        self._layers = [block for block in blocks for _ in range(repeated)]

    def forward(
        self, batch: Batch, *, selected: SelectedTokens | None = None, taps: Taps = NO_TAPS
    ) -> Encoded:
        """Return the same as `Encoder.forward`, in float32."""
        assert not taps.qkv | taps.weights, "the network has these taps"
        positions = self.embeddings.counted_positions(batch)
        hidden = self.embeddings(batch.ids, batch.segments, positions)
        states = {0: hidden} if 0 in taps.states else {}
        top = len(self._layers)
        end = max(taps.layers, default=0) if selected is not None and not len(selected) else top
        all_tokens = self.config.causal or top in taps.layers or end < top
        read = None if all_tokens else selected
        attentions = [Attention(layout) for layout in layouts_of_layers(self.config, batch)]
        groups: dict[int, Attention] = {}
        attentions = [groups.setdefault(id(item.layout), item) for item in attentions]
        operand: Tensor | None = None
        for number, (layer, attention) in enumerate(zip(self._layers, attentions, strict=True), 1):
            if number > end:
                break
            seen = read if number == top else None
            hidden, operand = layer(hidden, attention, seen, operand)
            if number == top:
                hidden = self._final_norm(hidden)
            if number in taps.states:
                states[number] = hidden
        return Encoded(
            last=hidden if read is selected else hidden[selected], selected=selected, states=states
        )


class Attention:
    """Attention within the sequences of a batch, several short ones at once."""

    def __init__(self, layout: SequenceLayout) -> None:
        self.layout = layout
        self._groupings: dict[tuple[int, ...], Grouping] = {}

    def __call__(
        self, query: Queries, key: Heads, value: Heads, selected: SelectedTokens | None = None
    ) -> Queries:
        """Return the same as `SequenceLayout.attend`."""
        layout = self.layout
        if query.is_cuda or layout.causal or layout.cuts or len(layout.lengths) == 1:
            return layout.attend(query, key, value, selected=selected)
        if selected is None and len(set(layout.lengths)) == 1:
            q, k, v = (_by_sequence(tensor, len(layout.lengths)) for tensor in (query, key, value))
            attended = F.scaled_dot_product_attention(q, k, v)
            return attended.transpose(1, 2).flatten(0, 1)
        query_counts = layout.lengths if selected is None else layout.query_counts(selected)
        if query_counts not in self._groupings:
            self._groupings[query_counts] = _grouping(
                layout.lengths, query, None if selected is None else query_counts
            )
        return fused_attention(query, key, value, self._groupings[query_counts], 0.0)


def _by_sequence(packed: Tensor, sequences: int) -> Tensor:
    """Return (sequences, heads, length, head) of sequences of one length."""
    return packed.view(sequences, -1, *packed.shape[1:]).transpose(1, 2)


def _grouping(
    lengths: Sequence[int], query: Tensor, query_counts: Sequence[int] | None
) -> Grouping:
    """Return the groups of a batch, their masks in the type of the queries."""
    grouping = group(lengths, query.shape[1], query_counts)
    groups = tuple(
        item if item.hidden is None else replace(item, hidden=item.hidden.to(query.dtype))
        for item in grouping.groups
    )
    return replace(grouping, groups=groups)


class Layer:
    """A block of the network with packed weights."""

    def __init__(self, block: Block, kind: torch.dtype, *, last: bool) -> None:
        attention, forward = block.attention, block.feed_forward
        self._heads, self._before = attention.heads, block.norm == "before"
        # of the last layer only a few tokens may be wanted: only their queries are computed
        maps = [attention.query, attention.key, attention.value]
        split = [maps[:1], maps[1:]] if last else [maps]
        self._mapped = [(Product(part, kind), len(part)) for part in split]
        self._output = Product([attention.output], kind)
        self._gated = forward.gate is not None
        self._activation = forward.approximate
        inner = [forward.up] if forward.gate is None else [forward.up, forward.gate]
        self._up = Product(inner, kind)
        self._down = Product([forward.down], kind)
        self._attention_norm = Norm(block.attention_norm)
        self._feed_forward_norm = Norm(block.feed_forward_norm)
        self._type = kind

    def __call__(
        self,
        inputs: Hidden,
        attention: Attention,
        selected: SelectedTokens | None,
        operand: Hidden | None,
    ) -> tuple[SelectedStates, SelectedStates | None]:
        """Return the same as `Block.forward`; sums and norms are float32.

        `operand` are the inputs in the format that products read, where a layer before gave them as
        the second of its results.
        """
        if self._before:
            operand = self._attention_norm(inputs).to(self._type)
        elif operand is None:
            operand = inputs.to(self._type)
        query, key, value = self._heads_of(operand, selected)
        query, key = attention.layout.rotated(query, key, selected)
        attended = attention(query, key, value, selected).flatten(1)
        residual = inputs if selected is None else inputs.index_select(0, selected)
        if self._before:
            middle = self._output.added_to(residual, attended)
            inner = self._inner(self._feed_forward_norm(middle).to(self._type))
            return self._down.added_to(middle, inner), None
        middle, operand = self._attention_norm.of_sum(residual, self._output, attended)
        return self._feed_forward_norm.of_sum(middle, self._down, self._inner(operand))

    def _heads_of(self, inputs: Hidden, selected: SelectedTokens | None) -> list[Tensor]:
        """Return query, key and value, each (tokens, heads, head)."""
        results: list[Tensor] = []
        for product, count in self._mapped:
            # queries alone are a product of their own
            read = inputs if selected is None or count > 1 else inputs.index_select(0, selected)
            results += product(read).unflatten(-1, (count, self._heads, -1)).unbind(1)
        return results

    def _inner(self, inputs: Hidden) -> Tensor:
        """Return the inner values of the feed-forward network."""
        if not self._gated:
            return self._up(inputs, gelu=self._activation)
        up, gate = self._up(inputs).chunk(2, -1)
        return F.gelu(up, approximate=self._activation) * gate


class Norm:
    """A layer norm; none for an `nn.Identity`."""

    def __init__(self, norm: nn.Module) -> None:
        self._norm = norm if isinstance(norm, nn.LayerNorm) else None

    def __call__(self, inputs: Hidden) -> Hidden:
        """Return normed values, (tokens, hidden)."""
        norm = self._norm
        if norm is None:
            return inputs
        return F.layer_norm(inputs, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def of_sum(
        self, residual: SelectedStates, product: Product, inputs: Tensor
    ) -> tuple[SelectedStates, SelectedStates]:
        """Return the norm of a residual sum, in float32 and in the format that products read."""
        if self._norm is not None and product.kind != residual.dtype and fuses_answers(residual):
            from bertsmith.network.fused.add_norm import add_norm

            return add_norm(product.unbiased(inputs), product.bias, residual, self._norm, 0.0)
        values = self(product.added_to(residual, inputs))
        return values, values.to(product.kind)


class Product:
    """One or several linear maps of the same values, as one packed matrix."""

    def __init__(self, maps: Sequence[nn.Linear], kind: torch.dtype) -> None:
        weight = torch.cat([linear_map.weight for linear_map in maps]).detach().to(kind)
        biases: list[Tensor] = [
            linear_map.bias for linear_map in maps if linear_map.bias is not None
        ]
        self.kind = kind
        self.bias = torch.cat(biases).detach().to(kind) if biases else None
        self._packed = weight.device.type == "cpu" and supports_packing(kind)
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS) if self._packed else weight
        )

    def __call__(self, inputs: Tensor, *, gelu: str | None = None) -> Tensor:
        """Return (rows, outputs), through GELU where its formula is named: none or tanh."""
        if self._packed:
            activation = ("none", "") if gelu is None else ("gelu", gelu)
            result: Tensor = torch.ops.mkldnn._linear_pointwise(
                inputs, self._weight, self.bias, activation[0], [], activation[1]
            )
            return result
        result = F.linear(inputs, self._weight, self.bias)
        return result if gelu is None else F.gelu(result, approximate=gelu)

    def unbiased(self, inputs: Tensor) -> Tensor:
        """Return (rows, outputs) without the bias; on a GPU."""
        return F.linear(inputs, self._weight)

    def added_to(self, residual: Tensor, inputs: Tensor) -> Tensor:
        """Return the sum of the residual, in its type, and the product, (rows, outputs)."""
        if self._packed and residual.dtype == self.kind:
            total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
                inputs, residual, self._weight, self.bias, "add"
            )
            return total
        return residual + self(inputs)


@cache
def supports_packing(kind: torch.dtype) -> bool:
    """Return whether this torch packs weights of a type, and multiplies with them correctly."""
    if not torch.backends.mkldnn.is_available():
        return False
    inputs, weight, bias = torch.ones(2, 8, dtype=kind), torch.ones(4, 8, dtype=kind), None
    try:
        ops = torch.ops.mkldnn
        packed = ops._reorder_linear_weight(weight, 2)
        through = ops._linear_pointwise(inputs, packed, bias, "none", [], "")
        added = ops._linear_pointwise.binary(inputs, through, packed, bias, "add")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool((added == 16).all())
