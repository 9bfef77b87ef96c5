"""English words that the rules for sentences know by name."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


TITLES = words("""
    mr mrs ms mx messrs mme mlle dr prof st ste rev revd hon pres gov sen rep gen col capt cpt lt
    sgt cpl maj adm cmdr supt insp fr sr mt ft vs cf eg ie viz ca approx resp incl esp
""")
"""A point after one of these never ends a sentence."""

NUMBERED = words("""
    no nos fig figs eq eqs sec secs ch chap art vol vols p pp ed eds tab ref refs ver pt
    jan feb mar apr jun jul aug sep sept oct nov dec
""")
"""A point after one of these and before a number ends no sentence."""

AMBIGUOUS = words("etc inc ltd co corp bros jr al dept est univ assn ave blvd rd op")
"""A point after one of these ends a sentence only before one of `STARTERS`."""

STARTERS = words("""
    the a an this that these those he she it we they you i his her its our their my your there here
    in on at for from by with but and or so if when while as after before since then thus however
    although because what who which where why how no not yes one some many most all
""")
"""Words that begin sentences, and are hardly ever names."""
"""Words of which one stands in nearly every English sentence."""
