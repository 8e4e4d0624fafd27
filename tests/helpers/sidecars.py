"""Sidecars: as a process, and what they read of hosts, short jobs and workers."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, Histogram, series
from jaxmon.exposition.parse import parse
from jaxmon.facts import endings
from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.reading import Reading, read
from jaxmon.facts.status import UNREAD, HostVerdict, Summary
from jaxmon.host.http.server import Request, Response, Server
from jaxmon.limits import Limits
from jaxmon.screens.status import summarise
from jaxmon_exporter.collectors.agents import Agents, page_families
from jaxmon_exporter.judge import judge
from tests.fakes.agents import GOOD, page_of
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import Result, clean_environ, http_get, until


JAXMON = str(Path(sys.executable).with_name("jaxmon"))
STOP_SECONDS = 60.0


class Exporter:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.url = ""
        self.log: list[str] = []
        for line in process.stderr:
            self.log.append(line)
            if match := re.fullmatch(
                r"jaxmon exporter: http://(?:localhost|127\.0\.0\.1):(\d+)/\n", line
            ):
                self.url = f"http://127.0.0.1:{match[1]}"
                break
        self._reader = threading.Thread(target=self._read, args=(process.stderr,))
        self._reader.start()

    def get(self, path: str = "/metrics", *, accept: str = "text/plain") -> str:
        return http_get(f"{self.url}{path}", Accept=accept)

    def summary(self) -> Any:
        return json.loads(self.get("/api/summary"))

    def until_ready(self) -> None:
        until(self._ready, "the first poll of each collector")

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self._reader.join()

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def _ready(self) -> bool:
        try:
            return self.get("/-/ready") == "ready\n"
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return False
            raise

    def _read(self, stream: Any) -> None:
        self.log += stream


@contextmanager
def exporters(run_dir: Path) -> Iterator[Callable[..., Exporter]]:
    """Give a function that starts ``jaxmon exporter`` on a free port."""
    with ExitStack() as stack:

        def start(*arguments: str, **environ: str) -> Exporter:
            process = stack.enter_context(
                subprocess.Popen(
                    [JAXMON, "exporter", "--port", "0", *arguments],
                    env=clean_environ(run_dir, **environ),
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            running = Exporter(process)
            stack.callback(running.stop)
            return running

        yield start


def values(text: str) -> dict[str, float]:
    return {
        f"{name}{{{labels}}}" if labels else name: value
        for family in parse(text)
        for name, labels, value in family.samples
    }


# Long: on a busy machine honest agents may be slow. Short: those that hang are waited
# for.
LONG, SHORT = 60.0, 1.0


class Host:
    """Agents in a run directory whose debug endpoints a test sets."""

    def __init__(self, run_dir: Path, stack: ExitStack) -> None:
        self.run_dir = run_dir
        self.asked: list[str] = []
        self._stack = stack

    def agent(
        self, slot: int, overview: Any, events: Any = None, *, metrics: bytes = GOOD
    ) -> None:
        """Serve *overview* and *events*: bytes as they are, others as JSON."""

        def page(name: str, content: Any) -> Callable[[Request], Response]:
            body = content if isinstance(content, bytes) else json.dumps(content)

            def handle(_: Request) -> Response:
                self.asked.append(f"{slot} {name}")
                raw = body if isinstance(body, bytes) else body.encode()
                return Response(raw, "application/json")

            return handle

        empty = {"events": [], "left_out": 0}
        server = Server(
            {
                "/metrics": lambda _: Response(metrics),
                "/debug/overview": page("overview", overview),
                "/debug/functions": page("functions", overview),
                "/debug/events": page("events", empty if events is None else events),
            },
            name=f"agent-{slot}",
        )
        server.listen_unix(self.run_dir / f"agent-{slot}.sock")
        server.start()
        self._stack.callback(server.stop)

    def judge(self, *, timeout: float = LONG) -> HostVerdict:
        return judge(self.run_dir, Limits(), timeout=timeout)


JOB = """
import json, os, signal, sys
import jax, jaxmon
def begin():
    return jaxmon.instrument(
        port=None, memory_interval=0, memory_lines_interval=0, time_interval=0
    )
agent = begin()
@jax.jit
def work(x):
    return x * 2
def count(number):
    for size in range(number):
        with jaxmon.request("predict"):
            work(jax.numpy.ones(size + 1))
    for _ in jaxmon.steps(range(2 * number)):
        pass
count(int(sys.argv[1]))
"""
REQUESTS = 'jaxmon_requests_total{worker="0",route="predict",outcome="success"'
STEPS = 'jaxmon_steps_total{worker="0",loop="train"}'


def job(run_dir: Path, number: int, then: str = "") -> Result:
    """Run a job with so many requests, compiles, and twice as many steps."""
    return run_preloaded("-c", JOB + then, str(number), run_dir=run_dir, seconds=90)


def left(run_dir: Path) -> ProcessEnd:
    """Return the record of the latest process of the first slot."""
    return endings.slots(run_dir)["0"].latest


def rewrite(path: Path, record: ProcessEnd) -> None:
    """Write *record* over that of the same process in the file of a slot."""
    with path.open("r+b") as file:
        file.seek(record.starts % 2 * 4096)
        file.write(json.dumps(record.as_json()).encode() + b"\n")


def requests(page: dict[str, float]) -> float:
    """Return the successful requests of the first slot."""
    return sum(value for name, value in page.items() if name.startswith(REQUESTS))


def of(page: dict[str, float], metric: catalog.Metric) -> float:
    """Return the value of the first slot."""
    return page[f'{metric.name}{{worker="0"}}']


def counts(run_dir: Path) -> tuple[float, float]:
    """Return requests and steps of the first slot, as a sidecar that starts sees it."""
    page = page_of(Agents(run_dir))
    return requests(page), page.get(STEPS, 0)


START = 1000.0
ROUTE = "POST /predict"


class Worker:
    """A process whose metrics a test sets, served and read as an agent's."""

    def __init__(self, slot: int = 0, *, started: float = START) -> None:
        self.slot = slot
        self._histograms: dict[tuple[Any, ...], Histogram] = {}
        self._values: dict[str, tuple[Metric, float]] = {}
        self.set(catalog.PROCESS_START_TIME_SECONDS, started)

    def set(self, metric: Metric, value: float, *labels: object) -> None:
        self._values[series(metric, *labels)] = metric, value

    def unset(self, metric: Metric, *labels: object) -> None:
        del self._values[series(metric, *labels)]

    def observe(self, metric: Metric, value: float, *labels: object) -> None:
        key = (metric, *labels)
        self._histograms.setdefault(key, Histogram(metric, *labels)).observe(value)

    def requests(
        self,
        count: int,
        outcome: str = "success",
        start: str = "warm",
        took: float = 0.1,
    ) -> None:
        for _ in range(count):
            self.observe(catalog.REQUEST_SECONDS, took, ROUTE, outcome, start)

    def steps(self, count: int, took: float, loop: str = "train") -> None:
        for _ in range(count):
            self.observe(catalog.STEP_SECONDS, took, loop)
        self.set(catalog.STEP_AGE_SECONDS, took, loop)

    def page(self) -> list[Family]:
        """Return the families that a sidecar reads from it."""
        every: dict[str, Family] = {}
        found: list[tuple[Metric, list[tuple[str, float]]]] = [
            (metric, [(name, value)]) for name, (metric, value) in self._values.items()
        ]
        found += [(key[0], one.samples()) for key, one in self._histograms.items()]
        for metric, samples in found:
            every.setdefault(metric.name, Family(metric, [])).samples.extend(samples)
        up = Family(catalog.AGENT_UP, [(series(catalog.AGENT_UP, self.slot), 1.0)])
        return [up, *page_families(str(self.slot), encode(every.values()).decode())]


def reading(*workers: Worker, at: float, extra: Iterable[Family] = ()) -> Reading:
    return read([one for w in workers for one in w.page()] + [*extra], time=at)


def status(
    *workers: Worker,
    at: float = START + 600,
    before: Reading | None = None,
    earlier: Reading | None = None,
    verdict: HostVerdict = UNREAD,
    extra: Iterable[Family] = (),
) -> Summary:
    now = reading(*workers, at=at, extra=extra)
    return summarise(now, before, earlier, verdict=verdict)
