"""Three instrumented processes, one sidecar, one Prometheus; one process is killed."""

import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE

import pytest

from jaxmon.catalog import (
    AGENT_CRASHES,
    AGENT_DIED,
    AGENT_ENDED_SECONDS,
    AGENT_FINISHED_SECONDS,
    AGENT_STARTS,
    AGENT_UP,
    COUNTING_SECONDS,
    JIT_CALLS,
)
from jaxmon.exposition.parse import parse
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import (
    ROOT,
    clean_environ,
    files,
    free_port,
    http_get,
    until,
)
from tests.helpers.prometheus import Prometheus


WORKER = str(ROOT / "tests" / "programs" / "worker.py")
STEP = 'function="__main__.step"'
WINDOW = "2m"


class Worker:
    """A running instance of the program ``worker.py``."""

    def __init__(self, run_dir: Path, stack: ExitStack) -> None:
        self.process = start_preloaded(
            WORKER, environ=clean_environ(run_dir), stdin=PIPE, stdout=PIPE
        )
        stack.callback(self.end)
        self.url = self._line()

    def calls(self, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        assert self._line() == "done"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def sidecar(run_dir: Path, stack: ExitStack) -> str:
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jaxmon", "exporter", "--host", "127.0.0.1"),
            *("--port", str(port), "--agents-interval", "0.2"),
            *("--disable", "nvml", "--log-level", "error"),
        ],
        env=clean_environ(run_dir),
    )
    stack.callback(process.wait, 15)
    stack.callback(process.terminate)
    address = f"127.0.0.1:{port}"
    until(lambda: answers(address), "the sidecar to answer")
    return address


def answers(address: str) -> bool:
    try:
        return bool(http_get(f"http://{address}/-/healthy", seconds=1))
    except OSError:
        return False


def samples(server: Prometheus, series: str) -> list[float]:
    """Return the raw samples of the only *series* in the window."""
    (one,) = server._api("query", query=f"{series}[{WINDOW}]")["result"]
    return [float(value) for _, value in one["values"]]


def value(server: Prometheus, expression: str) -> float | None:
    found = server.query(expression)
    return found[0][1] if found else None


def is_value(server: Prometheus, expression: str, expected: float) -> bool:
    return value(server, expression) == expected


def test_killed_worker_is_replaced_in_its_slot_and_rates_stay_right(
    run_dir, sidecar, stack, prometheus
):
    """The sidecar serves on, the slot is reused, and Prometheus sees a clean reset."""
    workers = [Worker(run_dir, stack) for _ in range(3)]
    for number, worker in enumerate(workers):
        worker.calls(100 + number)
    agents = [worker.url.split("/")[2] for worker in workers]
    server = prometheus({"sidecar": [sidecar], "agents": agents}, interval="1s")
    server.until_up()

    def relayed(number: int) -> str:
        return f'{JIT_CALLS.name}{{job="sidecar",worker="{number}",{STEP}}}'

    for number in range(3):
        expected = 100.0 + number
        found = partial(is_value, server, relayed(number), expected)
        until(found, f"the calls of worker {number}")
        direct = f'{JIT_CALLS.name}{{job="agents",instance="{agents[number]}",{STEP}}}'
        assert value(server, direct) == expected

    workers[1].kill()
    up = f'{AGENT_UP.name}{{worker="1"}}'
    until(lambda: value(server, up) == 0, "worker 1 to be down")
    until(lambda: value(server, relayed(1)) is None, "its series to be stale")
    assert value(server, relayed(0)) == 100
    assert server.targets()[sidecar] == "up"

    replacement = Worker(run_dir, stack)
    replacement.calls(30)
    until(lambda: value(server, relayed(1)) == 30, "the replacement in slot 1")
    replacement.calls(12)
    until(lambda: value(server, relayed(1)) == 42, "its further calls")

    raw = samples(server, relayed(1))
    grown = sum(b - a if b >= a else b for a, b in pairwise(raw))
    assert (raw[0], raw[-1], grown) == (101, 42, 42)
    assert value(server, f"resets({relayed(1)}[{WINDOW}])") == 1
    # Prometheus extends a rate to the edges of its window by at most a few intervals.
    rate = value(server, f"rate({relayed(1)}[{WINDOW}])")
    assert rate is not None
    assert 42 <= rate * 120 <= 42 * 1.5
    workers_seen = {
        labels["worker"]
        for labels, _ in server.query(f'{JIT_CALLS.name}{{job="sidecar",{STEP}}}')
    }
    assert workers_seen == {"0", "1", "2"}


def test_worker_that_ends_normally_leaves_its_counts(run_dir, sidecar, stack):
    """A process that exits is neither down nor dead; its counts stay for a while."""
    worker = Worker(run_dir, stack)
    worker.calls(1)
    url = f"http://{sidecar}/metrics"
    until(lambda: 'worker="0"' in http_get(url), "the worker on the page")

    worker.process.communicate(timeout=240)

    assert worker.process.returncode == 0
    assert files(run_dir) == []
    until(
        lambda: (
            gauges(http_get(url), 'worker="0"')
            == {
                *(AGENT_DIED.name, AGENT_ENDED_SECONDS.name),
                *(AGENT_FINISHED_SECONDS.name, COUNTING_SECONDS.name),
            }
        ),
        "its gauges to be gone",
    )
    lines = http_get(url).splitlines()
    assert f'{AGENT_STARTS.name}{{worker="0"}} 1' in lines
    assert f'{AGENT_CRASHES.name}{{worker="0"}} 0' in lines
    assert f'{AGENT_DIED.name}{{worker="0",loop=""}} 0.0' in lines


def gauges(text: str, labels: str) -> set[str]:
    """Return the names of gauges in *text* with series that have *labels*."""
    return {
        one.name
        for one in parse(text)
        if one.kind == "gauge" and any(labels in text for _, text, _ in one.samples)
    }
