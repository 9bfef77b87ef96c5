"""Headless Chromium, asked through its DevTools protocol over two pipes: no driver, no package."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--no-proxy-server",
    # in a container there is no sandbox to be had, and the page is ours
    "--no-sandbox", "--disable-dev-shm-usage", "--disable-features=Translate,MediaRouter",
)  # fmt: skip
# resolves when the expression is true, looked at whenever the page could have changed
WAIT = """new Promise((resolve) => {
  const look = () => ((%s) ? resolve(true) : setTimeout(look, 5));
  look();
})"""

# texts whose contrast with what is behind them is too low (WCAG 2.2, 1.4.3)
PALE = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => colour.slice(0, 3).map((each) => each / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    if (!node) return [255, 255, 255];
    const [red, green, blue, share = 1] = numbers(getComputedStyle(node).backgroundColor);
    if (share === 1) return [red, green, blue];
    const under = behind(node.parentElement);
    return [red, green, blue].map((each, at) => share * each + (1 - share) * under[at]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const own = node.parentElement, drawn = own instanceof SVGElement;
    if (!node.data.trim() || own.closest('[hidden], noscript, option, style, metadata')) continue;
    if (!drawn && !own.offsetParent) continue;
    const style = getComputedStyle(own);
    const [one, other] = [light(numbers(drawn ? style.fill : style.color)), light(behind(own))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) found.push([node.data, contrast]);
  }
  return found;
})()"""


def chromium() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """A tab of the browser."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        target = pipes.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = pipes.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        return self._pipes.ask(method, session=self._session, **parameters)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401
        """Return the value of an expression, a promise's when it is kept."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true; the browser's own limit ends it."""
        self.evaluate(WAIT % expression)

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && document.body.dataset.state")

    def type(self, text: str) -> None:
        self.ask("Input.insertText", text=text)

    def press(self, key: str, *, control: bool = False, shift: bool = False) -> None:
        codes = {"Enter": 13, "Tab": 9, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
        named = {
            "key": key, "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": codes[key], "modifiers": 2 * control + 8 * shift,
        }  # fmt: skip
        typed = {"Enter": "\r", " ": " "}.get(key, "")
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=typed, **named)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window and the colours that the person prefers."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        value = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def pale(self) -> list[list[Any]]:
        """Return texts that can hardly be read on what is behind them, and their contrast."""
        found: list[list[Any]] = self.evaluate(PALE)
        return found

    def photograph(self, file: Path) -> None:
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def printed_colours(self) -> set[tuple[float, ...]]:
        """Return the colours of areas, from 0 to 1, as a browser prints them without being told."""
        pdf = base64.b64decode(self.ask("Page.printToPDF")["data"])
        found = set()
        for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
            # fonts and the like are compressed otherwise
            with suppress(zlib.error):
                for colour in re.findall(rb"([\d. ]+) rg\b", zlib.decompress(stream)):
                    found.add(tuple(map(float, colour.split())))
        return found

    def accessible(self) -> list[tuple[str, str]]:
        """Return role and name of everything that a screen reader meets."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node.get("role", {}).get("value")), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node["ignored"]
        ]

    def complaints(self) -> list[str]:
        """Return what the console said: errors, violations of the policy, exceptions."""
        self.evaluate("new Promise((resolve) => setTimeout(resolve, 0))")
        found = []
        for event in self._pipes.events:
            parameters = event.get("params", {})
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Log.entryAdded":
                found.append(str(parameters["entry"]["text"]))
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"]))
        return found

    def forget(self) -> None:
        """Forget complaints and requests."""
        self._pipes.events.clear()

    def requested(self) -> list[str]:
        """Return all addresses that were asked for."""
        return [
            str(event["params"]["request"]["url"])
            for event in self._pipes.events
            if event["method"] == "Network.requestWillBeSent"
            and event.get("sessionId") == self._session
        ]


class Pipes:
    """The two pipes to a browser: requests out, answers and events back."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back = os.fdopen(out, "wb", 0), os.fdopen(back, "rb", 0)
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            asked["sessionId"] = session
        self._out.write(json.dumps(asked).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]  # type: ignore[no-any-return]
            if "method" in found:
                self.events.append(found)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = self._back.read(1 << 16)
            assert read, "the browser ended"
            self._rest += read
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)  # type: ignore[no-any-return]

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._out.close()
        self._back.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Pipes]:
    """A browser, for the modules that import this; skipped by name where there is none."""
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        started(program, Path(profile)) as pipes,
    ):
        yield pipes


@contextmanager
def started(program: str, profile: Path) -> Iterator[Pipes]:
    """A browser with an empty profile."""
    theirs_in, out = os.pipe()
    back, theirs_out = os.pipe()
    # Chromium reads from 3 and writes to 4; theirs_in is the lower of the two, so neither is lost
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", script, "-", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs_in, theirs_out),
    )
    os.close(theirs_in)
    os.close(theirs_out)
    pipes = Pipes(out, back)
    try:
        yield pipes
    finally:
        pipes.close()
        process.terminate()
        process.wait()
