"""The encoder: embeddings, then blocks of attention and feed-forward; one for all families."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core.shapes import Hidden, SelectedStates, SelectedTokens, TokenIds
from bertsmith.network.attention.layout import SequenceLayout
from bertsmith.network.attention.reference import weighted_values
from bertsmith.network.attention.rotary import Rotation, rotation
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig
from bertsmith.network.dropout import Dropout
from bertsmith.network.encoded import (
    NO_TAPS,
    WHOLE_LAYER,
    Encoded,
    LayerRequest,
    TappedLayer,
    Taps,
)
from bertsmith.network.fused import support
from bertsmith.network.fused.weights import half_copies


def sinusoidal_table(longest: int, hidden: int) -> Tensor:
    """Return sines and cosines of geometrically spaced wavelengths, (longest, hidden).

    Vaswani et al. 2017, section 3.5: even columns are sines, odd ones cosines.
    """
    position = torch.arange(longest, dtype=torch.float64)[:, None]
    column = torch.arange(hidden, dtype=torch.float64)
    angle = position / 10_000 ** (2 * (column // 2) / hidden)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()


class FixedTable(nn.Module):
    """A table of vectors that is not trained, (rows, hidden)."""

    weight: torch.Tensor

    def __init__(self, rows: int, hidden: int) -> None:
        super().__init__()
        self.register_buffer("weight", sinusoidal_table(rows, hidden), persistent=False)

    def forward(self, rows: TokenIds) -> Hidden:
        """Return the rows asked for."""
        return self.weight[rows]


class Embeddings(nn.Module):
    """The sum of token, segment and position vectors, normed (Devlin et al. 2018, figure 2).

    With `embedding` the tables are that wide, and a matrix brings their sum to `hidden`, so that a
    large vocabulary needs no large table (ALBERT: Lan et al. 2019, section 3.1). The first
    position's vector is the row `position_offset` of its table, 2 in a RoBERTa. Rotary positions
    are not added here: attention turns by them.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding or config.hidden
        self.tokens = _embedding_table(config.vocabulary, width)
        self.segments = _embedding_table(config.segments, width) if config.segments else None
        self.positions: nn.Module | None = None
        self.position_offset = config.position_offset
        self.padding_id = config.position_offset - 1 if config.position_offset else None
        """The token that positions do not count, which has the row before the first one's."""
        if config.positions == "learned":
            self.positions = _embedding_table(config.longest + config.position_offset, width)
        elif config.positions == "sinusoidal":
            self.positions = FixedTable(config.longest + config.position_offset, width)
        self.norm = LayerNorm(width, eps=config.norm_epsilon, bias=config.biases)
        self.dropout = Dropout(config.dropout)
        self.widen = None if config.embedding is None else nn.Linear(width, config.hidden)

    def forward(self, ids: TokenIds, segments: TokenIds, positions: TokenIds) -> Hidden:
        """Return vectors (tokens, hidden) of tokens with segment and place in the sequence."""
        summed = self.summed(ids, segments, positions)
        return summed if self.widen is None else self.widen(summed)

    def counted_positions(self, batch: Batch) -> TokenIds:
        """Return the positions (tokens,) of a batch as the table has them, from -1.

        A RoBERTa counts its positions without the padding that a text may contain, as
        `transformers` does: such a token has -1, and the one after it the position it would have.
        """
        if self.padding_id is None:
            return batch.positions
        padding = batch.ids == self.padding_id
        # a GPU's answer would be waited for
        if not padding.is_cuda and not padding.any():
            return batch.positions
        up_to = padding.cumsum(0)
        starts = torch.arange(batch.tokens, device=padding.device) - batch.positions
        before_sequence = (up_to - padding.long())[starts]
        return torch.where(padding, -1, batch.positions - (up_to - before_sequence))

    def summed(self, ids: TokenIds, segments: TokenIds, positions: TokenIds) -> Hidden:
        """Return the normed sums of the tables' rows, (tokens, width of the tables)."""
        embedded = self.tokens(ids)
        if self.segments is not None:
            # a single row is for both texts of a pair
            single_segment = self.segments.num_embeddings == 1
            embedded = embedded + (
                self.segments.weight if single_segment else self.segments(segments)
            )
        if self.positions is not None:
            embedded = embedded + self.positions(positions + self.position_offset)
        return self.dropout(self.norm(embedded))  # type: ignore[no-any-return]


def _embedding_table(rows: int, hidden: int) -> nn.Embedding:
    """Return a table of vectors, not filled on the meta device: that imports torch's compiler.

    That import takes a second, at every start that builds or loads a model.
    """
    weight = torch.empty(rows, hidden)
    if not weight.is_meta:
        nn.init.normal_(weight)
    return nn.Embedding(rows, hidden, _weight=weight)


def fused_linear(inputs: SelectedStates, *maps: nn.Linear) -> Tensor:
    """Return several linear maps of one width applied to the same values, (tokens, maps x width).

    One wide product is faster than several; the weights stay apart, as most published folders and
    the orthogonalising optimiser want them.
    """
    weight = torch.cat([linear_map.weight for linear_map in maps])
    bias = None if maps[0].bias is None else torch.cat([linear_map.bias for linear_map in maps])
    return F.linear(inputs, weight, bias)


class LayerNorm(nn.LayerNorm):
    """A layer norm in the format of its weight, as autocast has it on a GPU.

    Of values in bf16, torch adds up the gradients of weight and bias in bf16 on a processor: of
    4,000 equal ones, a quarter is left.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return normed values of the same shape."""
        kind = self.weight.dtype
        return super().forward(inputs if inputs.dtype == kind else inputs.to(kind))


def layer_norm(config: EncoderConfig) -> LayerNorm:
    """Return a layer norm of hidden states."""
    return LayerNorm(config.hidden, eps=config.norm_epsilon, bias=config.biases)


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2; Devlin et al. 2018)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, biases = config.hidden, config.biases
        self.heads = config.heads
        # of attention weights: the backends draw what is dropped
        self.dropout = Dropout(config.attention_dropout)
        self.query = nn.Linear(hidden, hidden, bias=biases)
        self.key = nn.Linear(hidden, hidden, bias=biases)
        self.value = nn.Linear(hidden, hidden, bias=biases)
        self.output = nn.Linear(hidden, hidden, bias=biases)

    def forward(
        self,
        inputs: Hidden,
        layout: SequenceLayout,
        request: LayerRequest = WHOLE_LAYER,
    ) -> tuple[SelectedStates, TappedLayer]:
        """(tokens, hidden) to (selected, hidden), each token seeing its own sequence only."""
        if request.selected is None:
            mapped = self._mapped(inputs, self.query, self.key, self.value)
        else:
            (query,) = self._mapped(request.rows(inputs), self.query)
            mapped = (query, *self._mapped(inputs, self.key, self.value))
        attended, inside = self.attend(mapped, layout, request)
        return self.output(attended), inside

    def attend(
        self,
        mapped: tuple[Tensor, ...],
        layout: SequenceLayout,
        request: LayerRequest,
    ) -> tuple[SelectedStates, TappedLayer]:
        """Return `forward` without its last linear layer, given queries, keys and values."""
        query, key, value = mapped
        query, key = layout.rotated(query, key, request.selected)
        seen = layout.weights(query, key) if request.weights else None
        if seen is None:
            share = self.dropout.active_share
            attended = layout.attend(query, key, value, share, request.selected)
        else:
            attended = weighted_values(seen, value, self.dropout)
        inside = TappedLayer((query, key, value) if request.qkv else None, seen)
        return attended.flatten(1), inside

    def mapped(
        self, inputs: Hidden, joined: Tensor, biases: Tensor | None, selected: SelectedTokens | None
    ) -> tuple[Tensor, ...]:
        """Return queries, keys and values, (tokens, heads, head) each, by one matrix on a GPU.

        `joined` (3 x width, width) are the matrices of the three, `biases` (3 x width,).
        """
        if selected is None and support.uses("projections", inputs):
            from bertsmith.network.fused.projections import projections

            half = None if biases is None else biases.bfloat16()
            return projections(inputs.bfloat16(), joined.bfloat16(), half, self.heads)
        if selected is None:
            mixed: Tensor = F.linear(inputs, joined, biases).unflatten(-1, (3, self.heads, -1))
            return mixed.unbind(1)
        width = len(joined) // 3
        first, rest = (None, None) if biases is None else biases.tensor_split([width])
        query = F.linear(inputs.index_select(0, selected), joined[:width], first)
        others = F.linear(inputs, joined[width:], rest).unflatten(-1, (2, self.heads, -1))
        return query.unflatten(-1, (self.heads, -1)), *others.unbind(1)

    def _mapped(self, inputs: Hidden, *maps: nn.Linear) -> tuple[Tensor, ...]:
        """Return several linear maps of the same values, each (tokens, heads, head)."""
        mixed: Tensor = fused_linear(inputs, *maps).unflatten(-1, (len(maps), self.heads, -1))
        return mixed.unbind(1)


class FeedForward(nn.Module):
    """Two linear layers around a GELU (Hendrycks & Gimpel 2016), exact or by its tanh formula.

    `gated`, what the GELU gives is multiplied by what a third linear layer gives (GeGLU: Shazeer
    2020, equation 5).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, inner, biases = config.hidden, config.feed_forward, config.biases
        self.up = nn.Linear(hidden, inner, bias=biases)
        self.gate = nn.Linear(hidden, inner, bias=biases) if config.gated else None
        self.down = nn.Linear(inner, hidden, bias=biases)
        self.approximate = "tanh" if config.activation == "gelu_tanh" else "none"

    def forward(self, inputs: Hidden) -> Hidden:
        """(tokens, hidden) to (tokens, hidden)."""
        if self.gate is None:
            return self.down(F.gelu(self.up(inputs), approximate=self.approximate))  # type: ignore[no-any-return]
        up, gate = fused_linear(inputs, self.up, self.gate).chunk(2, -1)
        return self.down(F.gelu(up, approximate=self.approximate) * gate)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each added to its input.

    With `norm` after, each sum is normed (BERT); before, what goes into the two is normed and their
    sums stay as they are (Xiong et al. 2020, figure 1). There the `first` block has nothing to norm
    before its attention: what embeddings give is normed already (Warner et al. 2024).

    One product or kernel may compute what several layers inside do, so hooks on these need not
    fire: `Taps` show what is inside.
    """

    def __init__(self, config: EncoderConfig, *, first: bool) -> None:
        super().__init__()
        self.norm = config.norm
        self.attention = SelfAttention(config)
        unnormed = first and config.norm == "before"
        self.attention_norm: nn.Module = nn.Identity() if unnormed else layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        inputs: Hidden,
        layout: SequenceLayout,
        request: LayerRequest = WHOLE_LAYER,
        operand: Hidden | None = None,
    ) -> tuple[SelectedStates, TappedLayer, SelectedStates | None]:
        """(tokens, hidden) to (selected, hidden), and what is tapped of the attention.

        `operand` are the inputs in the format that products read, where a block before gave them as
        the last of its results.
        """
        norm_first = self.norm == "before"
        if not norm_first and self.feed_forward.gate is None and support.applies(inputs):
            return self._fused(inputs, operand, layout, request)
        normed = self.attention_norm(inputs) if norm_first else inputs
        attended, inside = self.attention(normed, layout, request)
        residual = request.rows(inputs)
        if norm_first:
            middle = self.dropout.add(residual, attended)
            changed = self.feed_forward(self.feed_forward_norm(middle))
            return self.dropout.add(middle, changed), inside, None
        middle = self.attention_norm(self.dropout.add(residual, attended))
        changed = self.dropout.add(middle, self.feed_forward(middle))
        return self.feed_forward_norm(changed), inside, None

    def _fused(
        self,
        inputs: Hidden,
        operand: Hidden | None,
        layout: SequenceLayout,
        request: LayerRequest,
    ) -> tuple[SelectedStates, TappedLayer, SelectedStates | None]:
        """Return the same as `forward`, by the kernels of `fused` (norms after sums, no gate)."""
        attention, forward = self.attention, self.feed_forward
        matrices = self._matrices(inputs)
        read = inputs if operand is None else operand
        mapped = attention.mapped(read, matrices.joined, matrices.biases, request.selected)
        attended, inside = attention.attend(mapped, layout, request)
        residual = request.rows(inputs)
        middle, read = self._add_norm(
            attended, matrices.output, attention.output.bias, residual, self.attention_norm
        )
        inner = _biased_gelu(read, matrices.up, forward.up.bias, forward.approximate)
        changed, operand = self._add_norm(
            inner, matrices.down, forward.down.bias, middle, self.feed_forward_norm
        )
        return changed, inside, operand

    def _matrices(self, inputs: Hidden) -> _Matrices:
        """Return the matrices in the format that products read, or as they are."""
        attention, forward = self.attention, self.feed_forward
        maps = (attention.query, attention.key, attention.value)
        joined: list[Tensor] = [part.weight for part in maps]
        biases: list[Tensor] = [part.bias for part in maps if part.bias is not None]
        others = [attention.output.weight, forward.up.weight, forward.down.weight]
        groups = [joined, *([item] for item in others), *([biases] if biases else [])]
        if support.uses("weights", inputs):
            return _Matrices(*half_copies(groups, torch.bfloat16))
        return _Matrices(*(group[0] if len(group) == 1 else torch.cat(group) for group in groups))

    def _add_norm(
        self,
        inputs: Tensor,
        matrix: Tensor,
        bias: Tensor | None,
        residual: SelectedStates,
        norm: nn.Module,
    ) -> tuple[SelectedStates, SelectedStates]:
        """Return the norm of a residual sum, for the next sum and for the next product."""
        if not support.uses("add_norm", residual):
            both = norm(self.dropout.add(residual, F.linear(inputs, matrix, bias)))
            return both, both
        from bertsmith.network.fused.add_norm import add_norm

        assert isinstance(norm, nn.LayerNorm)
        product = F.linear(inputs, matrix)
        return add_norm(product, bias, residual, norm, self.dropout.active_share)


class _Matrices(NamedTuple):
    """A block's matrices: of queries, keys and values in one, with their biases, and the rest."""

    joined: Tensor
    output: Tensor
    up: Tensor
    down: Tensor
    biases: Tensor | None = None


def _biased_gelu(
    inputs: SelectedStates, matrix: Tensor, bias: Tensor | None, approximate: str
) -> Tensor:
    """Return the GELU of a linear layer, (tokens, inner)."""
    if not support.uses("gelu", inputs):
        return F.gelu(F.linear(inputs, matrix, bias), approximate=approximate)
    from bertsmith.network.fused.gelu import bias_gelu

    return bias_gelu(F.linear(inputs, matrix), bias, tanh=approximate == "tanh")


class Encoder(nn.Module):
    """Embeddings and a stack of blocks, each for one layer or for several."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(
            Block(config, first=number == 0) for number in range(config.groups or config.layers)
        )
        before = config.norm == "before"
        self.final_norm: nn.Module = layer_norm(config) if before else nn.Identity()

    def forward(
        self, batch: Batch, *, selected: SelectedTokens | None = None, taps: Taps = NO_TAPS
    ) -> Encoded:
        """Return the last layer's hidden states and what was tapped.

        With `selected`, some of the tokens in order and each once, the last layer works for
        these alone (of other tokens it needs keys and values), unless it has a tap or reads from
        left to right. With `selected` empty, the layers above the highest tap are left out.
        """
        positions = self.embeddings.counted_positions(batch)
        hidden = self.embeddings(batch.ids, batch.segments, positions)
        return self.transform(hidden, batch, selected=selected, taps=taps)

    def transform(
        self,
        hidden: Hidden,
        batch: Batch,
        *,
        selected: SelectedTokens | None = None,
        taps: Taps = NO_TAPS,
    ) -> Encoded:
        """Return the same as `forward`, given the embeddings (tokens, hidden)."""
        layers = self._layers(batch)
        top = len(layers)
        end = max(taps.layers, default=0) if selected is not None and not len(selected) else top
        all_tokens = self.config.causal or top in taps.layers or end < top
        read = None if all_tokens else selected
        states, qkv, weights = {0: hidden} if 0 in taps.states else {}, {}, {}
        operand: Hidden | None = None
        for number, (block, layout) in enumerate(layers[:end], 1):
            selected_here = read if number == top else None
            request = LayerRequest(selected_here, number in taps.qkv, number in taps.weights)
            hidden, inside, operand = block(hidden, layout, request, operand)
            if number == top:
                hidden = self.final_norm(hidden)
            if number in taps.states:
                states[number] = hidden
            if request.qkv:
                qkv[number] = inside.qkv
            if request.weights:
                weights[number] = inside.weights
        last = hidden if read is selected else hidden[selected]
        return Encoded(last=last, selected=selected, states=states, qkv=qkv, weights=weights)

    def _layers(self, batch: Batch) -> list[tuple[nn.Module, SequenceLayout]]:
        """Return the block of each layer, and what its attention sees."""
        layers_per_block = self.config.layers // len(self.blocks)
        blocks = [block for block in self.blocks for _ in range(layers_per_block)]
        return list(zip(blocks, layouts_of_layers(self.config, batch), strict=True))


def layouts_of_layers(config: EncoderConfig, batch: Batch) -> list[SequenceLayout]:
    """Return the part of its sequence that a token sees in each layer; like layers share one."""
    wide = SequenceLayout(
        batch.offsets, batch.lengths, config.causal, rotation=_rotation(config, batch, config.theta)
    )
    near = wide
    if config.window is not None:
        local, reach = _rotation(config, batch, config.local_theta), config.window // 2
        near = SequenceLayout(batch.offsets, batch.lengths, window=reach, rotation=local)
    return [near if number % config.global_every else wide for number in range(config.layers)]


def _rotation(config: EncoderConfig, batch: Batch, theta: float) -> Rotation | None:
    if config.positions != "rotary":
        return None
    return rotation(batch.positions, config.hidden // config.heads, theta)
