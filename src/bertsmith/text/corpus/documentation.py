"""The English documentation of the installed Python, one text per module.

Sources are the help topics of `pydoc_data` and the docstrings of the standard library and of
installed packages, parsed with `ast`: nothing is imported or executed.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bertsmith.text.corpus.sentences import words

MAX_FILE_BYTES = 2_000_000
TOPICS = "pydoc_data.topics"
_SKIPPED_FOLDERS = words("""
    test tests idle_test lib2to3 __pycache__ _vendor vendor vendored _vendored externals extern
    third_party thirdparty _bundled bundled
""")
_BLANK_LINES = re.compile(r"\n\s*\n")
_TEST_FILE = re.compile(r"(test_.*|.*_tests?|conftest)\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleText:
    """The documentation of one module: its docstrings in source order, each split into paragraphs.

    `package` is the module's top-level name.
    """

    package: str
    module: str
    docstrings: tuple[tuple[str, ...], ...]

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of all docstrings."""
        return tuple(chain.from_iterable(self.docstrings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFile:
    """The source file of a module, with its dotted name."""

    path: Path
    module: str


def documentation_files() -> list[ModuleFile]:
    """Return the source files whose documentation is read, in order.

    The help topics, the standard library, then the packages, each sorted by name; tests, vendored
    packages and files of over 2 MB are left out.
    """
    roots = dict.fromkeys(
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")
    )
    files = (file for root in roots for file in _sources(root, skip=frozenset(roots) - {root}))
    return sorted(files, key=lambda file: file.module != TOPICS)


def module_texts(file: ModuleFile) -> Iterator[ModuleText]:
    """Yield the documentation of one module, if any; of `pydoc_data.topics`, one text per topic."""
    tree = _parsed(file.path)
    if tree is None:
        return
    if file.module == TOPICS:
        package = "python"
        named = {f"{file.module}.{name}": [text] for name, text in _topics(tree)}
    else:
        package = file.module.split(".", 1)[0]
        named = {file.module: list(_docstrings(tree))}
    for module, texts in named.items():
        docstrings = tuple(filter(None, (tuple(docstring_paragraphs(text)) for text in texts)))
        if docstrings:
            yield ModuleText(package=package, module=module, docstrings=docstrings)


def docstring_paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring, one line each; code and tables are not removed."""
    for block in _BLANK_LINES.split(inspect.cleandoc(docstring)):
        paragraph = " ".join(block.split())
        if paragraph:
            yield paragraph


def _sources(root: Path, skip: frozenset[Path]) -> Iterator[ModuleFile]:
    for parent, folders, files in os.walk(root):
        kept = (name for name in folders if name.isidentifier() and name not in _SKIPPED_FOLDERS)
        folders[:] = sorted(name for name in kept if Path(parent, name) not in skip)
        for name in sorted(files):
            path = Path(parent, name)
            if not name.endswith(".py") or _TEST_FILE.fullmatch(name):
                continue
            parts = path.relative_to(root).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            if parts and path.stat().st_size <= MAX_FILE_BYTES:
                yield ModuleFile(path=path, module=".".join(parts))


def _parsed(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of the module, its classes and functions, in source order."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield docstring
        nodes.extend(reversed(node.body))


def _topics(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from ast.literal_eval(node.value).items()
