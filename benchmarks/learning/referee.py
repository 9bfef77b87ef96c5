"""The referee: one evaluator for both sides, on the rival's ground.

Blocks of the held-out novels grouped as the rival groups them, masked once by the rival's collator,
in the rival's own model class, in float32. Ours arrives as the folder that it saves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from learning.rival import collator
from learning.text import Novels, blocks

_BLOCKS = 1_000


class Referee:
    """Held-out masked loss and accuracy of a BertForMaskedLM."""

    def __init__(self, novels: Novels, vocabulary: Path, count: int = _BLOCKS) -> None:
        every = blocks(novels.held_out, novels.tokenizer)
        chosen = every[:: max(1, len(every) // count)][:count]
        collate = collator(vocabulary)
        torch.manual_seed(0)
        self._batches = [
            collate([{"input_ids": block} for block in part]) for part in chosen.split(50)
        ]

    @torch.no_grad()
    def judge(self, model: Any) -> tuple[float, float]:  # noqa: ANN401
        """The loss and the accuracy; the model is left in the mode it was in."""
        training, loss, right, count = model.training, 0.0, 0, 0
        model.eval()
        for batch in self._batches:
            at = batch["labels"] != -100
            states = model.bert(batch["input_ids"]).last_hidden_state[at]
            logits, labels = model.cls(states), batch["labels"][at]
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(-1) == labels).sum())
            count += len(labels)
        model.train(training)
        return loss / count, right / count

    def judge_folder(self, folder: Path) -> tuple[float, float]:
        """The same for a saved model folder."""
        from transformers import BertForMaskedLM

        return self.judge(BertForMaskedLM.from_pretrained(folder))
