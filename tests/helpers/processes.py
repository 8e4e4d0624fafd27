"""Programs, subprocesses and terminals that tests use, and how tests wait for them."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import pytest

from jaxmon.threads import DaemonThread


T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("alerts", "dashboards", "exporters", "jaxmon")
"""Folders with code of the product."""
# What is waited for comes at once, unless the machine has other work to do.
DEADLINE_SECONDS = 90.0

# XLA for CPUs compiles in half the time without these. An older one lacks them, a newer
# one always uses them, and either ends the process over a flag that it does not know.
NO_FUSION_EMITTERS = (
    "--xla_cpu_use_fusion_emitters=false"
    if (0, 6) <= tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
    else ""
)

# For programs of which only what jaxmon sees matters: optimising what they compile
# takes most of the time that they need to start.
QUICK_COMPILES = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 "
    f"--xla_llvm_disable_expensive_passes=true {NO_FUSION_EMITTERS}"
}

_FOREIGN_PREFIXES = ("JAX_", "JAXMON_", "OTEL_", "PYTEST_", "PYTHON", "XLA_")


def require_module(name: str) -> Any:
    """Import the module *name*, or skip the test: it may not support this JAX yet."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - missing names of JAX, for example
        pytest.skip(f"{name}: {error!r}")


def require_program(name: str) -> str:
    """
    Return the path of the program *name*; skip the test when there is none.

    With ``CI=true`` its absence fails the test: there, nothing may go unnoticed.
    """
    if path := shutil.which(name):
        return path
    reason = f"needs the program {name}; `make test` installs it when run as root"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw15").removeprefix("gw")) % 16
_PORTS = cycle(range(15_000 + _WORKER * 1_000, 16_000 + _WORKER * 1_000))
"""Below those that the kernel gives to whoever asks for any; for each worker others."""


def free_ports(number: int) -> list[int]:
    """
    Return unused TCP ports of the loopback interface that follow each other.

    They stay unused until the test takes them: neither another test nor a connection
    gets one meanwhile.
    """
    found: list[int] = []
    for port in _PORTS:
        if found and port != found[-1] + 1:
            found = []
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                found = []
                continue
        found.append(port)
        if len(found) == number:
            break
    return found


def free_port() -> int:
    """
    Return an unused TCP port of the loopback interface, as `free_ports` does.

    The next two stay unused too: an agent that finds its port busy moves on to them.
    """
    return free_ports(3)[0]


def each(
    cases: Mapping[str, tuple[object, ...]],
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """
    Return a decorator that makes one test of a check: it is called with each of the
    *cases*, by name, and all that fail are shown.

    For hundreds of checks that take less time than pytest itself does for a parameter.
    They get no fixtures.
    """

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert cases
            failures = []
            for name, arguments in cases.items():
                try:
                    check(*arguments)
                except Exception as error:  # noqa: BLE001 - any fails the test
                    error.add_note(f"in the case {name}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(check.__name__, failures)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        test.__module__, test.__qualname__ = check.__module__, check.__qualname__
        return test

    return decorate


def some(cases: Iterable[Any], each: int = 4) -> list[Any]:
    """
    Return *cases* for `pytest.mark.parametrize`, all of which show the same: each
    *each*-th is tried with each change, the others are marked ``exhaustive``.
    """
    return [
        pytest.param(case, marks=[pytest.mark.exhaustive] if number % each else [])
        for number, case in enumerate(cases)
    ]


class ExitOfThread:
    """Ends a forked child with its only thread: Python's exit waits for XLA's."""

    def __del__(self) -> None:
        os._exit(0)


def until(probe: Callable[[], T], what: str, *, seconds: float = DEADLINE_SECONDS) -> T:
    """
    Call *probe* until it returns something true, and return that.

    Raises:
        AssertionError: it did not within *seconds*; names *what* and the last value.
    """
    deadline = time.monotonic() + seconds
    began = time.monotonic()
    while not (value := probe()):
        ended = time.monotonic()
        if ended > deadline:
            msg = f"waited {seconds:g} s for {what}; last saw {value!r}"
            raise AssertionError(msg)
        # What is waited for needs the processor more than probes do.
        time.sleep(min(max(0.05, 4 * (ended - began)), 1.0))
        began = time.monotonic()
    return value


def freeze(pid: int) -> None:
    """
    Stop the process *pid* with SIGSTOP, and wait until none of its threads runs.

    Until one of them has taken the signal, the others go on, and respond.
    """
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    until(lambda: all(_state(one) in "Tt" for one in threads.iterdir()), "the stop")


def _state(thread: Path) -> str:
    """Return its state, a letter of the kernel's; one that has ended is stopped."""
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"


def refuse_threads(patch: pytest.MonkeyPatch) -> None:
    """Let no thread start, as if the process had as many as it may."""

    def refuse(_: object) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    for kind in (threading.Thread, DaemonThread):
        patch.setattr(kind, "start", refuse)


def clean_environ(run_dir: Path | None = None, /, **extra: str) -> dict[str, str]:
    """
    Return an environment for a subprocess without settings of JAX, jaxmon, Python.

    JAX runs on the CPU there, with quicker compiles, and warnings are as for a user:
    *extra* may differ.
    """
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN_PREFIXES)
    }
    environ["JAX_PLATFORMS"] = "cpu"
    if NO_FUSION_EMITTERS:
        environ["XLA_FLAGS"] = NO_FUSION_EMITTERS
    if run_dir is not None:
        environ["JAXMON_RUN_DIR"] = str(run_dir)
    return {**environ, **extra}


@dataclass(frozen=True)
class Result:
    """How a subprocess ended and what it printed."""

    code: int
    out: str
    err: str

    def ok(self) -> Result:
        """Return itself after asserting that the process exited with 0."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self

    def json(self) -> Any:
        return json.loads(self.ok().out.splitlines()[-1])


def run_python(
    *args: str,
    run_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    seconds: float = 240.0,
) -> Result:
    """
    Run the Python of the tests with *args* in a clean environment; XLA hardly optimises
    what is compiled there, unless *env* has other flags.

    Raises:
        subprocess.TimeoutExpired: it took longer than *seconds*; it was killed.
    """
    done = subprocess.run(
        [sys.executable, *args],
        env=clean_environ(run_dir, **{**QUICK_COMPILES, **(env or {})}),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def http_get(url: str, *, seconds: float = 60.0, **headers: str) -> str:
    """Return the body that *url* answers with; header names use underscores."""
    request = Request(
        url, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    with urlopen(request, timeout=seconds) as response:
        return str(response.read().decode())


# What most programs begin with; JAX is imported before anything forks.
HEAD = """
import json, os, sys, threading, urllib.request, logging
import jax, jaxmon
def get(url):
    with urllib.request.urlopen(url, timeout=60) as page:
        return page.read().decode()
"""


# Of any process whose descriptor one has.
_RELEASE = re.match(r"(\d+)\.(\d+)", platform.release())
KERNEL_REPORTS_EXITS = _RELEASE is not None and tuple(map(int, _RELEASE.groups())) >= (
    6,
    15,
)
exits_are_reported = pytest.mark.skipif(
    not KERNEL_REPORTS_EXITS, reason="Linux reports exits from 6.15 on"
)


def files(run_dir: Path) -> list[str]:
    """Return the names in *run_dir*, sorted, without what outlives a process."""
    return sorted(one.name for one in run_dir.iterdir() if one.suffix != ".end")


DEADLINE = 240
JAXMON = (sys.executable, str(Path(sys.executable).with_name("jaxmon")))


@dataclass(frozen=True, slots=True)
class Program:
    """
    A program to run both ways, and what makes the comparison meaningful.

    Args:
        source: text of ``main.py``.
        arguments: what follows ``python`` and ``jaxmon run``.
        status: exit status that the program must have.
        says: text that must stand on its stdout or stderr.
        files: further files beside ``main.py``.
        stdin: what it reads.
        environ: environment variables on top of the test's own.
        signal: sent once the program has printed a line.
    """

    source: str = ""
    arguments: Sequence[str] = ("main.py",)
    status: int = 0
    says: str = ""
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    signal: int | None = None


def execute(
    command: Sequence[str], program: Program, directory: Path
) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of *program* under *command*."""
    with subprocess.Popen(
        [*command, *program.arguments],
        cwd=directory,
        env=clean_environ(
            **{"PYTHONDONTWRITEBYTECODE": "1", **QUICK_COMPILES, **program.environ}
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        first = ""
        if program.signal is not None:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(program.signal)
        try:
            rest, stderr = process.communicate(program.stdin, timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, first + rest, stderr


# Makes standard input the terminal that Ctrl-C comes from.
_BECOME = (
    "import fcntl, os, sys, termios; os.setsid(); "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Console:
    """A running command, its terminal, and everything that it wrote."""

    def __init__(
        self, master: int, slave: int, mode: Any, process: subprocess.Popen[bytes]
    ) -> None:
        self.master, self.slave, self.process = master, slave, process
        self.mode = mode
        import pyte  # most tests start no terminal, and some environments lack it

        columns, lines = _size(slave)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.output = b""

    def lines(self) -> list[str]:
        """Return what is on the screen now, line by line."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # no process has the terminal any more
                break
            self.output += data
            self._stream.feed(data)
        return list(self._screen.display)

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines())

    def styles(self, row: int) -> set[tuple[str, bool]]:
        """Return colours, and whether reversed, of the characters in a line."""
        self.lines()
        cells = self._screen.buffer[row]
        return {(cells[x].fg, cells[x].reverse) for x in range(self._screen.columns)}

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def shows(self, *texts: str) -> str:
        try:
            return until(lambda: _with_all(self.text(), texts), "the screen")
        except AssertionError as error:
            msg = f"no {texts} on the screen:\n{self.text()}"
            raise AssertionError(msg) from error

    def hides(self, text: str) -> str:
        """Wait until *text* is no longer on the screen, and return it."""
        return until(
            lambda: now if text not in (now := self.text()) else "", f"{text} to go"
        )

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; its process is told."""
        self.lines()
        _set_size(self.slave, columns, lines)
        self._screen.resize(lines, columns)

    def end(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        until(lambda: (self.text(), self.process.poll() is not None)[1], "the end")
        self.lines()
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Return whether the mode of the terminal is that of the beginning."""
        return bool(termios.tcgetattr(self.slave) == self.mode)


@contextmanager
def console(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    columns: int = 80,
    lines: int = 24,
) -> Iterator[Console]:
    """Run Python with *arguments* on a terminal while the block runs."""
    master, slave = os.openpty()
    try:
        _set_size(slave, columns, lines)
        # Before the process may change it.
        mode = termios.tcgetattr(slave)
        with subprocess.Popen(
            [sys.executable, "-c", _BECOME, sys.executable, *arguments],
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **environ},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        ) as process:
            try:
                yield Console(master, slave, mode, process)
            finally:
                process.send_signal(signal.SIGCONT)
                process.kill()
    finally:
        os.close(master)
        os.close(slave)


def _with_all(text: str, wanted: Sequence[str]) -> str:
    return text if all(one in text for one in wanted) else ""


def _size(number: int) -> Any:
    found = os.get_terminal_size(number)
    return found.columns, found.lines


def _set_size(number: int, columns: int, lines: int) -> None:
    size = struct.pack("HHHH", lines, columns, 0, 0)
    fcntl.ioctl(number, termios.TIOCSWINSZ, size)
