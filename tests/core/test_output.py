"""Lines of answers: whole, and fit to be printed."""

from __future__ import annotations

import pytest

from bertsmith.core.output import print_line


def test_a_line_keeps_its_end_where_letters_become_escapes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was cut to the length that it had before, without a word of the text that a label hid."""
    print_line("\x1b[31mham\u202e\U000e0001  0.93  the whole text")
    print_line("\U000e0001" * 20)
    one, other = capsys.readouterr().out.splitlines()
    assert one == r"\x1b[31mham\u202e\U000e0001  0.93  the whole text"
    assert other == r"\U000e0001" * 20
