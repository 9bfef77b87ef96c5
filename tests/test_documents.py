"""What the documents tell is true: commands and snippets run, links and names exist.

Everything runs in the order of the page, in an empty folder with an invented corpus; only the
training is cut short (`shortened`), and what installs is just looked up in the Makefile.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forking
from bertsmith.cli.command import read_arguments
from bertsmith.cli.commands import COMMANDS
from documents import ROOT, Block, RunningServer, blocks, commands, page
from invented import invented_documents

README, TOUR = "README.md", "docs/tour.md"
PRETRAINING = "docs/pretraining.md"
CONTINUED = (
    PRETRAINING, "docs/command-line.md", "docs/fine-tuning.md", "docs/folders.md", "docs/python.md"
)  # fmt: skip
PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
)
ENVIRONMENT = "source .venv/bin/activate"
END = "end of the snippet"
SMALL_BATCHES = "--tokens-per-batch 512"


def shortened(text: str) -> str:
    """The same with less training: all that differs from the page."""
    for long, short in (
        # the size is chosen by the clock, and may be one that all that follows waits for
        (r"(bertsmith pretrain store --out run) --minutes", r"\1 --model tiny --minutes"),
        (r"--tokens-per-batch \d+", ""),
        (r"(?<=bertsmith pretrain )(.*)--(minutes|steps) \d+", rf"\1--steps 2 {SMALL_BATCHES}"),
        (r"\bminutes=\d+", "steps=2, tokens_per_batch=512"),
        (r"--model mini\b", "--model tiny"), (r'\bmodel="mini"', 'model="tiny"'),
        (r"--epochs \d+", "--epochs 1"), (r"\bepochs=\d+", "epochs=1"),
        (r"--seeds \d+", "--seeds 1"), (r"\bseeds=\d+", "seeds=1"),
    ):  # fmt: skip
        text = re.sub(long, short, text)
    return text


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def targets(text: str) -> set[str]:
    return set(re.findall(r"^([a-z]+):", text, re.MULTILINE))


def check_make(command: str) -> None:
    """A target of the Makefile, with variables that it takes; the demo's options fit."""
    _, *words = shlex.split(command)
    makefile = page("Makefile")
    for word in words:
        name, assigned, value = word.partition("=")
        if not assigned:
            assert name in targets(makefile), command
            continue
        assert re.search(rf"^{name} \?=", makefile, re.MULTILINE), command
        if name == "ARGS" and words[0] == "demo":
            read_arguments("demo", COMMANDS["demo"], shlex.split(value))


class Follower:
    """Somebody who does what a page says, in a folder of their own."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._run_script = str(programs / "run-script")
        places = (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
        self._variables = os.environ | {"PATH": os.pathsep.join(places), "COLUMNS": "100"}
        self._server: RunningServer | None = None

    def shell(self, command: str) -> None:
        if command.startswith("make "):
            check_make(command)
        elif command.startswith("bertsmith serve ") and command.endswith(" &"):
            assert self._server is None, command
            self._server = RunningServer(command, self._folder)
        elif command.startswith("curl "):
            assert self._server is not None, command
            self._run(["bash", "-euo", "pipefail", "-c", self._server.here(command)])
        elif command == ENVIRONMENT:
            assert "VENV := .venv\n" in page("Makefile")
        else:
            self._run(["bash", "-euo", "pipefail", "-c", shortened(command)])

    def close(self) -> None:
        """End the server that the page left running."""
        if self._server is not None:
            assert self._server.stop() == 0

    def snippets(self, name: str, found: list[Block]) -> None:
        """Run snippets as one file, its lines numbered as on the page, and compare what it says."""
        lines = [""] * page(name).count("\n")
        for block in found:
            own = shortened(block.text).splitlines()
            lines[block.line - 1 : block.line - 1 + len(own)] = own
            lines[block.line - 1 + len(own)] = f"print({END!r})"
        script = self._folder / (Path(name).stem + ".py")
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        said = self._run([self._run_script, str(script)]).split(f"{END}\n")
        for block, shown in zip(found, said, strict=False):
            if block.promised is not None:
                assert shown == block.promised, f"{name}:{block.line}"

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shell finds bertsmith: it starts in no time."""
    return forking.programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text and labels under the names of the README."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "books").mkdir()
    for number in range(2):
        documents = invented_documents(20, seed=number)
        text = "\n\n".join("\n".join(document.paragraphs) for document in documents)
        (folder / "books" / f"{number}.txt").write_text(text, encoding="utf-8")
    random = np.random.default_rng(3)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for number in range(24):
            text = documents[number % 20].paragraphs[0].split(".")[0]
            table.writerow([f"{text}, {random.integers(9)} dogs", ("cats", "dogs")[number % 2]])
    (folder / "messages.txt").write_text("Bada gu, dogs.\n\nZe mila!\n", encoding="utf-8")
    return folder


@pytest.fixture
def follower(tmp_path: Path, programs: Path, data: Path) -> Iterator[Follower]:
    """Somebody with text and labels of their own."""
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    follower = Follower(tmp_path, programs)
    yield follower
    follower.close()


def test_the_readme_can_be_followed(follower: Follower, tmp_path: Path) -> None:
    follow(README, follower)
    assert (tmp_path / "answers.jsonl").read_text(encoding="utf-8").count("\n") == 3
    # these pages go on where that one ends
    for name in CONTINUED:
        follow(name, follower)
    missing = [name for name in files_of_runs() if not list(tmp_path.glob(f"*/{name}"))]
    assert missing == []


def follow(name: str, follower: Follower) -> None:
    """Do what a page says, block by block."""
    shell = [block for block in blocks(page(name)) if block.language == "bash"]
    for block in shell:
        for command in commands(block):
            follower.shell(command)
    snippets = [block for block in blocks(page(name)) if block.language == "python"]
    for script in [[snippet] for snippet in snippets] if name == README else [snippets]:
        if script:
            follower.snippets(name, script)


def test_the_tour_can_be_walked(tmp_path: Path, programs: Path) -> None:
    follower = Follower(tmp_path, programs)
    found = blocks(page(TOUR))
    follower.snippets(TOUR, [block for block in found if block.language == "python"])
    for block in found:
        if block.language == "bash":
            for command in commands(block):
                follower.shell(command)


def files_of_runs() -> Iterator[str]:
    """The names in the first column of the table of a run folder."""
    _, _, section = page(PRETRAINING).partition("\n## The run folder\n")
    table, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert rows
    for row in rows:
        yield from re.findall(r"`([^`]+)`", row)


@pytest.mark.parametrize(
    "command",
    [
        "make dmeo",
        'make demo ARGS="--minuets 2"',
        "make demo OPTIONS=-q",
        "bertsmith vocab lern books/ --out vocab",
        "bertsmith vocab learn books/ --out vocab --sise 100",
        "bertsmith predict nowhere/model | cat",
    ],
)
def test_a_wrong_command_is_noticed(follower: Follower, command: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        follower.shell(command)


@pytest.mark.parametrize("text", ["print(1 +", "print(2)", "from bertsmith import nothing"])
def test_a_wrong_snippet_is_noticed(follower: Follower, text: str) -> None:
    block = Block(language="python", line=3, text=f"{text}\n", promised="1\n")
    with pytest.raises(AssertionError):
        follower.snippets(README, [block])


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", prose(page(name))):
        if not link.startswith("https://"):
            file, _, anchor = link.partition("#")
            target = (ROOT / name).parent.joinpath(file) if file else ROOT / name
            assert target.exists(), link
            assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_pages_that_the_source_names_exist() -> None:
    files = [
        path for folder in ("src", "benchmarks", "deploy") for path in (ROOT / folder).rglob("*")
    ]
    named = {
        page_name
        for path in files
        if path.suffix in {".py", ".service"}
        for page_name in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert named
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_every_page_is_in_the_index() -> None:
    index = page("docs/README.md")
    own = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    assert [name for name in own if f"({name})" not in index] == []


@pytest.mark.parametrize("name", PAGES)
def test_names_in_the_text_exist(name: str) -> None:
    code = re.findall(r"`([^`\n]+)`", prose(page(name)))
    for text in code:
        if text.startswith("make "):
            check_make(text)
        elif text.startswith("bertsmith "):
            assert any(text.startswith(f"bertsmith {verb}") for verb in COMMANDS), text
        elif re.fullmatch(r"[\w./]+\.(py|toml)", text):
            places = (ROOT, ROOT / "src" / "bertsmith")
            assert any((place / text).exists() for place in places), text


def test_every_folder_of_the_source_is_in_the_tree() -> None:
    (tree,) = [block.text for block in blocks(page(README)) if "src/bertsmith/\n" in block.text]
    told = re.findall(r"^  (\w+)/ +\S", tree, re.MULTILINE)
    source = ROOT / "src" / "bertsmith"
    assert sorted(told) == sorted(path.parent.name for path in source.glob("*/__init__.py"))
    files = re.findall(r"\b(\w+\.py)\b", tree)
    assert sorted(files) == sorted(p.name for p in source.glob("*.py") if p.name != "__init__.py")
    others = re.findall(r"^(\w+)/ ", tree, re.MULTILINE)
    assert all((ROOT / name).is_dir() for name in others)
    assert set(re.findall(r" (\w+)/ ", tree.partition("\ntests/")[2])) <= {"src"} | {
        path.name for path in (ROOT / "tests").iterdir()
    }


def test_the_tour_goes_by_the_order_of_the_road() -> None:
    stops = re.findall(r"^## \d+\. .*?(\w+)$", page(TOUR), re.MULTILINE)
    road = "Text Tokens store Batches network Objectives Training Weights Evaluation tasks Recipes"
    assert stops == [*road.split(), "predict", "pretrain"]


def test_every_verb_is_in_the_readme() -> None:
    text = page(README)
    assert [verb for verb in COMMANDS if not re.search(rf"\b(bertsmith|make) {verb}\b", text)] == []
