r"""Stories with questions in MCTest's format: one story per line, the answers in a second file.

A line of ``mc160.dev.tsv`` has 23 tab-separated cells: id, properties, story (``\newline`` and
``\tab`` for line ends and tabs) and four times a question, which begins with ``one:`` or
``multiple:``, and four options. A line of ``mc160.dev.ans`` has the letters of the four answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.core.printable import counted
from bertsmith.text.bad_rows import Refuse
from bertsmith.text.config import AUTO
from bertsmith.text.opening import COMPRESSED, TextFile, kind_of

_MARKS = ("one:", "multiple:")
_LEADING = 3
_QUESTIONS = 4
_OPTIONS = 4
_CELLS = _LEADING + _QUESTIONS * (1 + _OPTIONS)
_LETTERS = "ABCD"
ANSWERS = ".ans"

Item = tuple[int, dict[str, object], str]


def has_stories(path: Path, encoding: str = AUTO) -> bool:
    """Return whether a TSV has stories with questions: the fourth cell is marked as a question."""
    if kind_of(path) != ".tsv" or not path.is_file():
        return False
    lines = TextFile(path, ExampleError, encoding).lines(escaped=True)
    cells = next((text for _, text in lines if text.strip()), "").split("\t")
    return len(cells) > _LEADING + 2 and cells[_LEADING].strip().startswith(_MARKS)


def answers_of(path: Path) -> Path:
    """Return the path of the answers to a file of stories, with .ans in place of .tsv."""
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return plain.with_suffix(ANSWERS)


def answers_beside(path: Path) -> tuple[Path, ...]:
    """Return the file of answers in the folder of a .tsv that may have stories, if it is there."""
    answers = answers_of(path)
    return (answers,) if kind_of(path) == ".tsv" and answers.is_file() else ()


def story_items(file: TextFile, refuse: Refuse, *, need_label: bool) -> Iterator[Item]:
    """Yield line, parts and text of each question.

    Answers may be missing unless `need_label`. Raises the file's error if the file of answers is
    missing or has another number of lines; other errors go to `refuse`.
    """
    answers: Iterator[tuple[int, str]] | None = None
    answer_file = TextFile(answers_of(file.path), ExampleError)
    if answer_file.path.is_file():
        answers = _filled(answer_file)
    elif need_label:
        problem = f"its answers are missing: no file {answer_file.path.name} in its folder"
        raise file.fault(problem, remedy="put it there, with a line of letters for each story")
    stories = 0
    last = 0
    for line, text in _filled(file):
        stories += 1
        if answers is None:
            letters: tuple[int, str] | None = None
        else:
            letters = next(answers, None)
            if letters is None:
                before = f"{counted(stories - 1, 'line')}"
                problem = f"ends after {before}, but {file.path.name} has more stories"
                raise answer_file.fault(problem, last + 1, "give a line of letters for each story")
            last = letters[0]
        try:
            yield from _questions(file, line, text, answer_file, letters)
        except UserError as error:
            refuse(error, text)
    if answers is not None and (more := next(answers, None)):
        problem = f"has more lines than {file.path.name} has stories, {stories}"
        raise answer_file.fault(problem, more[0], "give a line of letters for each story")


def _filled(file: TextFile) -> Iterator[tuple[int, str]]:
    return ((line, text) for line, text in file.lines(escaped=True) if text.strip())


def _questions(
    file: TextFile, line: int, text: str, answer_file: TextFile, answers: tuple[int, str] | None
) -> list[Item]:
    if error := file.undecodable(text, line):
        raise error
    cells = text.split("\t")
    if len(cells) != _CELLS:
        problem = f"{len(cells)} columns where a story with {_QUESTIONS} questions has {_CELLS}"
        remedy = f"id, properties, story, then {_QUESTIONS} times a question and its options A to D"
        raise file.fault(problem, line, remedy)
    letters = [None] * _QUESTIONS if answers is None else _letters(answer_file, *answers)
    name, _, story = cells[:_LEADING]
    story = story.replace("\\newline", "\n").replace("\\tab", " ")
    items: list[Item] = []
    for number, letter in enumerate(letters):
        cell, *options = cells[_LEADING + number * (1 + _OPTIONS) :][: 1 + _OPTIONS]
        mark, colon, question = cell.strip().partition(":")
        if mark + colon not in _MARKS:
            problem = f"question {number + 1} begins with neither 'one:' nor 'multiple:'"
            raise file.fault(f"{problem}: {cell[:40]!r}", line, "see the layout of MCTest")
        parts: dict[str, object] = {
            "id": f"{name.strip()}.{number}",
            "context": story,
            "question": question,
            "options": options,
            "label": letter,
        }
        items.append((line, parts, text))
    return items


def _letters(answer_file: TextFile, line: int, text: str) -> list[str | None]:
    letters = text.strip().split("\t")
    wrong = next((letter for letter in letters if letter.strip() not in tuple(_LETTERS)), None)
    if wrong is not None:
        problem = f"the answer {wrong[:40]!r} is not A, B, C or D"
        raise answer_file.fault(problem, line, "give a letter for each question, separated by tabs")
    if len(letters) != _QUESTIONS:
        problem = f"{len(letters)} answers for {_QUESTIONS} questions"
        raise answer_file.fault(problem, line, "give a letter for each question, separated by tabs")
    return [letter.strip() for letter in letters]
