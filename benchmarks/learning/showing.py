"""The table, the figure and the figures of what the arms learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from learning.arms import Curve


def table(curves: list[Curve]) -> None:
    """Print the end of each arm, and when ours was past the rival's end."""
    shown = Table(title="held-out masked loss (15 %), the rival's blocks, fp32")
    for heading in ("arm", "clock", "minutes", "tokens/s", "loss", "accuracy"):
        shown.add_column(heading, justify="left" if heading in ("arm", "clock") else "right")
    for curve in curves:
        end = curve.points[-1]
        shown.add_row(
            curve.arm.name, curve.clock, f"{end['minutes']:.1f}",
            f"{curve.tokens_per_second:,.0f}", f"{end['loss']:.3f}", f"{end['accuracy']:.3f}",
        )  # fmt: skip
    Console().print(shown)


def figures(curves: list[Curve]) -> dict[str, Any]:
    """The figures for programs."""
    rival = next(curve for curve in curves if curve.arm.name.startswith("rival:"))
    ours = [curve for curve in curves if curve.arm.side == "quick"]
    past = [_minutes_to(curve, rival.loss) for curve in ours]
    return {
        "rival": {"arm": rival.arm.name, "minutes": rival.arm.minutes, "loss": rival.loss},
        "quick": {f"{curve.arm.minutes:g}": curve.loss for curve in ours},
        "first_seconds": {f"{curve.arm.minutes:g}": curve.first_seconds for curve in ours},
        "minutes_to_the_rivals_end": {
            f"{curve.arm.minutes:g}": minutes for curve, minutes in zip(ours, past, strict=True)
        },
        "selection": {
            curve.arm.name: curve.loss for curve in curves if curve.arm.name.startswith("select:")
        },
        "tokens_per_second": {curve.arm.name: curve.tokens_per_second for curve in curves},
        "clocks": {curve.arm.name: curve.clock for curve in curves},
        "bar_met": bool(ours) and ours[0].loss <= rival.loss,
    }


def _minutes_to(curve: Curve, loss: float) -> float | None:
    """When a curve was first seen at or below a loss; None if never."""
    return next((point["minutes"] for point in curve.points if point["loss"] <= loss), None)


def draw(curves: list[Curve], path: Path) -> None:
    """Held-out loss over minutes, the rival's rates pale but for the best."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    chart, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for curve in curves:
        tried = curve.arm.name.startswith("select:")
        ours = curve.arm.side == "quick"
        axes.plot(
            [point["minutes"] for point in curve.points],
            [point["loss"] for point in curve.points],
            marker=".",
            linewidth=1 if tried else 2,
            linestyle=":" if tried else "-",
            color="tab:blue" if ours else "tab:orange",
            alpha=0.6 if tried else 1.0,
        )
        end = curve.points[-1]
        axes.annotate(
            f"{curve.arm.name} {end['loss']:.2f}", (end["minutes"], end["loss"]),
            xytext=(4, 4), textcoords="offset points", fontsize=8,
        )  # fmt: skip
    axes.set_xlabel("minutes of training on the same cores")
    axes.set_ylabel("held-out masked loss")
    axes.set_title("4/256 BERT on novels: quick (blue), transformers' run_mlm (orange)")
    axes.grid(alpha=0.3)
    axes.margins(x=0.18)
    chart.savefig(path, dpi=120)
    pyplot.close(chart)
