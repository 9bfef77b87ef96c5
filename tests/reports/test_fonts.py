"""Labels in any script: a font of the machine draws them, or boxes that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib import get_data_path
from matplotlib.font_manager import fontManager

from bertsmith.reports import fonts
from bertsmith.reports.curves import curves_svg
from bertsmith.reports.drawing import layer_lines

# letters of another of matplotlib's fonts, and of none of them
ELSEWHERE, NOWHERE = "\N{LATIN SMALL LETTER D WITH PALATAL HOOK}", "\N{KATAKANA LETTER YA}"


@pytest.fixture(autouse=True)
def _fonts_of_matplotlib_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the fonts of the machine."""
    own = [font for font in fontManager.ttflist if font.fname.startswith(get_data_path())]
    monkeypatch.setattr(fontManager, "ttflist", own)
    fonts._families_for.cache_clear()


def test_letters_that_no_font_has_are_named() -> None:
    series = {f"{NOWHERE}{ELSEWHERE}": (0.1, 0.3), "any two words": (0.2, 0.1)}
    drawing = layer_lines("lines", series, y_label="mean cosine", first=0)
    # and no warning of matplotlib, which would end the test
    assert drawing.missing == NOWHERE
    assert NOWHERE in drawing.svg


def test_another_font_has_the_letter() -> None:
    both = dict.fromkeys((ELSEWHERE, "another"), (0.1, 0.3))
    drawing = layer_lines("lines", both, y_label="mean cosine", first=0)
    assert drawing.missing == ""


def test_a_font_whose_file_is_damaged_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "damaged.ttf"
    path.write_bytes(b"no font")
    damaged = replace(
        fontManager.ttflist[0], name="A Damaged Sans", style="normal", weight=400, fname=str(path)
    )
    fontManager.ttflist.append(damaged)
    both = dict.fromkeys((ELSEWHERE, "another"), (0.1, 0.3))
    assert layer_lines("lines", both, y_label="mean cosine", first=0).missing == ""


def test_curves_for_a_browser_need_no_font() -> None:
    series = {name: [(1.0, 0.3), (2.0, 0.1)] for name in (NOWHERE, "another")}
    svg = curves_svg(series, name="loss", x_label="step", y_label="loss", percent=False)
    assert NOWHERE in svg
