"""Processes that end before anyone polls or scrapes: what they counted is not lost."""

import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from jaxmon import catalog
from jaxmon.clocks import monotonic
from jaxmon.promql import counter
from jaxmon.promql.events import Evaluation, conditions, counted
from jaxmon_alerts.slo.recording import RuleGroup, complete, recording
from jaxmon_exporter.collectors.agents import Agents
from tests.fakes.agents import failures, page_of, up
from tests.helpers.preloaded import run_preloaded, start_preloaded
from tests.helpers.processes import clean_environ, free_port, run_python, until
from tests.helpers.prometheus import Prometheus
from tests.helpers.sidecars import (
    JOB,
    STEPS,
    counts,
    exporters,
    job,
    left,
    of,
    requests,
)


def test_what_a_process_counted_outlives_it(run_dir: Path) -> None:
    """Its counters and histograms stay, marked; its gauges and up do not."""
    agents = Agents(run_dir)
    assert job(run_dir, 2).code == 0
    page = page_of(agents)
    assert (requests(page), page[STEPS]) == (2, 4)
    assert page['jaxmon_step_seconds_count{worker="0",loop="train"}'] == 4
    assert 0 <= of(page, catalog.AGENT_ENDED_SECONDS) < 90
    since = of(page, catalog.COUNTING_SECONDS)
    assert since > of(page, catalog.AGENT_ENDED_SECONDS)
    assert up(page) == failures(page) == {}
    for gone in ("jaxmon_uptime", "jaxmon_runtime_info", "jaxmon_step_age", "process_"):
        assert not [name for name in page if name.startswith(gone)]
    died = [value for name, value in page.items() if "agent_died" in name]
    assert died == [0]


SLOW_START = """
import time
from jaxmon.agent.serving import Serving
start = Serving.start
def slowly(self):
    time.sleep(0.5)
    start(self)
Serving.start = slowly
"""


def test_a_slow_start_is_no_restart_at_the_end(run_dir: Path) -> None:
    """What an agent serves and what it leaves begin at one moment."""
    inside = (
        "from jaxmon.clocks import monotonic\n"
        "page = {f.metric.name: f.samples for f in agent.collect()}\n"
        "print(monotonic() - page['jaxmon_counting_seconds'][0][1])\n"
    )
    source = SLOW_START + JOB + inside
    result = run_preloaded("-c", source, "1", run_dir=run_dir, seconds=90).ok()
    assert 0 < left(run_dir).counted_since <= float(result.out)


def test_the_next_process_adds_to_it(run_dir: Path) -> None:
    """In the same slot, while it runs and afterwards, also for another sidecar."""
    agents = Agents(run_dir)
    job(run_dir, 2)
    inside = (
        "sys.path.insert(0, os.getcwd())\n"
        "from pathlib import Path\n"
        "from jaxmon_exporter.collectors.agents import Agents\n"
        "found = Agents(Path(os.environ['JAXMON_RUN_DIR'])).collect()\n"
        "page = {n: v for one in found for n, v in one.samples}\n"
        "print(json.dumps(page))\n"
    )
    page = job(run_dir, 3, inside).json()
    assert (requests(page), page[STEPS], up(page)) == (5, 10, {"0": 1})
    # By their own clock and the slot's: the first job counted before this one began.
    assert of(page, catalog.COUNTING_SECONDS) > ended_since(run_dir)
    assert counts(run_dir) == (5, 10)
    assert requests(page_of(agents)) == 5


def ended_since(run_dir: Path) -> float:
    """Return how long the latest process of the first slot counted, at most."""
    found = left(run_dir)
    if found.counted_until < found.counted_since:
        return 0.0
    return monotonic() - found.counted_until


def test_one_process_may_have_several_agents(run_dir: Path) -> None:
    """Stopped and started again, an agent counts from zero, and the slot goes on."""
    again = "jaxmon.uninstrument()\nbegin()\ncount(1)\n"
    assert job(run_dir, 2, again).code == 0
    assert counts(run_dir) == (3, 6)


def test_a_forked_child_leaves_nothing(run_dir: Path) -> None:
    """What its parent counted is the parent's; an agent of its own has its own slot."""
    fork = (
        "if (child := os.fork()) == 0:\n"
        "    begin()\n"
        "    for _ in jaxmon.steps(range(14)): pass\n"  # JAX itself would hang
        "    jaxmon.uninstrument()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    job(run_dir, 2, fork).ok()
    page = page_of(Agents(run_dir))
    assert (requests(page), page[STEPS]) == (2, 4)
    assert page[STEPS.replace('"0"', '"1"')] == 14


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_after_a_killed_process_counts_begin_anew(run_dir: Path, end: str) -> None:
    """Counts since the last poll are lost: the successor starts at zero, marked."""
    job(run_dir, 2)
    job(run_dir, 3, end)
    assert counts(run_dir) == (0, 0)
    before = monotonic()
    job(run_dir, 1)
    assert counts(run_dir) == (1, 2)
    assert of(page_of(Agents(run_dir)), catalog.COUNTING_SECONDS) < monotonic() - before


def test_a_process_that_crashes_is_counted_too(run_dir: Path) -> None:
    """Until the next one begins anew: one that crashes again and again does nothing."""
    job(run_dir, 2)
    assert job(run_dir, 3, "raise ValueError").code == 1
    assert counts(run_dir) == (5, 10)
    job(run_dir, 1)
    assert counts(run_dir) == (1, 2)


def test_an_interrupted_job_ends_as_it_would(run_dir: Path) -> None:
    """Ctrl-C ends a job in order with its exit code, also one that adds to counts."""
    job(run_dir, 2)
    program = (
        "import jaxmon\n"
        "jaxmon.instrument(port=None)\n"
        "for _ in jaxmon.steps(range(3)): pass\n"
        "raise KeyboardInterrupt\n"
    )
    assert run_python("-c", program, run_dir=run_dir).code == -signal.SIGINT
    assert counts(run_dir) == (2, 7)


def test_counts_never_fall(run_dir: Path) -> None:
    """Whenever jobs start and end, served counts rise or are missing for one poll."""
    agents, stop = Agents(run_dir), threading.Event()
    falls: list[tuple[str, float, float]] = []
    last: dict[str, float] = {}
    polls = Counter[bool]()

    def poll() -> None:
        while not stop.wait(0.02):
            for name, value in page_of(agents).items():
                if name.startswith(("jaxmon_requests_total", "jaxmon_steps_total")):
                    if value < last.get(name, 0):
                        falls.append((name, last[name], value))
                    last[name] = value
            polls[True] += 1

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: job(run_dir, 2).ok(), range(6)))
    finally:
        stop.set()
        thread.join()
    page = page_of(agents)
    assert falls == []
    assert polls[True] > 6
    steps = [value for name, value in page.items() if "steps_total" in name]
    assert sum(steps) == 24


RULES = {
    "requests": counter(catalog.REQUESTS),
    "steps": counter(catalog.STEPS),
    "compiles": counter(catalog.COMPILES),
}


def rules(directory: Path) -> Path:
    """Write rules that count as our objectives do, each second, after slow scrapes."""
    when = Evaluation(interval="1s", delay="4s", memory="5m")
    found = [recording(it) for it in conditions(when)]
    found += [
        {"record": f"test:{name}", "expr": counted(one, when, name).sum("job")}
        for name, one in RULES.items()
    ]
    path = directory / "rules.yaml"
    groups = complete([RuleGroup("test", "1s", tuple(found))])
    path.write_text(yaml.safe_dump({"groups": [it.document() for it in groups]}))
    return path


def test_prometheus_counts_batch_jobs_once(run_dir, tmp_path, prometheus):
    """
    Six jobs one after another and three at once, most of which no scrape sees alive,
    two Prometheis, and a sidecar that is restarted in the middle: each counts what the
    jobs counted themselves.
    """
    ledger = Counter[str]()

    def count(number: int) -> None:
        # One compile for each size, and those that `ones` needs.
        done = job(
            run_dir,
            number,
            "print(json.dumps(sum(value for one in agent.collect()"
            " if one.metric.name == 'jaxmon_compiles_total'"
            " for _, value in one.samples)))\n",
        )
        compiles = done.json()
        assert compiles >= number
        ledger.update(requests=number, steps=2 * number, compiles=compiles)

    path = rules(tmp_path)
    with exporters(run_dir) as start:
        quick = ("--agents-interval", "0.5", "--disable", "host", "--disable", "nvml")
        sidecar = start(*quick)
        port = sidecar.url.rpartition(":")[2]
        config = {"rule_files": [str(path)]}
        target = {"jobs": [f"127.0.0.1:{port}"]}
        servers = [
            prometheus(target, interval=one, config=config) for one in ("1s", "3s")
        ]
        for server in servers:
            server.until_up()
        for number in (3, 1, 2):
            count(number)
        sidecar.stop()
        sidecar = start(*quick, "--port", port)
        for number in (1, 1, 3):
            count(number)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(count, (2, 2, 1)))

        def seen(server: Prometheus) -> dict[str, float]:
            return {
                name: value
                for name in RULES
                for _, value in server.query(f"sum_over_time(test:{name}[10m])")
            }

        for server in servers:
            until(lambda one=server: seen(one) == ledger, f"{dict(ledger)}")  # type: ignore[misc]
        evaluations = "count_over_time(test:steps[10m])"
        for server in servers:
            ((_, before),) = server.query(evaluations)
            until(
                lambda one=server, n=before: one.query(evaluations)[0][1] > n + 2,  # type: ignore[misc]
                "more evaluations",
            )
            assert seen(server) == ledger


KILLED = """
import sys
import jax.numpy, jaxmon
jaxmon.instrument(port=int(sys.argv[1]), memory_interval=0, time_interval=0)
for line in sys.stdin:
    for _ in range(int(line)):
        with jaxmon.request("predict"):
            jax.numpy.ones(2)
    for _ in jaxmon.steps(range(2 * int(line))):
        pass
"""


def test_prometheus_counts_killed_processes_once(run_dir, tmp_path, prometheus):
    """
    Processes of one slot are killed, and their successors scraped before they count
    anything, beside a sidecar and by themselves: each counts in full, as much as its
    predecessor, more or less.
    """
    environ, port = clean_environ(JAXMON_RUN_DIR=str(run_dir)), free_port()
    config, jobs = {"rule_files": [str(rules(tmp_path))]}, ("sidecar", "itself")

    def until_seen(query: str, value: float) -> None:
        def seen() -> bool:
            found = {labels["job"]: count for labels, count in server.query(query)}
            return found == dict.fromkeys(jobs, value)

        until(seen, f"{query} = {value}")

    def live(number: int, before: int) -> None:
        words = ("-c", KILLED, str(port))
        with start_preloaded(*words, environ=environ, stdin=subprocess.PIPE) as program:
            try:
                assert program.stdin is not None
                scraped = "jaxmon_counting_seconds unless on (job) jaxmon_steps_total"
                until_seen(f"count by (job) ({scraped})", 1)
                if before:  # and what it counted is young
                    until_seen("last_over_time(jaxmon_steps_total[5m])", 2 * before)
                program.stdin.write(f"{number}\n")
                program.stdin.flush()
                until_seen("jaxmon_steps_total", 2 * number)
            finally:
                program.kill()

    with exporters(run_dir) as start:
        quick = ("--agents-interval", "0.5", "--disable", "host", "--disable", "nvml")
        addresses = (start(*quick).url.removeprefix("http://"), f"127.0.0.1:{port}")
        targets = {job: [at] for job, at in zip(jobs, addresses, strict=True)}
        server = prometheus(targets, interval="1s", config=config)
        lives = (3, 3, 5, 2)
        for number, before in zip(lives, (0, *lives), strict=False):
            live(number, before)
        until_seen("sum_over_time(test:requests[10m])", sum(lives))
        until_seen("sum_over_time(test:steps[10m])", 2 * sum(lives))
