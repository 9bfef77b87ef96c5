from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from bertsmith.text import documentation
from bertsmith.text.documentation import ModuleFile, documentation_files, module_texts
from bertsmith.text.prose import prose

NUMPY = """Return the mean of an array.

Compute the :func:`~numpy.mean` along ``axis``, as the
*arithmetic* mean [1]_ of `its values <https://example.com>`_.

.. versionadded:: 1.7

   Not for the faint of heart.

.. note:: This is kept
   in one piece.

Parameters
----------
a : array_like, optional
    The array to average. It is left
    as it was.
axis, out : int
    The axis of the mean::

        mean(a, axis=1) if a is the array

Returns
-------
m : ndarray
    The mean of the values.

See Also
--------
median : The middle of the values.

Examples
--------
The mean of a list is a number:

>>> mean([1, 2])
1.5 is the mean of it

========  =================
name      what it is for
========  =================
"""

GOOGLE = """Read the file to its end.

Args:
    path (str): The name of the file that
        is to be read.
    size: How many bytes to
        read at once.
    flag (`bool`, *optional*, defaults to `False`):
        Whether to be quick about it.

Returns:
    dict[str, int]: True if it is all there.

- First of the points,
  on two lines.
- Second of the points.

```python
for the in a: of(to)
```
> [!TIP]
> A tip for the reader.

See [the guide](https://example.com) for [`Reader`] and the rest.
"""

SPHINX = """
:param name: The name of the thing,
    as it is known.
:type name: the type of it
:returns: All that is left.
:rtype: the list
"""


def test_numpy_style() -> None:
    assert list(prose(NUMPY)) == [
        "Return the mean of an array.",
        "Compute the mean along axis, as the arithmetic mean of its values.",
        "This is kept in one piece.",
        "The array to average. It is left as it was.",
        "The axis of the mean:",
        "The mean of the values.",
        "The mean of a list is a number:",
    ]


def test_google_style() -> None:
    assert list(prose(GOOGLE)) == [
        "Read the file to its end.",
        "The name of the file that is to be read.",
        "How many bytes to read at once.",
        "Whether to be quick about it.",
        "True if it is all there.",
        "First of the points, on two lines.",
        "Second of the points.",
        "A tip for the reader.",
        "See the guide for Reader and the rest.",
    ]


def test_sphinx_style() -> None:
    assert list(prose(SPHINX)) == ["The name of the thing, as it is known.", "All that is left."]


@pytest.mark.parametrize(
    "noise",
    [
        "x = the(of, in)",
        "mean(a, axis) -> the mean of a",
        "Die Zahl der Elemente",
        "ааа the ббб of the ввв",
        "| the | of | in |",
        "def the(of): in a",
        "LICENSE",
        "",
    ],
)
def test_what_is_no_english_is_left_out(noise: str) -> None:
    assert list(prose(noise)) == []


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
        for text in documentation.python_documentation()
    }
    assert list(found) == ["pydoc_data.topics.if", "json", "json.tool", "alone", "zoo"]
    assert found["pydoc_data.topics.if"] == ("python", ("The if of the language.", "It is old."))
    assert found["zoo"] == (
        "zoo",
        (
            "The package of the animals.",
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
    assert not any(">>>" in text for topic in topics for text in topic.paragraphs)
    assert not list(module_texts(ModuleFile(path=Path("missing.py"), module="missing")))
