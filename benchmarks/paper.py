"""What the paper tested: the ablations of Devlin et al. 2018 in minutes, and what order is worth.

    python benchmarks/paper.py CORPUS --out FOLDER --data DATA [--experiment NAME ...] [--seeds 3]

Each experiment pre-trains small BERTs that differ in one thing (benchmarks/ablations/cells.py), on
the same text, and fine-tunes each on subsets of real data sets; DATA is the folder of these, the
variable BERTSMITH_DATA if not given. What has ended is kept in FOLDER, so that a command that was
killed goes on, and one with more seeds or experiments adds them; cells that several experiments
have are trained once. A folder is for one corpus. --quick makes all cells in minutes, at a scale
at which nothing is learned. FOLDER/tables.md has the tables of all that has ended, which
docs/experiments/what-the-paper-tested.md tells about; the last line printed is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ablations.cells import EXPERIMENTS, Cell
from ablations.showing import estimates, markdown, table

if TYPE_CHECKING:
    from ablations.training import Laboratory, Results

TABLES = "tables.md"


def main() -> None:
    """Train what is missing, print the tables, write them for the page, print one JSON object."""
    asked = _arguments()
    # read by torch when it is imported: one thread, so that results do not depend on the machine
    os.environ["OMP_NUM_THREADS"] = "1"
    from ablations.training import FULL, QUICK, Laboratory

    laboratory = Laboratory(asked.out, QUICK if asked.quick else FULL)
    laboratory.prepare(asked.corpus, asked.data)
    for name in asked.experiment:
        run(laboratory, name, asked.seeds)
    show(laboratory, asked.experiment, asked.seeds)


def run(laboratory: Laboratory, name: str, seeds: int) -> None:
    """Train the cells of an experiment that have not ended, seed by seed."""
    console = Console(stderr=True)
    for seed in range(seeds):
        for cell in EXPERIMENTS[name].cells:
            laboratory.train(cell, seed, all_tasks(laboratory, cell))
            console.print(f"{name}: {cell.name}, seed {seed}", style="bold", highlight=False)


def all_tasks(laboratory: Laboratory, cell: Cell) -> tuple[str, ...]:
    """Return the tasks of all experiments that have a cell, so that it is trained once."""
    same = [
        experiment.tasks
        for experiment in EXPERIMENTS.values()
        if any(laboratory.same(cell, other) for other in experiment.cells)
    ]
    return tuple(dict.fromkeys(task for tasks in same for task in tasks))


def show(laboratory: Laboratory, names: list[str], seeds: int) -> None:
    """Print the tables and the figures of what has ended, and write the tables as Markdown."""
    console, sections = Console(), []
    figures: dict[str, Any] = {}
    for name in names:
        experiment = EXPERIMENTS[name]
        results: dict[str, list[Results]] = {}
        for cell in experiment.cells:
            found = [laboratory.results(cell, seed, experiment.tasks) for seed in range(seeds)]
            if ended := [result for result in found if result is not None]:
                results[cell.name] = ended
        if not results:
            continue
        rows = table(experiment, results)
        sections.append(markdown(experiment.title, rows))
        shown = Table(*rows[0], title=experiment.title)
        for row in rows[1:]:
            shown.add_row(*row)
        console.print(shown)
        figures[name] = {
            cell: {
                what: {kind: item.numbers() for kind, item in kinds.items()}
                for what, kinds in measurements.items()
            }
            for cell, measurements in estimates(experiment, results).items()
        }
    (laboratory.out / TABLES).write_text("\n".join(sections), encoding="utf-8")
    print(json.dumps({"seeds": seeds, "experiments": figures}, allow_nan=False))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", help="a file or folder of text")
    parser.add_argument("--out", type=Path, required=True, help="folder of stores and results")
    parser.add_argument("--data", type=Path, default=os.environ.get("BERTSMITH_DATA"))
    parser.add_argument("--experiment", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--seeds", type=int, default=0, help="seeds of each cell; 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="a scale at which nothing is learned")
    asked = parser.parse_args()
    asked.seeds = asked.seeds or (1 if asked.quick else 3)
    if asked.data is None:
        parser.error("set BERTSMITH_DATA to the folder of data sets, or give --data")
    return asked


if __name__ == "__main__":
    main()
