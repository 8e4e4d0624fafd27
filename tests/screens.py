"""
Which screens name the cause of a fault, and after how many seconds.

``python -m tests.screens`` plants faults in real programs, one after the other, looks
at each screen alone as whoever is on call would, and prints a table; with names, these
only. Healthy programs are among them: no screen may accuse these.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from click.testing import CliRunner

from jaxmon.cli.main import main as jaxmon
from tests.helpers.browser import DESKTOP, PHONE, TABLET, chromium, resize
from tests.helpers.processes import (
    ROOT,
    Console,
    clean_environ,
    console,
    free_port,
    until,
)
from tests.helpers.sidecars import Exporter, exporters
from tests.verdicts import lines


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


ENOUGH = 60.0
"""Seconds within which a screen should have named the cause."""

_PATIENCE = 180.0
_PAUSE = 1.0
# Seconds in which charts follow a new size.
_DRAWN = 0.5
_LONGER = 10.0
# A line of a report has at least so many columns.
_COLUMNS, _LINES = 80, 24


class Fault(NamedTuple):
    """
    A program of `tests.verdicts` with a mistake, and how screens name it.

    Attributes:
        topic: of the finding on it.
        cause: matches what is wrong.
        place: matches the function, or what else is to blame, unless that is a line.
    """

    topic: str
    cause: str
    place: str = ""


FAULTS = {
    "unpadded_prompts": Fault(
        "recompile",
        r"recompiled .* because an argument's shape changed",
        r"serving\.score",
    ),
    "cold_start": Fault(
        "cold_requests",
        r"wait(ed about [\d. minhs]+)? for (a )?compile",
        r"to answer|model_\d",
    ),
    "decoding_in_python": Fault("data_wait", r"waited for data|\(waiting for data\)"),
    "bookkeeping": Fault("host", "Python (took|kept the device waiting)"),
    "shared_lock": Fault("blocked", "was blocked outside of JAX for"),
    "numpy_arguments": Fault(
        "numpy_argument", "of NumPy arrays: each call copies", "first_of"
    ),
    "failing_requests": Fault("requests", "ValueError"),
    "long_prompts": Fault("oom", "ran out of memory"),
    "hanging_request": Fault("hanging", "been in progress for|hang:"),
    "stuck_loader": Fault("stalled", "been waiting for data"),
    "deadlock": Fault("stalled", "been waiting for a lock"),
    "unusable_cache": Fault("cache", "directory /.* is unusable", "File exists"),
    "becomes_nan": Fault("nonfinite", "NaN", "large_step"),
    "growing_queue": Fault("queue", "Queue prompts grew", "prompts"),
}
PAGES = ("live page", "own page", "report")
SCREENS = ("live page", "own page", "top", "ps", "explain", "report")
HEALTHY = ("training", "idle_server")

# What an accusation looks like, on whatever screen.
_ACCUSES = re.compile(
    "|".join(["No: ", "Not quite: ", *(one.cause for one in FAULTS.values())])
)
_QUIET = re.compile("Yes[:,] |Not known: |Nothing to fix stands out")


@dataclass
class Told:
    """
    What a screen said.

    Attributes:
        after: the seconds after which it named the cause; `None` if it did not.
        refers: whether it names a screen that does, as who reads it may not see that.
        above: what else it blamed before that, on the screen.
        text: that was on it last.
    """

    after: float | None = None
    refers: bool = False
    above: list[str] = field(default_factory=list)
    text: str = ""

    def cell(self) -> str:
        """Return what the table says."""
        if self.after is None:
            return "refers to `jaxmon explain`" if self.refers else "not named"
        below = f", below {', '.join(self.above)}" if self.above else ""
        return f"{self.after:.0f} s{below}"


class Screens:
    """The screens that show a running program, each as text."""

    def __init__(
        self, chrome: Chrome, run_dir: Path, sidecar: Exporter, own: str, top: Console
    ) -> None:
        self._chrome, self._run_dir = chrome, run_dir
        self._reports = run_dir / "reports"
        self._top, self._opened = top, False
        self._tabs = {"live page": self._tab(sidecar.url), "own page": self._tab(own)}
        self._tabs["report"] = self._tab("about:blank")
        self._texts: dict[str, Callable[[], str]] = {
            "live page": lambda: self._page("live page"),
            "own page": lambda: self._page("own page"),
            "top": self._terminal,
            "ps": lambda: self.command("ps"),
            "explain": lambda: self.command("explain"),
            "report": self._report,
        }

    def read(self, screen: str) -> str:
        """Return the text of a *screen* in one line: where lines break is arbitrary."""
        return " ".join(self.raw(screen).split())

    def raw(self, screen: str) -> str:
        """Return the text of a *screen*."""
        return self._texts[screen]()

    def command(self, *words: str) -> str:
        """Return what ``jaxmon`` with *words* prints on a narrow terminal."""
        environ = {"JAXMON_RUN_DIR": str(self._run_dir), "COLUMNS": str(_COLUMNS)}
        return CliRunner().invoke(jaxmon, words, env=environ).stdout

    def pictures(self, screen: str, stem: Path) -> None:
        """Save pictures of a *screen* in the browser, of each size and scheme."""
        self._chrome.switch_to.window(self._tabs[screen])
        for width, scheme in product((PHONE, TABLET, DESKTOP), ("light", "dark")):
            resize(self._chrome, width, scheme=scheme)
            resize(self._chrome, width, height=self._height(), scheme=scheme)
            time.sleep(_DRAWN)
            path = stem.with_name(f"{stem.name}-{width}-{scheme}.png")
            self._chrome.save_screenshot(str(path))

    def close(self) -> None:
        """Close the tabs."""
        for tab in self._tabs.values():
            self._chrome.switch_to.window(tab)
            self._chrome.close()
        self._chrome.switch_to.window(self._chrome.window_handles[0])

    def _tab(self, url: str) -> str:
        self._chrome.switch_to.new_window("tab")
        resize(self._chrome, 1440)
        self._chrome.get(url)
        return self._chrome.current_window_handle

    def _height(self) -> int:
        script = "return document.documentElement.scrollHeight"
        return min(int(self._chrome.execute_script(script)), 3000)

    def _page(self, screen: str) -> str:
        self._chrome.switch_to.window(self._tabs[screen])
        return str(self._chrome.execute_script("return document.body.innerText"))

    def _terminal(self) -> str:
        """Return the first screen; from the second time on, the process alone."""
        text = self._top.text()
        if not self._opened and re.search(r"^0 .* \d", text, re.MULTILINE):
            self._top.press("\r")
            self._opened = True
        return text

    def _report(self) -> str:
        printed = self.command("report", "--out", str(self._reports)).split()
        pages = [one for one in printed if one.endswith(".html")]
        if not pages:
            return ""
        self._chrome.switch_to.window(self._tabs["report"])
        self._chrome.get(Path(pages[0]).as_uri())
        return self._page("report")


class Case:
    """A running program, and the screens that show it."""

    def __init__(self, name: str, screens: Screens, began: float) -> None:
        self.name, self.screens, self._began = name, screens, began
        self.told = {screen: Told() for screen in SCREENS}

    def watch(self, seconds: float, *, longer: float = 0.0) -> None:
        """
        Read each screen again and again, until all have named the fault, at most for
        these *seconds*; those that refer to others, only for so much *longer*.
        """
        end = self._began + seconds
        while (waiting := self._waiting()) and time.monotonic() < end:
            findings = self.findings()
            for screen in waiting:
                self._read(screen, findings)
            if all(self.told[one].refers for one in self._waiting()):
                end = min(end, time.monotonic() + longer)
            time.sleep(_PAUSE)

    def keep(self, directory: Path) -> None:
        """Write what stands on each screen into *directory*, pages as pictures too."""
        directory.mkdir(parents=True, exist_ok=True)
        for screen in SCREENS:
            stem = directory / f"{self.name}-{screen.replace(' ', '-')}"
            stem.with_suffix(".txt").write_text(self.screens.raw(screen))
            if screen in PAGES:
                self.screens.pictures(screen, stem)

    def verdicts(self) -> list[str]:
        """Return whether each screen accuses the program, which has no mistake."""
        found = []
        for screen, told in self.told.items():
            told.text = self.screens.read(screen)
            quiet = "quiet" if _QUIET.search(told.text) else "says nothing"
            found.append("accuses" if _ACCUSES.search(told.text) else quiet)
        return found

    def findings(self) -> list[dict[str, Any]]:
        """Return what jaxmon finds, without notes."""
        text = self.screens.command("explain", "--json")
        found = json.loads(text)["findings"] if text.startswith("{") else []
        return [one for one in found if one["urgency"] != "note"]

    def _waiting(self) -> list[str]:
        return [screen for screen, one in self.told.items() if one.after is None]

    def _read(self, screen: str, findings: Iterable[Mapping[str, Any]]) -> None:
        told, fault = self.told[screen], FAULTS[self.name]
        told.text = self.screens.read(screen)
        cause = re.search(fault.cause, told.text)
        if cause is None or not self._names_place(told.text):
            told.refers = "run jaxmon explain" in told.text.replace("`", "")
            return
        told.after = time.monotonic() - self._began
        others = {one["verdict"]: one["topic"] for one in findings}
        told.above = [
            topic
            for verdict, topic in others.items()
            if topic != fault.topic
            and 0 <= told.text.find(_stem(verdict)) < cause.start()
        ]

    def _names_place(self, text: str) -> bool:
        place = FAULTS[self.name].place
        blamed = [re.escape(one) for one in lines(self.name)]
        return any(
            re.search(one, text) for one in [*([place] if place else []), *blamed]
        )


@contextmanager
def running(name: str, chrome: Chrome, **environ: str) -> Iterator[Case]:
    """
    Run the program called *name* with a sidecar, and show it on every screen; it has
    other variables of the *environ*.
    """
    with ExitStack() as stack:
        run_dir = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
        stack.callback(shutil.rmtree, run_dir, ignore_errors=True)
        sidecar = stack.enter_context(exporters(run_dir))("--agents-interval", "1")
        port = free_port()
        process = stack.enter_context(_program(name, run_dir, port, environ))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        arguments = ("-m", "jaxmon", "top")
        top = stack.enter_context(
            console(arguments, clean_environ(run_dir), columns=_COLUMNS, lines=_LINES)
        )
        own = f"http://127.0.0.1:{port}/"
        screens = Screens(chrome, run_dir, sidecar, own, top)
        stack.callback(screens.close)
        until(lambda: "live" in screens.read("live page"), "the live page")
        yield Case(name, screens, began)


@contextmanager
def _program(
    name: str, run_dir: Path, port: int, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    command = ["-m", "jaxmon", "run", "--port", str(port), "-m", _OBSERVED, name]
    with subprocess.Popen(
        [sys.executable, *command],
        env=clean_environ(
            run_dir, JAXMON_REPORT_DIR=str(run_dir / "memory"), **environ
        ),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


_OBSERVED = "tests.programs.verdicts.observed"


def _stem(verdict: str) -> str:
    """Return the longest part of *verdict* without a number, as these change."""
    return max(re.split(r"\d+", verdict), key=len)


def main() -> None:
    """Print a table of faults and screens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAULT")
    parser.add_argument("--keep", type=Path, help="directory for what was on screens")
    parser.add_argument("--seconds", type=float, default=_PATIENCE, help="to wait")
    given = parser.parse_args()
    names = given.names or (*FAULTS, *HEALTHY)
    told = sys.stdout
    with chromium() as chrome:
        for number, name in enumerate(names):
            with running(name, chrome) as case:
                if not number:
                    screens = list(case.told)
                    told.write(f"| Fault | {' | '.join(screens)} |\n")
                    told.write(f"| --- {'| --- ' * len(screens)}|\n")
                told.write(row(case, given.seconds))
                told.flush()
                if given.keep is not None:
                    case.keep(given.keep)


def row(case: Case, seconds: float) -> str:
    """Watch a *case*, and return its row of the table."""
    if case.name in FAULTS:
        case.watch(seconds, longer=_LONGER)
        cells = [one.cell() for one in case.told.values()]
    else:
        time.sleep(ENOUGH)
        cells = case.verdicts()
    return f"| {case.name} | {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
