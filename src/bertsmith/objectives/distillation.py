"""The terms by which a student learns from a larger model, its teacher.

    DistilBERT   Sanh et al. 2019     soft targets, cosine of last hidden states
    TinyBERT     Jiao et al. 2020     attention scores, hidden states and embeddings
    MiniLM v2    Wang et al. 2021     relations of queries, of keys, and of values

What the teacher computed for the same tokens is in the batch's `given`, under the names below: no
term runs a teacher. Terms compute in float32, or in float64 where the student does. Those over
pairs of tokens, attention scores and relations, are in `token_pairs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core.shapes import SelectedTokens
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Loss, TapsTerm, Term
from bertsmith.objectives.tasks import group_means, in_rows, owners

LOGITS = "teacher_logits"
"""Key of the teacher's logits, in rows as those of `head_logits`."""

Answer = Literal["class", "classes", "number", "relevance", "tags", "span", "choice", "masked_lm"]
"""The meaning of logits: how they become probabilities, or that they are numbers."""
Kind = Literal["query", "key", "value"]
KINDS: tuple[Kind, ...] = ("query", "key", "value")

_FAR = -1e9


def state_name(layer: int) -> str:
    """Return the name of the teacher's hidden states after a layer, (tokens, its width)."""
    return f"teacher_state_{layer}"


def vectors_name(kind: Kind, layer: int) -> str:
    """Return the name of a teacher's queries, keys or values, (tokens, heads, head)."""
    return f"teacher_{kind}_{layer}"


def taught_values(encoded: Encoded) -> dict[str, Tensor]:
    """Return the tapped values of a teacher, by the names that terms read."""
    results = {state_name(layer): state for layer, state in encoded.states.items()}
    for layer, vectors in encoded.qkv.items():
        results |= {vectors_name(k, layer): v for k, v in zip(KINDS, vectors, strict=True)}
    return results


def head_logits(
    answer: Answer, model: Model, encoded: Encoded, batch: Batch, target: Target
) -> Tensor:
    """Return a model's logits in the rows of a target.

    They are (targets, outputs); of a span (tokens, 2), of choices (sequences, 1).
    """
    if answer in ("class", "classes", "number", "relevance"):
        return group_means(model.classify(encoded, batch), target.positions, batch)
    if answer == "tags":
        return model.tag(encoded.rows(target.positions))
    if answer == "span":
        return model.span(encoded.last)
    if answer == "choice":
        return model.choose(encoded, batch)[:, None]
    return model.masked_lm(encoded.rows(target.positions))


class SoftTargets(Term):
    """The teacher's answers at a temperature: KL(teacher || student) x T^2 (Hinton et al. 2015).

    Of numbers the squared error, in units of the `spread` of the training numbers around their
    `mean`, which are the units that `Regress` trains in.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        temperature: float = 1.0,
        weight: float = 1.0,
        mean: float = 0.0,
        spread: float = 1.0,
    ) -> None:
        self._answer: Answer = answer
        self._temperature, self._weight = temperature, weight
        self._mean, self._spread = mean, spread

    def selected_tokens(self, model: Model, batch: Batch, target: Target) -> SelectedTokens | None:
        """Return the tokens whose last hidden states the head reads; None for all."""
        if self._answer in ("tags", "masked_lm"):
            return target.positions
        return None if self._answer == "span" else model.pooled_tokens(batch)

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the target; correct is where the two agree."""
        logits = head_logits(self._answer, model, encoded, batch, target)
        with torch.autocast(logits.device.type, enabled=False):
            student, taught = (
                widened(logits),
                widened(batch.given[LOGITS]).to(widened(logits).dtype),
            )
            if self._answer == "number":
                truth = (taught - self._mean) / self._spread
                loss = F.mse_loss(student, truth, reduction="sum") / student.shape[1]
                correct = ((student - truth).abs() < truth.abs()).all(-1).sum()
            elif self._answer in ("classes", "relevance"):
                loss = self._binary_divergence(student, taught) / student.shape[1]
                correct = ((student > 0) == (taught > 0)).all(-1).sum()
            else:
                pairs = _rows(self._answer, student, taught, batch, target)
                loss = torch.stack(
                    [self._categorical_divergence(*pair) for pair in pairs]
                ).sum() / len(pairs)
                agree = [mine.argmax(-1) == theirs.argmax(-1) for mine, theirs in pairs]
                correct = torch.stack(agree).all(0).sum()
        return Loss(sum=loss, count=len(target), correct=correct, weight=self._weight)

    def _categorical_divergence(self, student: Tensor, taught: Tensor) -> Tensor:
        """Return the divergence of distributions over each row."""
        student_logs = (student / self._temperature).log_softmax(-1)
        teacher_logs = (taught / self._temperature).log_softmax(-1)
        return self._temperature**2 * (teacher_logs.exp() * (teacher_logs - student_logs)).sum()

    def _binary_divergence(self, student: Tensor, taught: Tensor) -> Tensor:
        """Return the divergence where each output is an independent probability."""
        total = student.new_zeros(())
        for sign in (1, -1):
            student_logs = F.logsigmoid(sign * student / self._temperature)
            teacher_logs = F.logsigmoid(sign * taught / self._temperature)
            total = total + (teacher_logs.exp() * (teacher_logs - student_logs)).sum()
        return self._temperature**2 * total


def _rows(
    answer: Answer, student: Tensor, taught: Tensor, batch: Batch, target: Target
) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of logits whose rows are the choices between which one is made."""
    if answer == "span":
        lengths = batch.offsets.diff()
        owner = torch.arange(batch.sequences, device=student.device).repeat_interleave(lengths)
        position = torch.arange(batch.tokens, device=student.device) - batch.starts[owner]
    elif answer == "choice":
        owner = owners(target.positions, batch.sequences)
        position = torch.arange(batch.sequences, device=student.device) - target.positions[owner]
    else:
        return [(student, taught)]
    rows = int(owner.max()) + 1
    # no infinities, whose difference is no number
    spread = [
        [
            in_rows(side[:, end], owner, position, rows).clamp(min=_FAR)
            for end in range(side.shape[1])
        ]
        for side in (student, taught)
    ]
    return list(zip(*spread, strict=True))


class HiddenCosine(Term):
    """One less the cosine of the last hidden states of student and teacher, at every token.

    Sanh et al. 2019, section 2. `layer` is the teacher's last; both are of one width.
    """

    def __init__(self, layer: int, *, weight: float = 1.0) -> None:
        self._name, self._weight = state_name(layer), weight

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the tokens."""
        student, taught = widened(encoded.last), widened(batch.given[self._name])
        with torch.autocast(student.device.type, enabled=False):
            distance = 1 - F.cosine_similarity(student, taught.to(student.dtype))
        return loss_of_tokens(distance.sum(), target, self._weight)


class HiddenStates(TapsTerm):
    """The squared error of hidden states, those of the student through one learned projection.

    Jiao et al. 2020, equations 8 and 9: a mean over the teacher's width, summed over pairs of a
    student's layer and the teacher's that it follows; layer 0 are the embeddings.
    """

    own: nn.Linear

    def __init__(
        self, pairs: Sequence[tuple[int, int]], *, widths: tuple[int, int], seed: int
    ) -> None:
        """`widths` are those of student and teacher; the projection starts from `projection`."""
        self._pairs = tuple(pairs)
        self.reads = Taps(states=frozenset(student_layer for student_layer, _ in pairs))
        self.own = projection(*widths, seed=seed)

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the tokens."""
        losses = []
        for layer, of_teacher in self._pairs:
            student = widened(encoded.states[layer])
            with torch.autocast(student.device.type, enabled=False):
                taught = widened(batch.given[state_name(of_teacher)]).to(student.dtype)
                losses.append((self.own(student) - taught).square().mean(-1).sum())
        return loss_of_tokens(torch.stack(losses).sum(), target)


def projection(student: int, teacher: int, *, seed: int) -> nn.Linear:
    """Return a new projection: the identity between equal widths, otherwise drawn by the seed."""
    linear = nn.Linear(student, teacher)
    generator = torch.Generator().manual_seed(int(stream(Purpose.PROJECTION, seed)))
    with torch.no_grad():
        linear.bias.zero_()
        if student == teacher:
            linear.weight.copy_(torch.eye(student))
        else:
            linear.weight.normal_(std=1 / math.sqrt(student), generator=generator)
    return linear


def loss_of_tokens(total: Tensor, target: Target, weight: float = 1.0) -> Loss:
    """Return a sum over all tokens as the loss of a term that predicts nothing."""
    none = torch.zeros((), device=total.device)
    return Loss(sum=total, count=len(target), correct=none, weight=weight, predicts=False)


def widened(values: Tensor) -> Tensor:
    """Return values in float32, or float64 as they are."""
    return values if values.dtype == torch.float64 else values.float()
