"""What a student reads of its teacher: aligned for every task, computed or from the disk."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.examples import ExampleBatches
from bertsmith.core.signals import Interrupted
from bertsmith.network.config import EncoderConfig, Fit
from bertsmith.network.encoded import NO_TAPS, Taps
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.recipes.distil.config import Method, TeachingConfig
from bertsmith.recipes.distil.methods import TeacherSupervision, answer_of, method_terms, units_of
from bertsmith.recipes.distil.student import NewStudent
from bertsmith.recipes.distil.teacher import TeacherOutputs, TeacherRows
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.recipes.finetune.trial import run_trial
from bertsmith.tasks.config import Reading
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.task import ReadingLimits
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_after_training, close_losses

METHODS: tuple[Method, ...] = ("distilbert", "tinybert", "minilm")
CPU = torch.device("cpu")
SETTINGS = FinetuneSettings(
    epochs=2, batch_size=4, learning_rate=1e-3, precision="fp32", dropout=0.1
)
# a row of each task, by its number
ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "classify": lambda n: {"text": f"word{n} good", "label": "ab"[n % 2]},
    "pair": lambda n: {"text": f"word{n}", "text_pair": "word1 bad", "label": "ab"[n % 2]},
    "multi-label": lambda n: {"text": f"word{n} good", "labels": [[], ["a", "b"], ["b"]][n % 3]},
    "regression": lambda n: {"text": f"word{n} good", "score": 100 + 7.5 * n},
    "rank": lambda n: {"query": f"word{n // 3}", "passage": f"word{n} bad", "relevance": n % 3},
    "choice": lambda n: {
        "text": f"word{n}", "choices": ["good", "bad word1", "word2"][: 2 + n % 2], "label": n % 2,
    },
    "tag": lambda n: {"text": f"word{n} good bad word1", "entities": [[0, len(f"word{n}"), "X"]]},
    "span": lambda n: {
        "question": f"word{n}", "context": f"bad word1 good word{n}",
        "answer_text": "good", "answer_start": 10,
    },
}  # fmt: skip
# the rest goes the way of these
_RARE = ("pair", "multi-label", "rank")
TASKS = [pytest.param(name, marks=pytest.mark.faults if name in _RARE else ()) for name in ROWS]


def prepared_rows(name: str, folder: Path, tokenizer: Tokenizer, *, long: Fit = "head") -> Prepared:
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(ROWS[name](n)) + "\n" for n in range(1, 13)))
    task = task_named("classify" if name == "pair" else name)
    reading = task.reader.resolve(file, Reading())
    rows = list(task.reader.labelled(file, reading))
    data = LabelledData(
        task=task, labels=task.labels.names(rows, ()), train=rows, dev=rows, dev_is_cut=False
    )
    return prepare(data, tokenizer, ReadingLimits(longest=12, long=long))


def taught_folder(base: Path, prepared: Prepared, folder: Path) -> Path:
    """A teacher with a head of random weights, large enough to be of opinions."""
    task, labels = prepared.task, prepared.data.labels
    model, tokenizer = start_from(base, predicts=task.head, labels=labels, seed=3)
    with torch.no_grad():
        for parameter in model.heads.parameters():
            parameter.mul_(20).add_(0.5)
    save_model(folder, model, tokenizer)
    return folder


def supervision_of(
    method: Method, teacher: Path, prepared: Prepared, kept: Path | None, layers: int = 2
) -> tuple[TeacherSupervision, NewStudent]:
    config = load_model(teacher)[0].config
    student = replace(config, encoder=replace(config.encoder, layers=layers))
    mean, spread = units_of(prepared.data)
    new = NewStudent(
        teacher=teacher, config=student, layers=(1, 2)[:layers], device=CPU, mean=mean,
        spread=spread,
    )  # fmt: skip
    answer = answer_of(prepared.task)
    supervision = TeacherSupervision(
        method=method, teaching=TeachingConfig(), teacher=config.encoder, student=student.encoder,
        taught=TeacherRows(
            teacher, prepared.train,
            TeacherOutputs(taps=NO_TAPS, answer=answer, precision="fp32"), CPU,
        ),
        answer=answer,
    )  # fmt: skip
    taps, taught = supervision.terms(0, prepared.data).taps, supervision.taught
    taught = replace(taught, outputs=replace(taught.outputs, taps=taps))
    return replace(supervision, taught=taught.keep(kept, 1.0) if kept else taught), new


@pytest.mark.parametrize("name", TASKS)
def test_a_student_that_is_its_teacher_has_nothing_to_learn_from_it(
    name: str, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    long: Fit = "head" if name == "choice" else "windows"
    prepared = prepared_rows(name, tmp_path, tiny_tokenizer, long=long)
    teacher = taught_folder(base_folder, prepared, tmp_path / "teacher")
    settings, units = (
        replace(SETTINGS, dropout=0.0),
        ExampleBatches(prepared.train, units_per_batch=4, seed=0),
    )
    ways: list[tuple[Method, Path | None]] = [
        ("distilbert", None), ("tinybert", None), ("tinybert", tmp_path / "kept"), ("minilm", None),
    ]  # fmt: skip
    for method, kept in ways:
        supervision, new = supervision_of(method, teacher, prepared, kept)
        source = supervision.batches(units, prepared)
        whole = supervision.objective(prepared, settings, 0)
        objective = Objective({n: t for n, t in whole.terms.items() if n != prepared.train.target})
        model = new(0).eval()
        for phase in range(len(supervision.terms(0, prepared.data).steps)):
            batch, _ = source.next_batch(DataPosition(phase=phase))
            losses = objective(model, batch).parts
            assert losses
            for term, loss in losses.items():
                assert abs(loss.sum.item()) < 2e-4, (term, method, kept)
                assert loss.count > 0


def test_another_student_has_much_to_learn(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prepared = prepared_rows("classify", tmp_path, tiny_tokenizer)
    teacher = taught_folder(base_folder, prepared, tmp_path / "teacher")
    supervision, new = supervision_of("distilbert", teacher, prepared, None, layers=1)
    batches = ExampleBatches(prepared.train, units_per_batch=12, seed=0)
    batch, _ = supervision.batches(batches, prepared).next_batch(DataPosition())
    losses = supervision.objective(prepared, SETTINGS, 0)(new(0).eval(), batch).parts
    assert set(losses) == {"soft_targets", "cosine", "classify"}
    assert losses["soft_targets"].sum > 0.01
    assert losses["cosine"].sum > 0.01


def test_outputs_on_the_disk_are_made_once(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prepared = prepared_rows("tag", tmp_path, tiny_tokenizer)
    teacher = taught_folder(base_folder, prepared, tmp_path / "teacher")
    supervision, _ = supervision_of("tinybert", teacher, prepared, tmp_path / "kept")
    (folder,) = (tmp_path / "kept").iterdir()
    made = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again, _ = supervision_of("tinybert", teacher, prepared, tmp_path / "kept")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == made
    units = np.array([5, 0, 11])
    computed = replace(supervision.taught, kept=None).of(units)
    for name, value in again.taught.of(units).items():
        assert np.abs(value.numpy() - computed[name].numpy()).max() < 1e-4, name
    # a damaged array is made again
    os.truncate(folder / "teacher_logits.npy", 150)
    mended, _ = supervision_of("tinybert", teacher, prepared, tmp_path / "kept")
    for name, value in mended.taught.of(units).items():
        assert np.abs(value.numpy() - computed[name].numpy()).max() < 1e-4, name
    # no room: the teacher computes
    assert replace(supervision.taught, kept=None).keep(tmp_path / "none", 1e-9).kept is None
    assert not (tmp_path / "none").exists()
    # other rows have a folder of their own
    supervision_of("tinybert", teacher, prepared.fewer(np.arange(6)), tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_outputs_are_made_anew_where_the_same_weights_compute_something_else(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prepared = prepared_rows("tag", tmp_path, tiny_tokenizer)
    teacher = taught_folder(base_folder, prepared, tmp_path / "teacher")
    first, _ = supervision_of("distilbert", teacher, prepared, tmp_path / "kept")
    config = json.loads((teacher / "config.json").read_text()) | {"layer_norm_eps": 0.5}
    (teacher / "config.json").write_text(json.dumps(config))
    second, _ = supervision_of("distilbert", teacher, prepared, tmp_path / "kept")
    units = np.array([5, 0, 11])
    before, after = (one.taught.of(units)["teacher_logits"] for one in (first, second))
    computed = replace(second.taught, kept=None).of(units)["teacher_logits"]
    assert torch.allclose(after, computed, atol=1e-4)
    assert not torch.allclose(before, computed, atol=1e-2)


@pytest.mark.parametrize(("method", "cached"), [("distilbert", True), ("tinybert", False)])
def test_a_stopped_lesson_goes_on_to_the_same_end(
    method: Method, cached: bool, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prepared = prepared_rows("classify", tmp_path, tiny_tokenizer)
    teacher = taught_folder(base_folder, prepared, tmp_path / "teacher")
    kept = tmp_path / "kept" if cached else None
    steps = 0

    def stop(encoder: Model, _: Any) -> None:  # noqa: ANN401
        nonlocal steps
        # the teacher and dev are computed in evaluation mode
        steps += encoder.training
        if steps == 4:
            signal.raise_signal(signal.SIGINT)

    supervision, new = supervision_of(method, teacher, prepared, kept, layers=1)

    def stopping(seed: int) -> Model:
        model = new(seed)
        model.encoder.register_forward_pre_hook(stop)
        return model

    folder = RunFolder(tmp_path / "stopped")
    with pytest.raises(Interrupted):
        run_trial(stopping, prepared, SETTINGS, 1, folder, supervision=supervision)
    assert steps == 4
    again, _ = supervision_of(method, teacher, prepared, kept, layers=1)
    resumed, _, model = run_trial(new, prepared, SETTINGS, 1, folder, supervision=again)
    whole, _, expected = run_trial(
        new, prepared, SETTINGS, 1, RunFolder(tmp_path / "whole"), supervision=again
    )
    assert resumed.scores == whole.scores
    assert resumed.losses == whole.losses
    lines = [
        {k: v for k, v in line.items() if k.endswith(("_loss", "norm"))}
        for line in RunFolder(tmp_path / "whole").log()
    ]
    assert len(lines) == 6
    kinds = {name for line in lines for name in line if name.endswith("_loss")}
    assert len(kinds) == 3
    for mine, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_the_steps_of_the_methods() -> None:
    encoder = EncoderConfig(vocabulary=37, hidden=24, layers=4, heads=3, feed_forward=48)
    student, teaching = replace(encoder, layers=2), TeachingConfig()
    steps = {
        method: method_terms(method, encoder, student, teaching, "class", seed=0)
        for method in METHODS
    }
    assert {name: step.steps for name, step in steps.items()} == {
        "distilbert": (("soft_targets", "cosine", "labels"),),
        "tinybert": (("attention_scores", "hidden_states"), ("soft_targets",)),
        "minilm": (("relations",), ("soft_targets", "labels")),
    }
    assert steps["tinybert"].taps == Taps(states=frozenset({0, 2, 4}), qkv=frozenset({2, 4}))
    assert steps["minilm"].taps == Taps(qkv=frozenset({4}))
    assert steps["distilbert"].taps == Taps(states=frozenset({4}))


def test_a_student_of_numbers_starts_in_the_units_of_training(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """What training makes of it is scaled back to the numbers themselves."""
    prepared = prepared_rows("regression", tmp_path, tiny_tokenizer)
    teacher = taught_folder(base_folder, prepared, tmp_path / "teacher")
    _, new = supervision_of("minilm", teacher, prepared, None)
    student, dropped, whole = new(0), new.dropped(), load_model(teacher)[0]
    scores = np.array([100 + 7.5 * n for n in range(1, 13)])
    assert dropped is not None
    for name in ("heads.classify.weight", "heads.classify.bias"):
        value = whole.get_parameter(name)
        shift = scores.mean() if name.endswith("bias") else 0.0
        close_losses(
            student.get_parameter(name).sum(), (value.double().sum() - shift) / scores.std(), name
        )
        assert torch.equal(dropped.get_parameter(name), value)
    prepared.task.learning.finish(student, prepared.data.train)
    for name in ("heads.classify.weight", "heads.classify.bias"):
        close_after_training(student.get_parameter(name), whole.get_parameter(name), name)
