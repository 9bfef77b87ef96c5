"""A question with options, made of the parts that the files give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def made_choice(
    file: TextFile, line: int, parts: Mapping[str, object], *, need_label: bool
) -> Choice:
    """The question of `context`, `question`, `options` and `label`; the file's error if it is none.

    `begins` is a text that all options go on from.
    """
    asked, options = parts.get("question"), parts.get("options")
    if isinstance(asked, dict):  # as in CommonsenseQA and ARC: {"stem": ..., "choices": [...]}
        options = asked.get("choices", options)
        asked = asked.get("stem")
    texts, names = _options(file, line, options)
    if parts.get("begins"):
        begins = text_of(file, line, "second sentence", parts["begins"])
        texts = [f"{begins} {text}" for text in texts]
    try:
        name = class_of(parts.get("id"))
        label = _label(class_of(parts.get("label")), texts, names)
    except BadLabel as error:
        raise file.fault(error.what, line, error.remedy) from error
    if label is None and need_label:
        raise file.fault("no label", line, "give every row a label")
    return Choice(
        text=_text(file, line, parts.get("context"), asked),
        choices=tuple(texts),
        label=label,
        id=name,
        source=str(file.path),
        line=line,
    )


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


def _label(written: str | None, texts: Sequence[str], names: Sequence[str | None]) -> int | None:
    if written in _UNKNOWN:
        return None
    if written in names:
        return names.index(written)
    if written.isdecimal() and len(written) < 5 and int(written) < len(texts):
        return int(written)
    letter = ord(written.upper()) - ord("A") if len(written) == 1 else -1
    if 0 <= letter < len(texts):
        return letter
    if texts.count(written) == 1:
        return texts.index(written)
    remedy = f"labels count from 0: 0 to {len(texts) - 1}; or give a letter, or the option's text"
    raise BadLabel(f"the label is {written[:40]!r}, and there are {len(texts)} options", remedy)
