"""
Real jobs of two, four and eight processes that one rank makes slower, and healthy ones.

``python -m tests.job.stragglers`` starts a job for each way of being slow and more than
twenty healthy ones, asks `jaxmon job why` with its default limits as often as with
``--watch``, and prints a table in Markdown: whom it named, how, how long after the
program says that it began, and how many threads waited for processors meanwhile. Takes
50 minutes and 600 CPU seconds. With names, only these.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.processes import until
from tests.job.running import Job, place, running


class Slow(NamedTuple):
    """
    How a rank is slow.

    Attributes:
        how: how the job trains.
        fault: what the program does, empty if it is done to it.
        kind: that should be reported, empty if nothing should.
        seconds: after which the rank is as fast as the others again; 0 if never.
        processes: how many they are.
    """

    title: str
    how: str
    fault: str
    kind: str
    seconds: float = 0.0
    processes: int = 4

    @property
    def rank(self) -> int:
        """The number of the slow rank."""
        return min(RANK, self.processes - 1)


class Healthy(NamedTuple):
    """Jobs in which no rank is slow: how they train, with how many processes."""

    title: str
    how: str
    processes: int
    runs: int


FAULTS = {
    "loader": Slow("its loader takes 80 ms more", "async", "more loader", "data"),
    "two": Slow(
        "the same, of 2 processes", "async", "more loader", "data", processes=2
    ),
    "eight": Slow("the same, of 8", "async", "more loader", "data", processes=8),
    "sync": Slow("the same; all wait for each loss", "sync", "more loader", "data"),
    "sleep": Slow("sleeps 80 ms in own code", "async", "more sleep", "blocked"),
    "python": Slow("works for 80 ms in Python", "async", "more python", "python"),
    "gil": Slow("a thread of it holds the GIL", "async", "more gil", "gil"),
    "compile": Slow("compiles for 80 ms", "async", "more compile", "compile"),
    "transfer": Slow("copies to its device", "async", "more transfer", "transfer"),
    "stopped": Slow("SIGSTOP for 0.1 s, three times a second", "async", "", "host"),
    "niced": Slow("niced, beside two busy processes", "async", "", "host"),
    "compute": Slow(
        "its device computes 0.2 s alone", "sync", "more compute", "compute"
    ),
    "while": Slow("slow loader for 60 s", "async", "more loader", "data", 60.0),
    "ahead": Slow("slow loader, but devices are busy", "bound", "more loader", ""),
}
HEALTHY = {
    "healthy": Healthy("none", "async", 4, 10),
    "healthy sync": Healthy("none; all wait for each loss", "sync", 4, 10),
    "healthy two": Healthy("none, of 2 processes", "async", 2, 2),
    "healthy eight": Healthy("none, of 8", "async", 8, 2),
}
RANK = 2
_WATCHED, _LONGEST = 85.0, 170.0
# As with ``--watch``.
_EVERY = 5.0


def main() -> None:
    chosen = sys.argv[1:] or [*FAULTS, *HEALTHY]
    _say("| slow rank | kind | named | line | others wait | after | load |")
    _say("|---|---|---|---|---:|---:|---:|")
    for name in chosen:
        if name in FAULTS:
            _say(_faulty(name, FAULTS[name]))
            continue
        kind = HEALTHY[name]
        said, load = list[set[str]](), Load()
        for _ in range(kind.runs):
            said.append(_healthy(kind, load))
        right = sum(not one for one in said)
        what = f"nothing in {right} of {kind.runs} runs"
        _say(f"| {kind.title} | {what} | | | | | {load.range} |")


class Load:
    """How many threads run or wait for processors, over a minute, from when to when."""

    def __init__(self) -> None:
        self._seen: list[float] = []

    def look(self) -> None:
        """Add what it is now."""
        self._seen.append(os.getloadavg()[0])

    @property
    def range(self) -> str:
        """The least and the most."""
        return f"{min(self._seen):.0f}-{max(self._seen):.0f}"


def _faulty(name: str, fault: Slow) -> str:
    load = Load()
    with running(fault.processes, how=fault.how) as job:
        began = time.monotonic()
        if fault.fault:
            job.inflict(fault.fault, fault.rank)
            began = until(job.began, "the fault") or began
        doing = {"stopped": _stopped, "niced": _niced}.get(name)
        with nullcontext() if doing is None else doing(job.pids[fault.rank]):
            found, wrong = _watch(job, began, fault, load)
        idles = job.idles(fault.rank)
        sys.stderr.write(job.run().output)
    cells = [fault.title]
    if not fault.kind:
        said = "WRONG: " + ", ".join(wrong) if wrong else "nothing"
        cells += [f"{said}; its device idles at {idles:.1%} of steps", *[""] * 4]
        return f"| {' | '.join(cells)} | {load.range} |"
    one, seconds, slowness = found
    with_line = fault.fault in _WITH_LINES and not fault.seconds
    expected = place(fault.fault) if with_line else ""
    where = Path(one.get("where", "")).name
    right = (one.get("rank"), one.get("kind")) == (fault.rank, fault.kind)
    step, lost = (slowness.get(f"{key}_seconds", 0.0) for key in ("step", "lost"))
    waits = f"{100 * lost / step:.0f} %" if 0 < lost < step else ""
    cells += [
        str(one.get("kind", "nothing")),
        ("yes" if right else "NO") + (f"; also {', '.join(wrong)}" if wrong else ""),
        ("yes" if where == expected else f"NO: {where}") if expected else "",
        waits,
        f"{seconds:.0f} s",
        load.range,
    ]
    return f"| {' | '.join(cells)} |"


_WITH_LINES = frozenset(
    (*("more loader", "more sleep", "more python", "more compile"), "more transfer")
)


def _watch(job: Job, began: float, fault: Slow, load: Load) -> Any:
    """
    Return the first right verdict, after how long, and what else was said; of a rank
    that is slow for a while, the verdict that it is not any more.
    """
    wrong, recovered = set[str](), False
    longest = _LONGEST if fault.kind else _WATCHED
    while (passed := time.monotonic() - began) < longest + fault.seconds:
        load.look()
        if not recovered and 0 < fault.seconds < passed:
            job.recover()
            recovered = True
        slowness = _slowness(job)
        passed = time.monotonic() - began
        if recovered and (former := slowness.get("former")):
            return (former[0], passed, slowness), sorted(wrong)
        for one in slowness.get("stragglers", ()):
            right = (one["rank"], one["kind"]) == (fault.rank, fault.kind)
            if right and not fault.seconds:
                return (one, passed, slowness), sorted(wrong)
            if not right:
                wrong.add(f"rank {one['rank']} ({one['kind']})")
        time.sleep(_EVERY)
    return ({}, longest, {}), sorted(wrong)


def _slowness(job: Job) -> Any:
    [found] = job.why(after=30.0)["jobs"]
    return found["slowness"]


def _healthy(kind: Healthy, load: Load) -> set[str]:
    """Return what is wrongly said of a job in which nothing is slow."""
    said: set[str] = set()
    with running(kind.processes, how=kind.how) as job:
        end, compared = time.monotonic() + _WATCHED, False
        while time.monotonic() < end:
            load.look()
            slowness = _slowness(job)
            compared = compared or slowness["compared"]
            for key in ("stragglers", "former"):
                for one in slowness.get(key, ()):
                    said.add(one["verdict"])
                    sys.stderr.write(f"{one['verdict']}\n")
            time.sleep(_EVERY)
    return said if compared else {"not compared"}


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Stop *pid* for a tenth of a second, three times a second."""

    def again() -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)

    with _repeatedly(again, 0.23):
        yield


@contextmanager
def _repeatedly(act: Callable[[], None], pause: float) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause):
            with suppress(ProcessLookupError):
                act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _niced(pid: int) -> Iterator[None]:
    """Let *pid* have what two busy processes leave of one processor."""
    cpu = min(os.sched_getaffinity(0))
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpu})
        os.setpriority(os.PRIO_PROCESS, int(task.name), 19)
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(2)]
    for one in busy:
        os.sched_setaffinity(one.pid, {cpu})
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
