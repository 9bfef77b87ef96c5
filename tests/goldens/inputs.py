"""What the goldens are made of: an invented corpus, a hard page, and examples of every task."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
ROWS = 40
HARD_PAGE = (
    "Plain words, and 1,234.5 numbers: don't (stop) $5.00 ^_^ `a` ~b~ <c> | «d» „e“ f—g … ¿h?",
    "Ångström café naïve Straße ﬁancée ĳ Ǆ ŉ İstanbul ISPARTA ığdır",
    "Cafe\u0301 e\u0323\u0302 e\u0302\u0323 o\u0308\u0304 n\u0303o I\u0307 a" + "\u0301" * 40,
    "ΟΔΥΣΣΕΥΣ Σ. ΑΣ\u0301Σ Ὀδυσσεύς ᾼ Привет, мир! ЁЖИК բարեւ გამარჯობა",
    "漢字かな交じり文 한국어 \u1112\u1161\u11ab 中文abc中 \U00020000x",
    "ｆｕｌｌ　ＷＩＤＴＨ ［ＭＡＳＫ］ １２３ ！？",
    "العربية مُشَكَّل עִבְרִית हिन्दी ไทย தமிழ் বাংলা አማርኛ ខ្មែរ Việt Nam",
    "👩‍👩‍👧‍👦 👍🏽 🇬🇧 ☺️ ❤️‍🔥 a👍b #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "nul\x00bell\x07esc\x1b[0m del\x7f c1\x85\x9f fs\x1cgs\x1d vt\x0b ff\x0c tab\tcr\rlf\nend",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeff soft\u00adhyphen \u2060word\u180evowel",
    "blank\u00a0s \u2002\u2003\u2009\u202f\u3000 \u2028line\u2029para \u1680ogham \u205f",
    "x" * 100 + " " + "y" * 101 + " " + "é" * 100 + " " + "e\u0301" * 101 + " " + "中" * 30,
    "[MASK] [SEP]x[CLS][PAD]y[UNK] [mask] [ MASK ] [[MASK]] [MA[SEP]SK] <s> </s> <mask> <pad>",
    "lone \ud800 sur\udc00rog \ufffd \uffff \U0010ffff \ue000 \u0378 a\ufffdb",
    "",
    " \t\n ",
)


def write_corpus(file: Path) -> None:
    """Write 60 documents of invented sentences, and the hard page as the last one."""
    draw = random.Random(0)
    documents = ["\n".join(_sentence(draw) for _ in range(draw.randint(4, 12))) for _ in range(60)]
    hard = [" ".join(line.split()) for line in HARD_PAGE[:8]]
    file.write_text("\n\n".join([*documents, "\n".join(hard)]) + "\n", encoding="utf-8")


def write_examples(folder: Path) -> None:
    """Write a file TASK.jsonl of examples for every task."""
    for task, make in EXAMPLES.items():
        draw = random.Random(7)
        rows = [make(draw, number) for number in range(ROWS)]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{task}.jsonl").write_text(text, encoding="utf-8")


def _sentence(draw: random.Random) -> str:
    return " ".join(_words(draw, draw.randint(4, 10))).capitalize() + "."


def _words(draw: random.Random, count: int) -> list[str]:
    return ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(count)]


def _text(draw: random.Random) -> str:
    return " ".join(_words(draw, draw.randint(3, 8)))


def _classify(draw: random.Random, number: int) -> dict[str, Any]:
    return {"text": _text(draw), "label": ("news", "spam", "art")[number % 3]}


def _multi_label(draw: random.Random, number: int) -> dict[str, Any]:
    labels = [label for label in ("good", "bad") if draw.random() < 0.5]
    return {"text": _text(draw), "labels": labels}


def _regression(draw: random.Random, number: int) -> dict[str, Any]:
    return {"text": _text(draw), "score": number % 7 + 0.5}


def _rank(draw: random.Random, number: int) -> dict[str, Any]:
    return {"query": f"babe {'di' * (number // 4 + 1)}", "passage": _text(draw),
            "relevance": int(number % 4 == 0)}  # fmt: skip


def _choice(draw: random.Random, number: int) -> dict[str, Any]:
    return {"text": _text(draw), "choices": [_text(draw) for _ in range(3)], "label": number % 3}


def _tag(draw: random.Random, number: int) -> dict[str, Any]:
    words = _words(draw, 6)
    start = len(" ".join(words[:2])) + 1
    return {"text": " ".join(words), "entities": [[start, start + len(words[2]), "XY"[number % 2]]]}


def _span(draw: random.Random, number: int) -> dict[str, Any]:
    words = _words(draw, 8)
    place = number % 8
    start = len(" ".join([*words[:place], ""])) if place else 0
    answers = {"text": [words[place]], "answer_start": [start]}
    context = " ".join(words)
    return {"id": f"q{number}", "question": _text(draw), "context": context, "answers": answers}


EXAMPLES: dict[str, Callable[[random.Random, int], dict[str, Any]]] = {
    "classify": _classify,
    "multi-label": _multi_label,
    "regression": _regression,
    "rank": _rank,
    "choice": _choice,
    "tag": _tag,
    "span": _span,
}
"""By task, a maker of the example of a number."""
