"""Child processes of a command: our `programs`, and the sidecar."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from jaxmon.errors import CommandError


HOST = "127.0.0.1"
SIDECAR_READY = re.compile(r"exporter: (http://\S+)/")
AGENT_READY = re.compile(r"metrics: (http://\S+)")
PROGRAM_READY = re.compile(r"^(ready)$", re.MULTILINE)

# Settings of the agent that are durations, which shrink as the rules' do: seconds.
_DURATIONS = {
    "JAXMON_MEMORY_INTERVAL": 10.0,
    "JAXMON_MEMORY_LINES_INTERVAL": 60.0,
    "JAXMON_LEAK_WINDOW": 600.0,
}
# Taking snapshots more often would be all that the programs do.
_LEAST_SECONDS = 1.0

# -P: files in the current directory are no part of the demo.
_PYTHON = (sys.executable, "-P")
_EXPORTER = "from jaxmon.cli.entry import exporter; exporter()"

_TAIL_LINES = 20
_MOST_READ = 1 << 20


Launch = Callable[..., "subprocess.Popen[bytes]"]


class ChildProcess:
    """A running process whose output goes to files."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        logs: Path,
        launch: Launch,
    ) -> None:
        self.name = name
        self._out, self._err = logs / f"{name}.out", logs / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = launch(
                arguments,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                # Ctrl-C reaches the command alone, which then ends its children.
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise a `CommandError` with the end of its stderr if it has exited."""
        status = self.process.poll()
        if status is not None:
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            msg = f"{self.name} exited with {how}; last output:"
            raise CommandError(msg, details=self._stderr_tail())

    def says(self, pattern: re.Pattern[str], *, seconds: float) -> str:
        """Wait for *pattern* in the output; return group 1, or `CommandError`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := self.printed(pattern):
                return found
            time.sleep(0.1)
        msg = f"{self.name} was not ready after {seconds:g} seconds; last output:"
        raise CommandError(msg, details=self._stderr_tail())

    def printed(self, pattern: re.Pattern[str]) -> str | None:
        """Return group 1 of *pattern* in the output so far, `None` without."""
        exited = self.process.poll() is not None
        for path in (self._out, self._err):
            with path.open("rb") as file:
                printed = file.read(_MOST_READ).decode("utf-8", "replace")
            if match := pattern.search(printed):
                return match[1]
        if exited:
            self.check()
        return None

    def terminate(self) -> None:
        """Send SIGTERM, also to a process that is stopped."""
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)

    def stop(self, *, seconds: float) -> None:
        """Wait for the process to exit; kill it after *seconds*."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _stderr_tail(self) -> list[str]:
        with self._err.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _MOST_READ, 0))
            printed = file.read(_MOST_READ).decode("utf-8", "replace")
        return printed.splitlines()[-_TAIL_LINES:] or ["(nothing)"]


@dataclass(eq=False)
class Children:
    """
    Child processes with *environ*, which *launch* starts as `subprocess.Popen` does and
    which print to *logs*. They are stopped when the ``with`` block ends, and killed
    after *patience* seconds.
    """

    environ: Mapping[str, str]
    logs: Path
    patience: float = 10.0
    launch: Launch = subprocess.Popen
    _children: list[ChildProcess] = field(default_factory=list)

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start a process called *name*, with *environ* besides that of all."""
        full = {**self.environ, **(environ or {})}
        child = ChildProcess(name, arguments, full, self.logs, self.launch)
        self._children.append(child)
        return child

    def forget(self, child: ChildProcess) -> None:
        """Leave *child*, which has exited, out of all that follows."""
        self._children.remove(child)

    def check(self) -> None:
        """Raise a `CommandError` if any of them has exited."""
        for child in self._children:
            child.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + self.patience
        try:
            for child in self._children:
                child.stop(seconds=max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:
            # Interrupted a second time: the user is out of patience.
            for child in self._children:
                child.stop(seconds=0.0)
            raise


def environ(run_dir: str, *, scale: float) -> Mapping[str, str]:
    """Return the environment of programs, for rules that are *scale* times as fast."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JAXMON_")
    }
    durations = {
        name: f"{max(seconds / scale, _LEAST_SECONDS):g}"
        for name, seconds in _DURATIONS.items()
    }
    return {
        # Programs share each accelerator; one must not reserve it all.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **inherited,
        **durations,
        "JAXMON_RELEASE": "demo",
        "JAXMON_RUN_DIR": run_dir,
    }


def start_sidecar(
    children: Children,
    run_dir: str,
    *options: str,
    name: str = "sidecar",
    host: str = HOST,
    port: int = 0,
    environ: Mapping[str, str] | None = None,
) -> ChildProcess:
    """Start a sidecar for the agents in *run_dir*; it prints `SIDECAR_READY`."""
    return children.start(
        name,
        [
            *(*_PYTHON, "-c", _EXPORTER, "--host", host),
            *("--port", str(port), "--run-dir", run_dir),
            *("--agents-interval", "1", "--log-level", "warning", *options),
        ],
        environ,
    )


def start_program(
    children: Children,
    program: str,
    *options: str,
    name: str,
    environ: Mapping[str, str] | None = None,
) -> ChildProcess:
    """Start one of our `programs`; it prints where its agent is, then that."""
    command = [*_PYTHON, "-m", f"jaxmon_alerts.gameday.programs.{program}", *options]
    return children.start(name, command, environ)


def free_ports(number: int) -> list[int]:
    """Return that many different ports that are free."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
