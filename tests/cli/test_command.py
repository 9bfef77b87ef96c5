"""Configs as verbs: the fields are the syntax, the strings below them the help, files have both."""

from __future__ import annotations

import dataclasses
import inspect
import io
import math
import os
import threading
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from bertsmith.batches.config import Phase
from bertsmith.cli.command import Command, help_page, read_arguments
from bertsmith.cli.commands import COMMANDS
from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, named
from bertsmith.core.errors import ConfigError, CorpusError
from bertsmith.core.keywords import python_function
from bertsmith.core.options import options_of
from verbs import command_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yeast(Config):
    """What makes it rise."""

    kind: Literal["dry", "fresh"] = "fresh"
    """where it comes from"""
    learning_rate: float = 1e-3
    """how quickly it rises"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grain(Config):
    """What it is made of."""

    name: str | None = dataclasses.field(default=None, metadata=named("grain-name"))
    """as on the bag"""
    crisp: bool = True
    """brush it with water"""
    whole: bool | None = None
    """with the hull"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(Config):
    """A step."""

    minutes: int
    """how long"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bread(Config):
    """The options of baking."""

    flour: tuple[Path, ...] = dataclasses.field(metadata=POSITIONAL)
    """bags"""
    out: Path
    """folder for the bread"""
    from_: str | None = dataclasses.field(default=None, metadata=named("from"))
    """who bakes it"""
    batch_size: int = 16
    """loaves at a time"""
    oven_heat: float | None = 200.0
    """in degrees, 90 % of it from below"""
    size: Literal["small", "large"] = "small"
    """of the loaf"""
    hours: int | Literal["auto"] = "auto"
    """or as many as it takes"""
    dry_run: bool = False
    """heat nothing"""
    salts: tuple[float, ...] = (0.9, 0.98)
    """shares of each"""
    steps: tuple[Step, ...] = ()
    """one after the other"""
    yeast: Yeast = Yeast(learning_rate=3e-3)
    """the yeast"""
    grain: Grain = dataclasses.field(default=Grain(), metadata=INLINE)
    """the grain"""

    def __post_init__(self) -> None:
        check_least(self, {"batch_size": 1})


def bake(bread: Bread) -> Bread:
    """Bake bread from flour.

    It takes a while, 90 % of it in the oven.
    """
    return bread


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices(Config):
    """The options of slicing."""

    bread: Path = dataclasses.field(metadata=POSITIONAL)
    """what to slice"""
    knife: str = dataclasses.field(default="-", metadata=POSITIONAL)
    """with what"""
    thickness: int = 3
    """of a slice"""


def slice_bread(slices: Slices) -> Slices:
    """Slice bread."""
    return slices


BAKE = command_of(Bread, bake, ("rye wheat --out loaf",))
SLICE = command_of(Slices, slice_bread, ("loaf", "loaf saw --thickness 9"))
PLAIN = Bread(flour=(Path("rye"),), out=Path("loaf"))


def read(arguments: str | list[str], command: Command = BAKE) -> Any:  # noqa: ANN401
    words = arguments.split() if isinstance(arguments, str) else arguments
    return read_arguments("bake", command, words)


def changed(**values: Any) -> Bread:  # noqa: ANN401
    return dataclasses.replace(PLAIN, **values)


LIST_ITEMS: dict[Any, tuple[str, str]] = {
    float: ("0.5", "0.25"),
    int: ("3", "4"),
    str: ("red", "green"),
    Phase: ("{max_length: 64, share: 0.4}", "{max_length: 128, share: 0.2}"),
}


def complaint(arguments: str | list[str]) -> str:
    with pytest.raises(ConfigError) as caught:
        read(arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("rye --out loaf", PLAIN),
        ("--out=loaf rye", PLAIN),
        ("rye --out size --size large", changed(out=Path("size"), size="large")),
        ("rye --out loaf --from=--ann", changed(from_="--ann")),
        ("rye --out loaf wheat", changed(flour=(Path("rye"), Path("wheat")))),
        ("--out loaf -- --rye", changed(flour=(Path("--rye"),))),
        ("rye --out loaf --oven-heat 2.5e2 --size large", changed(oven_heat=250.0, size="large")),
        ("rye --out loaf --oven-heat -5 --dry-run", changed(oven_heat=-5.0, dry_run=True)),
        ("rye --out loaf --no-dry-run --no-crisp", changed(grain=Grain(crisp=False))),
        ("rye --out loaf --oven-heat null --from Ann", changed(oven_heat=None, from_="Ann")),
        ("rye --out loaf --hours 3", changed(hours=3)),
        ("rye --out 3 --from 0.5", changed(out=Path("3"), from_="0.5")),
        (
            "true --out [a --from {b:1}",
            changed(flour=(Path("true"),), out=Path("[a"), from_="{b:1}"),
        ),
        ("rye --out loaf --oven-heat=-1e-5", changed(oven_heat=-1e-5)),
        ("rye --out loaf --oven-heat=-inf", changed(oven_heat=-math.inf)),
        ("rye --out loaf --hours auto --salts 0.5,0.75", changed(salts=(0.5, 0.75))),
        ("rye --out loaf --salts [1,2]", changed(salts=(1.0, 2.0))),
        ("rye --out loaf --grain-name null", changed(grain=Grain())),
        ("rye --out loaf --whole true", changed(grain=Grain(whole=True))),
        ("rye --out loaf --whole false", changed(grain=Grain(whole=False))),
        ("rye --out loaf --salts 0.5 --salts=0.75,0.8", changed(salts=(0.5, 0.75, 0.8))),
        ("rye --salts [1,2] --out loaf --salts 3", changed(salts=(1.0, 2.0, 3.0))),
        (
            "rye --out loaf --yeast.kind dry --grain-name oat",
            # another rate than the class has by itself, which partial changes do not bring back
            changed(yeast=Yeast(kind="dry", learning_rate=3e-3), grain=Grain(name="oat")),
        ),
    ],
)
def test_arguments_make_a_config(arguments: str, expected: Bread) -> None:
    assert read(arguments) == expected


def test_a_list_of_groups_is_yaml() -> None:
    steps = (Step(minutes=3), Step(minutes=40))
    assert read(["rye", "--out=x", "--steps", "[{minutes: 3}, {minutes: 40}]"]).steps == steps


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("x", "--steps is 'x'; it must be a list, each a group of minutes"),
        ("[1,", "--steps is '[1,'; it must be a list"),
        ("[{}]", "Step lacks minutes; add it"),
    ],
)
def test_lists_of_groups_that_are_none_are_refused(steps: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(["rye", "--out=x", "--steps", steps])
    assert str(raised.value).startswith(message)


def test_positions_are_filled_in_their_order() -> None:
    assert read("loaf", SLICE) == Slices(bread=Path("loaf"))
    for line in ("loaf saw --thickness 9", "loaf --thickness 9 saw", "--thickness 9 loaf saw"):
        assert read(line, SLICE) == Slices(bread=Path("loaf"), knife="saw", thickness=9)


FILES = {
    "options.yaml": "batch-size: 5  # few\nfrom: Ann\nout: loaf\nsize: large\n"
    "yeast:\n  learning_rate: 1e-5\n  kind: dry\ngrain_name: no\nhours: 7\n",
    "options.toml": 'batch-size = 5\nfrom = "Ann"\nout = "loaf"\nsize = "large"\nhours = 7\n'
    'grain-name = "no"\n[yeast]\nkind = "dry"\nlearning-rate = 1e-5\n',
    "options.json": '\ufeff{"batch_size": 5, "from": "Ann", "out": "loaf", "size": "large",\n'
    '"yeast.kind": "dry", "yeast": {"learning-rate": 1e-5}, "grain-name": "no", "hours": 7}',
}


@pytest.mark.parametrize("name", FILES)
def test_files_have_the_same_options_and_yield_to_those_typed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    found = read(f"rye --hours auto --config {tmp_path / name} --size small")
    yeast = Yeast(kind="dry", learning_rate=1e-5)
    assert found == changed(batch_size=5, from_="Ann", yeast=yeast, grain=Grain(name="no"))


def test_names_that_begin_with_zeros_keep_them_in_a_file(tmp_path: Path) -> None:
    """A column or a class may be called 010, which YAML 1.1 takes for 8."""
    (tmp_path / "a.yaml").write_text("from: 010\ngrain-name: 007.50\n", encoding="utf-8")
    found = read(f"rye --out loaf --config {tmp_path / 'a.yaml'}")
    assert (found.from_, found.grain.name) == ("010", "007.50")


@pytest.mark.parametrize(
    "arguments",
    ["rye wheat --out loaf", "rye --out 1e-5 --from no --salts 1e-5 --hours 3",
     "rye --out loaf --yeast.learning-rate 2e-20 --oven-heat null --grain-name ~ --no-crisp",
     "null --out loaf --from 0x10 --grain-name 1_000",
     "rye --out 01 --from 010 --grain-name 00.5 --hours 0 --oven-heat -0.5"],
)  # fmt: skip
def test_a_printed_config_makes_the_same_config(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = read(arguments)
    with pytest.raises(SystemExit) as caught:
        read(f"{arguments} --print-config")
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    (tmp_path / "printed.yaml").write_text(printed, encoding="utf-8")
    assert read(f"--config {tmp_path / 'printed.yaml'}") == expected
    # other readers understand it too, but for floats without a dot, which they take for text
    assert yaml.safe_load(printed)["out"] == str(expected.out)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_a_printed_config_holds_any_text_in_any_encoding(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters that a terminal lacks were question marks, and invisible ones escapes of ours."""
    line = [
        "rye",
        "--out",
        "\udcff",
        "--from",
        "日本 ä",
        "--grain-name",
        "a\u200bb\u2028c\x07\u202e",
    ]
    output = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", output)
        with pytest.raises(SystemExit):
            read([*line, "--print-config"])
    printed = output.buffer.getvalue().decode(encoding)
    (tmp_path / "printed.yaml").write_text(printed, "utf-8")
    assert read(f"--config {tmp_path / 'printed.yaml'}") == read(line)


def test_a_template_is_printed_without_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--batch-size 9 --print-config")
    printed = capsys.readouterr().out
    assert printed.startswith("# flour: (required)\n# out: (required)\n")
    assert "\nbatch-size: 9\n" in printed
    assert "\nyeast:\n  kind: fresh\n  learning-rate: 0.003\n" in printed


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"batch-size": 5,\n "bach_size": 6}',
         "a.json:2: there is no option bach-size; did you mean batch-size?"),
        ("a.json", '{"batch-size": 5,\n!}', "a.json:2: not JSON"),
        ("a.json", "[5]", "a.json: contains no options by name"),
        ("a.json", "[" * 65 + "]" * 65, "a.json: cannot be read: nested deeper than 64"),
        # some versions of Python give up before the end of it
        ("a.json", '{"hours": ' + "[" * 9000, "a.json:"),
        ("a.json", '{"hours": ' + "9" * 9000 + "}", "a.json: cannot be read: a number of over"),
        ("a.toml", "size = " + "[" * 9000, "a.toml: "),
        ("a.toml", "hours = 5\nhours = 6\n", "a.toml:2: not TOML"),
        ("a.toml", "\nhours = 0.5\n", "a.toml:2: hours is 0.5; it must be a whole number or auto"),
        ("a.toml", "\n\nbatch-size = 0\n", "a.toml:3: --batch-size is 0; it must be at least 1"),
        ("a.toml", "[yeast]\nkind = 1\n", "a.toml:2: yeast.kind is 1; it must be one of dry,"),
        ("a.toml", "[ovens]\nheat = 1\n", "a.toml:1: there is no option ovens"),
        ("a.yaml", "size: large\nout: x: y\n", "a.yaml:2: not YAML: mapping values"),
        ("a.yaml", "out: &a x\nfrom: *a\n", "a.yaml:2: not YAML: aliases are not supported"),
        ("a.yaml", "hours: 3\nout: x\nhours: 4\n", "a.yaml:3: not YAML: the key 'hours' occurs"),
        ("a.yaml", "hours: 3\ndry_run: yes\n", "a.yaml:2: dry-run is 'yes'; it must be true or"),
        ("a.yaml", "out: !!python/object:os.system x\n", "a.yaml:1: not YAML: tags are not "
            "supported"),
        ("a.yaml", "hours: 3\nbatch-size: 010\n", "a.yaml:2: batch-size is '010'; it must be a "
            "whole number"),
        ("a.yaml", "hours: 3\n\tout: x\n", "a.yaml:2: not YAML: found a tab; write spaces in place "
            "of tabs"),
        ("a.yaml", "hours: !!bool x\n", "a.yaml:1: not YAML: tags are not supported"),
        ("a.yaml", "hours: 3\n? [out]\n: x\n", "a.yaml:2: not YAML: a key is not a name"),
        ("a.yaml", 'out: "a\\0b"\n', "a.yaml:1: out holds a zero byte"),
        ("a.yaml", "flour: " + "[" * 9000, "a.yaml: cannot be read: "),
        ("a.yaml", "num_train_epochs: 3\nyeats: {kind: dry}", "a.yaml:1: there is no option num-"),
        ("a.yaml", "batch-size: 3\nbatch_size: 4\n", "a.yaml: batch-size is given twice;"),
        ("a.toml", 'yeast.kind = "dry"\n"yeast.kind" = "dry"\n', "a.toml: yeast.kind is given tw"),
        ("a.json", '{"hours": 3, "hours": 4}', "a.json: not JSON: the key 'hours' occurs twice; l"),
        ("a.json", '{"yeast": {"kind": "dry", "kind": "dry"}}', "a.json: not JSON: the key 'kind'"),
        ("a.yaml", "", "a.yaml: contains no options by name"),
        ("a.yaml", "hours: 3\nyeast: dry\n", "a.yaml:2: yeast is a group; its options are: "
            "yeast.kind, yeast.learning-rate"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file_name_it_and_the_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    said = complaint(f"rye --out loaf --config {tmp_path / name}")
    assert said.startswith(f"{tmp_path}/{message}")


def test_what_begins_like_help_is_no_option() -> None:
    """Some versions of argparse would print a help of their own."""
    assert complaint("rye --out loaf -h1").startswith("there is no option -h1; the options are: ")


def test_a_file_whose_name_looks_like_an_option_is_named_as_it_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint("-size.csv --out loaf") == "there is no option -size.csv; did you mean --size?"
    Path("-size.csv").touch()
    said = complaint("-size.csv --out loaf")
    assert said == "there is no option -size.csv; if the file of this name is meant: ./-size.csv"
    assert read("./-size.csv --out loaf").flour == (Path("-size.csv"),)


def test_a_group_without_options_in_a_file_is_as_if_left_out(tmp_path: Path) -> None:
    """As where the lines below it are comments: there was no such option."""
    file = tmp_path / "bread.yaml"
    file.write_text("batch-size: 3\nyeast:\n#  kind: dry\n", encoding="utf-8")
    assert read(f"rye --out loaf --config {file}") == read("rye --out loaf --batch-size 3")


def test_several_texts_in_a_file_are_a_list(tmp_path: Path) -> None:
    """Those with commas between, as typed, were one: a word, a pattern, a name."""
    file = tmp_path / "a.yaml"
    for name, verb in (("choices", "predict"), ("allowed-hosts", "serve")):
        file.write_text(f"{name}: tea,coffee\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"{file}:1: {name} is 'tea,coffee'; write a list"):
            read_arguments(verb, COMMANDS[verb], ["model", "--config", str(file)])
    for written, expected in (("tea", "tea"), ("['tea,coffee']", "tea,coffee")):
        file.write_text(f"choices: {written}\n", encoding="utf-8")
        config = read_arguments("predict", COMMANDS["predict"], ["model", "--config", str(file)])
        assert config.to_dict()["answering"]["filling"]["choices"] == [expected]


def test_a_mistake_that_is_typed_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("batch-size: 3\n", encoding="utf-8")
    said = complaint(f"rye --out loaf --config {tmp_path}/a.yaml --batch-size 0")
    assert said == "--batch-size is 0; it must be at least 1"


def test_a_mistake_in_a_pipe_names_its_line_and_waits_for_no_second_writer(tmp_path: Path) -> None:
    """The error had the file read again, which of a pipe with a name waited for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("size: large\nbatch-size: 0\n",))
    writer.start()
    said = complaint(f"rye --out loaf --config {pipe}")
    writer.join()
    assert said == f"{pipe}:2: --batch-size is 0; it must be at least 1"


def test_an_empty_name_of_a_file_of_options_is_refused() -> None:
    """As of a variable of the shell that is unset: it was the working folder, "a folder"."""
    assert complaint(["rye", "--out", "x", "--config", ""]) == "--config is empty; name a file"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"name = 'caf\xe9'\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (2**20 + 1))
    assert "latin.toml: is not UTF-8" in complaint(f"rye --out x --config {tmp_path}/latin.toml")
    assert "none.toml: cannot be read" in complaint(f"rye --out x --config {tmp_path}/none.toml")
    assert "large.yaml: is over 1 MiB" in complaint(f"rye --out x --config {tmp_path}/large.yaml")


NO_VALUE = "--out has no value; give one, after = if it begins with a dash"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("rye", "missing: --out; see: bertsmith bake --help"),
        ("--out loaf", "missing: FLOUR; see: bertsmith bake --help"),
        ("rye --out", NO_VALUE),
        ("rye --out --no-dry-run", NO_VALUE),
        ("rye --out --dry-run", NO_VALUE),
        ("rye --from Ann --out -x", NO_VALUE),
        ("rye --out loaf --no-dry-run=no",
         "--no-dry-run takes no value; see: bertsmith bake --help"),
        ("rye --out loaf --help=all", "--help takes no value; see: bertsmith bake --help"),
        ("rye --out loaf --siz small", "there is no option --siz; did you mean --size?"),
        ("rye --out loaf --dry-run=yes", "--dry-run takes no value; see: bertsmith bake --help"),
        ("rye --out loaf --batch-size many", "--batch-size is 'many'; it must be a whole number"),
        ("rye --out loaf --batch-size 1_000",
         "--batch-size is '1_000'; it must be a whole number"),
        ("rye --out loaf --batch-size 010", "--batch-size is '010'; it must be a whole number"),
        ("rye --out loaf --batch-size ٣", "--batch-size is '٣'; it must be a whole number"),
        ("rye --out loaf --batch-size null", "--batch-size is 'null'; it must be a whole number"),
        ("rye --out loaf --oven-heat infinity", "--oven-heat is 'infinity'; it must be a number"),
        ("rye --out loaf --oven-heat=", "--oven-heat is ''; it must be a number"),
        ("rye --out loaf --whole=~", "--whole is '~'; it must be true or false"),
        ("rye --out loaf --oven-heat hot", "--oven-heat is 'hot'; it must be a number"),
        ("rye --out loaf --size huge", "--size is 'huge'; it must be one of small, large"),
        ("rye --out loaf --whole yes", "--whole is 'yes'; it must be true or false"),
        ("rye --out loaf --hours few", "--hours is 'few'; it must be a whole number or auto"),
        ("rye --out loaf --salts 0.5,much",
         "--salts is 'much'; it must be a list, each a number"),
        ("rye --out loaf --yeast.kind wet", "--yeast.kind is 'wet'; it must be one of dry, fresh"),
        ("rye --out loaf --batch_size 3",
         "there is no option --batch_size; did you mean --batch-size?"),
        ("rye --out loaf --bach-size=3",
         "there is no option --bach-size; did you mean --batch-size?"),
        ("rye --out loaf --per_device_train_batch_size 3",
         "there is no option --per_device_train_batch_size; did you mean --batch-size?"),
        ("rye --out loaf --lr 3",
         "there is no option --lr; did you mean --yeast.learning-rate?"),
        ("rye --out loaf --kind dry", "there is no option --kind; did you mean --yeast.kind?"),
        ("rye --out loaf --yeast dry",
         "--yeast is a group; its options are: --yeast.kind, --yeast.learning-rate"),
        ("rye --out loaf --batch-size 0", "--batch-size is 0; it must be at least 1"),
        ("rye --out loaf --batch-size 8 --batch-size=9",
         "--batch-size is given twice; leave one of them out"),
        ("rye --out loaf --batch-size 9 --batch-size 9",
         "--batch-size is given twice; leave one of them out"),
        ("rye --out loaf --yeast.kind dry --yeast.kind fresh",
         "--yeast.kind is given twice; leave one of them out"),
        ("rye --out loaf --config a.yaml --config b.yaml",
         "--config is given twice; leave one of them out"),
        ("rye --out loaf --dry-run --dry-run", "--dry-run is given twice; leave one of them out"),
        ("rye --out loaf --dry-run --no-dry-run",
         "--dry-run and --no-dry-run are both given; leave one of them out"),
        ("rye --out loaf --no-dry-run --dry-run",
         "--no-dry-run and --dry-run are both given; leave one of them out"),
    ],
)  # fmt: skip
def test_mistakes_say_what_to_do(arguments: str, message: str) -> None:
    assert complaint(arguments) == message


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_of_any_verb_drops_a_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str) -> object:
        with pytest.raises(SystemExit):
            read_arguments(name, COMMANDS[name], [*words, "--print-config"])
        return capsys.readouterr().out

    for option in options_of(COMMANDS[name].config).values():
        if typing.get_origin(option.hint) is tuple and not option.positional:
            one, other = LIST_ITEMS.get(typing.get_args(option.hint)[0], option.choices[:2])
            together = printed(option.shown, f"[{one}, {other}]")
            assert printed(option.shown, f"[{one}]", option.shown, f"[{other}]") == together
            assert printed(option.shown, f"[{other}]") != together
        elif not option.positional:
            words = [option.shown] if option.hint is bool else [option.shown, "1"]
            with pytest.raises(ConfigError, match=f"^{option.shown} is given twice; leave one"):
                read_arguments(name, COMMANDS[name], [*words, *words])


def test_every_verb_that_reads_text_takes_an_encoding() -> None:
    """The others read a store, a model or weights, or what comes over HTTP."""
    without = {
        name
        for name, command in COMMANDS.items()
        if "--encoding" not in {each.shown for each in options_of(command.config).values()}
    }
    assert without == {
        "demo", "pretrain", "models", "compare", "write", "convert", "push", "serve", "completion",
    }  # fmt: skip


def test_what_is_like_nothing_is_answered_by_a_list() -> None:
    said = complaint("rye --out loaf --xyzzy 3")
    assert said.startswith(
        "there is no option --xyzzy; the options are: --out, --from, --batch-size, "
    )
    # not --header
    with pytest.raises(ConfigError, match="there is no option --threads; the options are: --out"):
        read_arguments("explain", COMMANDS["explain"], ["model", "--threads", "3"])
    with pytest.raises(ConfigError, match="unexpected argument 'plate'"):
        read("loaf saw plate", SLICE)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("--help --batch-size 8")
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in (
        "usage: bertsmith bake FLOUR [FLOUR ...] --out OUT [options]",
        "Bake bread from flour. It takes a while, 90 % of it in the oven.",
        "FLOUR bags",
        "--out OUT folder for the bread (required)",
        "--from FROM who bakes it --batch-size BATCH-SIZE loaves at a time (default: 16)",
        "--oven-heat OVEN-HEAT in degrees, 90 % of it from below (default: 200.0)",
        "--size {small,large} of the loaf (default: small)",
        "--dry-run, --no-dry-run heat nothing --salts SALTS,... shares of each (default: 0.9,0.98)",
        "--config FILE",
        "What makes it rise:",
        "--yeast.learning-rate LEARNING-RATE how quickly it rises (default: 0.003)",
        "--crisp, --no-crisp brush it with water (default: true)",
        "--whole {true,false} with the hull examples:",
        "examples: bertsmith bake rye wheat --out loaf",
    ):
        assert part in shown


def test_help_needs_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    fields = [("size", int, dataclasses.field(default=3))]
    made = dataclasses.make_dataclass(
        "Made", fields, bases=(Config,), frozen=True, kw_only=True, namespace={"__doc__": "Made."}
    )
    with pytest.raises(SystemExit):
        read("--help", command_of(made, bake))
    assert "--size SIZE (default: 3)" in " ".join(capsys.readouterr().out.split())
    assert python_function("made", made, bake)().to_dict() == {"size": 3}


def test_overview_lists_every_verb() -> None:
    page = help_page({"bake": BAKE, "slice up": SLICE}, "All about bread.")
    assert page.startswith("All about bread.\n")
    assert "  bake      Bake bread from flour.\n  slice up  Slice bread.\n" in page
    assert "  bertsmith slice up loaf\n" in page


@dataclasses.dataclass(frozen=True, kw_only=True)
class Oven(Config):
    """The options of an oven."""

    recipe: str = "rye"
    """what is baked"""
    yeast: Yeast | None = dataclasses.field(default=None, metadata=INLINE)
    """other yeast than the recipe's"""


def recipe_yeast(given: Mapping[str, Any]) -> Mapping[str, Any]:
    rate = float(len(given.get("recipe", "rye")))
    return {"yeast": Yeast(learning_rate=rate, kind="dry").to_dict()}


def test_defaults_may_depend_on_other_options(capsys: pytest.CaptureFixture[str]) -> None:
    oven = command_of(Oven, bake, defaults=recipe_yeast)
    assert read("--recipe wheat", oven) == Oven(recipe="wheat", yeast=None)
    fresh = Yeast(kind="fresh", learning_rate=5.0)
    assert read("--recipe wheat --kind fresh", oven).yeast == fresh
    for option in ("--help", "--print-config"):
        with pytest.raises(SystemExit):
            read(f"--recipe wheat {option}", oven)
    shown = capsys.readouterr().out
    assert "(default: 5.0)" in shown
    assert "learning-rate: 5.0\n" in shown


def test_a_python_function_has_the_same_options() -> None:
    function = python_function("bake", Bread, bake)
    expected = changed(batch_size=3, yeast=Yeast(kind="dry", learning_rate=3e-3))
    assert function("rye", out="loaf", batch_size=3, yeast={"kind": "dry"}) == expected
    assert function(flour=["rye"], out=Path("loaf"), from_="Ann").from_ == "Ann"
    # as its signature says
    assert function("rye", out="loaf", yeast=None) == function("rye", out="loaf")
    described = str(function.__doc__)
    assert "\n    batch_size: loaves at a time" in described
    assert "\n    yeast: a dictionary of\n        kind: where it comes from\n" in described
    assert {"from_", "batch_size", "yeast"} <= inspect.signature(function).parameters.keys()
    for values, named_values, message in (
        (("rye",), {}, "missing: out"),
        (("rye", "loaf"), {}, "bake has too many arguments"),
        (("rye",), {"flour": "rye"}, "bake has too many arguments"),
        (("rye",), {"out": "x", "batch": 3}, "no option batch; did you mean batch_size"),
        (("rye",), {"out": "x", "batch_siz": 3}, "no option batch_siz; did you mean batch_size"),
        (("rye",), {"out": "x", "yeast": {"kind": "dry"}, "yeast.kind": "dry"}, "twice"),
        (("rye",), {"out": "x", "batch_size": "3"}, "batch_size is '3'; it must be a whole"),
        (("rye",), {"out": "x", "yeast": {"kind": 3}}, "yeast.kind is 3"),
        (("rye",), {"out": "x", "batch_size": 0}, "^batch_size is 0; it must be at least 1$"),
        (("rye",), {"out": "x", "oven_heat": math.nan}, "^oven_heat is not a number"),
        (("rye",), {"out": "x", "yeast": {"learning_rate": math.nan}}, "^yeast.learning_rate is"),
    ):
        with pytest.raises(ConfigError, match=message):
            function(*values, **named_values)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("--batch-size is 3, and --yeast.kind wet", "batch_size is 3, and yeast.kind wet"),
        ("give --size small or --size large", 'give size="small" or size="large"'),
        ("take --from, or --batch-size 16, or --oven-heat 0.5",
         "take from_, or batch_size=16, or oven_heat=0.5"),
        ("with --dry-run, or --no-crisp", "with dry_run, or crisp=False"),
        ("--no-crisp is for rye", "crisp=False is for rye"),
        ("--hours auto (or --steps) helps", 'hours="auto" (or steps) helps'),
        ("so --batch-size: bertsmith bake rye --out loaf",
         "so batch_size: bertsmith bake rye --out loaf"),
        ("the label '--batch-size' and a--b", "the label '--batch-size' and a--b"),
    ],
)  # fmt: skip
def test_errors_in_python_name_keywords(said: str, expected: str) -> None:
    def fail(bread: Bread) -> None:
        raise CorpusError(said, where="--from", line=3, remedy=said)

    with pytest.raises(CorpusError) as caught:
        python_function("bake", Bread, fail)("rye", out="loaf")
    assert str(caught.value) == f"--from:3: {expected}; {expected}" == caught.value.args[0]


@pytest.mark.parametrize(
    "line",
    [["vocab learn", "", "--out", "x"], ["vocab learn", "a.txt", "--out", ""],
     ["vocab learn", "a.txt", "--out="]],
)  # fmt: skip
def test_an_empty_path_is_refused(line: list[str]) -> None:
    with pytest.raises(ConfigError, match="is empty; name a file or a folder"):
        read_arguments(line[0], COMMANDS[line[0]], line[1:])


@pytest.mark.parametrize("verb", ["predict", "embed", "explain", "inspect", "score"])
def test_an_empty_name_of_a_file_is_not_the_working_folder(verb: str) -> None:
    out = {"embed": ["--out", "x.npy"], "inspect": ["--out", "x.html"]}.get(verb, [])
    for name in ("", " "):
        with pytest.raises(ConfigError, match="FILE is empty; name it; a variable of the shell"):
            read_arguments(verb, COMMANDS[verb], ["model", name, *out])
    read_arguments(verb, COMMANDS[verb], ["model", "-", *out])


def test_an_empty_name_of_a_model_to_serve_is_not_the_working_folder() -> None:
    with pytest.raises(ConfigError, match="MODELS is empty; name it; a variable of the shell"):
        read_arguments("serve", COMMANDS["serve"], ["model", ""])


@pytest.mark.parametrize(
    "line",
    ["quantize model --calibrate texts --out out --threads", "serve model --workers",
     "export model --to onnx --precision int8 --calibrate texts --out out --threads",
     "predict model --threads"],
)  # fmt: skip
def test_more_threads_or_processes_than_machines_have_are_refused_at_once(line: str) -> None:
    """An export ended in a traceback of onnxruntime's, or was killed, when all else was done."""
    verb, *arguments = line.split()
    for number in ("0", "1025", "1000000000000"):
        with pytest.raises(ConfigError, match=rf" is {number}; it must be in \[1, 1024\]$"):
            read_arguments(verb, COMMANDS[verb], [*arguments, number])
    read_arguments(verb, COMMANDS[verb], [*arguments, "1024"])


def test_an_empty_size_is_none_to_choose() -> None:
    """A small model was trained, which neither the text nor the budget had chosen."""
    for size in ("", " "):
        line = ["store", "--out", "run", "--steps", "1", "--model", size]
        with pytest.raises(ConfigError, match="--model is empty; name a size, or leave it out"):
            read_arguments("pretrain", COMMANDS["pretrain"], line)


@pytest.mark.parametrize("given", ["", " ", ",", " , "])
def test_an_empty_list_is_refused_and_not_taken_for_none(given: str) -> None:
    for line in (["--salts", given], ["--salts", "0.5", f"--salts={given}"]):
        with pytest.raises(ConfigError, match=r"--salts is empty; .* or leave it out"):
            read(["rye", "--out", "loaf", *line])
    with pytest.raises(ConfigError, match=r"--choices is empty"):
        read_arguments("predict", COMMANDS["predict"], ["model", "file", f"--choices={given}"])
    # which takes back what a file of settings says
    assert read(["rye", "--out", "loaf", "--salts", "[]"]).salts == ()
