"""The verbs that fine-tune, and that compare what came of it: each calls one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bertsmith.cli.command import Short, Verb
from bertsmith.core.config import Config
from bertsmith.core.output import print_json

AtOnce = int | Literal["auto"]
TEXT_OPTIONS = {
    "--text-column": Short(setting="columns.text"),
    "--text-pair-column": Short(setting="columns.text_pair"),
    "--header": Short(setting="columns.header"),
    "--encoding": Short(setting="columns.encoding"),
}
LABEL_OPTIONS = {
    "--label-column": Short(setting="columns.label"),
    "--classes": Short(setting="columns.classes", several=True),
    "--exclude": Short(setting="columns.exclude", several=True),
}
TaskName = Literal["classify", "pair", "multi-label", "regression", "tag", "span", "choice", "rank"]


def finetune(
    model: Path,
    train: Path,
    *,
    out: Path,
    dev: Path | None = None,
    task: TaskName | None = None,
    seeds: int = 5,
    grid: bool = False,
    minutes: float | None = None,
    curve: bool = False,
    baselines: bool = False,
    dry_run: bool = False,
    device: str = "auto",
    tensorboard: bool = False,
    side_by_side: AtOnce = "auto",
    settings: Config | None = None,
) -> None:
    """Teach a model folder a task from labelled examples, with several seeds.

    The task is told from the data: a class a text or pair, any number of classes, a number,
    relevance to a query, one of several options, tags of words, answers in a text. A run that was
    stopped goes on with the same command.

    Args:
        model: folder of a pre-trained model, or hub:owner/name, or with @revision
        train: labelled examples: tables, CoNLL's columns, SQuAD's JSON, a folder of classes
        out: folder of the run, and of the model in it
        dev: labelled examples to measure with; a tenth of the others where none are given
        task: what is to be learned, where the data do not tell
        seeds: how often to train; the scores come with their mean and spread; a run that is given
            again with more adds them
        grid: first choose rate, batch and epochs on dev, out of those below (--search.rates ...)
        minutes: minutes on the clock for the grid; as many cells as fit, in random order
        curve: also train with half of the examples, a quarter and so on, with three seeds
        baselines: also measure static vectors, every layer of the frozen encoder, a mix of them,
            and the same network from random weights
        dry_run: read and check the examples, show two of them as the model will get them, and stop
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
        tensorboard: write the logs for TensorBoard too, to be read by tensorboard --logdir OUT
        side_by_side: how many trainings go on at once, each a process with its part of the cores; 1
            makes them in turn with all cores; auto takes what should be fastest of what free memory
            has room for, and says so; a run keeps the threads of its beginning
    """
    from bertsmith.recipes.finetune.recipe import dry_run as without_training
    from bertsmith.recipes.finetune.recipe import finetune as recipe
    from bertsmith.recipes.finetune.settings import FinetuneConfig

    chosen = settings or FinetuneConfig()
    assert isinstance(chosen, FinetuneConfig)
    if dry_run:
        without_training(
            model, train, dev=dev, task=task, seeds=seeds, settings=chosen, device=device
        )
        return
    recipe(
        model, train, out=out, dev=dev, task=task, seeds=seeds, settings=chosen, grid=grid,
        minutes=minutes, curve=curve, baselines=baselines, device=device, tensorboard=tensorboard,
        side_by_side=side_by_side,
    )  # fmt: skip


def glue(
    model: Path,
    *,
    data: Path,
    out: Path,
    tasks: str | None = None,
    seeds: int = 5,
    grid: bool = False,
    minutes: float | None = None,
    device: str = "auto",
    side_by_side: AtOnce = "auto",
    json: bool = False,
    settings: Config | None = None,
) -> None:
    """Fine-tune on GLUE's tasks, print the paper's table, and write the leaderboard's zip file.

    Tasks whose files are not there are passed over. A run that was stopped goes on with the same
    command; tasks of earlier calls with the same model and OUT stay in the table and the zip file.

    Args:
        model: folder of a pre-trained model, or hub:owner/name, or with @revision
        data: folder with CoLA/, SST-2/ and so on, as GLUE distributes them
        out: folder for a run a task, the table and submission.zip
        tasks: tasks, with commas between them; all that are there where none are named
        seeds: how often to train on each
        grid: first choose rate, batch and epochs on dev, task by task
        minutes: minutes on the clock for each grid
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
        side_by_side: how many trainings of a task go on at once, each in a process of its own with
            its part of the cores; auto takes what should be fastest of what memory has room for
        json: print the scores as one JSON object on standard output
    """
    from bertsmith.recipes.finetune.settings import FinetuneConfig
    from bertsmith.recipes.glue.recipe import glue as recipe

    settings = settings or FinetuneConfig()
    assert isinstance(settings, FinetuneConfig)
    scores = recipe(
        model,
        data,
        out=out,
        tasks=tuple(tasks.split(",")) if tasks else (),
        seeds=seeds,
        settings=settings,
        grid=grid,
        minutes=minutes,
        device=device,
        side_by_side=side_by_side,
    )
    if json:
        print_json(scores)


def compare(first: Path, second: Path, *, json: bool = False) -> None:
    """Tell whether one fine-tuning is better than another, or only luckier.

    Both must have been measured on the same dev examples. The best seeds' answers are compared
    example by example: McNemar's test where they are right or wrong, and the difference of the
    scores over dev sets drawn anew.

    Args:
        first: folder of a run
        second: folder of another one
        json: print the figures as one JSON object on standard output
    """
    from bertsmith.recipes.finetune.compare import compare as recipe

    figures = recipe(first, second)
    if json:
        print_json(figures)


def _finetune_settings() -> type[Config]:
    from bertsmith.recipes.finetune.settings import FinetuneConfig

    return FinetuneConfig


FINETUNE_VERBS = {
    "finetune": Verb(
        function=finetune,
        settings=_finetune_settings,
        short=TEXT_OPTIONS | LABEL_OPTIONS,
        examples=(
            "run/model train.csv --out spam",
            "run/model pairs.tsv --out same --text-column a --text-pair-column b --seeds 3",
            "run/model train.conll --dev dev.conll --out names --grid --minutes 60",
            "run/model train.jsonl --out spam --baselines --curve",
            "run/model train.csv --out spam --side-by-side 2",
            "run/model questions.txt --out kinds --columns.layout label-first",
        ),
    ),
    "glue": Verb(
        function=glue,
        settings=_finetune_settings,
        examples=(
            "run/model --data glue --out glue-run",
            "run/model --data glue --out few --tasks RTE,CoLA",
        ),
    ),
    "compare": Verb(function=compare, examples=("spam other-spam",)),
}
