"""What docs/serving.md tells is true: the server that it starts answers as it says."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import io
import json
import re
import shlex
import shutil
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertsmith.cli.command import read_arguments
from bertsmith.cli.commands import COMMANDS
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.serving.config import ServeConfig
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from browsing.chromium import Page, Pipes, browser
from documents import ROOT, Block, RunningServer, blocks, commands, page

pytest.importorskip("starlette")
pytest.importorskip("granian")
pytest.importorskip("orjson")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")

from serving_inline import running

SERVING = "docs/serving.md"
BLOCKS = blocks(page(SERVING))
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "bash"]
__all__ = ["browser"]

DONE = "['answered', 'problem'].includes(document.body.dataset.state)"
EXAMPLES = "document.querySelectorAll('#examples button')"
SHOWN = "['problem', 'summary'].map((each) => document.getElementById(each).textContent)"


def models(folder: Path) -> None:
    """Write the model folders that the page names, of the smallest size, with random weights."""
    letters = string.ascii_lowercase
    pieces = (*SPECIALS, *string.punctuation, *letters, *(f"##{letter}" for letter in letters))
    tokenizer = Tokenizer(pieces, BasicRules(lowercase=True))
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=16, layers=1, heads=2, feed_forward=24, longest=128,
        initial_std=0.5,
    )  # fmt: skip
    bare = ModelConfig(encoder=encoder)
    configs = {
        "spam/model": bare.with_head("class", ("ham", "spam")),
        "names/model": bare.with_head("tags", ("O", "B-PER", "I-PER")),
        "reader/model": bare.with_head("span"),
        "search/model": bare.with_head("number", ("relevance",)),
        "pretrained": ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True),
    }
    for name, config in configs.items():
        (folder / name).parent.mkdir(exist_ok=True)
        save_model(folder / name, build_model(config, seed=5), tokenizer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The server as the page starts it."""
    folder = tmp_path_factory.mktemp("served")
    models(folder)
    (start,) = [line for block in SHELL for line in commands(block) if line.endswith(" &")]
    running = RunningServer(start, folder)
    yield running
    assert running.stop() == 0


def promised(block: Block) -> object:
    """Return the JSON that the page shows below a block; None if it shows none."""
    after = BLOCKS[BLOCKS.index(block) + 1 :][:1]
    return json.loads(after[0].text) if after and after[0].language == "json" else None


def form(value: object) -> object:
    """Return the form of a value: keys and types, of lists that of their first item."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    if isinstance(value, list):
        return [form(item) for item in value[:1]]
    return type(value)


def alike(told: object, found: object) -> bool:
    """Return whether an answer has the form that the page promises, or is empty there."""
    if isinstance(told, dict) and isinstance(found, dict):
        return told.keys() == found.keys() and all(alike(told[key], found[key]) for key in told)
    if isinstance(told, list) and isinstance(found, list):
        return not told or not found or alike(told[0], found[0])
    return found is type(None) or told is found


@pytest.mark.parametrize("block", SHELL, ids=lambda block: f"line {block.line}")
def test_the_page_can_be_followed(block: Block, server: RunningServer) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    for command in commands(block):
        if command.endswith(" &"):
            continue
        own = server.here(command).replace("curl ", "curl --write-out '\\n%{http_code}' ", 1)
        done = subprocess.run(["bash", "-c", own], capture_output=True, text=True, check=False)
        body, _, status = done.stdout.rpartition("\n")
        assert (done.returncode, status) == (0, "200"), (command, done.stdout, done.stderr)
        told = promised(block)
        if told is not None:
            assert alike(form(told), form(json.loads(body))), body


@pytest.mark.parametrize("package", ["openai", "huggingface_hub"])
def test_the_snippet_of_a_client_runs(package: str, server: RunningServer) -> None:
    pytest.importorskip(package)
    (block,) = [block for block in PYTHON if block.text.startswith(f"from {package} ")]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(server.here(block.text), SERVING, "exec"), {})
    assert said.getvalue() == block.promised


def test_a_person_asks_every_model_on_the_page(server: RunningServer, browser: Pipes) -> None:
    """In a browser, before the real server: every example of every task gets an answer."""
    tab = Page(browser)
    tab.open(f"http://{server.address}/")
    asked = 0
    for model in range(tab.evaluate("document.getElementById('model').length")):
        _pick(tab, "model", model)
        for task in range(tab.evaluate("document.getElementById('task').length")):
            _pick(tab, "task", task)
            for number in range(
                tab.evaluate("document.querySelectorAll('#examples button').length")
            ):
                tab.evaluate(f"document.querySelectorAll('#examples button')[{number}].click()")
                tab.wait(DONE)
                problem, summary = tab.evaluate(SHOWN)
                assert (problem == "") != (summary == ""), (model, task, number)
                # the models of this test read 128 letters
                assert problem == "" or "tokens" in problem, problem
                asked += 1
                tab.evaluate("document.body.dataset.state = 'ready'")
    assert asked > 10
    assert [
        complaint for complaint in tab.complaints() if "the server responded" not in complaint
    ] == []


def _pick(tab: Page, name: str, number: int) -> None:
    tab.evaluate(
        f"(() => {{ const own = document.getElementById({name!r}); own.selectedIndex = {number};"
        "own.dispatchEvent(new Event('change')); })()"
    )


def test_every_endpoint_is_on_the_page(server: RunningServer) -> None:
    import httpx

    paths = httpx.get(f"http://{server.address}/openapi.json", timeout=300).json()["paths"]
    text = page(SERVING)
    assert [path for path in paths if path not in text] == []


def test_every_metric_is_on_the_page_and_every_one_there_exists(server: RunningServer) -> None:
    import httpx

    text = httpx.get(f"http://{server.address}/metrics", timeout=300).text
    names = set(re.findall(r"^# TYPE (bertsmith_\w+) (?!histogram)", text, re.MULTILINE))
    names |= set(re.findall(r"^# TYPE (bertsmith_\w+) histogram", text, re.MULTILINE))
    told = set(re.findall(r"`(bertsmith_\w+)`", page(SERVING)))
    created = {name for name in names if name.endswith("_created")}
    assert told == names - created


@pytest.mark.parametrize("forwarded", [True, False])
def test_the_page_works_behind_the_proxy_that_is_shown(forwarded: bool) -> None:
    (line,) = re.findall(r"`(bertsmith serve [^`]*--allowed-hosts [^`]*)`", page(SERVING))
    config = served(shlex.split(line)[2:])
    (site,) = config.allowed_hosts
    (block,) = [block for block in BLOCKS if block.language == "nginx"]
    (sent,) = re.findall(r"proxy_set_header Host (\S+);", block.text)
    host = sent.replace("$host", site) if forwarded else "127.0.0.1:8080"

    async def run() -> None:
        async with running(hosts=config.allowed_hosts) as rig:
            # as browsers send it, with every POST of a page
            headers = {"host": host, "origin": f"https://{site}"}
            response = await rig.post("/answer", {"inputs": ["a"]}, **headers)
            assert response.status_code == 200, response.text

    asyncio.run(run())


def served(words: list[str]) -> ServeConfig:
    """Return the options of a command line, which have to exist."""
    config = read_arguments("serve", COMMANDS["serve"], words)
    assert isinstance(config, ServeConfig)
    return config


def test_the_container_serves_with_options_that_exist() -> None:
    text = page("deploy/Containerfile")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    program, verb, *words = json.loads(entry)
    assert (program, verb) == ("bertsmith", "serve")
    assert served([*words, "/models/spam"]).host == "0.0.0.0"
    # not root, alive by a path that asks for no key, stopped by what drains it
    final = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", final, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK.*\\\n.*/health", final, re.MULTILINE)
    assert "STOPSIGNAL SIGTERM" in final
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_unit_of_systemd_serves_with_options_that_exist() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False, delimiters="=")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(page("deploy/bertsmith.service"))
    program, verb, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, verb) == ("bertsmith", "serve")
    config = served(words)
    assert config.host == "127.0.0.1"
    # systemd waits longer than the server needs to answer what it has
    longest = config.drain_delay + config.limits.deadline
    assert float(unit["Service"]["TimeoutStopSec"]) > longest
    assert unit["Service"]["KillMode"] == "mixed"
    if shutil.which("systemd-analyze") is not None:
        found = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20",
             str(ROOT / "deploy" / "bertsmith.service")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stdout[-400:]
