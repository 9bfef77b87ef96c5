"""A model over padded batches, in operations that other runtimes have too.

The program itself has no padding: its network reads sequences end to end, which no exchange format
can express. `PaddedModel` computes the same with the same weights for (batch, length) token ids and
an attention mask. Positions are counted from the mask, so that padding may stand on either side of
a text, and a row gives what its unmasked tokens would give alone.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.network.config import EncoderConfig, ModelConfig, VectorPooling, reads_pooler
from bertsmith.network.encoder import Block, Embeddings
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.heads import MaskedLMHead, Pooler, ReplacedTokensHead
from bertsmith.network.model import Model
from bertsmith.network.pooling import ACTIVATIONS, Dense, Truncation, UnitLength
from bertsmith.weights.sentence_folder import SentenceSettings

# added to the scores of what is not seen; finite, so that a row that is all padding has no NaN
_UNSEEN = -3.0e38

SENTENCE_OUTPUT = "sentence_embedding"
"""The output of a sentence-transformers folder's steps: the vector of a text."""


def input_names(config: ModelConfig) -> list[str]:
    """Return the inputs of an exported model, named as tokenizers of `transformers` name them.

    Each is (batch, length) of int64; of a model that chooses, (batch, choices, length).
    """
    names = ["input_ids", "attention_mask"]
    return [*names, "token_type_ids"] if config.encoder.segments > 1 else names


def output_names(config: ModelConfig, sentence: SentenceSettings | None = None) -> list[str]:
    """Return the outputs of an exported model, named as in `transformers` and optimum."""
    if config.predicts == "span":
        return ["start_logits", "end_logits"]
    if config.predicts is not None or config.replaced_tokens:
        return ["logits"]
    pairs = FAMILIES[config.encoder.family].pairs
    pair_logits = "sop_logits" if pairs == "sentence_order" else "seq_relationship_logits"
    if config.masked_lm:
        return ["logits", pair_logits] if config.next_sentence else ["logits"]
    if config.next_sentence:
        return ["logits"]
    if sentence is not None:
        return ["last_hidden_state", SENTENCE_OUTPUT]
    return ["last_hidden_state", "pooler_output"] if config.pooler else ["last_hidden_state"]


class PaddedModel(nn.Module):
    """A model that reads padded batches and returns the outputs of its heads.

    The weights are those of the model that it is made of, not copies. `sentence` are the steps
    after the encoder of a sentence-transformers folder.
    """

    def __init__(self, model: Model, sentence: SentenceSettings | None = None) -> None:
        super().__init__()
        self.config = model.config
        self.inputs = input_names(model.config)
        self.outputs = output_names(model.config, sentence)
        encoder = model.config.encoder
        self.embeddings = PaddedEmbeddings(model.encoder.embeddings, encoder)
        blocks: list[Block] = [block for block in model.encoder.blocks if isinstance(block, Block)]
        self.blocks = nn.ModuleList(PaddedBlock(block) for block in blocks)
        self.final_norm = model.encoder.final_norm
        self.pooler = None if model.pooler is None else PaddedPooler(model.pooler)
        self.heads = model.heads
        self.sentence = None if sentence is None else SentenceVectors(sentence)
        self.visible = VisibleTokens(encoder)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs, in the order of `outputs`, of (batch, length) token ids."""
        if self.config.predicts == "choice":
            batch, choices, _ = input_ids.shape
            input_ids, attention_mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
            token_type_ids = None if token_type_ids is None else token_type_ids.flatten(0, 1)
            (scores,) = self._outputs(input_ids, attention_mask, token_type_ids)
            return (scores.view(batch, choices),)
        return self._outputs(input_ids, attention_mask, token_type_ids)

    def _outputs(self, ids: Tensor, mask: Tensor, segments: Tensor | None) -> tuple[Tensor, ...]:
        count = mask.cumsum(1)
        positions = (count - 1).clamp(min=0)
        hidden = self.embeddings(ids, segments, self.embeddings.counted(ids, mask, positions))
        hidden = self._encoded(hidden, mask, positions)
        return self._heads(hidden, mask, count)

    def _encoded(self, hidden: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Return the last hidden states, (batch, length, hidden)."""
        layers, kinds = self.config.encoder.layers, self.visible(mask, positions)
        layers_per_block = layers // len(self.blocks)
        for number in range(layers):
            local = bool(number % self.config.encoder.global_every)
            hidden = self.blocks[number // layers_per_block](hidden, *kinds[local])
        return self.final_norm(hidden)  # type: ignore[no-any-return]

    def _heads(self, hidden: Tensor, mask: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        config, heads = self.config, self.heads
        match config.head:
            case "classify":
                return (heads["classify"](self._pooled(hidden, mask, count)),)
            case "choose":
                return (heads["choose"](self._pooled(hidden, mask, count))[:, 0],)
            case "tag":
                return (heads["tag"](self._by_token(hidden)),)
            case "span":
                start, end = heads["span"](self._by_token(hidden)).unbind(-1)
                return (start, end)
        if config.replaced_tokens:
            return (_replaced_tokens(heads["replaced_tokens"], hidden),)
        if config.pretraining_heads:
            return self._of_pretraining(hidden, mask, count)
        if self.sentence is not None:
            return (hidden, self.sentence(hidden, mask, count))
        if self.pooler is None:
            return (hidden,)
        return (hidden, self._pooled(hidden, mask, count))

    def _of_pretraining(self, hidden: Tensor, mask: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        outputs: list[Tensor] = []
        if self.config.masked_lm:
            table = self.embeddings.tokens.weight
            outputs.append(_masked_lm(self.heads["masked_lm"], hidden, table))
        if self.config.next_sentence:
            outputs.append(self.heads["next_sentence"](self._pooled(hidden, mask, count)))
        return tuple(outputs)

    def _pooled(self, hidden: Tensor, mask: Tensor, count: Tensor) -> Tensor:
        """Return the pooler's vector of each sequence, (batch, hidden)."""
        assert self.pooler is not None
        kind = _POOLED[self.config.encoder.pooled]
        return self.pooler(_pool(kind, hidden, mask, count))  # type: ignore[no-any-return]

    def _by_token(self, hidden: Tensor) -> Tensor:
        """Return the input of a head that reads every token."""
        if self.pooler is None or not reads_pooler(self.config.head, self.config.encoder):
            return hidden
        return self.pooler(hidden)  # type: ignore[no-any-return]


class PaddedEmbeddings(nn.Module):
    """The sum of token, segment and position vectors, normed: `Embeddings` of batches."""

    def __init__(self, embeddings: Embeddings, encoder: EncoderConfig) -> None:
        super().__init__()
        self.tokens, self.segments = embeddings.tokens, embeddings.segments
        self.positions, self.offset = embeddings.positions, encoder.position_offset
        self.padding_id = embeddings.padding_id
        self.norm, self.widen = embeddings.norm, embeddings.widen

    def counted(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Return the positions, those of a RoBERTa without the padding that a text may contain."""
        if self.padding_id is None:
            return positions
        counted = (ids != self.padding_id).to(mask.dtype)
        return (mask * counted).cumsum(1) * counted - 1

    def forward(self, ids: Tensor, segments: Tensor | None, positions: Tensor) -> Tensor:
        """Return vectors (batch, length, hidden)."""
        summed = self.tokens(ids)
        if self.segments is not None:
            single_segment = segments is None
            summed = summed + (
                self.segments.weight[0] if single_segment else self.segments(segments)
            )
        if self.positions is not None:
            table = self.positions.weight
            assert isinstance(table, Tensor)
            summed = summed + F.embedding(positions + self.offset, table)
        normed: Tensor = self.norm(summed)
        return normed if self.widen is None else self.widen(normed)


class VisibleTokens(nn.Module):
    """The tokens that a token sees in each kind of layer, and the turns of rotary positions.

    Turns are rows of tables: the cosine of a large angle is not the same number in every runtime.
    """

    def __init__(self, encoder: EncoderConfig) -> None:
        super().__init__()
        self.causal, self.window = encoder.causal, encoder.window
        self.rotary = encoder.positions == "rotary"
        self.kinds = 1 if encoder.window is None else 2
        if self.rotary:
            width = encoder.hidden // encoder.heads
            for number, theta in enumerate((encoder.theta, encoder.local_theta)[: self.kinds]):
                cosine, sine = _rotation_table(encoder.longest, width, theta)
                self.register_buffer(f"cosine{number}", cosine)
                self.register_buffer(f"sine{number}", sine)

    def forward(self, mask: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Return the mask (batch, 1, length, length) and the turns of wide and of local layers."""
        seen = mask.bool()[:, None, None, :]
        distance = positions[:, None, :] - positions[:, :, None]
        if self.causal:
            seen = seen & (distance <= 0)[:, None]
        kinds = [(_hidden(seen), self._rotation(0, positions))]
        if self.window is not None:
            local = seen & (distance.abs() <= self.window // 2)[:, None]
            kinds.append((_hidden(local), self._rotation(1, positions)))
        # without a window local layers are as wide as others
        return [kinds[0], kinds[-1]]

    def _rotation(self, kind: int, positions: Tensor) -> Tensor | None:
        """Return cosines and sines, (2, batch, 1, length, head / 2)."""
        if not self.rotary:
            return None
        tables = [getattr(self, f"{name}{kind}") for name in ("cosine", "sine")]
        return torch.stack([F.embedding(positions, table)[:, None] for table in tables])


def _rotation_table(longest: int, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of `network.attention.rotary`, (longest, width / 2) each."""
    frequency = 1.0 / theta ** (torch.arange(0, width, 2).float() / width)
    angle = torch.arange(longest)[:, None].float() * frequency
    return angle.cos(), angle.sin()


def _hidden(seen: Tensor) -> Tensor:
    """Return the mask that is added to scores, (batch, 1, 1 or length, length)."""
    return torch.where(seen, 0.0, _UNSEEN)


class PaddedBlock(nn.Module):
    """One layer: `Block` of batches."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.before = block.norm == "before"
        self.attention, self.attention_norm = PaddedAttention(block), block.attention_norm
        self.feed_forward_norm = block.feed_forward_norm
        forward = block.feed_forward
        self.up, self.gate, self.down = forward.up, forward.gate, forward.down
        self.approximate = forward.approximate

    def forward(self, inputs: Tensor, unseen: Tensor, rotation: Tensor | None) -> Tensor:
        """(batch, length, hidden) to (batch, length, hidden)."""
        if self.before:
            middle = inputs + self.attention(self.attention_norm(inputs), unseen, rotation)
            return middle + self._fed(self.feed_forward_norm(middle))  # type: ignore[no-any-return]
        middle = self.attention_norm(inputs + self.attention(inputs, unseen, rotation))
        return self.feed_forward_norm(middle + self._fed(middle))  # type: ignore[no-any-return]

    def _fed(self, inputs: Tensor) -> Tensor:
        inner = F.gelu(self.up(inputs), approximate=self.approximate)
        if self.gate is not None:
            inner = inner * self.gate(inputs)
        return self.down(inner)  # type: ignore[no-any-return]


class PaddedAttention(nn.Module):
    """Multi-head self-attention of batches (Vaswani et al. 2017, equation 1)."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        attention = block.attention
        self.heads = attention.heads
        self.scale = math.sqrt(attention.query.out_features // self.heads)
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output = attention.output

    def forward(self, inputs: Tensor, unseen: Tensor, rotation: Tensor | None) -> Tensor:
        """(batch, length, hidden) to (batch, length, hidden)."""
        query, key, value = (
            projection(inputs).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        if rotation is not None:
            query, key = _rotate(query, rotation), _rotate(key, rotation)
        scores = query @ key.transpose(2, 3) / self.scale + unseen
        attended = scores.softmax(-1) @ value
        return self.output(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _rotate(values: Tensor, rotation: Tensor) -> Tensor:
    """Return queries or keys, (batch, heads, length, head), turned by position."""
    first, second = values.chunk(2, -1)
    cosine, sine = rotation.unbind(0)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class PaddedPooler(nn.Module):
    """The layer below heads that read a sequence, of vectors of any shape."""

    def __init__(self, pooler: Pooler) -> None:
        super().__init__()
        self.dense, self.norm = pooler.dense, pooler.norm
        self.pooling, self.approximate = pooler.pooling, pooler.approximate

    def forward(self, read: Tensor) -> Tensor:
        """Return the values of sequences or tokens, (..., hidden)."""
        values = self.dense(read)
        if self.pooling == "gelu":
            return self.norm(F.gelu(values, approximate=self.approximate))  # type: ignore[no-any-return]
        return values.relu() if self.pooling == "relu" else values.tanh()  # type: ignore[no-any-return]


def _masked_lm(head: nn.Module, hidden: Tensor, table: Tensor) -> Tensor:
    """Return logits (batch, length, vocabulary)."""
    assert isinstance(head, MaskedLMHead)
    features = head.norm(F.gelu(head.dense(hidden), approximate=head.approximate))
    return F.linear(features, table, head.bias)


def _replaced_tokens(head: nn.Module, hidden: Tensor) -> Tensor:
    """Return logits (batch, length)."""
    assert isinstance(head, ReplacedTokensHead)
    return head.output(F.gelu(head.dense(hidden), approximate=head.approximate))[..., 0]  # type: ignore[no-any-return]


class SentenceVectors(nn.Module):
    """The steps of a sentence-transformers folder: pooling, maps, length 1, truncation."""

    def __init__(self, settings: SentenceSettings) -> None:
        super().__init__()
        self.pool, self.after = settings.pool, nn.ModuleList(settings.after)

    def forward(self, hidden: Tensor, mask: Tensor, count: Tensor) -> Tensor:
        """Return vectors (batch, features), of (batch, length, hidden)."""
        parts = [_pool(kind, hidden, mask, count) for kind in self.pool]
        vectors = torch.cat(parts, 1)
        for layer in self.after:
            if isinstance(layer, Dense):
                mapped = F.linear(vectors, layer.weight, layer.bias)
                vectors = ACTIVATIONS[layer.activation](mapped)
            elif isinstance(layer, Truncation):
                vectors = vectors[:, : layer.outputs]
            else:
                assert isinstance(layer, UnitLength)
                vectors = F.normalize(vectors, dim=-1)
        return vectors


def _pool(kind: VectorPooling, hidden: Tensor, mask: Tensor, count: Tensor) -> Tensor:
    """Return one vector of each sequence, (batch, hidden), of (batch, length, hidden)."""
    match kind:
        case "cls" | "last-token":
            # the count stays the same after the last token: the first place of the largest is it
            index = (mask if kind == "cls" else count).argmax(1)
            return hidden.gather(1, index[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]
        case "max":
            return torch.where(mask[:, :, None].bool(), hidden, _UNSEEN).amax(1)
        case "weighted-mean":
            mask = count * mask
    # of a row that is all padding, too, so that it has no NaN
    total = mask.sum(1, keepdim=True).clamp(min=1).float()
    summed = (hidden * mask[:, :, None]).sum(1)
    return summed / (total.sqrt() if kind == "mean-sqrt-length" else total)


_POOLED: dict[str, VectorPooling] = {"first": "cls", "last": "last-token", "mean": "mean"}
