"""A whole distillation on labelled examples, and what is refused before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import bertsmith
from bertsmith.core.errors import OutOfMemory, UserError
from bertsmith.network.config import EncoderConfig, Fit, ModelConfig, Preprocessing
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil import recipe, speed
from bertsmith.recipes.distil.config import (
    DistilConfig,
    GeneralSettings,
    Method,
    StudentConfig,
    TeachingConfig,
)
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.distil.speed import Speed
from bertsmith.recipes.distil.task import _read
from bertsmith.recipes.distil.trainings import DistilOutcome
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import read_inputs
from bertsmith.recipes.resources import layer_weights
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import load_model, save_model, start_from

QUICK = FinetuneSettings(
    epochs=1, batch_size=32, learning_rate=3e-3, precision="fp32", max_length=16
)
Options = dict[str, Any]


@pytest.fixture(scope="session")
def teacher(base_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, tokenizer = start_from(base_folder, labels=("up", "down"), seed=3)
    save_model(folder := tmp_path_factory.mktemp("taught") / "model", model, tokenizer)
    return folder


@pytest.fixture(scope="session")
def train(labelled_rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "train.tsv"
    file.write_text("\n".join(labelled_rows[:81]) + "\n")
    return file


@pytest.fixture
def options(teacher: Path, train: Path, tmp_path: Path) -> Options:
    return {
        "teacher": teacher, "data": train, "out": tmp_path / "out", "settings": QUICK, "seeds": 1,
        "student": StudentConfig(student="1/24"), "side_by_side": 1,
    }  # fmt: skip


def test_a_run_compares_students_and_goes_on_with_more_seeds(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    config = DistilConfig(**options, method=("distilbert", "minilm"))
    first = distil(config)
    assert isinstance(first, DistilOutcome)
    names = [contender.name for contender in first.contenders]
    assert names[:5] == [
        "teacher", "distilbert", "minilm", "plain, labels alone", "layers dropped, untrained",
    ]  # fmt: skip
    assert "TF-IDF" in names[5]
    model, _ = load_model(first.model)
    assert model.config.labels == ("up", "down")
    assert model.config.encoder.layers == 1
    assert model.config.preprocessing is not None
    for contender in first.contenders[:5]:
        assert contender.speed is not None
        assert contender.speed.bulk > 0
    count = sum(parameter.numel() for parameter in model.parameters())
    assert [contender.parameters for contender in first.contenders[1:5]] == [count] * 4
    assert set(first.differences) == {"distilbert", "minilm"}
    record = json.loads((first.folder / "results.json").read_text())
    assert [item["name"] for item in record["entrants"]] == names
    page = (first.folder / "report.html").read_text()
    assert "Score against speed" in page
    assert "points to the plain student" in page
    assert not (first.folder / "teacher-outputs").exists()
    capsys.readouterr()
    again = distil(replace(config, seeds=2))
    assert isinstance(again, DistilOutcome)
    assert [len(contender.scores) for contender in again.contenders[:4]] == [1, 2, 2, 2]
    assert again.contenders[1].scores[0] == first.contenders[1].scores[0]
    told = capsys.readouterr().err
    assert "seed 1 (2 of 2)" in told
    assert "seed 0 (1 of 2)" not in told
    other = replace(config, seeds=2, student=StudentConfig(student="1/24", start="uniform"))
    with pytest.raises(UserError, match=r"--start: its .* from the teacher's layer 1, now from"):
        distil(other)


def test_examples_are_read_with_the_columns_that_the_teacher_was_trained_on(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = load_model(options["teacher"])
    trained = Preprocessing(longest=16, text_column="notes", label_column="grade")
    save_model(tmp_path / "trained", Model(replace(model.config, preprocessing=trained)), tokenizer)
    rows = [f"{n},word{n % 7} good,{'up' if n % 3 else 'down'},word3" for n in range(30)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["number,notes,grade,remark", *rows]) + "\n")
    given = {**options, "teacher": tmp_path / "trained", "data": file}
    resolved, _, prepared = _read(
        DistilConfig(**given), torch.device("cpu"), RunFolder(tmp_path / "run")
    )
    assert {row.text for row in prepared.data.train} <= {f"word{n} good" for n in range(7)}
    assert resolved.settings.reading.columns.text == "notes"
    assert "text is 'notes', label is 'grade'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ({}, "tail"),
        ({"truncation": "windows"}, "windows"),
        ({"truncation": "head"}, "head"),
    ],
)
def test_that_part_of_long_texts_is_read_which_the_teacher_was_trained_on(
    stated: Options, read: Fit, options: Options, tmp_path: Path
) -> None:
    """Its answers to their beginnings would be those to what it has never read."""
    model, tokenizer = load_model(options["teacher"])
    trained = Preprocessing(longest=9, long="tail", pairs=False)
    save_model(tmp_path / "trained", Model(replace(model.config, preprocessing=trained)), tokenizer)
    rows = [f"{'up' if n % 3 else 'down'}\t{'word1 ' * 9}word{n % 7}\n" for n in range(30)]
    (tmp_path / "rows.tsv").write_text("".join(["label\ttext\n", *rows]))
    given = {
        "teacher": tmp_path / "trained", "data": tmp_path / "rows.tsv", "plain": False,
        "dev": tmp_path / "rows.tsv", "settings": replace(QUICK, max_length=None, **stated),
    }  # fmt: skip
    outcome = distil(DistilConfig(**options | given))
    assert isinstance(outcome, DistilOutcome)
    assert load_model(outcome.model)[0].config.preprocessing == replace(trained, long=read)
    scores = bertsmith.load(tmp_path / "trained").evaluate(tmp_path / "rows.tsv", truncation=read)
    assert outcome.contenders[0].scores[0]["accuracy"] == scores["scores"]["accuracy"]["value"]


Change = Callable[[Path, Options], Options]


def _headless(path: Path, options: Options) -> Options:
    encoder = EncoderConfig(
        vocabulary=37, hidden=24, layers=2, heads=3, feed_forward=48, longest=40
    )
    _, tokenizer = load_model(options["teacher"])
    save_model(path / "bare", build_model(ModelConfig(encoder=encoder), seed=1), tokenizer)
    return {"teacher": path / "bare"}


def _of_two_numbers(path: Path, options: Options) -> Options:
    model, tokenizer = start_from(options["teacher"], predicts="number", labels=("high", "wide"))
    save_model(path / "two", model, tokenizer)
    rows = [f"word{n % 7} word{n % 5},{n / 4}" for n in range(30)]
    (path / "rows.csv").write_text("\n".join(["text,score", *rows]) + "\n")
    return {"teacher": path / "two", "data": path / "rows.csv", "task": "regression"}


def _strange(path: Path, options: Options) -> Options:
    file = path / "strange.tsv"
    file.write_text(options["data"].read_text() + "sideways\tword1 word2\nsideways\tword3\n")
    return {"data": file}


def _student(student: str, **changes: Any) -> Change:  # noqa: ANN401
    return lambda path, options: {"student": StudentConfig(student=student, **changes)}


REFUSED: dict[str, tuple[Change, str]] = {
    "no head": (_headless, "has no head for a task; fine-tune it first"),
    "two numbers": (_of_two_numbers, "two: has 2 numbers for a text; only one is supported"),
    "strange label": (_strange, "strange.tsv:82: the label 'sideways' is none of the model's"),
    "other width": (_student("1/12"), "the student is 12 wide, the teacher 24; give --student"),
    "other heads": (
        lambda path, options: {
            "student": StudentConfig(student="1/24", heads=2), "method": ("tinybert",),
        },
        "the student has 2 heads, the teacher 3",
    ),
    "too deep": (
        lambda path, options: {
            "student": StudentConfig(student="3/24"), "method": ("tinybert",),
        },
        "the student has 3, the teacher 2",
    ),
    "no such layer": (
        lambda path, options: {
            "method": ("minilm",), "teaching": TeachingConfig(teacher_layer=3),
        },
        "--teacher-layer is 3; the teacher has 2",
    ),
    "relation heads": (
        lambda path, options: {
            "method": ("minilm",), "teaching": TeachingConfig(relation_heads=5),
        },
        "must divide 24 and 24",
    ),
    "minutes": (lambda path, options: {"minutes": 3.0}, "--minutes is for a store"),
    "recipe of a store": (
        lambda path, options: {"general": GeneralSettings(recipe="paper")},
        "--general.recipe is for a store",
    ),
    "patience": (
        lambda path, options: {"settings": replace(QUICK, patience=2), "method": ("minilm",)},
        "--patience could end tinybert and minilm before",
    ),
    "layers that it has not": (
        lambda path, options: {"settings": replace(QUICK, freeze_layers=2)},
        "--freeze-layers is 2; the model has 1 layer of its own",
    ),
    "nothing to teach": (
        lambda path, options: {"settings": replace(QUICK, freeze_layers=1), "method": ("minilm",)},
        "--freeze-layers 1 freezes all layers of the student, which minilm teaches before its head",
    ),
    "no data": (lambda path, options: {"data": path / "none.csv"}, "no such file or folder"),
    "no student": (_student("nowhere"), "no such folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_is_refused_in_a_line(case: str, options: Options, tmp_path: Path) -> None:
    change, said = REFUSED[case]
    config = DistilConfig(**options | change(tmp_path, options))
    with pytest.raises(UserError) as refused:
        distil(config)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_student_of_another_vocabulary_is_refused(
    options: Options, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    words = tiny_tokenizer.vocabulary
    other = Tokenizer((*words[:5], *reversed(words[5:])), tiny_tokenizer.rules)
    model, _ = load_model(options["teacher"])
    save_model(tmp_path / "other", model, other)
    with pytest.raises(UserError, match="another vocabulary than the teacher"):
        distil(
            DistilConfig(**options | {"student": StudentConfig(student=str(tmp_path / "other"))})
        )


def test_texts_are_cut_to_what_the_student_reads(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = load_model(options["teacher"])
    short = replace(model.config.encoder, longest=9, layers=1)
    student = build_model(ModelConfig(encoder=short), seed=1)
    save_model(folder := tmp_path / "short", student, tokenizer)
    given = {"student": StudentConfig(student=str(folder)), "plain": False}
    outcome = distil(DistilConfig(**options | given))
    assert isinstance(outcome, DistilOutcome)
    assert f"{folder}: reads 9 tokens at most" in capsys.readouterr().err
    reading = load_model(outcome.model)[0].config.preprocessing
    assert reading is not None
    assert reading.longest == 9


def test_a_teacher_larger_than_memory_is_refused(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "free_memory", lambda device: 1000)
    with pytest.raises(OutOfMemory, match="the teacher's weights are 0 MB, and 0 MB are free"):
        distil(DistilConfig(**options))


@pytest.mark.parametrize(
    ("target", "methods", "shape"),
    # by the fake speed a half is as fast as its share of weights says
    [("1.5x", ("distilbert",), (1, 24)), ("3x", ("minilm",), (2, 9)), ("20x", ("minilm",), None)],
)
def test_auto_takes_the_largest_student_that_is_fast_enough(
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    methods: tuple[Method, ...],
    shape: tuple[int, int] | None,
) -> None:
    def fake(models: dict[str, Model], *_: Any, **__: Any) -> dict[str, Speed]:  # noqa: ANN401
        blocks = {
            name: sum(parameter.numel() for parameter in model.encoder.blocks.parameters())
            for name, model in models.items()
        }
        return {name: Speed(bulk=1e6 / n, single=0.1, engine="") for name, n in blocks.items()}

    monkeypatch.setattr(speed, "measure_speeds", fake)
    inputs = read_inputs(options["teacher"], options["data"], None, None, QUICK)
    prepared = inputs.prepared(QUICK)
    student = StudentConfig(student="auto", target=target)
    config = DistilConfig(**options | {"student": student, "method": methods})
    if shape is None:
        with pytest.raises(UserError, match="no student of the sizes tried is 20 times as fast"):
            speed.choose_student(config, inputs.base, prepared)
        return
    chosen = speed.choose_student(config, inputs.base, prepared)
    assert (chosen.layers, chosen.hidden) == shape
    # none that is larger is fast enough
    whole = inputs.base.config.encoder
    for other in speed._candidates(config, whole):
        if layer_weights(other) > layer_weights(chosen):
            speeds = fake({"t": inputs.base, "s": speed._fresh(inputs.base, other)})
            assert speeds["s"].bulk / speeds["t"].bulk < student.speedup
