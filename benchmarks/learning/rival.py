"""The rival: `transformers`' BertForMaskedLM in the way of its example script run_mlm.py.

AdamW without decay, the rate falling linearly to zero, gradients clipped at 1, its collator (15 %,
80/10/10), full blocks of 128 tokens in random order, bf16 autocast, dropout 0.1, sdpa: the script's
and the Trainer's defaults. The loop is written out because the Trainer needs packages that change
nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.data import DataLoader

from learning.clock import Clock, Stopwatch

BATCH = 32


def new_model(vocabulary: int, seed: int = 0) -> Any:  # noqa: ANN401
    """A BertForMaskedLM of 4 layers x 256, 4 heads, from random weights."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024,
    )  # fmt: skip
    return BertForMaskedLM(config)


def collator(vocabulary: Path) -> Any:  # noqa: ANN401
    """The default collator of masked language modelling, over a vocabulary file."""
    from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

    return DataCollatorForLanguageModeling(BertTokenizerFast(vocab_file=str(vocabulary)))


def forever(blocks: Tensor, collate: Any, batch: int, seed: int) -> Iterator[Any]:  # noqa: ANN401
    """Masked batches, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    special_ids = collate.tokenizer.all_special_ids
    special = torch.isin(blocks, torch.tensor(special_ids)).long()
    examples: Any = [
        {"input_ids": block, "special_tokens_mask": mask}
        for block, mask in zip(blocks, special, strict=True)
    ]
    while True:
        yield from DataLoader(
            examples, batch, shuffle=True, collate_fn=collate, generator=generator
        )


def full_loss(model: Any, batch: Any) -> Tensor:  # noqa: ANN401
    """The loss as the model computes it: logits of all positions."""
    loss: Tensor = model(**batch).loss
    return loss


def masked_loss(model: Any, batch: Any) -> Tensor:  # noqa: ANN401
    """The same loss from the logits that it reads, for arms that are timed by their steps."""
    labels = batch["labels"]
    states = model.bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    at = labels != -100
    return F.cross_entropy(model.cls(states[at]).float(), labels[at])


class Trainer:
    """The loop of one arm."""

    def __init__(
        self, blocks: Tensor, vocabulary: Path, entries: int, rate: float, batch: int = BATCH
    ) -> None:
        self.model = new_model(entries)
        self._batches = forever(blocks, collator(vocabulary), batch, seed=0)
        self._rate = rate
        self._optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=rate, weight_decay=0.0, fused=True
        )
        self.model.train()

    def step(self, loss_of: Callable[[Any, Any], Tensor], progress: float) -> tuple[int, float]:
        """One step; the tokens it saw and its loss."""
        batch = next(self._batches)
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(self.model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate * (1 - progress)
        self._optimiser.step()
        self._optimiser.zero_grad()
        return batch["input_ids"].numel(), loss.item()

    def check(self) -> None:
        """That the loss from masked positions is the loss: value and gradient of one batch."""
        batch = next(self._batches)
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        self.model.eval()
        found = []
        for loss_of in (full_loss, masked_loss):
            loss = loss_of(self.model, batch)
            loss.backward()
            gradient = self.model.bert.encoder.layer[0].attention.self.query.weight.grad
            found.append((loss.item(), gradient.clone()))
            self.model.zero_grad()
        self.model.train()
        (one, its_gradient), (other, gradient) = found
        assert abs(one - other) < 1e-4, (one, other)
        assert torch.allclose(its_gradient, gradient, atol=1e-6), "gradients differ"


def train(
    trainer: Trainer,
    clock: Clock,
    at: list[float],
    show: Callable[[Any, Stopwatch], None],
) -> None:
    """Train until the clock's minutes are over; `show` is called once the minutes `at` are."""
    watch, waiting = Stopwatch(clock), list(at)
    loss_of = full_loss if clock.name == "wall" else masked_loss
    if clock.name == "steps":
        trainer.check()
    while watch.progress < 1:
        watch.start()
        tokens, _ = trainer.step(loss_of, watch.progress)
        watch.stop(tokens)
        if (waiting and watch.seconds >= 60 * waiting[0]) or watch.progress == 1:
            waiting = [minutes for minutes in waiting if watch.seconds < 60 * minutes]
            show(trainer.model, watch)
