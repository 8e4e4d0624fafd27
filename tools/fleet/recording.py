"""Records the pages of a real sidecar beside two real programs, a second apart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from jaxmon import catalog
from jaxmon.exposition.parse import parse


PATIENCE_SECONDS = 180.0
STEADY_PAGES = 8
PROGRAMS = ("serve", "train")


class RecordingError(Exception):
    """The programs did not do what a recording needs."""


@dataclass(frozen=True)
class Page:
    """
    What a sidecar served.

    Args:
        at: seconds since the epoch.
        text: in text format 0.0.4.
    """

    at: float
    text: str


@dataclass(frozen=True)
class Recording:
    """
    Two sidecars over one steady stretch.

    Args:
        host: of the sidecar with the programs.
        devices: of the sidecar with synthetic accelerators.
    """

    host: tuple[Page, ...]
    devices: tuple[Page, ...]


def record(
    pages: int = STEADY_PAGES, start: Callable[..., Any] = subprocess.Popen
) -> Recording:
    """
    Run the demo's programs and sidecars, by *start*, until *pages* pages in a row saw
    no compile.

    A stretch with compiles would make each process of the fleet compile for ever.
    Takes half a minute, most of it the start of JAX.

    Raises:
        RecordingError: a program exited, or compiled all the time.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.chmod(0o700)
        environ = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAXMON_RUN_DIR": str(directory),
        }
        sidecar = [sys.executable, "-m", "jaxmon", "exporter", "--host", "127.0.0.1"]
        sidecar += ["--port", "0", "--agents-interval", "0.5"]
        # Apart from the programs, so that only synthetic ones stand on its page.
        synthetic = [*sidecar, "--demo", "--run-dir", str(directory / "none")]
        commands = {"devices": synthetic, "host": sidecar}
        for name in PROGRAMS:
            commands[name] = [
                sys.executable,
                "-m",
                f"jaxmon_alerts.gameday.programs.{name}",
            ]
        running = [
            stack.enter_context(
                _running(
                    partial(start, command, env=environ), directory / f"{name}.log"
                )
            )
            for name, command in commands.items()
        ]
        deadline = time.monotonic() + PATIENCE_SECONDS
        devices, host = (
            _url(directory / f"{name}.log") for name in ("devices", "host")
        )
        stretch: list[tuple[Page, Page]] = []
        while len(stretch) < pages:
            time.sleep(1)
            for process in running:
                if process.poll() is not None:
                    msg = f"{process.args!r} exited with code {process.returncode}"
                    raise RecordingError(msg)
            if time.monotonic() > deadline:
                msg = f"no {pages} pages in a row without a compile"
                raise RecordingError(msg)
            both = _page(host), _page(devices)
            misses = _misses(both[0])
            if misses is None or (stretch and misses != _misses(stretch[0][0])):
                stretch.clear()
            if misses is not None:
                stretch.append(both)
        return Recording(*zip(*stretch, strict=True))


def save(recording: Recording, directory: Path) -> None:
    """Write one file for each page, named by its moment in milliseconds."""
    for name, pages in (("host", recording.host), ("devices", recording.devices)):
        (directory / name).mkdir(parents=True, exist_ok=True)
        for page in pages:
            path = directory / name / f"{round(page.at * 1000)}.prom"
            path.write_text(page.text, encoding="utf-8")


def load(directory: Path) -> Recording:
    """
    Return what `save` wrote.

    Raises:
        RecordingError: there is no recording.
    """

    def pages(name: str) -> tuple[Page, ...]:
        found = sorted((directory / name).glob("*.prom"))
        if not found:
            msg = f"no pages in {directory / name}; `python -m tools.fleet record`"
            raise RecordingError(msg)
        return tuple(
            Page(int(path.stem) / 1000, path.read_text(encoding="utf-8"))
            for path in found
        )

    return Recording(pages("host"), pages("devices"))


@contextmanager
def _running(
    start: Callable[..., subprocess.Popen[bytes]], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = start(stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := re.search(r"http://[\w.]+:(\d+)/", log.read_text()):
            return f"http://127.0.0.1:{found[1]}/metrics"
        time.sleep(0.1)
    msg = f"the sidecar does not start: {log.read_text()}"
    raise RecordingError(msg)


def _page(url: str) -> Page:
    try:
        with urlopen(url, timeout=30) as response:  # noqa: S310 - our own server
            return Page(time.time(), response.read().decode())
    except (URLError, ConnectionError):
        return Page(time.time(), "")


def _misses(page: Page) -> float | None:
    """Return how often the programs missed their caches; `None` until all work."""
    total = {
        family.name: sum(value for _, _, value in family.samples)
        for family in parse(page.text)
    }
    if not total.get(catalog.REQUESTS.name) or not total.get(catalog.STEPS.name):
        return None
    return total[catalog.JIT_CACHE_MISSES.name]
