from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from bertsmith.text.corpus import documentation
from bertsmith.text.corpus.documentation import (
    ModuleFile,
    docstring_paragraphs,
    documentation_files,
    module_texts,
)

NUMPY = """Return the mean of an array.

Compute the mean along ``axis``, as
the *arithmetic* mean.

    Parameters
    ----------
    a : array_like

>>> mean([1, 2])
1.5
"""


def test_the_lines_of_a_paragraph_are_joined() -> None:
    assert list(docstring_paragraphs(NUMPY)) == [
        "Return the mean of an array.",
        "Compute the mean along ``axis``, as the *arithmetic* mean.",
        "Parameters ---------- a : array_like",
        ">>> mean([1, 2]) 1.5",
    ]
    assert list(docstring_paragraphs("")) == []


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library and a folder of packages, in place of the real ones."""
    files = {
        "lib/json/__init__.py": '"""Read the notation of objects."""',
        "lib/json/tool.py": '"""A tool for the shell."""\nraise SystemExit("executed")',
        "lib/abc.py": "x = 1",
        "lib/pydoc_data/topics.py": "topics = {'if': 'The if of the language.\\n\\nIt is old.'}",
        "lib/test/test_all.py": '"""A test of it all."""',
        "lib/site-packages/zoo/__init__.py": (
            '"""The package of the animals."""\n'
            "class Cat:\n"
            '    r"""A cat with a \\d."""\n'
            "    async def purr(self):\n"
            '        """The cat is in a good mood."""\n'
            "def dog():\n"
            '    """The dog is not."""\n'
        ),
        "lib/site-packages/zoo/_vendor/six.py": '"""A copy of the other package."""',
        "lib/site-packages/zoo/tests/cases.py": '"""A case for the test."""',
        "lib/site-packages/zoo/test_zoo.py": '"""A test for the zoo."""',
        "lib/site-packages/zoo/broken.py": '"""A file that is broken."""\ndef (',
        "lib/site-packages/zoo/odd-name/x.py": '"""A file that is not a module."""',
        "lib/site-packages/zoo/big.py": '"""A file that is too big."""' + " " * 2_000_000,
        "lib/site-packages/alone.py": '"""A module of its own."""',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "lib/site-packages/zoo/latin.py").write_bytes(b'"""A caf\xe9 in the zoo."""')
    (tmp_path / "lib/site-packages/zoo/zero.py").write_bytes(b'"""The zero is\0 in it."""')
    places = {"stdlib": "lib", "purelib": "lib/site-packages", "platlib": "lib/site-packages"}
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name: str(tmp_path / places[name]), raising=True
    )
    return tmp_path


def test_what_is_read_and_in_which_order(installed: Path) -> None:
    found = {
        text.module: (text.package, text.paragraphs)
        for file in documentation_files()
        for text in documentation.module_texts(file)
    }
    assert list(found) == ["pydoc_data.topics.if", "json", "json.tool", "alone", "zoo"]
    assert found["pydoc_data.topics.if"] == ("python", ("The if of the language.", "It is old."))
    assert found["zoo"] == (
        "zoo",
        (
            "The package of the animals.",
            "A cat with a \\d.",
            "The cat is in a good mood.",
            "The dog is not.",
        ),
    )
    assert all(file.path.is_relative_to(installed) for file in documentation_files())


def test_this_machine_has_documentation() -> None:
    files = documentation_files()
    assert len(files) > 1000
    assert len({file.path for file in files}) == len(files)
    places = {file.module: file for file in files}
    topics = list(module_texts(places["pydoc_data.topics"]))
    assert len(topics) > 50
    [calendar] = module_texts(places["calendar"])
    assert "Return number of leap years in range [y1, y2). Assume y1 <= y2." in calendar.paragraphs
    assert not list(module_texts(ModuleFile(path=Path("missing.py"), module="missing")))
