"""The package as a whole: its version, its marks, its imports and its sizes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation

import bertsmith
import checked
from bertsmith.core.log import short_number
from bertsmith.network.batch import Batch

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bertsmith"
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [
    ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for file in FILES
]
WITHOUT_TORCH = (
    "text", "tokens", "cli", "command", "config", "data_verbs", "errors", "hub_verbs", "log",
    "model_verbs", "verbs",
)  # fmt: skip

# Each line of standard input is imported; told is what the imports changed besides sys.modules.
IMPORT_ALL = """
import importlib, json, logging, os, sys, threading
before = dict(os.environ), sorted(os.listdir()), sys.excepthook
for name in sys.stdin.read().split():
    importlib.import_module(name)
assert before == (dict(os.environ), sorted(os.listdir()), sys.excepthook)
assert not logging.getLogger("bertsmith").handlers
assert threading.active_count() == 1, threading.enumerate()
print(json.dumps(sorted(sys.modules)))
"""


def _import_in_new_process(modules: list[str], folder: Path) -> set[str]:
    """Every module loaded after these; fails on warnings and on anything printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL],
        input="\n".join(modules),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.stderr == ""
    loaded: set[str] = set(ast.literal_eval(done.stdout))
    return loaded


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@pytest.fixture(scope="module")
def definitions() -> list[tuple[Path, Definition]]:
    """Every function and class of the package with its file."""
    return [
        (file, node)
        for file in FILES
        for node in _defined_in(ast.parse(file.read_text(encoding="utf-8")))
    ]


def _defined_in(node: ast.AST) -> Iterator[Definition]:
    """Every function and class below a statement; expressions, most of a tree, hold none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, []):
            if isinstance(child, Definition):
                yield child
            yield from _defined_in(child)


def test_version_is_said_alike_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert bertsmith.__version__ == project["version"] == metadata.version("bertsmith")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {bertsmith.__version__}" in changes


def test_type_checkers_are_told_that_it_is_typed() -> None:
    assert resources.files("bertsmith").joinpath("py.typed").is_file()


def test_all_modules_import_without_doing_anything(tmp_path: Path) -> None:
    # Triton comes with torch's builds for CUDA only
    has_triton = importlib.util.find_spec("triton") is not None
    modules = [
        name
        for name, file in zip(MODULES, FILES, strict=True)
        if has_triton or "import triton" not in file.read_text(encoding="utf-8")
    ]
    loaded = _import_in_new_process(modules, tmp_path)
    assert set(modules) <= loaded
    # rivals, referees and optional packages
    assert not loaded & {
        "transformers",
        "matplotlib",
        "yaml",
        "beartype",
        "tensorboard",
        "huggingface_hub",
    }


def test_text_and_help_do_without_torch(tmp_path: Path) -> None:
    light = [
        name
        for name in MODULES
        if name.split(".")[1:2]
        and (name.split(".")[1] in WITHOUT_TORCH or name.endswith(".config"))
    ]
    assert len(light) > len(WITHOUT_TORCH) - 1
    assert "torch" not in _import_in_new_process(light, tmp_path)


def test_public_names_exist() -> None:
    listing = [
        name
        for name, file in zip(MODULES, FILES, strict=True)
        if "__all__" in file.read_text(encoding="utf-8")
    ]
    assert listing
    for name in listing:
        module = importlib.import_module(name)
        assert len(module.__all__) == len(set(module.__all__)), name
        assert [item for item in module.__all__ if not hasattr(module, item)] == [], name


def test_functions_can_be_read_at_a_glance(definitions: list[tuple[Path, Definition]]) -> None:
    sizes = {}
    for file, node in definitions:
        if not isinstance(node, ast.ClassDef):
            assert node.end_lineno is not None
            place = f"{file.relative_to(SOURCE)}:{node.lineno} {node.name}"
            sizes[place] = node.end_lineno - node.lineno + 1
    assert {place: size for place, size in sizes.items() if size > 60} == {}
    assert sorted(sizes.values())[int(0.95 * len(sizes))] <= 40


def test_what_is_raised_ends_a_docstring(definitions: list[tuple[Path, Definition]]) -> None:
    wrong = {}
    for file, node in definitions:
        doc = " ".join((ast.get_docstring(node) or "").split())
        _, raises, after = doc.rpartition(". Raises ")
        if raises and ". " in after:
            wrong[f"{file.name}: {node.name}"] = after
    assert not wrong


def test_pins_fit_the_ranges_of_the_project() -> None:
    pins = [
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    # no local build, no address: the file has to hold for whoever installs
    assert [pin for pin in pins if pin.count("==") != 1 or set(pin) & set("+/@ ")] == []
    assert len({pin.partition("==")[0].lower() for pin in pins}) == len(pins)


def test_what_every_installation_brings_is_imported() -> None:
    """A package that only tests need may have no build for a user's Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.compile(r"^ *(?:import|from) (\w+)", re.MULTILINE)
    imported = {name for file in FILES for name in named.findall(file.read_text(encoding="utf-8"))}
    distributions = metadata.packages_distributions()
    brought = {_normal(each) for name in imported for each in distributions.get(name, ())}
    required = {_normal(re.split(r"[<>=!~;\[ ]", each)[0]) for each in project["dependencies"]}
    assert required - brought == set()


def _normal(name: str) -> str:
    return name.replace("-", "_").lower()


def test_shapes_are_checked_in_tests() -> None:
    with pytest.raises(BeartypeCallHintParamViolation):
        Batch(
            ids=torch.zeros(3, dtype=torch.long),
            segments=torch.zeros(4, dtype=torch.long),
            positions=torch.zeros(3, dtype=torch.long),
            offsets=torch.tensor([0, 3]),
            lengths=(3,),
        )


def test_types_are_checked_in_tests() -> None:
    """In signatures without a shape, too, which jaxtyping leaves to beartype."""
    wrong: Any = "12"
    with pytest.raises(BeartypeCallHintParamViolation):
        short_number(wrong)


def test_types_are_checked_in_functions_within_others() -> None:
    """Which are defined anew in every call: their checks are made once."""

    def outer(first: int) -> Any:  # noqa: ANN401
        def inner(second: int, third: str) -> str:
            return third * (first + second) if first else second  # type: ignore[return-value]

        return checked._decorated(inner, typechecker=checked.checked)

    wrong: Any = "12"
    for first in (1, 2):
        assert outer(first)(1, third="a") == "a" * (first + 1)
        with pytest.raises(BeartypeCallHintParamViolation):
            outer(first)(wrong, "a")
    with pytest.raises(BeartypeCallHintReturnViolation):
        outer(0)(1, "a")
