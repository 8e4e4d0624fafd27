"""A real job of several processes and hosts, and what `jaxmon job why` says of it."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.helpers.preloaded import Program, shared
from tests.helpers.processes import (
    NO_FUSION_EMITTERS,
    ROOT,
    clean_environ,
    free_port,
    until,
)
from tests.helpers.sidecars import Exporter, exporters


PROGRAM = ROOT / "tests" / "programs" / "job.py"
HOSTS = 2
_SIGNALS = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM}
DISABLED = ("nvml", "gpm", "tpu", "host")


def place(fault: str) -> str:
    """Return ``file:line`` of the program where *fault* is."""
    [number] = [
        number
        for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
        if line.endswith(f"# here: {fault}")
    ]
    return f"job.py:{number}"


class Job:
    """
    A running job.

    Args:
        directory: of its run directories, with a short path.
        pids: of its processes, by rank.
        sidecars: one for each host.
    """

    def __init__(
        self, directory: Path, pids: list[int], sidecars: list[Exporter]
    ) -> None:
        self.pids = pids
        self.sidecars = sidecars
        self._directory = directory
        self.stopped: set[int] = set()

    @property
    def targets(self) -> str:
        """The addresses of the sidecars, as `--targets` takes them."""
        return ",".join(one.url.removeprefix("http://") for one in self.sidecars)

    def why(self, *options: str, after: float = 3.0) -> Any:
        found = self.run("--json", f"--after={after}", *options)
        return json.loads(found.output)

    def run(self, *options: str) -> Any:
        command = ["job", "why", "--targets", self.targets, "--timeout=60", *options]
        return CliRunner().invoke(main, command)

    def examine(self, *options: str) -> Any:
        """Return the result of the command that says what failed first."""
        command = ["job", "post-mortem", f"--targets={self.targets}", "--timeout=60"]
        return CliRunner().invoke(main, [*command, *options])

    def only(self) -> Any:
        """Return what is found out about it."""
        [found] = self.why()["jobs"]
        return found

    def runs(self) -> Any:
        """Return the records of runs that its processes keep."""
        command = ["job", "goodput", "--targets", self.targets, "--timeout=60"]
        found = CliRunner().invoke(main, [*command, "--json"])
        return json.loads(found.stdout)["runs"]

    def listed(self) -> dict[int, tuple[int | None, int | None]]:
        """Return the rank of how many that ``jaxmon ps`` lists, by pid."""
        found: list[Any] = []
        for one in self.sidecars:
            listed = CliRunner().invoke(main, ["ps", "--url", one.url, "--json"])
            found += json.loads(listed.stdout)["processes"]
        return {one["pid"]: (one["rank"], one["ranks"]) for one in found}

    def first(self) -> Any:
        """Return what failed first, `None` if nothing is known to have failed."""
        [job] = json.loads(self.examine("--json").output)["jobs"]
        return job["first"]

    def suspects(self, **options: float) -> list[tuple[str, list[int], str]]:
        """Return kind, ranks and place of those that the others wait for."""
        [job] = self.why(**options)["jobs"]
        if job["state"] not in {"hung", "waiting"}:
            return []
        return [
            (one["kind"], one["ranks"], Path(one["where"]).name)
            for one in job["suspects"]
        ]

    def state(self, **options: float) -> str:
        """Return how the job is said to be."""
        return str(self.why(**options)["state"])

    def inflict(self, fault: str, rank: int) -> None:
        """Let *fault* befall *rank*."""
        if fault == "stopped":
            os.kill(self.pids[rank], signal.SIGSTOP)
            self.stopped.add(rank)
        elif fault in _SIGNALS:
            os.kill(self.pids[rank], _SIGNALS[fault])
        else:
            self._say(f"{rank} {fault}")

    def began(self) -> float | None:
        """Return when a rank began to be slow, by the monotonic clock, if one has."""
        try:
            return float((self._directory / "began").read_text())
        except FileNotFoundError:
            return None

    def idles(self, rank: int) -> float:
        """Return the fraction of steps for which the device of *rank* had no work."""
        lines = (self._directory / f"idles-{rank}").read_text().splitlines()
        return sum([line == "1" for line in lines]) / max(len(lines), 1)

    def recover(self) -> None:
        """End what can end, and wait until all get on."""
        for rank in self.stopped:
            os.kill(self.pids[rank], signal.SIGCONT)
        self.stopped.clear()
        self._say("")
        until(lambda: self.state() == "progressing", "progress")

    def _say(self, text: str) -> None:
        part = self._directory / "fault.part"
        part.write_text(text)
        part.rename(self._directory / "fault")


@contextmanager
def running(
    count: int = 4,
    options: Sequence[str] = ("--peer-access",),
    *,
    steps: int = 0,
    how: str = "",
    setups: Mapping[int, str] = MappingProxyType({}),
) -> Iterator[Job]:
    """
    Run a job of *count* processes on two hosts, each with a sidecar, until it has done
    so many *steps*, if they are not 0. With *how* it trains in another way. *setups*
    are lines of what is set up in another way in a rank, as name and value.
    """
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        for rank, lines in setups.items():
            (directory / f"setup-{rank}").write_text(lines)
        started, output = _started(directory, count, steps, how)
        stack.callback(started.wait)
        stack.callback(output.close)
        said = output.readline().split()
        pids = [int(one) for one in said[1:]]
        # Not terminated: ranks take that for a preemption, and wait for each other.
        for pid in pids:
            stack.callback(_kill, pid)
        ready = 0
        while ready < count:
            line = output.readline()
            assert line, "the job ended"
            ready += line.startswith("ready ")
        sidecars = []
        for host in range(HOSTS):
            start = stack.enter_context(exporters(directory / f"host-{host}"))
            disabled = [f"--disable={one}" for one in DISABLED]
            sidecars.append(start("--host=127.0.0.1", *disabled, *options))
        job = Job(directory, pids, sidecars)
        if "--peer-access" in options:
            until(lambda: job.state() == "progressing", "progress")
        yield job


def _started(
    directory: Path, count: int, steps: int, how: str
) -> tuple[Program, TextIO]:
    """Start the program, and return it and what it prints."""
    numbers = str(count), str(steps)
    address = f"127.0.0.1:{free_port()}"
    arguments = [str(PROGRAM), address, *numbers, str(directory), how]
    environ = clean_environ(
        JOBSET_NAME="train-7",
        JAXMON_RUN_STATE=str(directory / "run"),
        XLA_FLAGS=NO_FUSION_EMITTERS,
    )
    reading, writing = os.pipe()
    with Path(os.devnull).open("r+b") as nothing:
        errors = (directory / "stderr").open("wb")
        with errors:
            files = (nothing.fileno(), writing, errors.fileno())
            started = shared().start(arguments, environ, files=files)
    os.close(writing)
    return started, os.fdopen(reading)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
