"""Arms: one contestant with one setting, trained for a budget and judged on the way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from learning import ours, rival
from learning.clock import Clock, Stopwatch
from learning.referee import Referee
from learning.text import Novels, blocks

Side = Literal["rival", "quick"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What to train. `name` is what --arm takes: select:5e-4, rival:5e-4 or quick:2."""

    side: Side
    minutes: float
    rate: float = 0.0
    batch: int = rival.BATCH
    name: str


@dataclass(kw_only=True)
class Curve:
    """What came of an arm: its held-out loss and accuracy over the minutes of its clock."""

    arm: Arm
    clock: str
    tokens_per_second: float
    threads: int
    points: list[dict[str, float]] = field(default_factory=list)
    first_seconds: float = 0.0
    """What making the first weights took, where that is more than drawing numbers."""

    @property
    def loss(self) -> float:
        """The loss at the end."""
        return self.points[-1]["loss"]

    def save(self, folder: Path) -> None:
        """Keep it for a later call."""
        folder.mkdir(parents=True, exist_ok=True)
        path = _path(folder, self.arm.name, self.clock)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path, name: str, clock: str) -> Curve | None:
        """What an earlier call kept, if it did."""
        path = _path(folder, name, clock)
        if not path.exists():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Curve(**kept | {"arm": Arm(**kept["arm"])})


def _path(folder: Path, name: str, clock: str) -> Path:
    return folder / f"{name.replace(':', '-')}.{clock}.json"


def marks(minutes: float) -> list[float]:
    """When to judge: more often early, where curves are steep."""
    shares = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    return [share * minutes for share in shares]


def point(minutes: float, loss: float, accuracy: float) -> dict[str, float]:
    """A point of a curve."""
    return {
        "minutes": round(minutes, 3),
        "loss": round(loss, 4),
        "accuracy": round(accuracy, 4),
    }


def train_rival(
    arm: Arm, clock: Clock, novels: Novels, vocabulary: Path, referee: Referee, threads: int
) -> Curve:
    """Train one arm of the rival."""
    curve = Curve(arm=arm, clock=clock.name, tokens_per_second=0.0, threads=threads)

    def show(model: Any, watch: Stopwatch) -> None:  # noqa: ANN401
        curve.points.append(point(watch.seconds / 60, *referee.judge(model)))
        curve.tokens_per_second = round(watch.tokens / watch.seconds, 1)
        print(arm.name, curve.points[-1], flush=True)

    trainer = rival.Trainer(
        blocks(novels.learn, novels.tokenizer), vocabulary, novels.tokenizer.size, arm.rate,
        arm.batch,
    )  # fmt: skip
    rival.train(trainer, clock, marks(arm.minutes), show)
    return curve


def train_quick(
    arm: Arm, clock: Clock, novels: Novels, vocabulary: Path, referee: Referee, threads: int
) -> Curve:
    """Train one arm of ours."""
    curve = Curve(arm=arm, clock=clock.name, tokens_per_second=0.0, threads=threads)

    def show(folder: Path, minutes: float) -> None:
        curve.points.append(point(minutes, *referee.judge_folder(folder)))
        print(arm.name, curve.points[-1], flush=True)

    speed, first = ours.train(novels, clock, show)
    curve.tokens_per_second = clock.tokens_per_second or round(speed, 1)
    curve.first_seconds = round(first, 1)
    return curve
