"""The engine by itself, in a process of its own: the expected answers, and the speed in bulk.

`python -m loading.engine FILE`, where FILE is a JSON object of `folders` by kind, `questions` (what
`questions.draw_questions` returned), `precision`, `threads`, `rounds` and `out`. Writes the
questions with their answers to `out`, and prints seconds for each kind, and tokens, as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from loading.questions import Question, answered, open_model, save_questions


def main() -> None:
    """Answer all questions in bulk, several times."""
    asked = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    seconds: dict[str, float] = {}
    questions: list[Question | None] = [None] * len(asked["questions"])
    for kind, folder in asked["folders"].items():
        own = [(n, inputs) for n, (other, inputs) in enumerate(asked["questions"]) if other == kind]
        if not own:
            continue
        model = open_model(Path(folder), asked["precision"], asked["threads"])
        inputs = [item for _, item in own]
        expected = answered(model, kind, inputs)
        seconds[kind] = _median(model, kind, inputs, asked["rounds"])
        for (number, item), answer in zip(own, expected, strict=True):
            question = Question(kind=kind, model=kind, inputs=item, expected=answer)
            questions[number] = question
        del model
    save_questions(Path(asked["out"]), [item for item in questions if item is not None])
    print(json.dumps({"seconds": seconds}))


def _median(model: Any, kind: str, inputs: list[Any], rounds: int) -> float:  # noqa: ANN401
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        answered(model, kind, inputs)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
