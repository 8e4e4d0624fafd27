"""Figures in W&B, MLflow and TensorBoard, and trackers that hang or raise."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import jaxmon
from jaxmon.agent import trackers
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.guard import LIMIT
from jaxmon.catalog import COMPILES, DATA_WAIT_SECONDS, DROPPED, STEP_SECONDS
from jaxmon.errors import JaxmonError
from jaxmon.threads import Deadline, running
from tests.helpers.agents import instrumented, value
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT, ExitOfThread, until


PROGRAM = ROOT / "tests" / "programs" / "trackers.py"
STEPS, EVERY, START = 12, 3, 1000
DUE = [START + number for number in range(EVERY, STEPS + 1, EVERY)]
_BLOCK, _HEADER = 32768, 7


class Run:
    """What the program printed, and the directory of its trackers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        found = json.loads(run_preloaded(str(PROGRAM), str(directory)).ok().out)
        self.pages = {int(step): page for step, page in found["pages"].items()}
        self.rows = dict(found["rows"][:-1])
        self.last = found["rows"][-1]
        self.waited = found["waited"]
        self.run, self.wandb = found["run"], Path(found["wandb"]).parent

    def page(self, step: int, name: str, *parts: str) -> float:
        """Return the sum of series *name* with all *parts* on the page at *step*."""
        found: float = sum(
            value
            for series, value in self.pages.get(step, {}).items()
            if series.partition("{")[0] == name and all(p in series for p in parts)
        )
        return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return one run of the program."""
    for client in ("mlflow", "tensorboard", "wandb"):
        pytest.importorskip(client)
    return Run(tmp_path_factory.mktemp("trackers"))


@pytest.mark.ground_truth
def test_figures_are_those_of_the_page(run: Run) -> None:
    """At each step with a row: times since the row before, compiles until now."""
    assert list(run.rows) == DUE
    waited = 0.0
    for step in DUE:
        row, before = run.rows[step], step - EVERY
        sums, counts = (
            run.page(step, f"{STEP_SECONDS.name}_{what}")
            - run.page(before, f"{STEP_SECONDS.name}_{what}")
            for what in ("sum", "count")
        )
        assert counts == EVERY
        assert row["jaxmon/step_seconds"] == pytest.approx(sums / counts)
        assert row["jaxmon/mfu"] == pytest.approx(3e9 / 1e12 / (sums / counts))
        waited += row["jaxmon/data_wait_seconds"] * EVERY
        # The page has the wait for one more batch.
        assert run.waited[step - START] <= waited
        assert waited <= run.page(step, DATA_WAIT_SECONDS.name)
        built = run.page(step, COMPILES.name) - run.page(
            step, COMPILES.name, 'outcome="failed"'
        )
        assert row["jaxmon/compiles"] == built
        recompiles = run.page(step, "jaxmon_recompiles_total")
        assert row["jaxmon/recompiles"] == recompiles
        compiled = run.page(step, "jaxmon_compile_seconds_sum")
        assert row["jaxmon/compile_seconds"] == pytest.approx(compiled)
        assert 0 < row["jaxmon/goodput"] < 1
    assert run.rows[DUE[-1]]["jaxmon/recompiles"] > 0
    assert run.last[0] == DUE[-1]
    assert "jaxmon/findings" in run.last[1]


@pytest.mark.ground_truth
def test_mlflow_has_every_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by MLflow's own client."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    client = MlflowClient(f"file://{run.directory}/mlflow")
    for name in run.rows[DUE[0]]:
        history = client.get_metric_history(run.run, name)
        found = {metric.step: metric.value for metric in history}
        assert found == {step: row[name] for step, row in run.rows.items()}
    stored = [one.path for one in client.list_artifacts(run.run)]
    assert stored == ["jaxmon-findings.txt"]


@pytest.mark.ground_truth
def test_tensorboard_has_every_row(run: Run) -> None:
    """Read by TensorBoard's own accumulator; it stores 32 bits."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(run.directory / "tensorboard")).Reload()
    for name in run.rows[DUE[0]]:
        found = {
            one.step: float(make_ndarray(one.tensor_proto))
            for one in events.Tensors(name)
        }
        expected = {step: row[name] for step, row in run.rows.items()}
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.ground_truth
def test_wandb_has_rows_and_findings(run: Run) -> None:
    """In its own file; the program's own rows, by steps of its own, are all there."""
    history, summary = _wandb_rows(run.wandb)
    ours = [row for row in history if "jaxmon/step" in row]
    assert ours
    for row in ours:
        expected = run.rows[row["jaxmon/step"]]
        assert {name: row[name] for name in expected} == pytest.approx(expected)
    losses = [row["loss"] for row in history if "loss" in row]
    assert losses == [1.0 / number for number in range(EVERY, STEPS + 1, EVERY)]
    assert summary["jaxmon/findings"] == run.last[1]["jaxmon/findings"]


def _wandb_rows(directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows and the summary in the file of an offline run."""
    from wandb.proto import wandb_internal_pb2

    records = wandb_internal_pb2.Record
    (file,) = directory.glob("*.wandb")
    history, summary = list[dict[str, Any]](), dict[str, Any]()
    for data in _log_records(file.read_bytes()):
        record = records.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            history.append(_items(record.history.item))
        elif kind == "summary":
            summary.update(_items(record.summary.update))
    return history, summary


def _items(items: Any) -> dict[str, Any]:
    return {
        one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in items
    }


def _log_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file in LevelDB's log format, after W&B's header."""
    at, parts = _HEADER, b""
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + _HEADER : at + _HEADER + size]
        at += _HEADER + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


class Rows(list[int]):
    """A tracker that keeps the steps of its rows."""

    def __call__(self, values: dict[str, Any], step: int) -> None:
        assert values
        self.append(step)


class Writer(Rows):
    """A tracker that keeps the steps of single values."""

    def add_scalar(self, name: str, number: float, step: int) -> None:
        assert name.startswith("jaxmon/")
        assert number >= 0
        self.append(step)


class Hanging:
    """A tracker that does not return until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, values: dict[str, Any], step: int) -> None:
        del values, step
        self.released.wait()


class Failing(Rows):
    """A tracker that raises, and no `Exception` the first time."""

    def __call__(self, values: dict[str, Any], step: int) -> None:
        super().__call__(values, step)
        if len(self) == 1:
            sys.exit("no run")
        msg = "no network"
        raise OSError(msg)


def _our_threads() -> list[str]:
    names = [thread.name for thread in running()]
    return [name for name in names if name.startswith("jaxmon-tracker")]


def loop(steps: int) -> None:
    """Run a loop of so many finished steps."""
    for _ in jaxmon.steps(range(steps)):
        pass


def test_a_tracker_that_hangs_holds_up_nothing() -> None:
    """The loop ends, another tracker has its rows, and what was dropped is counted."""
    hanging, rows = Hanging(), Rows()
    with instrumented() as agent:
        runtime = runtime_of(agent)
        assert runtime is not None
        runtime.context.guard.deadline = Deadline(0.3)
        jaxmon.log_to(hanging, every=1)
        jaxmon.log_to(rows, every=50)
        loop(300)
        assert value(agent, DROPPED.name, what="tracker") >= 300 - trackers._WAITING - 1
        jaxmon.uninstrument()
        assert value(agent, DROPPED.name, what="tracker") == 300
    hanging.released.set()
    until(lambda: not _our_threads(), "the end of its thread")
    assert set(rows) <= {50, 100, 150, 200, 250, 300}


@pytest.mark.contained
def test_a_tracker_that_raises_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """It harms neither the loop nor another tracker; the log says it once."""
    calls, rows, others = Failing(), Writer(), Rows()
    with instrumented() as agent:
        jaxmon.log_to(calls, every=1)
        jaxmon.log_to(rows, every=20)
        jaxmon.log_to(others, every=20)
        loop(60)
        until(lambda: len(calls) == LIMIT, "that it is given up")
        loop(60)
        jaxmon.uninstrument()
        failures = value(agent, "jaxmon_internal_errors_total", site="tracker_function")
    assert failures == len(calls) == LIMIT
    assert set(rows) == set(others) == {20, 40, 60, 80, 100, 120}
    assert "jaxmon failed" not in caplog.text
    assert "what the program passed to it: SystemExit: no run" in caplog.text


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_child_that_a_tracker_forks_writes_no_rows() -> None:
    """It has the queue of its parent, and ends when the tracker is done."""
    rows, children, of_thread = Rows(), list[int](), threading.local()

    def forking(values: dict[str, Any], step: int) -> None:
        rows(values, step)
        if len(rows) == 1:
            if child := os.fork():
                children.append(child)
            else:
                of_thread.end = ExitOfThread()

    with instrumented():
        jaxmon.log_to(forking, every=1)
        loop(10)
        until(lambda: len(rows) == 10, "all rows")
    (child,) = children
    try:
        until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, "the child's end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_without_an_agent_nothing_is_written() -> None:
    """A program does not depend on its agent."""
    rows = Rows()
    jaxmon.log_to(rows, every=1)
    loop(5)
    assert rows == []


@pytest.mark.parametrize(
    ("tracker", "options", "words"),
    [
        (object(), {}, "cannot write to object"),
        (print, {"every": 0}, "every is 0"),
        (print, {"start": -1}, "start is -1"),
        (print, {"step_flops": 1e9}, "peak_flops None"),
        (print, {"step_flops": 1e9, "peak_flops": 0}, "peak_flops 0"),
    ],
)
def test_a_mistake_is_said_at_once(tracker, options, words):
    """Where the program can still change it."""
    with pytest.raises(JaxmonError, match=words):
        jaxmon.log_to(tracker, **options)


def test_another_loop_makes_no_rows() -> None:
    """Only the loop that was named, from the step that it starts with."""
    rows = Rows()
    with instrumented():
        jaxmon.log_to(rows, every=2, start=10)
        for _ in jaxmon.steps(range(4), loop="evaluate"):
            pass
        loop(4)
        jaxmon.uninstrument()
    assert rows == [12, 14, 14]  # the last are the findings


def test_a_tracker_that_marks_steps_gets_no_rows_of_its_own() -> None:
    """Its steps may be of the same loop; each row would call it once more."""
    rows: list[int] = []

    def log(values: dict[str, Any], step: int) -> None:
        del values
        rows.extend([step for _ in jaxmon.steps([1, 2])])

    with instrumented():
        jaxmon.log_to(log, every=1)
        for _ in jaxmon.steps(range(STEPS)):
            pass
        until(lambda: len(rows) >= 2 * STEPS, "rows of all steps")

    assert len(rows) == 2 * (STEPS + 1)  # and the findings
