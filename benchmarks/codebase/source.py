"""Counts taken from the syntax trees of a package: sizes, parameters, importers, docstrings.

An import edge leads from the importing module to the module named: `from package import name` leads
to `package.name` where that is a module, and to `package` where it is not. Imports inside functions
count as any other; those below ``if TYPE_CHECKING`` are kept apart.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

QUESTION_WORDS = frozenset(("What", "Whether", "How", "Who", "Where", "Which", "That"))
"""First words of docstrings that are neither an imperative nor a noun phrase."""
MAX_PARAMETERS = 8

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module: its dotted name, its file, its text and its syntax tree."""

    name: str
    file: Path
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether the file is the ``__init__.py`` of a folder."""
        return self.file.name == "__init__.py"

    @property
    def lines(self) -> int:
        """Physical lines, blank ones and comments included."""
        return self.text.count("\n")

    @property
    def folder(self) -> str:
        """Dotted name of the folder in which the module lies."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def read_package(folder: Path) -> dict[str, Module]:
    """Return the modules of the package in `folder` by their dotted names."""
    modules = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        text = file.read_text(encoding="utf-8")
        modules[name] = Module(name=name, file=file, text=text, tree=ast.parse(text))
    return modules


def count(folder: Path) -> dict[str, Any]:
    """Return the figures of the package in `folder`, counts and the names behind them."""
    modules = read_package(folder)
    lengths = {name: module.lines for name, module in modules.items()}
    longest = max(lengths, key=lambda name: lengths[name])
    importers = find_importers(modules)
    single = single_importers(modules, importers)
    same = {name: by for name, by in single.items() if modules[by].folder == modules[name].folder}
    functions = [function for module in modules.values() for function in functions_of(module)]
    sizes = sorted(function.lines for function in functions)
    wide = sorted(function.place for function in functions if function.parameters > MAX_PARAMETERS)
    entries = entries_per_folder(folder)
    docstrings = [text for module in modules.values() for text in docstrings_of(module.tree)]
    questions = [text for text in docstrings if text.split(maxsplit=1)[0] in QUESTION_WORDS]
    typing_only = find_importers(modules, for_typing=True)
    return {
        "modules": len(modules),
        "lines": sum(lengths.values()),
        "median module, lines": median(lengths.values()),
        "longest module, lines": lengths[longest],
        "functions": len(sizes),
        "function p50, lines": percentile(sizes, 0.5),
        "function p95, lines": percentile(sizes, 0.95),
        "longest function, lines": sizes[-1],
        f"functions over {MAX_PARAMETERS} parameters": len(wide),
        "modules with one importer": len(single),
        "modules with one importer, in the same folder": len(same),
        "imports for type checkers alone": sum(map(len, typing_only.values())),
        "docstrings": len(docstrings),
        "docstrings that begin as a question": len(questions),
        "entries of the largest folder": max(entries.values()),
        "names": {
            "longest module": longest,
            "functions over the limit of parameters": wide,
            "one importer, in the same folder": dict(sorted(same.items())),
            "entries per folder": dict(entries.most_common(8)),
        },
    }


def percentile(ordered: list[int], share: float) -> int:
    """Return the nearest-rank percentile of values in ascending order."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# functions and their parameters


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method: where it stands, its lines, and its parameters without self or cls."""

    place: str
    lines: int
    parameters: int


def functions_of(module: Module) -> Iterator[Function]:
    """Yield every function of a module, nested ones and methods too.

    The constructor that a dataclass is given is not written out and so not among them.
    """
    methods = {
        id(item)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if not _is_static(item)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, _FUNCTION):
            given = node.args
            several = [given.vararg, given.kwarg]
            number = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
            number += sum(item is not None for item in several) - (id(node) in methods)
            assert node.end_lineno is not None
            yield Function(
                place=f"{module.name}.{node.name}",
                lines=node.end_lineno - node.lineno + 1,
                parameters=number,
            )


def _is_static(node: ast.stmt) -> bool:
    names = [ast.unparse(item) for item in getattr(node, "decorator_list", [])]
    return not isinstance(node, _FUNCTION) or "staticmethod" in names


# who imports whom


def find_importers(
    modules: Mapping[str, Module], *, for_typing: bool = False
) -> dict[str, set[str]]:
    """Return by module the modules that import it: at run time, or `for_typing` alone."""
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        guarded = _below_type_checking(module.tree)
        for node in ast.walk(module.tree):
            if (id(node) in guarded) == for_typing:
                for imported in _imported(node, module, modules):
                    importers[imported].add(name)
    for name, by in importers.items():
        by.discard(name)
    return importers


def single_importers(
    modules: Mapping[str, Module], importers: Mapping[str, set[str]]
) -> dict[str, str]:
    """Return the modules with exactly one importer, with it; packages left out."""
    return {
        name: next(iter(by))
        for name, by in importers.items()
        if len(by) == 1 and not modules[name].is_package
    }


def _imported(node: ast.AST, module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    """Yield the modules of the package that one statement imports."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names if name.name in modules)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.folder.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
        for name in node.names:
            inner = f"{base}.{name.name}"
            if inner in modules:
                yield inner
            elif base in modules:
                yield base


def _below_type_checking(tree: ast.Module) -> set[int]:
    """Return the ids of all nodes below an ``if TYPE_CHECKING``."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }


# documents and folders


def docstrings_of(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions, and those below attributes."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED):
            continue
        for before, statement in zip([None, *node.body], node.body, strict=False):
            documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            if not documents or not isinstance(statement, ast.Expr):
                continue
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                text = value.value.strip()
                if text:
                    yield text


def entries_per_folder(folder: Path) -> Counter[str]:
    """Return the number of modules and folders of code in each folder, ``__init__`` left out."""
    entries: dict[str, set[str]] = defaultdict(set)
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder.parent).parts
        for depth in range(1, len(parts)):
            entries["/".join(parts[:depth])].add(parts[depth])
    return Counter({name: len(inside - {"__init__.py"}) for name, inside in entries.items()})
