"""Findings of a check: a page of lines, each fine, worth a look, or reason to stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from bertsmith.core.errors import StoreError
from bertsmith.core.log import say

Verdict = Literal["fine", "look", "stop"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a check: the finding, whether that is fine, and what to do if not."""

    name: str
    found: str
    verdict: Verdict = "fine"
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a check, in the order they are printed."""

    findings: tuple[Finding, ...]

    def __add__(self, other: Findings) -> Findings:
        """Return all findings, these first."""
        return Findings(findings=(*self.findings, *other.findings))

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return asdict(self)

    def page(self) -> list[str]:
        """Return the lines of the page."""
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = []
        for finding in self.findings:
            lines.append(f"  {finding.name:<{width}}  {finding.found}")
            if finding.verdict != "fine":
                lines.append(f"  {'':<{width}}  {finding.verdict}: {finding.remedy}")
        return lines

    def tell(self) -> None:
        """Print the page."""
        say("before training:")
        for line in self.page():
            say(line)

    def stop(self, where: Path) -> None:
        """Raise `StoreError` if any finding would waste the run."""
        stops = [finding for finding in self.findings if finding.verdict == "stop"]
        if stops:
            remedies = dict.fromkeys(finding.remedy for finding in stops)
            raise StoreError(
                "; ".join(f"{finding.name}: {finding.found}" for finding in stops),
                where=where,
                remedy="; ".join(remedies) + "; or go on with --force",
            )


def judged(
    name: str, found: str, figure: float, limits: tuple[float, float], remedy: str
) -> Finding:
    """Return a finding with the verdict "look" above the first limit, "stop" above the second."""
    verdict: Verdict = "stop" if figure > limits[1] else "look" if figure > limits[0] else "fine"
    return Finding(name=name, found=found, verdict=verdict, remedy=remedy)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the most severe of some verdicts."""
    order: tuple[Verdict, ...] = ("fine", "look", "stop")
    return max((finding.verdict for finding in findings), key=order.index, default="fine")


def percent(share: float) -> str:
    """Return a share in per cent: ``12.3 %``."""
    return f"{100 * share:.1f} %"
