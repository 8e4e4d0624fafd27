"""The report of an out-of-memory error: one for many, bounded, and never in the way."""

import json
import logging
import threading
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from jaxmon.agent import Agent, guard
from jaxmon.agent.oom import text as oom_text
from jaxmon.agent.oom.part import text_of
from jaxmon.facts.events import EventFact, FailedAllocation, LiveArrays, OomReport
from jaxmon.facts.functions import Program
from jaxmon.facts.memory import Allocations, HostMemory
from jaxmon.facts.reader import from_json
from tests.helpers import inside
from tests.helpers.agents import FULL, instrumented, kinds, value
from tests.helpers.preloaded import run_preloaded


pytestmark = pytest.mark.ground_truth

REPORTS = "jaxmon_oom_reports_total"
RuntimeError_ = jax.errors.JaxRuntimeError


def test_of_many_failures_at_once_one_is_reported(agent: Agent, tmp_path: Path) -> None:
    """Eight threads out of memory get eight errors, and one report."""
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        raise RuntimeError_(FULL)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert kinds(agent) == {("unknown", "oom"): 8}
    assert value(agent, REPORTS) == 1
    assert len(list((tmp_path / "reports").iterdir())) == 2


def test_a_report_is_strict_json_whatever_parts_say(agent: Agent) -> None:
    """Infinity, odd keys and objects become what any reader of JSON takes."""
    odd: Any = object()
    program = Program(peak_bytes=7, flops=float("nan"), fingerprint=odd)
    inside.oom(agent).facts.programs = lambda: {"f": program}
    inside.see_error(agent, RuntimeError_(FULL))

    (path,) = inside.oom(agent).paths()
    report = json.loads(Path(path).read_text(), parse_constant=pytest.fail)
    assert report["programs"]["f"]["flops"] is None
    assert report["programs"]["f"]["fingerprint"] == "<object>"
    assert report["unavailable"] == {}


class Broken:
    """A part that cannot tell anything."""

    has_snapshot = False

    def snapshot(self) -> NoReturn:
        error = LookupError("broken")
        raise error

    def lines(self, *_: object, **__: object) -> NoReturn:
        self.snapshot()


def report_again(agent: Agent) -> None:
    """Have an error reported as if the last one was long ago."""
    inside.oom(agent)._due = 0
    inside.see_error(agent, RuntimeError_(FULL))


@pytest.mark.contained
def test_a_part_that_fails_costs_its_section_only(agent: Agent) -> None:
    """The report says what is missing, and the failure is counted."""
    broken: Any = Broken()
    facts = inside.oom(agent).facts
    facts.programs, facts.lines = broken.snapshot, broken
    report_again(agent)

    (path,) = inside.oom(agent).paths()
    report = json.loads(Path(path).read_text())
    assert [*report["unavailable"]] == ["lines", "programs"]
    assert "LookupError" in report["unavailable"]["programs"]
    assert "LookupError" in report["unavailable"]["lines"]
    assert (report["lines"], report["asked"], report["programs"]) == ({}, {}, {})
    assert report["failure"]["message"] == FULL
    assert value(agent, "jaxmon_internal_errors_total", site="oom_facts") == 2
    # Whatever it is switched off for, what the others know is worth a report.
    for _ in range(2 * guard.LIMIT):
        report_again(agent)
    assert value(agent, REPORTS) == 2 * guard.LIMIT + 1


def test_arrays_in_the_hosts_memory_are_told_beside_the_others(agent: Agent) -> None:
    """They take nothing of the memory that ran out."""
    facts = inside.oom(agent).facts
    device = jax.local_devices()[0]
    before = facts._live_arrays(OomReport()).live_arrays
    # To 0.4 a CPU has one memory, its own.
    kinds = [memory.kind for memory in device.addressable_memories()]
    kept = [
        jax.device_put(
            np.ones(1000, np.int8), SingleDeviceSharding(device, memory_kind=kind)
        )
        for kind in kinds
    ]
    add = jax.jit(lambda one: one + kept[0])  # which holds the same buffer again
    add(np.int8(1))
    after = facts._live_arrays(OomReport()).live_arrays

    assert after.arrays == (before.arrays or 0) + len(kept)
    assert after.offloaded_bytes - before.offloaded_bytes == 1000 * (len(kinds) - 1)
    assert after.bytes - before.bytes == 1000


def test_errors_without_a_report_are_in_the_next_one(agent: Agent) -> None:
    """Each report tells how many failed since the last."""
    report_again(agent)
    for _ in range(3):
        inside.see_error(agent, RuntimeError_(FULL))
    report_again(agent)
    report_again(agent)

    paths = inside.oom(agent).paths()
    reports = [json.loads(Path(path).read_text()) for path in paths]
    assert [one["failures_without_report"] for one in reports] == [0, 3, 0]


def test_without_memory_for_a_report_the_log_says_so(agent, monkeypatch, caplog):
    """That is no failure of ours, and the next report tells of it."""

    def exhausted(*_: object) -> str:
        raise MemoryError

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "jaxmon"):
        patch.setattr(oom_text, "render", exhausted)
        report_again(agent)
    report_again(agent)

    assert "could not write its report: MemoryError" in caplog.text
    assert value(agent, REPORTS) == 1


class Snapshots:
    """Returns what was requested."""

    def __init__(self, *, has_snapshot: bool) -> None:
        self.has_snapshot = has_snapshot

    def lines(self, _: int, *, fresh: bool) -> Allocations:
        return Allocations(time=1.0 if fresh else None)


@pytest.mark.parametrize(
    ("has_snapshot", "tight", "arrays", "fresh"),
    [
        (True, False, 20_000, True),
        (True, False, 20_001, False),
        (True, True, 1, False),
        (False, False, 100_000, True),
        (False, False, 100_001, False),
        (False, True, 20_000, True),
        (False, True, 20_001, False),
    ],
)
def test_a_snapshot_of_the_lines_is_taken_if_it_is_cheap(
    agent, has_snapshot, tight, arrays, fresh
):
    """
    With many arrays, or little memory, lines are those of the last regular snapshot; if
    there is none, taking one may take longer, but not forever.
    """
    facts = inside.oom(agent).facts
    seen: Any = Snapshots(has_snapshot=has_snapshot)
    facts.lines = seen
    room = (256 << 20) - tight
    report = OomReport(
        host=HostMemory(available=room), live_arrays=LiveArrays(arrays=arrays)
    )

    def is_fresh(report: OomReport) -> bool:
        return facts._lines(report).lines.time is not None

    assert is_fresh(report) is fresh
    assert is_fresh(report.without("host", "why")) is (
        arrays <= (0 if has_snapshot else 20_000)
    )
    assert is_fresh(report.without("live_arrays", "why")) is False


def test_a_report_stays_within_its_bounds(agent: Agent) -> None:
    """However much there is to tell, and however long the runtime's text."""
    programs = {
        f"f{n}": Program(peak_bytes=n, fingerprint="y" * 2000) for n in range(500)
    }
    inside.oom(agent).facts.programs = lambda: programs
    for number in range(300):
        inside.events(agent).add("compile", "f" * 2000, "m" * 2000, n=number)
    inside.see_error(agent, RuntimeError_(FULL + "\n" + "buffer\n" * 100_000))

    (path,) = inside.oom(agent).paths()
    for suffix in (".json", ".txt"):
        assert 0 < Path(path).with_suffix(suffix).stat().st_size <= 256 * 1024
    report = json.loads(Path(path).read_text())
    assert report["failure"]["text"].startswith(FULL)


def test_of_a_report_that_is_too_large_sections_are_omitted() -> None:
    """One after the other, until it fits; it says which, and is read as a record."""
    event = EventFact(message="m" * 1000, function="f")
    program = Program(peak_bytes=7)
    failure = FailedAllocation(text="t", time=1.0)
    report = OomReport(
        failure=failure, compiles=(event,), recompiles=(event,) * 300, pid=7
    ).replace(programs={"f": program})

    found = from_json(OomReport, json.loads(text_of(report)))

    omitted = {"recompiles": "omitted: the report is too large"}
    assert found == report.replace(recompiles=(), unavailable=omitted)
    assert found.format == "jaxmon-oom-2"


def test_without_a_directory_the_log_says_why(tmp_path, caplog):
    """The error is counted, the program goes on, nothing is a failure of ours."""
    taken = tmp_path / "taken"
    taken.touch()
    with instrumented(report_dir=str(taken)) as agent:
        with caplog.at_level(logging.WARNING, "jaxmon"):
            inside.see_error(agent, RuntimeError_(FULL))

        assert kinds(agent) == {("unknown", "oom"): 1}
        assert value(agent, REPORTS) == 0
        assert inside.overview(agent)["errors"] == {"oom_reports": []}
    assert "could not write its report" in caplog.text
    assert "JAXMON_REPORT_DIR" in caplog.text


def test_reports_never_start_the_backends(tmp_path: Path) -> None:
    """A program that failed before it used JAX may still configure it."""
    program = """
import sys, jax, jaxmon
from jax._src import xla_bridge
from tests.helpers import inside
agent = jaxmon.instrument(port=None, socket=False, report_dir=sys.argv[1])
inside.see_error(agent, jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: x"))
assert inside.oom(agent).count == 1
assert not xla_bridge.backends_are_initialized()
"""
    run_preloaded("-c", program, str(tmp_path)).ok()


def test_a_forked_child_reports_for_itself(tmp_path: Path) -> None:
    """It has no agent until it asks for one, and its reports carry its own number."""
    program = """
import os, sys, warnings
warnings.simplefilter("ignore")
import jax, jaxmon
from tests.helpers import inside
full = jax.errors.JaxRuntimeError
agent = jaxmon.instrument(port=None, socket=False, report_dir=sys.argv[1])
inside.see_error(agent, full("RESOURCE_EXHAUSTED: parent"))
pid = os.fork()
if pid == 0:
    inside.see_error(agent, full("RESOURCE_EXHAUSTED: orphan"))
    own = jaxmon.instrument(port=None, socket=False, report_dir=sys.argv[1])
    inside.see_error(own, full("RESOURCE_EXHAUSTED: child"))
    os._exit(inside.oom(own).count)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
assert inside.oom(agent).count == 1
"""
    run_preloaded("-c", program, str(tmp_path)).ok()

    reports = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    messages = {report["failure"]["message"] for report in reports}
    assert messages == {"RESOURCE_EXHAUSTED: parent", "RESOURCE_EXHAUSTED: child"}
    assert len({report["pid"] for report in reports}) == 2
