"""Questions with their contexts as windows of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.pairs import encode_pair, second_begins, specials_around
from bertsmith.batches.text_windows import WindowedExamples, window_of
from bertsmith.errors import ConfigError
from bertsmith.recipes.tasks.task import Room
from bertsmith.text.squad import Question
from bertsmith.tokens.spans import Encoding
from bertsmith.tokens.tokenizer import Tokenizer

# as in the original code
_LONGEST_QUESTION = 64
_SHORTEST_CONTEXT = 8


@dataclass(frozen=True, kw_only=True)
class QuestionWindows(WindowedExamples):
    """Windows with what is needed to read answers in them.

    `own` tells for each window the tokens of the context in it (tokens,) that are best seen there;
    `pieces` for each row the characters of its context where tokens start and end, (tokens,) each.
    """

    own: list[NDArray[np.bool_]]
    pieces: list[tuple[NDArray[np.int32], NDArray[np.int32]]]


def question_windows(
    tokenizer: Tokenizer, rows: Sequence[Question], room: Room, *, labelled: bool
) -> QuestionWindows:
    """The windows of some questions' contexts, with the place of the answer if `labelled`.

    Questions keep their first 64 tokens. A window without the whole answer has none. Raises
    `ConfigError` where there is no room for a question.
    """
    ids, segments, owners, begins, offsets = [], [], [], [], []
    own, labels, long, pieces = [], [], [], []
    contexts: dict[str, Encoding] = {}
    free = room.longest - specials_around(tokenizer, pair=True)
    most = min(_LONGEST_QUESTION, free - _SHORTEST_CONTEXT)
    if most < 1:
        raise ConfigError(
            f"longest is {room.longest}",
            remedy=f"question and context need at least {room.longest + 1 - most} tokens",
        )
    cut = []
    for number, row in enumerate(rows):
        if row.context not in contexts:
            # questions of one context stand in a row
            contexts = {row.context: tokenizer.encode_spans(row.context)}
        context = contexts[row.context]
        whole = tokenizer.encode([row.question])[0]
        question = whole[:most]
        inner = free - len(question)
        offset = second_begins(tokenizer, len(question))
        starts, window = window_of(len(context), inner, min(room.overlap, inner // 2))
        answer = _answer(context, row) if labelled else None
        pieces.append((context.starts, context.ends))
        for which, start in enumerate(starts):
            part = context.ids[start : start + inner]
            sequence, segment = encode_pair(tokenizer, question, part, longest=room.longest)
            ids.append(sequence)
            segments.append(segment)
            owners.append(number)
            begins.append(start)
            offsets.append(offset)
            own.append(window[start : start + len(part)] == which)
            long.append(len(starts) > 1)
            cut.append(len(question) < len(whole))
            labels.append(_place(answer, start, len(part), offset))
    count = len(ids)
    return QuestionWindows(
        ids=ids,
        segments=segments,
        starts=np.arange(count + 1),
        cut=np.array(cut, bool),
        long=np.array(long, bool),
        target="span",
        labels=np.array(labels, np.int64).reshape(-1, 2) if labelled else None,
        rows=np.array(owners, np.int64),
        begins=np.array(begins, np.int64),
        offsets=np.array(offsets, np.int64),
        own=own,
        pieces=pieces,
    )


def _answer(context: Encoding, row: Question) -> tuple[int, int] | None:
    """The first and the last token of the first answer."""
    if not row.answers:
        return None
    start = row.answers[0].start
    end = start + len(row.answers[0].text)
    first = int(np.searchsorted(context.ends, start, side="right"))
    last = int(np.searchsorted(context.starts, end, side="left")) - 1
    return (first, last) if 0 <= first <= last < len(context) else None


def _place(answer: tuple[int, int] | None, start: int, length: int, offset: int) -> tuple[int, int]:
    """The answer's tokens in a window that begins at a token; [CLS] twice where it is not in it."""
    if answer is None or answer[0] < start or answer[1] >= start + length:
        return 0, 0
    return answer[0] - start + offset, answer[1] - start + offset
