"""White space made single, and where each character came from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.white_space import tidy, tidy_places


@given(st.text(st.sampled_from("ab \t\n\0\xa0\u3000é"), max_size=12))
def test_every_character_of_the_tidy_text_is_found_where_it_stood(text: str) -> None:
    places = tidy_places(text)
    assert len(places) == len(tidy(text))
    assert places == sorted(set(places))
    for place, letter in zip(places, tidy(text), strict=True):
        assert text[place] == letter or (text[place].isspace() and letter == " ")
