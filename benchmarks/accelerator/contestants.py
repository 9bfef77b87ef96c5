"""Both sides, trained for the same minutes and judged alike."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from accelerator.text import LENGTH, Text, blocks
from bertsmith.batches.pretraining import PhasedBatches
from bertsmith.core.clock import Clock
from bertsmith.network.families.bert import BERT
from bertsmith.network.model import Model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain.config import fit_config
from bertsmith.recipes.pretrain.published import quick
from bertsmith.recipes.pretrain.recipe import start
from bertsmith.recipes.pretrain.resolving import resolve
from bertsmith.training.config import Budget
from bertsmith.training.loop import Session, fit
from bertsmith.training.schedule import Timing
from bertsmith.training.state import Measurement
from bertsmith.weights.folder import save_model

_JUDGED, _CHUNK = 800, 100
_TIMES = 8
_RATE, _WARM_UP = 1e-4, 0.05
# sequences of 128 a batch, and so many tokens for ours
_SEQUENCES = {"cuda": 512, "cpu": 32}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is trained, where, and how long."""

    size: str
    minutes: float
    device: str
    compiled: bool

    @property
    def sequences(self) -> int:
        """Sequences a batch."""
        return _SEQUENCES[torch.device(self.device).type]


Judge = Callable[[Any], dict[str, float]]


def judge_for(text: Text, device: str) -> Judge:
    """Held-out loss and accuracy of a BertForMaskedLM, on blocks masked once by its collator."""
    every = blocks(text.held_out, text.tokenizer)
    collate = _collator(text.vocabulary)
    torch.manual_seed(0)
    chosen = every[:: max(1, len(every) // _JUDGED)][:_JUDGED]
    batches = [collate([{"input_ids": block} for block in part]) for part in chosen.split(_CHUNK)]

    @torch.no_grad()
    def judge(model: Any) -> dict[str, float]:  # noqa: ANN401
        model.eval()
        loss, right, count = 0.0, 0, 0
        for batch in batches:
            ids, labels = (batch[name].to(device) for name in ("input_ids", "labels"))
            at = labels != -100
            logits = model.cls(model.bert(ids).last_hidden_state[at])
            loss += F.cross_entropy(logits, labels[at], reduction="sum").item()
            right += int((logits.argmax(-1) == labels[at]).sum())
            count += int(at.sum())
        model.train()
        return {"loss": loss / count, "accuracy": right / count}

    return judge


def train_rival(plan: Plan, text: Text) -> dict[str, Any]:
    """transformers' BertForMaskedLM as run_mlm.py trains it, compiled, with a warm-up."""
    judge = judge_for(text, plan.device)
    model = _rival(plan, text).to(plan.device).train()
    trained = torch.compile(model) if plan.compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.0, fused=True)
    batches = _forever(text, plan)
    if plan.compiled:
        # compiling is not counted, nor does it change the weights
        _step(trained, optimiser, next(batches), 0.0, plan)
    points: list[dict[str, float]] = []
    tokens, spent, limit = 0, 0.0, 60 * plan.minutes
    while spent < limit:
        began = time.perf_counter()
        batch = next(batches)
        _step(trained, optimiser, batch, spent / limit, plan)
        tokens += batch["input_ids"].numel()
        spent += time.perf_counter() - began
        due = min(_TIMES, int(spent / limit * _TIMES)) - len(points)
        found = judge(model) if due > 0 else {}
        points += [{"minutes": spent / 60, "tokens": tokens} | found] * due
    return {"points": points, "tokens_per_second": tokens / spent}


def train_ours(plan: Plan, text: Text) -> dict[str, Any]:
    """The recipe quick, on the text alone, as the rival; judged as the folder that it saves."""
    settings = quick(plan.size)
    samples = replace(
        settings.samples,
        max_length=LENGTH,
        text="across_documents",
        tokens_per_batch=plan.sequences * LENGTH,
    )
    settings = replace(settings, samples=samples)
    device = torch.device(plan.device)
    run = resolve(text.store.folder, plan.size, Budget(minutes=plan.minutes), settings)
    model = start(run, text.tokenizer).to(device)
    batches = PhasedBatches(text.store, text.tokenizer, samples, settings.phases, settings.seed)
    judge = judge_for(text, plan.device)
    points: list[dict[str, float]] = []
    paused = 0.0

    def measure(trained: Model, stopping: Callable[[], bool]) -> Measurement:
        nonlocal paused
        began = time.perf_counter()
        found = _judged(trained, text, judge, device)
        points.append(found)
        paused += time.perf_counter() - began
        return Measurement(loss=found["loss"], metrics={"masked_lm_loss": found["loss"]})

    config = replace(fit_config(run), measurements=_TIMES)
    # minutes without those in which it is judged
    clock = Clock(now=lambda: time.perf_counter() - paused)
    state = fit(
        config, model, PRETRAINING, batches,
        enter=batches.enter, measure=measure, session=Session(timing=Timing(clock=clock)),
    )  # fmt: skip
    for number, found in enumerate(points, 1):
        found["minutes"] = plan.minutes * number / _TIMES
    return {"points": points, "tokens_per_second": state.tokens / state.seconds}


def _judged(model: Model, text: Text, judge: Judge, device: torch.device) -> dict[str, float]:
    from transformers import BertForMaskedLM

    with tempfile.TemporaryDirectory() as folder:
        # a copy on the host is saved; the model itself stays where it is
        host = Model(model.config)
        host.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
        save_model(Path(folder) / "model", host, text.tokenizer)
        saved = BertForMaskedLM.from_pretrained(Path(folder) / "model")
    return judge(saved.to(device))


def _rival(plan: Plan, text: Text) -> Any:  # noqa: ANN401
    from transformers import BertConfig, BertForMaskedLM

    layers, hidden, *_ = BERT.sizes[plan.size]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=text.tokenizer.size, hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    return BertForMaskedLM(config)


def _collator(vocabulary: Path) -> Any:  # noqa: ANN401
    from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

    return DataCollatorForLanguageModeling(BertTokenizerFast(vocab_file=str(vocabulary)))


def _forever(text: Text, plan: Plan) -> Iterator[dict[str, Tensor]]:
    """Masked batches in random order, made ahead by processes of the DataLoader."""
    from torch.utils.data import DataLoader

    collate = _collator(text.vocabulary)
    every: Any = [{"input_ids": block} for block in blocks(text.store, text.tokenizer)]
    on_cuda = torch.device(plan.device).type == "cuda"
    loader = DataLoader(
        every, plan.sequences, shuffle=True, drop_last=True, collate_fn=collate,
        generator=torch.Generator().manual_seed(0), num_workers=4 if on_cuda else 0,
        pin_memory=on_cuda, persistent_workers=on_cuda,
    )  # fmt: skip
    while True:
        yield from loader


def _step(
    model: Any,  # noqa: ANN401
    optimiser: torch.optim.Optimizer,
    batch: dict[str, Tensor],
    progress: float,
    plan: Plan,
) -> None:
    """One step; the rate rises to its peak and falls linearly to zero."""
    device = torch.device(plan.device)
    ids, labels = (batch[name].to(device, non_blocking=True) for name in ("input_ids", "labels"))
    with torch.autocast(device.type, torch.bfloat16):
        loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    factor = min(progress / _WARM_UP, (1 - progress) / (1 - _WARM_UP))
    for group in optimiser.param_groups:
        group["lr"] = _RATE * factor
    optimiser.step()
    optimiser.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
