"""A question with options, made of the parts that the files give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertsmith.errors import UserError
from bertsmith.text.example import text_of
from bertsmith.text.labels import BadLabel, class_of
from bertsmith.text.literals import literal
from bertsmith.text.opening import TextFile

_ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_UNKNOWN = (None, "-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A text and two options or more, of which one is right where that is known.

    Option i is the pair (`text`, `choices[i]`); `label` counts from 0.
    """

    text: str
    choices: tuple[str, ...]
    label: int | None
    id: str | None
    source: str
    line: int
    context: str | None = None
    """What other questions may be about too, where there is a question besides."""


def made_choice(
    file: TextFile, line: int, parts: Mapping[str, object], *, need_label: bool, start: int = 0
) -> Choice:
    """The question of `context`, `question`, `options` and `label`; the file's error if it is none.

    `begins` is a text that all options go on from; numeric labels count from `start`.
    """
    asked, texts, names = _asked(file, line, parts)
    if parts.get("begins"):
        begins = text_of(file, line, "second sentence", parts["begins"])
        texts = [f"{begins} {text}" for text in texts]
    context = parts.get("context")
    try:
        name = class_of(parts.get("id"))
        label = _label(class_of(parts.get("label")), texts, names, start)
    except BadLabel as error:
        raise file.fault(error.what, line, error.remedy) from error
    if label is None and need_label:
        raise file.fault("no label", line, "give every row a label")
    return Choice(
        text=_text(file, line, context, asked),
        choices=tuple(texts),
        label=label,
        id=name,
        source=str(file.path),
        line=line,
        context=text_of(file, line, "text", context) if context and asked else None,
    )


def numeric_label(file: TextFile, line: int, parts: Mapping[str, object]) -> tuple[int, int] | None:
    """Return a label that is a number, and the number of options; None of others.

    A label that is the name or the text of an option is none: it says nothing of how others count.
    """
    try:
        _, texts, names = _asked(file, line, parts)
        written = class_of(parts.get("label"))
    except (UserError, BadLabel):
        return None
    if written is None or not _is_number(written) or written in names:
        return None
    return None if texts.count(written) == 1 else (int(written), len(texts))


def _asked(
    file: TextFile, line: int, parts: Mapping[str, object]
) -> tuple[object, list[str], list[str | None]]:
    """Return the question, and the texts and names of the options."""
    asked, options = parts.get("question"), parts.get("options")
    if isinstance(asked, dict):  # as in CommonsenseQA and ARC: {"stem": ..., "choices": [...]}
        options = asked.get("choices", options)
        asked = asked.get("stem")
    return asked, *_options(file, line, options)


def _text(file: TextFile, line: int, context: object, asked: object) -> str:
    if context is None:
        return text_of(file, line, "question", asked)
    text = text_of(file, line, "text", context)
    if asked is None or asked == "":
        return text
    question = text_of(file, line, "question", asked)
    return f"{text} {_ASKED.get(question, question)}"


def _options(file: TextFile, line: int, options: object) -> tuple[list[str], list[str | None]]:
    """Texts and, where they have any, names of the options."""
    remedy = 'write "choices": ["...", "..."], two or more'
    if isinstance(options, str):
        try:
            options = literal(options)
        except ValueError as error:
            raise file.fault("the options are no list", line, remedy) from error
    if isinstance(options, dict):  # columns of texts and names
        texts, names = options.get("text"), options.get("label")
        if not isinstance(texts, list) or not isinstance(names, list) or len(texts) != len(names):
            raise file.fault("the options are no list", line, remedy)
        options = [{"text": text, "label": name} for text, name in zip(texts, names, strict=True)]
    if not isinstance(options, list) or len(options) < 2:
        raise file.fault("fewer than two options, or no list of them", line, remedy)
    found: list[dict[str, object]] = [
        each if isinstance(each, dict) else {"text": each} for each in options
    ]
    texts = [
        text_of(file, line, f"option {index}", each.get("text")) for index, each in enumerate(found)
    ]
    named = [each.get("label") for each in found]
    return texts, [name if isinstance(name, str) else None for name in named]


def _is_number(written: str) -> bool:
    return written.isascii() and written.isdecimal() and len(written) < 5


def _label(
    written: str | None, texts: Sequence[str], names: Sequence[str | None], start: int
) -> int | None:
    if written in _UNKNOWN:
        return None
    if written in names:
        return names.index(written)
    if _is_number(written) and 0 <= int(written) - start < len(texts):
        return int(written) - start
    letter = ord(written.upper()) - ord("A") if len(written) == 1 else -1
    if 0 <= letter < len(texts):
        return letter
    if texts.count(written) == 1:
        return texts.index(written)
    remedy = (
        f"numbers are {start} to {len(texts) - 1 + start} (--columns.label_start states where they "
        "begin); or give a letter, or the option's text"
    )
    raise BadLabel(f"the label is {written[:40]!r}, and there are {len(texts)} options", remedy)
