"""
Compare the sidecar with nvitop-exporter on one fake driver with eight GPUs.

    python tools/compare_exporters.py --nvitop PYTHON [--jaxmon PYTHON]
                                      [--seconds N] [--scrapes N]

PYTHON is the interpreter of a virtual environment with nvitop-exporter, or with jaxmon
and nvidia-ml-py, in it. They take turns, and look at GPUs and host once a second, we
at agents too. What nvitop-exporter tells of a GPU, jaxmon reads as often. What
the driver costs is the same for both and next to nothing. Prints a table; the exit code
is 1 when a goal is missed or nvitop-exporter is better at anything.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jaxmon.host.resources.process import resident_bytes  # noqa: E402
from tests.fakes.nvml.build import build  # noqa: E402 - found from here on
from tests.helpers.processes import clean_environ, free_port  # noqa: E402
from tools import markdown  # noqa: E402


GPUS = 8
# Goals: resident memory, milliseconds of CPU per scrape and per poll.
MEGABYTES, SCRAPE, POLL = 40, 2, 3
ROUNDS = 3
# Of what is quick and varies most: starts, and scrapes while the driver hangs.
TIMES = 9
# The kernel's number of the CPU clock of a process: clock_getcpuclockid(3).
_SCHEDULED = 2
HUNG = "nvmlDeviceGetPowerUsage"
OURS, THEIRS = "jaxmon", "nvitop-exporter"
# What one poll may cost is a question of its own: everything but the GPUs is off.
ALONE = [f"--disable={name}" for name in ("agents", "host", "gpm", "tpu")]
# Figures of `start` and `measure`, and whether the smaller is the better.
ROWS = (
    ("start until the GPUs are on the page", "{:.3f} s", True),
    ("CPU of the start", "{:.0f} ms", True),
    ("resident memory", "{:.1f} MB", True),
    ("CPU per scrape", "{:.2f} ms", True),
    ("CPU a second, unasked, a look a second", "{:.1f} ms", True),
    ("series", "{:.0f}", False),
)


@dataclass(frozen=True)
class Exporter:
    """
    How to start one of the two.

    Args:
        name: as in the table.
        command: without the port.
        ready: what stands on its page once it knows the GPUs.
    """

    name: str
    command: tuple[str, ...]
    ready: str


class Process:
    """A running exporter."""

    def __init__(self, exporter: Exporter, environ: dict[str, str]) -> None:
        self.port = free_port()
        self._exporter = exporter
        self._began = time.perf_counter()
        self.popen = subprocess.Popen(
            [*exporter.command, "--port", str(self.port)],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def page(self, seconds: float = 10.0) -> str:
        """Return what it tells now."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urlopen(url, timeout=seconds) as response:
            text: str = response.read().decode()
        return text

    def started(self, seconds: float = 30.0) -> float:
        """Wait until it tells of the GPUs, and return the seconds since its start."""
        while (passed := time.perf_counter() - self._began) < seconds:
            try:
                if self._exporter.ready in self.page():
                    return time.perf_counter() - self._began
            except (URLError, ConnectionError):
                if self.popen.poll() is not None:
                    break
            time.sleep(0.001)
        msg = f"{self._exporter.name} told of no GPU within {passed:.0f} s"
        raise RuntimeError(msg)

    def cpu_seconds(self) -> float:
        """Return its CPU time; threads that ended included."""
        return time.clock_gettime((~self.popen.pid << 3) | _SCHEDULED)

    def megabytes(self) -> float:
        """Return its resident memory."""
        return (resident_bytes(Path(f"/proc/{self.popen.pid}")) or 0) / 2**20


@contextmanager
def running(exporter: Exporter, environ: dict[str, str]) -> Iterator[Process]:
    """Start an exporter; kill it in the end."""
    process = Process(exporter, environ)
    try:
        yield process
    finally:
        process.popen.kill()
        process.popen.wait()


def scrape_cost(process: Process, number: int) -> float:
    """Return milliseconds of CPU per scrape, each over a connection of its own."""
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    before = process.cpu_seconds()
    began = time.perf_counter()
    for _ in range(number):
        with socket.create_connection(("127.0.0.1", process.port)) as client:
            client.sendall(request)
            while client.recv(1 << 16):
                pass
    took = time.perf_counter() - began
    spent = process.cpu_seconds() - before
    before = process.cpu_seconds()
    time.sleep(took)
    return (spent - (process.cpu_seconds() - before)) / number * 1e3


def idle_cost(process: Process, seconds: float) -> float:
    """Return milliseconds of CPU per second that nobody asks anything."""
    before = process.cpu_seconds()
    time.sleep(seconds)
    return (process.cpu_seconds() - before) / seconds * 1e3


def series(page: str) -> int:
    """Return the number of series of a page."""
    return sum(bool(line) and line[0] != "#" for line in page.splitlines())


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that *action* takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def hanging(exporter: Exporter, environ: dict[str, str], directory: Path) -> list[str]:
    """Return what an exporter tells while the driver hangs."""
    control = directory / "control"
    control.write_text("")
    with running(exporter, {**environ, "FAKE_NVML_CONTROL": str(control)}) as process:
        process.started()
        control.write_text(f"hang {HUNG}\n")
        time.sleep(12)
        took = statistics.median(timed(process.page) for _ in range(TIMES)) * 1e3
        page = process.page()
        stale = exporter.ready in page
        reported = 'collector_success{collector="nvml"} 0' in page
        process.popen.terminate()
        try:
            code = str(process.popen.wait(15))
        except subprocess.TimeoutExpired:
            code = "did not end"
    return [
        f"{took:.0f} ms",
        "still served as if new" if stale else "no longer served",
        "yes" if reported else "no",
        "exit code " + code if code.lstrip("-").isdigit() else code,
    ]


def without_driver(exporter: Exporter, environ: dict[str, str], empty: Path) -> str:
    """Return what an exporter does on a host without a driver."""
    with running(exporter, {**environ, "LD_LIBRARY_PATH": str(empty)}) as process:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if (code := process.popen.poll()) is not None:
                return f"ends with code {code}"
            try:
                process.page()
            except (URLError, ConnectionError):
                time.sleep(0.05)
            else:
                return "serves, and says why there is no GPU"
    return "does nothing"


def by_turns(
    exporters: Sequence[Exporter],
    rounds: int,
    measure: Callable[[Exporter], list[float]],
) -> dict[str, list[float]]:
    """Return the median of each figure, by exporter; the exporters take turns."""
    found: dict[str, list[list[float]]] = {one.name: [] for one in exporters}
    for _ in range(rounds):
        for one in exporters:
            found[one.name].append(measure(one))
    return {
        name: [statistics.median(column) for column in zip(*turns, strict=True)]
        for name, turns in found.items()
    }


def median(measure: Callable[[], float]) -> float:
    """Return the median of a few measurements."""
    return statistics.median(measure() for _ in range(ROUNDS))


def start(exporter: Exporter, environ: dict[str, str]) -> list[float]:
    """
    Return seconds until an exporter tells of the GPUs, and the CPU that they took.
    """
    with running(exporter, environ) as process:
        return [process.started(), process.cpu_seconds() * 1e3]


def measure(
    exporter: Exporter, environ: dict[str, str], seconds: float, scrapes: int
) -> list[float]:
    """Return memory, CPU per scrape, CPU per second, series."""
    with running(exporter, environ) as process:
        process.started()
        time.sleep(2)
        process.page()
        cost = scrape_cost(process, scrapes)
        memory = process.megabytes()
        idle = idle_cost(process, seconds)
        return [memory, cost, idle, float(series(process.page()))]


def contestants(jaxmon: str, nvitop: str | None) -> list[Exporter]:
    """Return who is compared, ours first."""
    command: tuple[str, ...] = (
        str(Path(jaxmon).with_name("jaxmon-exporter")),
        *("--host", "127.0.0.1", "--log-level", "error"),
        *("--agents-interval", "1", "--host-interval", "1", "--nvml-interval", "1"),
    )
    found = [Exporter(OURS, command, "jaxmon_accelerator_power_watts{")]
    if nvitop:
        script = str(Path(nvitop).with_name("nvitop-exporter"))
        command = (script, "--interval", "1", "--bind-address", "127.0.0.1")
        found.append(Exporter(THEIRS, command, "gpu_power_usage"))
    return found


def shortfalls(figures: dict[str, list[float]], per_poll: float) -> list[str]:
    """Return what is worse than its goal, or than nvitop-exporter's."""
    ours = dict(zip((title for title, _, _ in ROWS), figures[OURS], strict=True))
    goals = {"resident memory": MEGABYTES, "CPU per scrape": SCRAPE}
    found = [title for title, most in goals.items() if ours[title] > most]
    if per_poll > POLL:
        found.append("CPU per poll")
    if THEIRS in figures:
        pairs = zip(ROWS, figures[OURS], figures[THEIRS], strict=True)
        found += [
            f"{title}, beside {THEIRS}"
            for (title, _, smaller), our, their in pairs
            if (our >= their if smaller else our <= their)
        ]
    return found


def main() -> None:
    """Measure both by turns and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nvitop", help="Python with nvitop-exporter")
    parser.add_argument("--jaxmon", default=sys.executable, help="Python with jaxmon")
    parser.add_argument("--seconds", type=float, default=10.0, help="of idleness")
    parser.add_argument("--scrapes", type=int, default=200)
    arguments = parser.parse_args()
    exporters = contestants(arguments.jaxmon, arguments.nvitop)
    with tempfile.TemporaryDirectory(prefix="jm-") as name:
        directory = Path(name)
        empty = directory / "empty"
        empty.mkdir()
        environ = clean_environ(
            directory / "run",
            LD_LIBRARY_PATH=str(build(directory)),
            FAKE_NVML_GPUS=str(GPUS),
        )
        starts = by_turns(exporters, TIMES, lambda one: start(one, environ))
        rounds = by_turns(
            exporters,
            ROUNDS,
            lambda one: measure(one, environ, arguments.seconds, arguments.scrapes),
        )
        poll = Exporter(OURS, (*exporters[0].command, *ALONE), exporters[0].ready)
        with running(poll, environ) as process:
            process.started()
            time.sleep(2)
            per_poll = median(lambda: idle_cost(process, arguments.seconds))
        words = {
            one.name: [
                *hanging(one, environ, directory),
                without_driver(one, environ, empty),
            ]
            for one in exporters
        }
    figures = {one.name: starts[one.name] + rounds[one.name] for one in exporters}
    print(render(figures, words, per_poll))
    if missed := shortfalls(figures, per_poll):
        print(f"\nmissed: {'; '.join(missed)}")
        sys.exit(1)


def render(
    figures: dict[str, list[float]], words: dict[str, list[str]], per_poll: float
) -> str:
    """Return the table as Markdown."""
    goals = ("", "", f"≤ {MEGABYTES} MB", f"≤ {SCRAPE} ms", "", "")
    reported = (
        "scrape while a call hangs",
        "figures 12 s after the driver hung",
        "page tells that it hangs",
        "SIGTERM while it hangs",
        "no driver",
    )
    names = list(figures)
    rows = [
        (title, *(form.format(figures[name][number]) for name in names), goal)
        for number, ((title, form, _), goal) in enumerate(zip(ROWS, goals, strict=True))
    ]
    alone = [f"{per_poll:.1f} ms", *[""] * (len(names) - 1), f"≤ {POLL} ms"]
    rows.append(("CPU per poll, GPUs alone", *alone))
    for number, title in enumerate(reported):
        rows.append((title, *(words[name][number] for name in names), ""))
    head = ("on a fake driver with 8 GPUs", *names, "goal")
    return markdown.table(head, rows, "l" + "r" * len(head))


if __name__ == "__main__":
    main()
