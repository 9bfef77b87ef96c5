"""The supervision of a training on labelled examples: a method, and what the teacher gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.examples import ExampleBatches
from bertsmith.network.batch import Batch, Target
from bertsmith.network.config import EncoderConfig
from bertsmith.objectives.distillation import Answer
from bertsmith.objectives.objective import Objective, Term
from bertsmith.objectives.tasks import Regress
from bertsmith.recipes.distil.config import Method, TeachingConfig
from bertsmith.recipes.distil.methods import LABELS_STEP, OF_TOKENS, SOFT, MethodTerms, method_terms
from bertsmith.recipes.distil.teacher import TeacherRows
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared
from bertsmith.recipes.finetune.trial import Supervision
from bertsmith.tasks.config import LabelLoss
from bertsmith.tasks.task import Task
from bertsmith.training.config import FitConfig, ScheduleConfig
from bertsmith.training.loading import BatchSource


def answer_of(task: Task[Any]) -> Answer:
    """Return the meaning of the logits of a task."""
    return "relevance" if task.name == "rank" else task.head


def units_of(data: LabelledData[Any]) -> tuple[float, float]:
    """Return mean and spread of the numbers that are trained; (0, 1) for other tasks."""
    objective = data.task.learning.objective(data.train, data.labels, LabelLoss())
    for term in objective.terms.values():
        if isinstance(term, Regress):
            return term.mean, term.spread
    return 0.0, 1.0


@dataclass(frozen=True, kw_only=True)
class SteppedSchedule(ScheduleConfig):
    """A schedule that begins anew when a share of the budget, `restart`, is spent."""

    restart: float

    def factor(self, progress: float) -> float:
        """Return the share of the peak rate at a progress in [0, 1]."""
        if progress < self.restart:
            return super().factor(progress / self.restart)
        return super().factor((progress - self.restart) / (1 - self.restart))


@dataclass(frozen=True, kw_only=True)
class TeacherSupervision(Supervision):
    """A student is taught by a method, in one step or in two, each with a schedule of its own."""

    method: Method
    teaching: TeachingConfig
    teacher: EncoderConfig
    student: EncoderConfig
    taught: TeacherRows
    answer: Answer

    def terms(self, seed: int, data: LabelledData[Any]) -> MethodTerms:
        """Return the terms of the method, with new parameters of their own."""
        return method_terms(
            self.method, self.teacher, self.student, self.teaching, self.answer, seed=seed,
            units=units_of(data),
        )  # fmt: skip

    def fit(self, config: FinetuneSettings, steps: int, seed: int) -> FitConfig:
        """Return the training loop's config; of two steps, each warms up and decays."""
        fit = config.fit(steps, seed)
        if self.method == "distilbert":
            return fit
        schedule = SteppedSchedule(restart=self.teaching.intermediate, **vars(fit.schedule))
        return replace(fit, schedule=schedule)

    def objective(self, prepared: Prepared, config: FinetuneSettings, seed: int) -> Objective:
        """Return the terms of all steps, those of labels among them."""
        taught = self.terms(seed, prepared.data)
        terms: dict[str, Term] = dict(taught.terms)
        if any(LABELS_STEP in step for step in taught.steps):
            terms |= super().objective(prepared, config, seed).terms
        return Objective(terms)

    def batches(self, batches: ExampleBatches, prepared: Prepared) -> BatchSource:
        """Return batches with the teacher's outputs."""
        steps = self.terms(0, prepared.data).steps
        return TeacherBatches(batches=batches, taught=self.taught, steps=steps)

    def enter(self, position: DataPosition, progress: float) -> DataPosition:
        """Return the position, in the second step once the first one's share is spent."""
        second = self.method != "distilbert" and progress >= self.teaching.intermediate
        return replace(position, phase=1) if second else position

    def target(self, prepared: Prepared) -> str:
        """Return the name of the loss that a report draws."""
        return SOFT


@dataclass(frozen=True, kw_only=True)
class TeacherBatches:
    """Batches of examples with what a teacher gives for them, by the step that a position is in."""

    batches: ExampleBatches
    taught: TeacherRows
    steps: tuple[tuple[str, ...], ...]

    def next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position in the data, and the position after it."""
        batch, after = self.batches.next_batch(position)
        outputs = self.taught.of(self.batches.units(position))
        batch = replace(with_targets(batch, self.steps[position.phase]), given=outputs)
        return batch, replace(after, phase=position.phase)


def with_targets(batch: Batch, terms: tuple[str, ...]) -> Batch:
    """Return the batch with a target for each term: every token, or what the labels stand at."""
    ((labels, labelled),) = batch.targets.items()
    every = Target(
        positions=torch.arange(batch.tokens, device=batch.ids.device),
        labels=torch.zeros_like(batch.ids),
    )
    targets: Mapping[str, Target] = {
        labels if term == LABELS_STEP else term: every if term in OF_TOKENS else labelled
        for term in terms
    }
    return replace(batch, targets=targets)
