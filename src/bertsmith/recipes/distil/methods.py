"""The methods: what each reads of the teacher, the terms that teach a student, and its supervision.

distilbert   soft targets, labels and cosine 5 : 2 : 1, all at once (Sanh et al. 2019)
tinybert     attention scores, hidden states and embeddings, then soft targets (Jiao et al. 2020)
minilm       relations of queries, keys and values of one layer, then soft targets
             (Wang et al. 2021, who go on with labels alone)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.examples import ExampleBatches
from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import Batch, Target
from bertsmith.network.config import EncoderConfig
from bertsmith.network.encoded import Taps
from bertsmith.objectives.distillation import Answer, HiddenCosine, HiddenStates, SoftTargets
from bertsmith.objectives.objective import Objective, Term
from bertsmith.objectives.tasks import Regress
from bertsmith.objectives.token_pairs import AttentionScores, Relations, relation_heads
from bertsmith.recipes.distil.config import Method, TeachingConfig
from bertsmith.recipes.distil.student import followed_layers
from bertsmith.recipes.distil.teacher import TeacherRows
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared
from bertsmith.recipes.finetune.trial import Supervision
from bertsmith.tasks.config import LabelLoss
from bertsmith.tasks.task import Task
from bertsmith.training.config import FitConfig, ScheduleConfig
from bertsmith.training.loading import BatchSource

SOFT, COSINE, STATES, SCORES, RELATIONS = (
    "soft_targets", "cosine", "hidden_states", "attention_scores", "relations",
)  # fmt: skip
LABELS_STEP = "labels"
"""The name, in a step, of the terms that learn labels."""
OF_TOKENS = (COSINE, STATES, SCORES, RELATIONS)
"""Terms whose targets are all tokens."""
METHODS: tuple[Method, ...] = ("distilbert", "tinybert", "minilm")
"""The methods that train a student; distilbert alone reads a head on a store."""


@dataclass(frozen=True, kw_only=True)
class MethodTerms:
    """The outputs of a teacher that are read, by steps of a training, and the terms trained."""

    terms: Mapping[str, Term]
    """Terms by name, besides those of labels."""
    steps: tuple[tuple[str, ...], ...]
    """The names of the terms of each step, with `LABELS_STEP` where labels are learned."""
    taps: Taps
    """Taps of the teacher."""

    @property
    def logits(self) -> bool:
        """Return whether the teacher's answers are read."""
        return SOFT in self.terms


def check_method(
    method: Method,
    teacher: EncoderConfig,
    student: EncoderConfig,
    teaching: TeachingConfig,
    among: Sequence[Method] = METHODS,
) -> None:
    """Raise `ConfigError` where a method cannot teach such a student.

    `among` are the methods for which the teacher has the heads.
    """
    refusal = _refusal(method, teacher, student)
    if refusal is not None:
        problem, remedy = refusal
        others = other_methods(method, teacher, student, among)
        raise ConfigError(
            problem, remedy=f"give {remedy}, or {others}" if remedy else f"give {others}"
        )
    if method != "minilm":
        return
    if teaching.teacher_layer is not None and teaching.teacher_layer > teacher.layers:
        raise ConfigError(
            f"--teacher-layer is {teaching.teacher_layer}",
            remedy=f"the teacher has {teacher.layers}",
        )
    heads = teaching.relation_heads
    if heads is not None and (teacher.hidden % heads or student.hidden % heads):
        raise ConfigError(
            f"--relation-heads is {heads}",
            remedy=f"it must divide {teacher.hidden} and {student.hidden}, the widths",
        )


def check_teaches(method: Method, student: EncoderConfig, settings: FinetuneSettings) -> None:
    """Raise `ConfigError` where nothing that a method teaches first is trained."""
    frozen = settings.freeze_layers
    if method != "distilbert" and frozen == (student.groups or student.layers):
        raise ConfigError(
            f"--freeze-layers {frozen} freezes all layers of the student, which {method} teaches "
            "before its head",
            remedy="give fewer",
        )


def other_methods(
    method: Method, teacher: EncoderConfig, student: EncoderConfig, among: Sequence[Method]
) -> str:
    """Return the option with the other methods that can teach such a student."""
    able = [n for n in among if n != method and _refusal(n, teacher, student) is None]
    return f"--method {' or '.join(able)}"


def _refusal(
    method: Method, teacher: EncoderConfig, student: EncoderConfig
) -> tuple[str, str] | None:
    """Return why a method cannot teach such a student, and what else to give; None if it can."""
    if method == "distilbert" and student.hidden != teacher.hidden:
        return (
            f"distilbert compares hidden states as they are, and the student is {student.hidden} "
            f"wide, the teacher {teacher.hidden}",
            f"--student N/{teacher.hidden}",
        )
    if method != "tinybert":
        return None
    if teacher.causal or teacher.window is not None:
        return (
            "tinybert compares the attention of all tokens to all, and this teacher's sees some",
            "",
        )
    if student.heads != teacher.heads:
        return (
            f"tinybert compares attention head by head, and the student has {student.heads} heads, "
            f"the teacher {teacher.heads}",
            f"a width that is a multiple of {teacher.heads}",
        )
    if student.layers > teacher.layers:
        return (
            f"each of tinybert's layers follows one of the teacher's, and the student has "
            f"{student.layers}, the teacher {teacher.layers}",
            "fewer layers",
        )
    return None


def method_terms(
    method: Method,
    teacher: EncoderConfig,
    student: EncoderConfig,
    teaching: TeachingConfig,
    soft: Answer | None,
    *,
    seed: int,
    units: tuple[float, float] = (0.0, 1.0),
) -> MethodTerms:
    """Return the terms of a method; `soft` are the answers taught, None for none.

    `units` are mean and spread of the numbers that a teacher of numbers gives.
    """
    # labels have the weight 1, so 5 : 2 : 1
    weight, temperature = (2.5, teaching.temperature) if method == "distilbert" else (1.0, 1.0)
    terms: dict[str, Term] = {}
    if soft is not None:
        terms[SOFT] = SoftTargets(
            soft, temperature=temperature, weight=weight, mean=units[0], spread=units[1]
        )
    predictions = tuple(terms)
    if method == "distilbert":
        terms[COSINE] = HiddenCosine(teacher.layers, weight=0.5)
        taps = Taps(states=frozenset({teacher.layers}))
        return MethodTerms(terms=terms, steps=((*terms, LABELS_STEP),), taps=taps)
    if method == "tinybert":
        layers = followed_layers(teacher.layers, student.layers)
        pairs = tuple(enumerate(layers, 1))
        widths = student.hidden, teacher.hidden
        terms[SCORES] = AttentionScores(pairs)
        terms[STATES] = HiddenStates(((0, 0), *pairs), widths=widths, seed=seed)
        inside: tuple[str, ...] = (SCORES, STATES)
        taps = Taps(states=frozenset({0, *layers}), qkv=frozenset(layers))
    else:
        of_teacher = teaching.teacher_layer or teacher.layers
        heads = teaching.relation_heads or relation_heads(teacher.hidden, student.hidden)
        terms[RELATIONS] = Relations(student.layers, of_teacher, heads=heads)
        inside = (RELATIONS,)
        predictions = (*predictions, LABELS_STEP)
        taps = Taps(qkv=frozenset({of_teacher}))
    steps = (inside, predictions) if soft is not None else (inside,)
    return MethodTerms(terms=terms, steps=steps, taps=taps)


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
