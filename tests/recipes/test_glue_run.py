"""GLUE's suite on small files laid out as the real ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneSettings, GlueConfig
from bertsmith.recipes.glue import COLUMNS, PUBLISHED, glue, glue_rows, header
from bertsmith.text.examples import glue as glue_files
from bertsmith.text.examples.glue import TASKS

QUICK = FinetuneSettings(
    epochs=1, batch_size=16, learning_rate=1e-3, precision="fp32", baseline=False
)


def test_a_published_row_is_its_average() -> None:
    for name, scores in PUBLISHED.items():
        assert len(scores) == len(COLUMNS) + 1
        *each, average = scores
        # the leaderboard's: MNLI's two count as one task
        halves = (each[0] + each[1]) / 2
        mean = float(np.mean([halves, *each[2:]]))
        assert average == pytest.approx(mean, abs=2.2), name


def test_our_row_stands_last_with_what_there_is() -> None:
    rows = glue_rows(
        "ours", {"RTE": {"accuracy": (0.66, 0.012)}, "CoLA": {"matthews": (0.5, None)}}
    )
    ours = dict(zip(header(), rows[-1], strict=True))
    assert len(rows) == 6
    assert (ours["RTE"], ours["CoLA"], ours["QQP"], ours["mean"]) == (
        "66.0 ± 1.2",
        "50.0",
        "",
        "",
    )
    full = {task: {score: (0.5, 0.0)} for _, task, score in COLUMNS}
    assert glue_rows("ours", full)[-1][-1] == "50.0"


def written(folder: Path, name: str, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_suite_runs_what_is_there_and_writes_the_submission(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data, random = tmp_path / "glue", np.random.default_rng(1)
    pairs = [(f"word{a}", f"word{b}") for a, b in random.integers(0, 30, (60, 2))]
    rte = [
        f"{n}\t{a}\t{b}\t{'entailment' if n % 2 else 'not_entailment'}"
        for n, (a, b) in enumerate(pairs)
    ]
    head = "index\tsentence1\tsentence2\tlabel"
    written(data / "RTE", "train.tsv", [head, *rte])
    written(data / "RTE", "dev.tsv", [head, *rte[:20]])
    asked = [f"{n}\t{a}\t{b}" for n, (a, b) in enumerate(pairs[:9])]
    written(data / "RTE", "test.tsv", [head.removesuffix("\tlabel"), *asked])
    cola = [f"gj04\t{n % 2}\t\tword{n % 30} good" for n in range(60)]
    written(data / "CoLA", "train.tsv", cola)
    written(data / "CoLA", "dev.tsv", cola[:20])
    # not as many as the leaderboard wants: no reason to lose the other answers
    written(data / "CoLA", "test.tsv", ["index\tsentence", "0\tword1 good"])
    written(data / "QNLI", "dev.tsv", ["index\tquestion\tsentence\tlabel"])
    monkeypatch.setitem(TASKS["RTE"].sizes, "test", 9)
    figures = glue(
        GlueConfig(
            model=base_folder,
            data=data,
            out=tmp_path / "out",
            settings=QUICK,
            experiment=ExperimentConfig(seeds=2),
        )
    )
    told = capsys.readouterr().err
    assert set(figures) == {"RTE", "CoLA"}
    assert set(figures["CoLA"]) == {"matthews"}
    assert figures["RTE"]["accuracy"]["spread"] is not None
    assert "QNLI: has no training file; skipped" in told
    assert "the leaderboard also wants" in told
    assert "left out of submission.zip: CoLA.tsv: 1 prediction, and the test set has 1,063" in told
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as packed:
        assert packed.namelist() == ["RTE.tsv"]
        lines = packed.read("RTE.tsv").decode().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(n) for n in range(9)]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| BERT base | 84.6 |" in table
    # the only column that is no mean
    assert "-mm is of the seed that is best on MNLI-m" in table
    kept = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert kept == figures
    before = (tmp_path / "out" / "submission.zip").read_bytes()
    again = glue(
        GlueConfig(
            model=base_folder,
            data=data,
            out=tmp_path / "out",
            tasks=("CoLA",),
            settings=QUICK,
            experiment=ExperimentConfig(seeds=2),
        )
    )
    assert again == figures
    assert "including RTE from earlier calls" in capsys.readouterr().err
    assert (tmp_path / "out" / "table.md").read_text(encoding="utf-8") == table
    assert (tmp_path / "out" / "submission.zip").read_bytes() == before
    # a row of the table is of one model
    run = tmp_path / "out" / "RTE" / "run.json"
    other = run.read_text(encoding="utf-8").replace('"model_hash": "', '"model_hash": "other')
    run.write_text(other, encoding="utf-8")
    alone = glue(
        GlueConfig(
            model=base_folder,
            data=data,
            out=tmp_path / "out",
            tasks=("CoLA",),
            settings=QUICK,
            experiment=ExperimentConfig(seeds=2),
        )
    )
    assert set(alone) == {"CoLA"}
    assert "submission.zip held no answers of this model: deleted" in capsys.readouterr().err
    assert not (tmp_path / "out" / "submission.zip").exists()
    with pytest.raises(ConfigError, match="no task 'MNLI'"):
        glue(
            GlueConfig(
                model=base_folder, data=data, out=tmp_path / "out", tasks=("MNLI",), settings=QUICK
            )
        )
    assert glue_files.find_glue(data).keys() == {"RTE", "CoLA", "QNLI"}


HEAD = "index\tsentence1\tsentence2"


@pytest.mark.parametrize(
    ("split", "lines", "message"),
    [
        ("train", [f"{HEAD}\tlabel"], "RTE/train.tsv: holds no examples"),
        (
            "train",
            [f"{HEAD}\tlabel", "0\ta\tb\tmaybe"],
            "RTE/train.tsv:2: the label 'maybe' is not",
        ),
        ("test", [HEAD], "RTE/test.tsv: holds no examples"),
        ("test", ["index\tsentence1", "0\ta"], "RTE/test.tsv.* no column 'sentence2'"),
    ],
)
def test_files_of_all_tasks_are_read_before_the_first_is_trained(
    base_folder: Path, tmp_path: Path, split: str, lines: list[str], message: str
) -> None:
    data, out = tmp_path / "glue", tmp_path / "out"
    for name in ("train.tsv", "dev.tsv"):
        written(data / "CoLA", name, [f"gj04\t{n % 2}\t\tword{n} good" for n in range(20)])
    rte = [f"{n}\ta\tb\t{'entailment' if n % 2 else 'not_entailment'}" for n in range(20)]
    labelled = [f"{HEAD}\tlabel", *rte]
    files = {"train": labelled, "dev": labelled, "test": [HEAD, "0\ta\tb"]}
    for name, rows in (files | {split: lines}).items():
        written(data / "RTE", f"{name}.tsv", rows)
    with pytest.raises(ExampleError, match=message):
        glue(GlueConfig(model=base_folder, data=data, out=out, settings=QUICK))
    assert not (out / "CoLA").exists()


def test_a_named_task_without_a_training_file_is_refused(base_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "glue"
    cola = [f"gj04\t{n % 2}\t\tword{n % 30} good" for n in range(60)]
    written(data / "QNLI", "dev.tsv", ["index\tquestion\tsentence\tlabel"])
    written(data / "AX", "AX.tsv", ["index\tsentence1\tsentence2"])

    def refusal(*tasks: str) -> str:
        with pytest.raises(ConfigError) as refused:
            glue(GlueConfig(model=base_folder, data=data, out=tmp_path / "out", tasks=tasks))
        assert not (tmp_path / "out").exists()
        return str(refused.value)

    assert "QNLI has no training file" in refusal()
    written(data / "CoLA", "train.tsv", cola)
    assert "the task 'QNLI' in" in refusal("QNLI")
    written(data / "CoLA", "dev.tsv", cola)
    told = refusal("CoLA", "QNLI")
    assert "'QNLI'" in told
    assert "has no training file" in told
    assert "the tasks are CoLA" in told
    assert "the model of MNLI answers it" in refusal("AX")
