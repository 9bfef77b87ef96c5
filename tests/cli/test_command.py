"""Functions as verbs: syntax from the signature, help from the docstring, settings from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from bertsmith.cli.command import Verb, help_page, read_arguments
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimiser(Config):
    """How weights are changed."""

    rate: float = 1e-3
    """peak learning rate"""
    kind: Literal["adamw", "muon"] = "muon"
    """rule of the matrices"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Config):
    """Settings of baking."""

    # another rate than the class has by itself, which partial changes must not bring back
    optimiser: Optimiser = Optimiser(rate=3e-3)
    """the optimiser"""
    batch: int = 16
    """sequences at a time"""
    seed: int | None = 7
    """another seed is another run"""
    drop_out: float = 0.0
    """share lost"""
    betas: tuple[float, ...] = (0.9, 0.98)
    """decay of the averages"""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError("batch must be positive")


def bake(
    flour: list[str],
    *,
    out: Path,
    oven_heat: float | None = None,
    size: Literal["small", "large"] = "small",
    crisp: bool = False,
    settings: Config | None = None,
) -> None:
    """Bake bread from flour.

    It takes a while, 90 % of it in the oven.

    Args:
        flour: bags
        out: folder for the bread
        oven_heat: in degrees
        size: of the loaf
        crisp: brush it with water
    """


def slice_bread(bread: Path, knife: str = "-", *, thickness: int = 3) -> None:
    """Slice bread."""


BAKE = Verb(function=bake, settings=lambda: Settings, examples=("rye wheat --out loaf",))
SLICE = Verb(function=slice_bread, examples=("loaf", "loaf saw --thickness 9"))


def read(arguments: str) -> dict[str, Any]:
    return read_arguments("bake", BAKE, arguments.split())


def complaint(arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(arguments)
    return str(caught.value)


def test_only_what_is_given_is_passed_on() -> None:
    assert read("rye --out loaf") == {"flour": ["rye"], "out": Path("loaf")}
    sliced = read_arguments("slice", SLICE, ["loaf"])
    assert sliced == {"bread": Path("loaf"), "knife": "-"}


def test_all_kinds_of_arguments() -> None:
    values = read("rye wheat --out loaf --oven-heat 2.5e2 --size large --crisp")
    assert values == {
        "flour": ["rye", "wheat"],
        "out": Path("loaf"),
        "oven_heat": 250.0,
        "size": "large",
        "crisp": True,
    }
    sliced = read_arguments("slice", SLICE, ["loaf", "saw", "--thickness", "9"])
    assert sliced == {"bread": Path("loaf"), "knife": "saw", "thickness": 9}


def test_settings_by_dotted_options() -> None:
    settings = read("rye --out loaf --optimiser.kind adamw --betas [0.5,0.75] --seed null")
    expected = Settings(optimiser=Optimiser(rate=3e-3, kind="adamw"), betas=(0.5, 0.75), seed=None)
    assert settings["settings"] == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.toml", 'batch = 5  # few\n[optimiser]\nkind = "adamw"\n'),
        ("settings.json", '\ufeff{"batch": 5, "optimiser": {"kind": "adamw"}}'),
    ],
)
def test_settings_by_file_yield_to_options(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    settings = read(f"rye --batch 9 --out loaf --config {tmp_path / name}")["settings"]
    assert settings == Settings(batch=9, optimiser=Optimiser(rate=3e-3, kind="adamw"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"batch": 5,\n "bach": 6}', "a.json: unknown setting 'bach'"),
        ("a.json", '{"batch": 5,\n}', "a.json:2: not JSON"),
        ("a.json", "[5]", "a.json: holds no JSON object"),
        ("a.json", '{"batch": ' + "[" * 9000, "a.json: cannot be read: nested deeper than 64"),
        ("a.json", '{"batch": ' + "9" * 9000 + "}", "a.json: cannot be read: Exceeds the limit"),
        ("a.toml", "batch = " + "[" * 9000, "a.toml: "),
        ("a.toml", "batch = 5\nbatch = 6\n", "a.toml:2: not TOML"),
        ("a.toml", "batch = 0.5\n", "a.toml: batch is 0.5; it must be of type int"),
        ("a.toml", "batch = 0\n", "a.toml: batch must be positive"),
        ("a.toml", "[ovens]\nheat = 1\n", "a.toml: no group of settings named 'ovens'"),
    ],
)
def test_mistakes_in_a_file_name_it(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert complaint(f"rye --out loaf --config {tmp_path / name}").startswith(
        f"{tmp_path}/{message}"
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"name = 'caf\xe9'\n")
    assert "latin.toml: is not UTF-8" in complaint(f"rye --out x --config {tmp_path}/latin.toml")
    assert "none.toml: cannot be read" in complaint(f"rye --out x --config {tmp_path}/none.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("rye", "missing: --out"),
        ("--out loaf", "missing: FLOUR"),
        ("rye --out loaf --batch many", "--batch is 'many', not a whole number"),
        ("rye --out loaf --drop_out few", "--drop_out is 'few', not a number"),
        ("rye --out loaf --oven-heat hot", "--oven-heat is 'hot', not a number"),
        ("rye --out loaf --size huge", "--size is 'huge', not one of small, large"),
        (
            "rye --out loaf --optimiser.kind sgd",
            "--optimiser.kind is 'sgd', not one of adamw, muon",
        ),
        ("rye --out loaf --bat 3", "unrecognized arguments: --bat 3"),
    ],
)
def test_mistakes_point_to_the_help(arguments: str, message: str) -> None:
    assert complaint(arguments) == f"{message}; see: bertsmith bake --help"


def test_impossible_settings() -> None:
    assert complaint("rye --out loaf --batch 0") == "batch must be positive; change that setting"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("--help")
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in (
        "Bake bread from flour. It takes a while, 90 % of it in the oven.",
        "FLOUR bags",
        "--out OUT folder for the bread (required)",
        "--size {small,large} of the loaf (default: small)",
        "--crisp brush it with water --config",
        "Settings of baking:",
        "peak learning rate (default: 0.003)",
        "share lost (default: 0.0)",
        "examples: bertsmith bake rye wheat --out loaf",
    ):
        assert part in shown
    assert "type:" not in shown


def test_overview_lists_every_verb() -> None:
    page = help_page({"bake": BAKE, "slice up": SLICE}, "All about bread.")
    assert page.startswith("All about bread.\n")
    assert "  bake      Bake bread from flour.\n  slice up  Slice bread.\n" in page
    assert "  bertsmith slice up loaf\n" in page


def test_an_underscore_at_the_end_of_a_name_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    def lend(book: str, *, from_: str | None = None) -> None:
        """Lend a book.

        Args:
            book: its title
            from_: who lends it
        """

    verb = Verb(function=lend, examples=("Emma --from Ann",))
    assert read_arguments("lend", verb, ["Emma", "--from", "Ann"]) == {
        "book": "Emma",
        "from_": "Ann",
    }
    with pytest.raises(SystemExit):
        read_arguments("lend", verb, ["--help"])
    assert "--from FROM " in capsys.readouterr().out


def test_defaults_may_depend_on_the_arguments() -> None:
    def defaults(given: Mapping[str, Any]) -> Settings:
        return Settings(batch=len(given["flour"]))

    verb = dataclasses.replace(BAKE, defaults=defaults)
    arguments = ["rye", "wheat", "--out", "loaf", "--optimiser.kind", "adamw"]
    settings = read_arguments("bake", verb, arguments)["settings"]
    assert settings == Settings(batch=2, optimiser=Optimiser(rate=3e-3, kind="adamw"))


@pytest.mark.parametrize(
    "line",
    [["vocab learn", "", "--out", "x"], ["vocab learn", "a.txt", "--out", ""],
     ["vocab learn", "a.txt", "--out="], ["predict", "", "a.txt"], ["predict", "model", " "]],
)  # fmt: skip
def test_an_empty_path_is_refused(line: list[str]) -> None:
    from bertsmith.cli.verbs import VERBS

    with pytest.raises(ConfigError, match="is empty; name a file or a folder"):
        read_arguments(line[0], VERBS[line[0]], line[1:])
