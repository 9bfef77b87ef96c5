"""White space made single, and where each character came from."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.white_space import tidy, tidy_places


@given(st.text(st.sampled_from("ab \t\n\0\ufeff\xa0\u3000é"), max_size=12))
def test_every_character_of_the_tidy_text_is_found_where_it_stood(text: str) -> None:
    places = tidy_places(text)
    assert len(places) == len(tidy(text))
    assert places == sorted(set(places))
    for place, letter in zip(places, tidy(text), strict=True):
        assert text[place] == letter or (text[place].isspace() and letter == " ")


CONTROLS = (
    *("\x1b[0m", "\x1b[1;31m", "\x1b[38;2;1;2;3m", "\x1b[2K", "\x1b[?25l", "\x1b(B", "\x1b7"),
    *("\x1b]0;a title\x07", "\x1b]8;;http://example.com\x1b\\", "\x1bP1$r0 q\x1b\\", "\x1b"),
)


def test_byte_order_marks_are_no_text() -> None:
    assert tidy("\ufeffA b.\n\ufeffC\ufeff d.") == "A b. C d."


@given(st.lists(st.one_of(st.sampled_from(CONTROLS), st.sampled_from(["ab", " ", "é", "\n"]))))
def test_control_sequences_of_terminals_are_no_text(parts: list[str]) -> None:
    text = "".join(parts)
    expected = " ".join("".join(part for part in parts if part not in CONTROLS).split())
    assert tidy(text) == expected
    places = tidy_places(text)
    assert [text[place].replace("\n", " ") for place in places] == list(expected)


def test_what_begins_like_a_control_sequence_is_read_in_time() -> None:
    began = time.process_time()
    for text in ("\x1b]", "\x1b[", "\x1bP", "\x1b]a", "\x1b"):
        tidy(text * 200_000)
        tidy(text + "1;" * 200_000)
    assert time.process_time() - began < 5  # what grew with the square would take minutes
