"""The file in which a process leaves its counts: too old, removed, cut off, invalid."""

from pathlib import Path

import pytest

from jaxmon.agent.end_writer import EndWriter
from jaxmon.clocks import monotonic
from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED
from jaxmon_exporter.collectors.agents import Agents
from tests.fakes.agents import GOOD, Serve, failures, page_of
from tests.helpers.sidecars import counts, job, left, rewrite


def test_old_counts_are_void(run_dir: Path) -> None:
    """After five minutes they are not served, and the next process begins anew."""
    job(run_dir, 2)
    found = left(run_dir)
    late = found.counted_until - endings.KEPT - 1
    old = found.replace(counted_since=late - 1, counted_until=late)
    rewrite(run_dir / "agent-0.end", old)
    assert counts(run_dir) == (0, 0)
    job(run_dir, 1)
    assert counts(run_dir) == (1, 2)


def test_a_cleaner_costs_nothing(run_dir: Path) -> None:
    """A process restores what was counted before it when the directory is removed."""
    job(run_dir, 2)
    wait = (
        "import shutil, time\n"
        "shutil.rmtree(os.environ['JAXMON_RUN_DIR'])\n"
        "for _ in range(3000):\n"
        "    if agent.socket and os.path.exists(agent.socket): break\n"
        "    time.sleep(0.02)\n"
    )
    job(run_dir, 1, wait).ok()
    assert counts(run_dir) == (3, 6)


def test_a_full_disk_loses_counts_and_nothing_else(run_dir: Path) -> None:
    """The program ends as it would; its successor begins anew."""
    job(run_dir, 2)
    full = (
        "import resource, sys\n"
        "sys.dont_write_bytecode = True\n"  # Python would keep half of it
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"  # records fit
    )
    done = job(run_dir, 1, full).ok()
    assert done.err == ""
    assert counts(run_dir) == (0, 0)
    job(run_dir, 4)
    assert counts(run_dir) == (4, 8)


def written(run_dir: Path, text: bytes) -> None:
    """Have one more process of the first slot leave the counts *text*."""
    record = EndWriter(run_dir / "agent-0.end", 0o600)
    record.begin()
    record.keep(monotonic() - 20, text)
    record.end(FINISHED)
    record.abandon()


@pytest.mark.parametrize(
    "text",
    [
        b"garbage",
        b"# TYPE up gauge\nup 0\n",
        b"# TYPE jaxmon_agent_starts_total counter\njaxmon_agent_starts_total 5\n",
        b"# TYPE jaxmon_steps_total counter\n"
        + 2 * b'jaxmon_steps_total{loop="a"} 1\n',
        b"# TYPE jaxmon_step_seconds histogram\njaxmon_step_seconds_sum 1\n",
        b"\xff",
    ],
)
def test_counts_are_not_trusted(run_dir: Path, serve: Serve, text: bytes) -> None:
    """A record with what agents may not export is rejected whole; others stay."""
    written(run_dir, text)
    serve(3, GOOD)
    agents = Agents(run_dir)
    for _ in range(2):
        page = page_of(agents)
        assert page['jaxmon_jit_calls_total{worker="3",function="f"}'] == 7
        assert failures(page) == {"agent_page": 1}
        assert "jaxmon_steps_total" not in "".join(page)

    job(run_dir, 1)
    assert counts(run_dir) == (1, 2)


def test_counts_of_another_process_are_read(run_dir: Path) -> None:
    """They take the place of those before, in the same file."""
    agents = Agents(run_dir)
    for steps in (5, 9):
        series = f'jaxmon_steps_total{{loop="a"}} {steps}'
        text = f"# TYPE jaxmon_steps_total counter\n{series}\n"
        written(run_dir, text.encode())
        page = page_of(agents)
        assert page['jaxmon_steps_total{worker="0",loop="a"}'] == steps


def test_gauges_in_the_file_are_dropped(run_dir: Path) -> None:
    """A process that has ended has no depth of a queue, whatever is written."""
    written(run_dir, GOOD + b"# TYPE jaxmon_queue_depth gauge\njaxmon_queue_depth 4\n")
    page = page_of(Agents(run_dir))
    assert page['jaxmon_jit_calls_total{worker="0",function="f"}'] == 7
    assert not [name for name in page if "queue" in name]


def test_an_agent_without_such_counts_is_served_as_it_is(run_dir, serve):
    """One of an earlier release neither removes nor continues what is there."""
    written(run_dir, GOOD)
    record = EndWriter(run_dir / "agent-0.end", 0o600)
    record.begin()
    serve(0, GOOD)
    page = page_of(Agents(run_dir))
    record.end(FINISHED)
    record.abandon()
    assert page['jaxmon_jit_calls_total{worker="0",function="f"}'] == 7
