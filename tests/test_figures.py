"""The figures of `make figures`, counted by hand on a made-up package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebase.running import modules_loaded, modules_passed
from codebase.source import (
    count,
    docstrings_of,
    find_importers,
    functions_of,
    percentile,
    read_package,
    single_importers,
)
from figures import read_figures, table

PACKAGE = {
    "__init__.py": '"""A made-up package."""\n',
    "cli.py": '''"""Where it begins."""

from made.low import steps
from made.low.steps import walk

CONSTANT = 3
"""What this is."""
"""Nothing that documents."""


def main(arguments: list[str]) -> int:
    """Take a walk."""
    print(*[step for step in walk(len(arguments))])
    return 0


def unused() -> None:
    """Who never is called."""
    from made import late
''',
    "late.py": "import made.low.inner\n",
    "typed.py": "",
    "low/__init__.py": "",
    "low/inner.py": "NAME = 1\n",
    "low/steps.py": '''from __future__ import annotations
from typing import TYPE_CHECKING
from .inner import NAME
import json
if TYPE_CHECKING:
    from made.typed import Anything


class Walker:
    """Whoever walks."""

    def __init__(self, a, b, c, d, e, f, g, h) -> None: ...

    def wide(self, a, b, c, d, /, e, f, *g, h, i) -> None: ...

    @staticmethod
    def also_wide(a, b, c, d, e, f, g, h, **i) -> None: ...


def walk(far):
    """How far one walks."""
    def step(number):
        return number
    return [step(number) for number in range(far)]
''',
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "made"
    for name, text in PACKAGE.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def test_importers_are_found_whatever_the_form_of_the_import(package: Path) -> None:
    modules = read_package(package)
    importers = find_importers(modules)
    assert importers == {
        "made": set(),
        "made.cli": set(),
        "made.late": {"made.cli"},
        "made.typed": set(),
        "made.low": set(),
        "made.low.inner": {"made.late", "made.low.steps"},
        "made.low.steps": {"made.cli"},
    }
    assert single_importers(modules, importers) == {
        "made.late": "made.cli",
        "made.low.steps": "made.cli",
    }
    assert find_importers(modules, for_typing=True)["made.typed"] == {"made.low.steps"}


def test_functions_are_counted_without_self(package: Path) -> None:
    functions = {
        item.place.removeprefix("made."): (item.lines, item.parameters)
        for module in read_package(package).values()
        for item in functions_of(module)
    }
    assert functions == {
        "cli.main": (4, 1),
        "cli.unused": (3, 0),
        "low.steps.__init__": (1, 8),
        "low.steps.wide": (1, 9),
        "low.steps.also_wide": (1, 9),
        "low.steps.walk": (5, 1),
        "low.steps.step": (2, 1),
    }


def test_docstrings_are_found_below_attributes_too(package: Path) -> None:
    module = read_package(package)["made.cli"]
    assert set(docstrings_of(module.tree)) == {
        "Where it begins.",
        "What this is.",
        "Take a walk.",
        "Who never is called.",
    }


def test_the_whole_count(package: Path) -> None:
    figures = count(package)
    assert figures["modules"] == len(PACKAGE)
    assert figures["lines"] == sum(text.count("\n") for text in PACKAGE.values())
    assert figures["functions over 8 parameters"] == 2
    assert figures["modules with one importer"] == 2
    # late lies beside cli, steps in a folder below
    assert figures["names"]["one importer, in the same folder"] == {"made.late": "made.cli"}
    assert figures["docstrings that begin as a question"] == 4
    assert figures["entries of the largest folder"] == 4
    assert figures["imports for type checkers alone"] == 1
    assert figures["longest function, lines"] == 5


def test_percentiles() -> None:
    assert [percentile(list(range(1, 21)), share) for share in (0.5, 0.95, 1.0)] == [11, 20, 20]


def test_modules_loaded_and_passed(package: Path, tmp_path: Path) -> None:
    loaded = ["made", "made.cli", "made.low", "made.low.inner", "made.low.steps"]
    assert modules_loaded(package, "made.cli") == loaded
    found = modules_passed(package, tmp_path, ["two", "words"])
    # main, walk and step; the comprehension and the bodies of modules and classes are no functions
    assert found["functions"] == 3
    assert found["modules"] == [str(package / "cli.py"), str(package / "low" / "steps.py")]
    assert found["loaded"] == loaded


def test_before_and_after_stand_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "before.txt"
    file.write_text("a table\n" + json.dumps({"modules": 4, "gone": 7}) + "\n", encoding="utf-8")
    shown = table({"modules": 3, "new": 5}, read_figures(file))
    cells = list(zip(*(column.cells for column in shown.columns), strict=True))
    assert cells == [
        ("modules", "4", "3", "0.75"),
        ("gone", "7", "-", "-"),
        ("new", "-", "5", "-"),
    ]
