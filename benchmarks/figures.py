"""Figures of the source: how long its modules are, who imports whom, what a verb passes through.

    python benchmarks/figures.py [--source FOLDER] [--compare OLD.json] [--names]

prints a table and one JSON object. `--source` names the `src` folder of another checkout,
`--compare` a file whose last line is the JSON of an earlier run, whose figures stand beside those
of now; `--names` also lists the modules and functions behind the counts. About half a minute.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from codebase.running import measure
from codebase.source import count

ROOT = Path(__file__).parents[1]
PACKAGE = "bertsmith"


def main() -> None:
    """Count, measure, print the table, then the figures as one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="folder of the package")
    parser.add_argument("--compare", type=Path, help="file that ends with the JSON of another run")
    parser.add_argument("--names", action="store_true", help="list what is behind the counts")
    parser.add_argument("--still", action="store_true", help="run nothing: the source's counts")
    options = parser.parse_args()
    folder = options.source.resolve() / PACKAGE
    figures = count(folder)
    names = figures.pop("names")
    if not options.still:
        measured = measure(folder)
        names |= measured.pop("names")
        figures |= measured
    before = None if options.compare is None else read_figures(options.compare)
    console = Console(width=100, highlight=False)
    if options.names:
        for name, behind in names.items():
            console.print(name, json.dumps(behind, indent=1), markup=False)
    console.print(table(figures, before))
    print(json.dumps(figures))


def read_figures(file: Path) -> dict[str, Any]:
    """Return the figures in the last line of a file."""
    lines = file.read_text(encoding="utf-8").strip().splitlines()
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def table(figures: dict[str, Any], before: dict[str, Any] | None) -> Table:
    """Return the figures as a table: those `before`, if any, those of now, and their ratio."""
    shown = Table("figure", title=f"src/{PACKAGE}")
    for column in ["now"] if before is None else ["before", "after", "ratio"]:
        shown.add_column(column, justify="right")
    for name in dict.fromkeys([*(before or {}), *figures]):
        now = figures.get(name)
        if before is None:
            shown.add_row(name, _number(now))
        else:
            old = before.get(name)
            ratio = f"{now / old:.2f}" if old and now is not None else "-"
            shown.add_row(name, _number(old), _number(now), ratio)
    return shown


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,g}" if value < 1e5 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
