"""Records the pages of a real sidecar beside two real programs, a second apart."""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from jaxmon import catalog
from jaxmon.errors import JaxmonError
from jaxmon.exposition.parse import parse
from jaxmon_alerts.gameday import children as programs


PATIENCE_SECONDS = 180.0
STEADY_PAGES = 8
PROGRAMS = ("serve", "train")


class RecordingError(JaxmonError):
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
    pages: int = STEADY_PAGES, launch: programs.Launch = subprocess.Popen
) -> Recording:
    """
    Run the demo's programs and sidecars, as *launch* starts them, until *pages* pages
    in a row saw no compile.

    A stretch with compiles would make each process of the fleet compile for ever.
    Takes half a minute, most of it the start of JAX.

    Raises:
        CommandError: a program exited.
        RecordingError: they compiled all the time.
    """
    with tempfile.TemporaryDirectory() as directory:
        environ = {
            **programs.environ(directory, scale=1.0),
            "JAX_PLATFORMS": "cpu",
            "JAXMON_RELEASE": "",
        }
        with programs.Children(
            environ, Path(directory), patience=30, launch=launch
        ) as children:
            # Apart from the programs, so that only synthetic ones stand on its page.
            sidecars = [
                programs.start_sidecar(children, run_dir, *options, name=name)
                for name, run_dir, options in (
                    ("host", directory, ("--agents-interval", "0.5")),
                    ("devices", f"{directory}/none", ("--demo",)),
                )
            ]
            for name in PROGRAMS:
                programs.start_program(children, name, name=name)
            host, devices = (
                sidecar.says(programs.SIDECAR_READY, seconds=PATIENCE_SECONDS)
                for sidecar in sidecars
            )
            return _steady(children, (host, devices), pages)


def _steady(
    children: programs.Children, urls: tuple[str, str], pages: int
) -> Recording:
    deadline = time.monotonic() + PATIENCE_SECONDS
    stretch: list[tuple[Page, Page]] = []
    while len(stretch) < pages:
        time.sleep(1)
        children.check()
        if time.monotonic() > deadline:
            msg = f"no {pages} pages in a row without a compile"
            raise RecordingError(msg)
        both = _page(urls[0]), _page(urls[1])
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


def _page(url: str) -> Page:
    try:
        with urlopen(f"{url}/metrics", timeout=30) as response:  # noqa: S310 - our own server
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
