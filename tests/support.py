"""Helpers that tests call: programs, subprocesses, a real Prometheus."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import yaml

from jaxmon.threads import DaemonThread


T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
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


def free_port() -> int:
    """Return an unused TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        """Return the last line of the output, decoded."""
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
    Run the Python of the tests with *args* in a clean environment.

    Raises:
        subprocess.TimeoutExpired: it took longer than *seconds*; it was killed.
    """
    done = subprocess.run(
        [sys.executable, *args],
        env=clean_environ(run_dir, **(env or {})),
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


@dataclass
class Prometheus:
    """
    A real Prometheus server, for the length of a ``with`` block.

    Args:
        directory: empty; holds configuration, data and log.
        targets: ``host:port`` by job.
        interval: time between two scrapes.
        config: further top-level entries of the configuration, such as
            ``rule_files``; relative paths start at *directory*.
        options: further words of its command line.
        program: its path; that on the ``PATH`` by default.
    """

    directory: Path
    targets_by_job: dict[str, list[str]]
    interval: str = "1s"
    config: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    program: str = ""
    url: str = field(default="", init=False)

    def __enter__(self) -> Self:
        program = self.program or require_program("prometheus")
        (self.directory / "prometheus.yml").write_text(yaml.safe_dump(self._settings()))
        # The port may be taken between choosing it and binding it.
        for _ in range(3):
            if self._start(program, free_port()):
                return self
        raise AssertionError(self._log())

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(240)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that *expression* yields now."""
        data = self._api("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def targets(self) -> dict[str, str]:
        """
        Return the health (``up``, ``down``, ``unknown``) of each target by address.
        """
        active = self._api("targets")["activeTargets"]
        return {one["labels"]["instance"]: one["health"] for one in active}

    def failing_rules(self) -> dict[str, str]:
        """Return the error of each rule whose latest evaluation failed, by name."""
        return {
            rule["name"]: rule["lastError"]
            for group in self._api("rules")["groups"]
            for rule in group["rules"]
            if rule["health"] == "err"
        }

    def until_up(self) -> None:
        """Wait until every target has been scraped with success."""
        until(lambda: set(self.targets().values()) == {"up"}, "targets to be up")

    def until_query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Wait until *expression* yields something, and return it."""
        return until(lambda: self.query(expression), f"a result of {expression}")

    def _settings(self) -> dict[str, Any]:
        return {
            "global": {
                "scrape_interval": self.interval,
                "scrape_timeout": self.interval,
                "evaluation_interval": self.interval,
            },
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses}]}
                for job, addresses in self.targets_by_job.items()
            ],
            **self.config,
        }

    def _start(self, program: str, port: int) -> bool:
        """Start the server; return `False` when it exits before it is ready."""
        self.url = f"http://127.0.0.1:{port}"
        with (self.directory / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self.directory}/prometheus.yml",
                    f"--storage.tsdb.path={self.directory}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                    *self.options,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            until(
                lambda: self._process.poll() is not None or self._ready(),
                "Prometheus to be ready",
            )
        except BaseException:
            self.__exit__()
            raise
        return self._process.poll() is None

    def _ready(self) -> bool:
        try:
            return bool(http_get(f"{self.url}/-/ready"))
        except (URLError, ConnectionError):
            return False

    def get(self, target: str) -> Any:
        """Return the data that its interface answers to *target*."""
        return json.loads(http_get(f"{self.url}/api/v1/{target}"))["data"]

    def _api(self, path: str, **parameters: str) -> Any:
        return self.get(f"{path}?{urlencode(parameters)}")

    def _log(self) -> str:
        return (self.directory / "log").read_text()
