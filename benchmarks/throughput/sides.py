"""One training step after another, of bertsmith and of transformers.

Both take the same sequences, mask them anew each time and train the same BERT with AdamW: a full
step of data, forward, backward, clipping and update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from throughput.sequences import Sequences

Objective = Literal["masked_lm", "pretraining"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is trained, on what."""

    side: Literal["bertsmith", "transformers"]
    objective: Objective
    layers: int
    hidden: int
    dropout: float
    device: str
    threads: int
    vocabulary: Path
    """Folder of the tokenizer."""
    attention: str = "sdpa"
    """Attention of transformers: sdpa or eager."""
    compiled: bool = False
    """Whether transformers' model goes through torch.compile."""
    replicas: int = 1
    """Processes of bertsmith that compute the parts of each batch."""
    adapts: bool = False
    """Whether bertsmith changes between `threads` and as many replicas, as `pretrain` does."""

    @property
    def precision(self) -> Literal["bf16", "fp32"]:
        """The format of both sides' products: bf16 where the device has instructions for it."""
        from bertsmith.engine.devices import training_precision

        return training_precision("auto", torch.device(self.device))


@dataclass(frozen=True)
class Step:
    """What a step did: tokens of text in it, places in its tensors, operations it needed."""

    tokens: int
    places: int
    flops: float
    loss: float


class Side(Protocol):
    """Trains a step at a time, on batches of about `sequences` of the longest."""

    def step(self, sequences: int) -> Step:
        """Take the next batch and train on it."""
        ...


def build(plan: Plan, sequences: Sequences) -> Side:
    """The side that a plan names."""
    torch.set_num_threads(plan.threads)
    torch.manual_seed(0)
    return (Bertsmith if plan.side == "bertsmith" else Transformers)(plan, sequences)


class Bertsmith:
    """The parts that `bertsmith pretrain` is made of."""

    def __init__(self, plan: Plan, sequences: Sequences) -> None:
        from bertsmith.batches.config import MaskingConfig
        from bertsmith.batches.pretraining import Masking
        from bertsmith.network.config import EncoderConfig, ModelConfig
        from bertsmith.network.model import build_model
        from bertsmith.tokens.tokenizer import Tokenizer
        from bertsmith.training.config import OptimiserConfig
        from bertsmith.training.optimisers import Optimiser
        from bertsmith.training.processes import keep_large_blocks

        keep_large_blocks()
        tokenizer = Tokenizer.load(plan.vocabulary)
        encoder = EncoderConfig(
            vocabulary=tokenizer.size,
            hidden=plan.hidden,
            layers=plan.layers,
            heads=plan.hidden // 64,
            feed_forward=4 * plan.hidden,
            dropout=plan.dropout,
            attention_dropout=plan.dropout,
        )
        paired = plan.objective == "pretraining"
        config = ModelConfig(encoder=encoder, masked_lm=True, pooler=paired, next_sentence=paired)
        self.plan, self.sequences = plan, sequences
        self.device = torch.device(plan.device)
        self.masking = Masking(MaskingConfig(), tokenizer)
        self.model = build_model(config, seed=0).to(self.device).train()
        self.optimiser = Optimiser(self.model, OptimiserConfig(learning_rate=1e-4))
        self.drawn = _drawn(len(sequences))
        self.waiting: list[int] = []
        self.steps = 0
        self.open = ExitStack()
        self.computer = self._computer() if plan.adapts or plan.replicas > 1 else None

    def _computer(self) -> Any:  # noqa: ANN401
        """Computes gradients as in `pretrain`, with trials as often as a turn of seconds needs."""
        from bertsmith.objectives.pretraining import PRETRAINING
        from bertsmith.training import parallelism
        from bertsmith.training.config import Budget, FitConfig, Parallelism
        from bertsmith.training.distribution import ALONE
        from bertsmith.training.replicas import Replica

        parallelism.TRIAL_SHARE = 1.0
        plan = self.plan
        other = Parallelism(threads=1, replicas=plan.threads)
        config = FitConfig(
            budget=Budget(steps=1),
            precision=plan.precision,
            replicas=plan.replicas,
            alternative=other if plan.adapts else None,
        )
        replica = Replica(self.model, PRETRAINING, plan.precision, ALONE)
        computer = parallelism.GradientComputer(replica, PRETRAINING, config)
        return self.open.enter_context(computer)

    def step(self, sequences: int) -> Step:
        """As the training loop: a budget of tokens, sequences packed into it end to end."""
        from bertsmith.core.streams import Purpose, stream
        from bertsmith.network.flops import training_flops, work_of
        from bertsmith.objectives.pretraining import PRETRAINING
        from bertsmith.training.replicas import autocast

        drawn = self._batch(sequences * int(self.sequences.lengths.max()))
        if self.computer is None:
            torch.manual_seed(int(stream(Purpose.DROPOUT, 0, self.steps)))
            batch = drawn.to(self.device)
            with autocast(self.plan.precision, self.device):
                losses = PRETRAINING(self.model, batch)
            total = losses.total()
            total.backward()
            loss = total.item()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()
        else:
            gradient = self.computer.compute([drawn], self.steps)
            loss, norm = gradient.loss, gradient.norm
        assert math.isfinite(loss + norm)
        self.optimiser.step(1.0)
        self.steps += 1
        if self.computer is not None:
            self.computer.adapt([drawn], self.steps)
        work = work_of(drawn, last_needed=True)
        return Step(drawn.tokens, drawn.tokens, training_flops(self.model.config, work), loss)

    def _batch(self, budget: int) -> Any:  # noqa: ANN401
        from bertsmith.core.streams import Purpose, bits, stream
        from bertsmith.network.batch import Target, pack

        numbers, tokens = [], 0
        lengths = self.sequences.lengths
        while True:
            if not self.waiting:
                self.waiting.append(next(self.drawn))
            tokens += int(lengths[self.waiting[0]])
            if tokens > budget:
                break
            numbers.append(self.waiting.pop())
        rows = [self.sequences[number] for number in numbers]
        packed = pack(rows, [_segments(len(row), self.plan.objective) for row in rows])
        keys = bits(stream(Purpose.MASKS, 0, self.steps), np.arange(len(rows)))
        masked = self.masking(packed.ids.numpy(), np.asarray(packed.lengths), keys)
        targets = {
            "masked_lm": Target(
                positions=torch.from_numpy(masked.positions), labels=torch.from_numpy(masked.labels)
            )
        }
        if self.plan.objective == "pretraining":
            targets["next_sentence"] = Target(
                positions=torch.arange(len(rows)),
                labels=torch.arange(len(rows)) % 2,
                by_sequence=True,
            )
        return replace(packed, ids=torch.from_numpy(masked.ids), targets=targets)


class Transformers:
    """What the Trainer does with its defaults: collator, fused AdamW, clipping at 1, autocast."""

    def __init__(self, plan: Plan, sequences: Sequences) -> None:
        from transformers import (
            BertConfig,
            BertForMaskedLM,
            BertForPreTraining,
            BertTokenizerFast,
            DataCollatorForLanguageModeling,
        )

        tokenizer = BertTokenizerFast.from_pretrained(plan.vocabulary)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=plan.hidden,
            num_hidden_layers=plan.layers,
            num_attention_heads=plan.hidden // 64,
            intermediate_size=4 * plan.hidden,
            hidden_dropout_prob=plan.dropout,
            attention_probs_dropout_prob=plan.dropout,
            attn_implementation=plan.attention,
        )
        paired = plan.objective == "pretraining"
        self.device, self.bf16 = torch.device(plan.device), plan.precision == "bf16"
        model = (BertForPreTraining if paired else BertForMaskedLM)(config)
        self.model = model.to(self.device).train()
        self.forward = torch.compile(self.model) if plan.compiled else self.model
        decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        plain = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
        groups = [
            {"params": decayed, "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, lr=1e-4, fused=True)
        self.collate = DataCollatorForLanguageModeling(tokenizer)
        self.rows: list[dict[str, Any]] = [
            _features(sequences[number].tolist(), number, plan.objective)
            for number in range(len(sequences))
        ]
        self.loaders: dict[int, Iterator[dict[str, torch.Tensor]]] = {}

    def step(self, sequences: int) -> Step:
        """As the Trainer: a number of sequences, padded to the longest of them."""
        if sequences not in self.loaders:
            self.loaders[sequences] = self._batches(sequences)
        drawn = next(self.loaders[sequences])
        tokens, places = int(drawn["attention_mask"].sum()), drawn["input_ids"].numel()
        batch = {name: item.to(self.device) for name, item in drawn.items()}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.forward(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return Step(tokens, places, math.nan, loss.item())

    def _batches(self, sequences: int) -> Iterator[dict[str, torch.Tensor]]:
        from torch.utils.data import DataLoader

        loader: DataLoader[Any] = DataLoader(
            self.rows,  # type: ignore[arg-type]
            batch_size=sequences,
            shuffle=True,
            drop_last=True,
            collate_fn=self.collate,
            generator=torch.Generator().manual_seed(0),
        )
        while True:
            yield from loader


def _features(ids: list[int], number: int, objective: Objective) -> dict[str, Any]:
    """What a data set of tokenised text hands to the collator."""
    features: dict[str, Any] = {
        "input_ids": ids,
        "token_type_ids": _segments(len(ids), objective).tolist(),
        "attention_mask": [1] * len(ids),
        "special_tokens_mask": [1, *[0] * (len(ids) - 2), 1],
    }
    if objective == "pretraining":
        features["next_sentence_label"] = number % 2
    return features


def _segments(length: int, objective: Objective) -> np.ndarray[Any, np.dtype[np.int64]]:
    second = objective == "pretraining"
    return (np.arange(length) >= length // 2).astype(np.int64) * second


def _drawn(count: int) -> Iterator[int]:
    """Numbers of sequences in a random order, again and again."""
    random = np.random.default_rng(0)
    while True:
        yield from random.permutation(count).tolist()
