"""Every task from a file to a model that answers, on what a small model can learn."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.config import FULL_PRECISION
from bertsmith.network.config import Fit
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.inputs import check_task
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.finetune.report import add_calibration, mistakes, mistakes_note
from bertsmith.recipes.finetune.trial import DEV
from bertsmith.recipes.predict.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.predict.evaluate import evaluate
from bertsmith.recipes.predict.recipe import predict
from bertsmith.reports.page import Report
from bertsmith.tasks.choice import CHOICE
from bertsmith.tasks.config import AnsweringConfig, Reading, TextLength
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.table import TASKS
from bertsmith.text.config import Columns
from bertsmith.text.examples.formats.choices import Choice
from bertsmith.training.run_folder import read_record
from bertsmith.weights.folder import load_model, read_config, save_model, start_from
from bounds import metric

QUICK = FinetuneSettings(
    epochs=6,
    batch_size=16,
    learning_rate=4e-3,
    precision="fp32",
    dropout=0.0,
    baseline=False,
    max_length=24,
)
Rows = list[dict[str, Any]]


def words(random: np.random.Generator, count: int) -> list[str]:
    return [f"word{n}" for n in random.integers(0, 30, count)]


def several(random: np.random.Generator) -> dict[str, Any]:
    found = [label for label in ("good", "bad") if random.random() < 0.5]
    return {"text": " ".join([*words(random, 4), *found]), "labels": found}


def number(random: np.random.Generator) -> dict[str, Any]:
    count = int(random.integers(0, 4))
    return {"text": " ".join(words(random, 3) + ["good"] * count), "score": 50.5 + 100 * count}


def relevant(random: np.random.Generator) -> dict[str, Any]:
    grade = int(random.integers(0, 2))
    query = f"word{random.integers(0, 8)}"
    passage = " ".join([*words(random, 3), "good" if grade else "bad"])
    return {"query": query, "passage": passage, "relevance": grade}


def choice(random: np.random.Generator) -> dict[str, Any]:
    options = [" ".join([*words(random, 2), "bad"]) for _ in range(random.integers(2, 5))]
    right = int(random.integers(0, len(options)))
    options[right] = options[right].replace("bad", "good")
    return {"text": f"word{random.integers(0, 30)}", "choices": options, "label": right}


def tagged(random: np.random.Generator) -> dict[str, Any]:
    """An entity is good bad; long ones need windows."""
    tokens = words(random, int(random.integers(3, 40)))
    place = int(random.integers(0, len(tokens) - 1))
    tokens[place : place + 2] = "good", "bad"
    start = len(" ".join([*tokens[:place], ""])) if place else 0
    end = start + len(" ".join(tokens[place : place + 2]))
    return {"text": " ".join(tokens), "entities": [[start, end, "X"]]}


def asked(random: np.random.Generator, name: int, *, possible: bool = True) -> dict[str, Any]:
    """The answer is what stands after good; long contexts need windows."""
    tokens = words(random, int(random.integers(5, 30)))
    place = int(random.integers(0, len(tokens) - 1))
    answers: dict[str, list[Any]] = {"text": [], "answer_start": []}
    if possible:
        tokens[place] = "good"
        start = len(" ".join(tokens[: place + 1])) + 1
        answers = {"text": [tokens[place + 1]], "answer_start": [start]}
    context = " ".join(tokens)
    return {"id": f"q{name}", "question": "word0 good", "context": context, "answers": answers}


MAKERS: dict[str, Callable[[np.random.Generator, int], dict[str, Any]]] = {
    "multi-label": lambda random, _: several(random),
    "regression": lambda random, _: number(random),
    "rank": lambda random, _: relevant(random),
    "choice": lambda random, _: choice(random),
    "tag": lambda random, _: tagged(random),
    "span": asked,
}
LEAST = {
    "multi-label": 0.95, "regression": 0.9, "rank": 0.85, "choice": 0.9, "tag": 0.8, "span": 0.7,
}  # fmt: skip
EPOCHS, RATES = {"tag": 3, "span": 12}, {"span": 8e-3}


def written(path: Path, rows: Rows) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learned(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path
) -> Callable[[str], tuple[Path, FinetuneOutcome]]:
    """A task's dev file and its fine-tuning, made once."""
    made: dict[str, tuple[Path, FinetuneOutcome]] = {}

    def learn(name: str) -> tuple[Path, FinetuneOutcome]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            random = np.random.default_rng(7)
            rows = [MAKERS[name](random, number) for number in range(300)]
            train = written(folder / "train.jsonl", rows[:240])
            dev = written(folder / "dev.jsonl", rows[240:])
            settings = replace(
                QUICK,
                epochs=EPOCHS.get(name, QUICK.epochs),
                learning_rate=RATES.get(name, QUICK.learning_rate),
            )
            outcome = finetune(
                FinetuneConfig(
                    model=base_folder,
                    train=train,
                    out=folder / "run",
                    dev=dev,
                    settings=settings,
                    experiment=ExperimentConfig(seeds=1),
                )
            )
            made[name] = dev, outcome
        return made[name]

    return learn


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_task_is_recognised_learned_kept_and_scored_again(
    name: str, learned: Callable[[str], tuple[Path, FinetuneOutcome]]
) -> None:
    dev, outcome = learned(name)
    assert outcome.data.task is TASKS[name]
    assert outcome.best.score >= LEAST[name], outcome.best.scores
    model, _ = load_model(outcome.model)
    assert model.config.predicts == TASKS[name].head
    again = evaluate(
        EvaluateConfig(model=outcome.model, file=dev, length=TextLength(max_length=24))
    )["scores"]
    for score, value in outcome.best.scores.items():
        assert again[score]["value"] == pytest.approx(value, abs=1e-9)
        low, high = again[score]["low"], again[score]["high"]
        # all resamples of a mean over labels are 1 where all rows are right
        assert (low, high, value) == (None, None, 1) if low is None else low <= value <= high


@pytest.mark.parametrize(
    ("name", "said", "unsaid"),
    [
        ("multi-label", "<h2>Mistakes on dev, seed 0", "confidence"),
        ("choice", "<h2>Most confident mistakes on dev, seed 0", "than the mean of all"),
        ("regression", "nearer to the true one than the mean of all is", "istakes on dev"),
    ],
)
def test_the_figures_of_a_report_suit_the_task(
    name: str, said: str, unsaid: str, learned: Callable[[str], tuple[Path, FinetuneOutcome]]
) -> None:
    pytest.importorskip("matplotlib")
    page = (learned(name)[1].folder / "report.html").read_text(encoding="utf-8")
    assert said in page
    assert unsaid not in page
    # where nothing is wrong there is no table of mistakes
    assert "<tbody></tbody>" not in page


def test_questions_without_an_answer_have_no_calibration() -> None:
    """Their probability is written as 0, and so many of them are right."""
    answers = [
        {"answer": "Rome", "probability": 0.9},
        {"answer": "", "probability": 0.0},
        {"answer": "Oslo", "probability": 0.7},
        {"answer": "", "probability": 0.0},
    ]
    report = Report("Run")
    add_calibration(report, 0, answers, np.array([True, True, False, False]))
    page = report.html()
    assert "gives its answer a probability of 0.800 and is right in 0.500 of the cases" in page
    # (|0.9 - 1| + |0.7 - 0|) / 2
    # (2 x 0.9 x 0.1 + 2 x 0.7 x 0.3) / 2 is 0.3
    chance = r"of a perfectly calibrated model have 0\.(2[89]|3[012])\d on average\. "
    counts = r"The points, from left to right, are of 1, 1 answers\. "
    left_out = r"Left out: 2 of 4, to which no answer is given\."
    assert re.search(rf"error 0\.400, where as many answers {chance}{counts}{left_out}", page)
    silent = Report("Run")
    add_calibration(silent, 0, answers[1:2], np.array([True]))
    assert "Calibration" not in silent.html()


def test_a_wrong_choice_is_shown_beside_the_right_one_as_it_is_written() -> None:
    row = Choice(
        id=None, text="it rained", context=None, choices=("dry", "wet", "hot"), label=1,
        source="m", line=4,
    )  # fmt: skip
    records: Rows = [{"choice": chosen, "probability": 0.9} for chosen in (2, None)]
    table = mistakes(CHOICE, [row, row], records, np.array([False, False]), 5)
    shown = "it rained | dry / wet / hot"
    assert table == [("4", shown, "wet", "hot", "0.900"), ("4", shown, "wet", "-", "0.900")]
    wrong = np.array([False, False])
    assert mistakes_note(records, wrong) == (
        "2 of 2 are wrong, of which 1 with - are not given: they are too unsure."
    )
    assert mistakes_note(records[:1], wrong[:1]) == "1 of 1 are wrong."


def test_of_a_mistake_with_a_long_text_the_rest_of_the_input_is_seen() -> None:
    """Of a long passage alone, nobody sees what was asked."""
    row = Choice(
        id=None, text=f"{'It rained. ' * 90}How was it?", context=None, choices=("dry", "wet"),
        label=1, source="m", line=4,
    )  # fmt: skip
    (mistake,) = mistakes(CHOICE, [row], [{"choice": 0, "probability": 0.9}], np.array([False]), 5)
    assert re.fullmatch(r"It rained\. .{100,250} … .*How was it\? \| dry / wet", mistake[1])


@pytest.mark.parametrize("name", list(MAKERS))
def test_predictions_are_the_answers_that_were_scored(
    name: str,
    learned: Callable[[str], tuple[Path, FinetuneOutcome]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    dev, outcome = learned(name)
    predict(
        PredictConfig(
            model=outcome.model,
            file=str(dev),
            format="jsonl",
            answering=AnsweringConfig(max_length=24),
            engine=FULL_PRECISION,
        )
    )
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kept = json.loads(
        (outcome.folder / "seeds" / "seed-0" / "dev.json").read_text(encoding="utf-8")
    )["answers"]
    assert len(said) == len(kept) == 60
    for one, other in zip(said, kept, strict=True):
        for key, value in other.items():
            # beside a column of that name in the input
            answer = one.get(f"predicted_{key}", one.get(key))
            if isinstance(value, float):
                assert answer == pytest.approx(value, abs=2e-5 * max(1.0, abs(value)))
            elif isinstance(value, str | int):
                assert answer == value
    predict(
        PredictConfig(model=outcome.model, file=str(dev), answering=AnsweringConfig(max_length=24))
    )
    assert len(capsys.readouterr().out.splitlines()) >= 60


def test_scores_of_tags_are_those_of_seqeval_over_the_predictions(
    learned: Callable[[str], tuple[Path, FinetuneOutcome]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    _, outcome = learned("tag")
    random = np.random.default_rng(11)
    true, lines = [], []
    for _ in range(40):
        # half of what the model says, and what it does not: the scores must not be 100 %
        tokens, tags = ["word1", "good", "bad", "word2", "word3"], ["O", "B-X", "I-X", "O", "O"]
        tags = [tags, ["O"] * 5, ["B-X", "B-X", "I-X", "I-X", "O"]][int(random.integers(3))]
        true.append(tags)
        lines.append("\n".join(map(" ".join, zip(tokens, tags, strict=True))))
    file = tmp_path / "test.conll"
    file.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    figures = evaluate(EvaluateConfig(model=outcome.model, file=file))
    capsys.readouterr()
    predict(PredictConfig(model=outcome.model, file=str(file), format="jsonl"))
    said = []
    for line in capsys.readouterr().out.splitlines():
        answer = json.loads(line)
        starts = [0, *(place + 1 for place, letter in enumerate(answer["text"]) if letter == " ")]
        tags = ["O"] * len(starts)
        for item in answer["entities"]:
            inside = [n for n, start in enumerate(starts) if item["start"] <= start < item["end"]]
            for place in inside:
                tags[place] = f"{'B' if place == inside[0] else 'I'}-{item['label']}"
        said.append(tags)
    for name in ("f1", "precision", "recall"):
        expected = getattr(metrics, f"{name}_score")(true, said)
        assert 0 < expected < 1
        assert figures["scores"][name]["value"] == metric(expected)
        assert figures["types"]["X"][name] == metric(expected)
    assert figures["types"]["X"]["support"] == sum(tag == "B-X" for tags in true for tag in tags)


def test_types_of_entities_are_shown_by_their_whole_names(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two that begin alike looked the same: names were cut at 16 characters."""
    types = ("organisation-political", "organisation-public")
    labels = ("O", *(f"{part}-{name}" for name in types for part in "BI"))
    save_model(tmp_path / "model", *start_from(base_folder, predicts="tags", labels=labels))
    rows = [f"word1 B-{name}\nword2 O\n" for name in types]
    (tmp_path / "test.conll").write_text("\n".join(rows), encoding="utf-8")
    evaluate(EvaluateConfig(model=tmp_path / "model", file=tmp_path / "test.conll"))
    shown = "".join(capsys.readouterr())
    assert all(f"{name:>22} " in shown for name in types)


def test_entities_are_characters_of_raw_text(
    learned: Callable[[str], tuple[Path, FinetuneOutcome]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, outcome = learned("tag")
    text = "word3, GOOD bad (word5) " + "word6 " * 60 + "good  bad."
    raw = tmp_path / "raw.txt"
    raw.write_text(text + "\n", encoding="utf-8")
    predict(
        PredictConfig(
            model=outcome.model,
            file=str(raw),
            format="jsonl",
            answering=AnsweringConfig(max_length=24),
        )
    )
    printed = capsys.readouterr()
    (found,) = [json.loads(line) for line in printed.out.splitlines()]
    assert "longer than 24 tokens: read in windows" in printed.err
    assert [item["text"] for item in found["entities"]] == ["GOOD bad", "good  bad"]
    for item in found["entities"]:
        assert found["text"][item["start"] : item["end"]] == item["text"]


def test_questions_without_an_answer_have_a_threshold_that_is_tuned_and_applied(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(3)
    rows = [asked(random, number, possible=number % 3 > 0) for number in range(240)]
    train, dev = written(tmp_path / "train.jsonl", rows), written(tmp_path / "d.jsonl", rows[:90])
    outcome = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=tmp_path / "run",
            dev=dev,
            settings=replace(QUICK, epochs=6),
            experiment=ExperimentConfig(seeds=1),
        )
    )
    assert list(outcome.best.scores) == ["f1", "exact_match", "f1_at_0"]
    assert outcome.best.scores["f1"] >= outcome.best.scores["f1_at_0"]
    (note,) = outcome.notes
    threshold = read_config(outcome.model).no_answer
    assert threshold is not None
    assert f"exceeds {threshold:.4f}, tuned on these very questions" in note
    capsys.readouterr()

    def said(no_answer: float | None) -> list[dict[str, Any]]:
        predict(
            PredictConfig(
                model=outcome.model,
                file=str(dev),
                format="jsonl",
                answering=AnsweringConfig(max_length=24, no_answer=no_answer),
                engine=FULL_PRECISION,
            )
        )
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    # dev's answers are those of the model with its threshold
    dev_answers = read_record(outcome.folder / "seeds" / "seed-0" / DEV)["answers"]
    assert [not dev_answer["answer"] for dev_answer in dev_answers] == [
        not item["answer"] for item in said(None)
    ]
    # the folder knows the threshold; another may be named
    silent = [not item["answer"] for item in said(None)]
    assert silent == [item["doubt"] > threshold for item in said(None)]
    assert 0 < sum(silent) < len(silent)
    assert all(item["answer"] for item in said(math.inf))
    # asked again, the model is scored at its own threshold, on other questions too
    found = evaluate(
        EvaluateConfig(model=outcome.model, file=dev, length=TextLength(max_length=24))
    )
    assert found["scores"]["f1"]["value"] == pytest.approx(outcome.best.scores["f1"])
    assert "the model's own; F1" in capsys.readouterr().err
    answers = {row["id"]: row["answers"]["text"] for row in rows}
    right = {item["id"]: [item["answer"]] == answers[item["id"]] for item in said(None)}
    answerable = [row for row in rows[:90] if row["answers"]["text"]]
    some = evaluate(
        EvaluateConfig(
            model=outcome.model,
            file=written(tmp_path / "some.jsonl", answerable),
            length=TextLength(max_length=24),
        )
    )
    expected = np.mean([right[row["id"]] for row in answerable])
    assert some["scores"]["exact_match"]["value"] == pytest.approx(expected)


def test_a_model_that_always_answers_keeps_no_threshold(base_folder: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = [asked(random, number, possible=True) for number in range(60)]
    train = written(tmp_path / "train.jsonl", rows)
    outcome = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=tmp_path / "run",
            settings=QUICK,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    assert list(outcome.best.scores) == ["f1", "exact_match"]
    assert read_config(outcome.model).no_answer is None
    assert not outcome.notes


def test_a_task_that_is_not_there_and_windows_of_options_are_refused(
    base_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="there is no task 'guess'; the tasks are: classify"):
        task_named("guess")
    rows = [choice(np.random.default_rng(n)) for n in range(40)]
    train = written(tmp_path / "train.jsonl", rows)
    with pytest.raises(ConfigError, match="--truncation windows is not for multiple choice"):
        finetune(
            FinetuneConfig(
                model=base_folder,
                train=train,
                out=tmp_path / "run",
                settings=replace(QUICK, truncation="windows"),
            )
        )
    assert not (tmp_path / "run").exists()


def test_rows_of_one_label_number_or_relevance_are_refused(
    base_folder: Path, tmp_path: Path
) -> None:
    for name, rows, message in (
        ("regression", [{"text": "word1", "score": 3.5}], "has one number only"),
        ("regression", [{"text": "word1", "score": n} for n in (1e300, -1e299)], "divide all of"),
        ("rank", [{"query": "a", "passage": "b", "relevance": 1}], "all passages are equally"),
    ):
        train = written(tmp_path / f"{name}.jsonl", rows * 40)
        with pytest.raises(ExampleError, match=message):
            finetune(
                FinetuneConfig(
                    model=base_folder, train=train, task=name, out=tmp_path / "run", settings=QUICK
                )
            )


def test_labels_that_were_separated_in_training_are_when_evaluated(
    base_folder: Path, tmp_path: Path
) -> None:
    """In a file of few rows nothing recurs: cells of two labels were one that is unknown."""
    train, few = tmp_path / "train.csv", tmp_path / "few.csv"
    cells = ["a;b", "b;c", "a", "c"] * 8
    rows = "".join(f"word{n % 8},{cell}\n" for n, cell in enumerate(cells))
    train.write_text("text,labels\n" + rows, encoding="utf-8")
    few.write_text("text,labels\nword0,a;b\nword3,c\n", encoding="utf-8")
    settings, options = replace(QUICK, epochs=1), ExperimentConfig(seeds=1)
    outcome = finetune(
        FinetuneConfig(
            model=base_folder, train=train, out=tmp_path / "run", settings=settings,
            experiment=options,
        )
    )  # fmt: skip
    assert evaluate(EvaluateConfig(model=outcome.model, file=few))["rows"] == 2
    # only bars leave labels of the model here, and in the next file nothing does
    few.write_text("text,labels\nword0,a|b\nword3,c\n", encoding="utf-8")
    assert evaluate(EvaluateConfig(model=outcome.model, file=few))["rows"] == 2
    few.write_text("text,labels\nword0,a|b\nword3,b;c\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"'a\|b' is none of .*: pass --label-separator '\|'"):
        evaluate(EvaluateConfig(model=outcome.model, file=few))


@pytest.mark.parametrize(("longest", "long"), [(12, "head+tail"), (10, "tail"), (9, "windows")])
def test_a_model_is_asked_as_it_was_trained(
    base_folder: Path,
    tmp_path: Path,
    longest: int,
    long: Fit,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The word that decides stands where another reading would not see it, or sees its opposite."""
    random = np.random.default_rng(7)
    rows = []
    for number in range(48):
        word, other = ("good", "bad") if number % 2 else ("bad", "good")
        inner = [*words(random, 9), other, *words(random, 9)]
        text = [*words(random, 2), *inner, *words(random, 2), word]
        rows.append({"body": " ".join(text), "text": other, "label": f"{number % 2}"})
    train, dev = (tmp_path / name for name in ("train.jsonl", "dev.jsonl"))
    train.write_text("\n".join(map(json.dumps, rows[:32])), encoding="utf-8")
    dev.write_text("\n".join(map(json.dumps, rows[32:])), encoding="utf-8")
    settings = replace(QUICK, max_length=longest, truncation=long, epochs=1)
    settings = settings.override(**{"reading.columns.text": "body"})
    outcome = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=tmp_path / "run",
            dev=dev,
            settings=settings,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    kept = read_config(outcome.model).preprocessing
    assert kept is not None
    assert (kept.longest, kept.long, kept.pairs) == (longest, long, False)
    found = evaluate(EvaluateConfig(model=outcome.model, file=dev))
    assert found["scores"]["accuracy"]["value"] == outcome.best.scores["accuracy"]
    on_dev = read_record(tmp_path / "run" / "seeds" / "seed-0" / DEV)["answers"]
    predict(
        PredictConfig(model=outcome.model, file=str(dev), format="jsonl", engine=FULL_PRECISION)
    )
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for one, other in zip(told, on_dev, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=2e-6)
    # the other column holds other texts
    predict(
        PredictConfig(
            model=outcome.model,
            file=str(dev),
            format="jsonl",
            reading=Reading(columns=Columns(text="text")),
        )
    )
    others = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["probability"] for one in told] != [one["probability"] for one in others]


def test_a_model_abstains_below_the_confidence_chosen_on_dev(
    base_folder: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = replace(QUICK, epochs=2, learning_rate=1e-3, target_accuracy=0.9, dev_share=0.4)
    outcome = finetune(
        FinetuneConfig(
            model=base_folder,
            train=labelled,
            out=tmp_path / "run",
            settings=settings,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    least = read_config(outcome.model).min_confidence
    assert least is not None
    accuracy = outcome.best.scores["accuracy"]
    # the threshold that the model keeps, and its effect on dev
    printed = " ".join(capsys.readouterr().err.split())
    assert f"answers are given where the probability is at least {least:.4f}" in printed
    assert "--target-accuracy 0.9 chose that probability by these very rows" in printed
    scores = evaluate(EvaluateConfig(model=outcome.model, file=labelled))["scores"]
    assert "answers are given where the probability is at least" in capsys.readouterr().err
    assert scores["accuracy"]["value"] == pytest.approx(accuracy, abs=0.35)
    predict(PredictConfig(model=outcome.model, file=str(labelled), format="jsonl"))
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # probabilities are rounded to six digits
    clear = [one for one in told if abs(one["probability"] - least) > 1e-6]
    assert len(clear) > 100
    for one in clear:
        assert (one["predicted_label"] is None) == (one["probability"] < least)
    with pytest.raises(ConfigError, match="neither classes nor choices"):
        check_task(TASKS["span"], settings)
    # sets are calibrated on dev, of which the answers are kept
    kept = read_config(outcome.model).conformal
    file = outcome.folder / "seeds" / "seed-0" / DEV
    record, labels = read_record(file), read_config(outcome.model).labels
    rows = zip(record["evidence"], record["answers"], strict=True)
    right = sorted(answer["probabilities"][labels[int(own[0])]] for own, answer in rows)
    assert kept is not None
    assert kept.examples == len(right) == 64
    # ceil(65 * 0.9) is 59: 58 of 64 may have less
    assert kept.thresholds[kept.coverages.index(0.9)] == pytest.approx(right[64 - 59], abs=2e-6)
    sets = evaluate(EvaluateConfig(model=outcome.model, file=labelled, conformal=0.9))
    capsys.readouterr()
    predict(
        PredictConfig(
            model=outcome.model,
            file=str(labelled),
            format="jsonl",
            answering=AnsweringConfig(conformal=0.9, min_confidence=0.0),
        )
    )
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    held = [one["label"] in one["prediction_set"] for one in told]
    assert sets["prediction_sets"]["covered"] == pytest.approx(np.mean(held), abs=0.01)
