"""
The record of a run that is killed and restarted, against a ledger kept outside of it.
"""

import json
import time

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import series
from jaxmon.facts import run as records
from jaxmon.facts.record import encoded
from jaxmon.facts.run import RunRecord
from jaxmon.limits import Limits
from jaxmon.screens.runs import read_file
from tests.helpers import goodput
from tests.helpers.findings import findings
from tests.helpers.goodput import RUN, Fault, Supervised


pytestmark = pytest.mark.ground_truth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Supervised:
    """Return a run whose first attempt is killed, and second exits at an error."""
    found = Supervised(tmp_path_factory.mktemp("run"), 30)
    found.attempt(Fault("killed", 13))
    found.attempt(Fault("exits", 20), pause=0.3)
    found.attempt(None, pause=0.2)
    return found


def test_each_second_is_where_the_supervisor_has_it(run: Supervised) -> None:
    """
    Up to its last write before each end, the record agrees with the ledger, except for
    steps that are split; with all of it, except for what came after these writes.
    """
    record = run.record()
    for ledger in (run.ledger(as_recorded=True), run.ledger()):
        for activity, expected in ledger.seconds.items():
            found = record.seconds.get(activity, 0.0)
            assert abs(found - expected) <= ledger.allowed(activity), activity
        assert ledger.seconds["lost_progress"] > 0.1
    assert record.seconds["lost_progress"] > 0.1


def test_activities_add_up_to_the_wall_time_since_the_first_attempt(run):
    """From the start of the first process to the last write, whatever happened."""
    record = run.record()
    whole = record.boottime - run.attempts[0].began
    # The kernel counts the start of a process in hundredths of a second.
    assert record.wall == pytest.approx(whole, abs=0.1)


def test_interruptions_and_lost_steps_are_counted(run: Supervised) -> None:
    """Those since the last checkpoint were lost, and the run resumed each time."""
    record, ledger = run.record(), run.ledger(as_recorded=True)
    assert record.interruptions == {"killed": 1, "crashed": 1}
    assert (record.starts, record.steps, record.fruitless) == (3, 30, 0)
    assert record.lost_steps == ledger.lost_steps
    # Without those that were done after the last write before the kill.
    assert ledger.lost_steps <= run.ledger().lost_steps
    assert record.resumes == 2
    assert abs(record.resume_seconds - ledger.resume_seconds) <= ledger.tolerance
    # As the program noted them; those of the first and second attempt count, too.
    assert record.saves == run.noted("checkpoint ends") == 3


def test_what_the_restarts_cost_is_found(run: Supervised) -> None:
    """Each cause that the ledger has as much of; nothing while the run is young."""
    assert findings(None, run=encoded(run.record().filled())) == []
    old = Limits(run_young="1s")
    record, ledger = run.record(), run.ledger(as_recorded=True)
    doubt = ledger.tolerance + ledger.traced
    up = sum(ledger.seconds.values()) - ledger.seconds["waiting"]
    found = {one.topic for one in findings(None, old, run=encoded(record.filled()))}
    for topic, seconds in (
        ("lost_progress", ledger.seconds["lost_progress"]),
        ("recovery", ledger.seconds["recovery"]),
        ("checkpoint_time", ledger.seconds["checkpoint"]),
    ):
        if seconds - doubt > 0.1 * (up + doubt):
            assert topic in found, (topic, ledger)
        if seconds + doubt < 0.05 * (up - doubt):
            assert topic not in found, (topic, ledger)
    assert "recovery" in found


def test_the_last_process_exports_the_whole_run(run: Supervised) -> None:
    """Its counters continue those of the processes before."""
    page, record = run.page(), run.record()
    seconds = {
        activity: page[series(catalog.RUN_SECONDS, RUN, activity)]
        for activity in catalog.RUN_ACTIVITIES
    }
    assert sum(seconds.values()) <= record.wall
    for activity, found in seconds.items():
        assert found <= record.seconds.get(activity, 0.0)
    for metric, value in (
        (catalog.RUN_STEPS, record.steps),
        (catalog.RUN_LOST_STEPS, record.lost_steps),
        (catalog.RUN_SAVES, record.saves),
        (catalog.RUN_RESUMES, record.resumes),
        (catalog.RUN_RESUME_SECONDS, record.resume_seconds),
        (catalog.RUN_FRUITLESS_ATTEMPTS, record.fruitless),
    ):
        assert page[series(metric, RUN)] == value
    for ending in catalog.RUN_ENDINGS:
        found = page[series(catalog.RUN_INTERRUPTIONS, RUN, ending)]
        assert found == record.interruptions.get(ending, 0)


def test_ml_goodput_measurement_agrees(run, tmp_path, monkeypatch):
    """Of the same run, Google's library has the same figures, but for lost steps."""
    theirs = goodput.figures(run, tmp_path, monkeypatch)
    ours, ledger = goodput.as_theirs(run.record()), run.ledger()
    allowed = ledger.tolerance + ledger.traced + ledger.repeated
    assert theirs.pop("interruptions") == ours.pop("interruptions")
    for name, seconds in ours.items():
        assert abs(theirs[name] - seconds) <= allowed, (name, theirs, ours)


REPORTING = """
import pathlib, sys, time
import jax, jaxmon

directory = pathlib.Path(sys.argv[1])
jaxmon.instrument(
    run="train", run_state=directory, run_interval=0.1, port=None, socket=False,
    report=True, summary_dir=directory / "reports",
)
step = jax.jit(lambda x: x + 1)
for number in jaxmon.steps(range(1_000_000), start=900):
    step(1.0)
    if number > 20 and b"boot/7/1" not in (directory / "run-train.json").read_bytes():
        break
"""


HOUR = 3600.0
# After two attempts that were killed.
BEFORE = RunRecord(
    schema=records.SCHEMA,
    run="train",
    writer="boot/7/1",
    starts=3,
    boot="boot",
    seconds={"step": 6 * HOUR, "lost_progress": 3 * HOUR, "checkpoint": 0.1 * HOUR},
    interruptions={"killed": 2},
    step=1_000,
    furthest=1_000,
    marked=True,
    saves=6,
)


def test_the_reports_of_a_restarted_program_have_the_whole_run(
    preloaded_script, tmp_path
):
    """The last attempt's report has lost time and that of all attempts."""
    before = BEFORE.replace(time=time.time() - 2 * HOUR)
    records.path_of(tmp_path, "train").write_bytes(before.as_json())
    result = preloaded_script(REPORTING, str(tmp_path)).ok()

    said = " ".join(result.err.split())
    assert "Run train did 100 steps again after it was interrupted 3 times: 3 h" in said
    assert "by Young's formula" in said
    written = read_file(tmp_path / "reports")
    record, topics = written.snapshot.run, [one.topic for one in written.findings]
    assert topics.count("lost_progress") == 1
    # It was waiting for two hours, too.
    assert topics.count("between_attempts") == 1
    assert (record.starts, record.lost_steps, record.saves) == (4, 100, 6)
    assert record.seconds["waiting"] == pytest.approx(2 * HOUR, abs=120)
    assert record.wall == pytest.approx(11.1 * HOUR, abs=240)
    (html,) = (tmp_path / "reports").glob("*.html")
    page = html.read_text()
    for text in ("Goodput across restarts", "steps done again", "interrupted 3 times"):
        assert text in page


def test_a_healthy_run_has_its_time_in_the_report_and_no_finding(
    preloaded_script, tmp_path
):
    """It restarts at once, and lost minutes of many hours."""
    spent = {"step": 30 * HOUR, "lost_progress": 0.5 * HOUR, "recovery": 0.5 * HOUR}
    before = BEFORE.replace(seconds=spent, time=time.time())
    records.path_of(tmp_path, "train").write_bytes(before.as_json())
    preloaded_script(REPORTING, str(tmp_path)).ok()

    written = read_file(tmp_path / "reports")
    assert written.snapshot.run.starts == 4
    about = {"lost_progress", "recovery", "checkpoint_time", "between_attempts"}
    assert about.isdisjoint(one.topic for one in written.findings)
    (html,) = (tmp_path / "reports").glob("*.html")
    assert "Goodput across restarts" in html.read_text()


FULL = """
import json, os, pathlib, resource, signal, sys, time
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.facts.process import read
from jaxmon.screens.notes import doubts
from tests.helpers.agents import samples

directory = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
agent = jaxmon.instrument(
    run="train", run_state=directory, run_interval=0.1, port=None, socket=False
)
step = jax.jit(lambda x: x + 1)
found = {}


def unsaved():
    page = samples(agent)
    return page.get('jaxmon_run_unsaved_seconds{run="train"}')


def steps_until(done):
    for number in jaxmon.steps(range(100_000)):
        step(1.0)
        time.sleep(0.005)
        if done():
            return
    raise SystemExit("it never was")


steps_until(lambda: (directory / "run-train.json").exists())
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
sys.dont_write_bytecode = True  # Python would keep half of it
resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
steps_until(lambda: unsaved() > 0.5)
found["full"] = samples(agent)['jaxmon_run_steps_total{run="train"}']
found["left"] = sorted(os.listdir(directory))
found["doubts"] = list(doubts(read(runtime_of(agent).overview.whole())))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
steps_until(lambda: unsaved() < 0.5)
for one in directory.iterdir():
    one.unlink()
directory.rmdir()
steps_until(lambda: (directory / "run-train.json").exists())
print(json.dumps(found))
"""


def test_storage_that_fails_costs_only_the_record(preloaded_script, tmp_path):
    """Metrics continue and say so; afterwards the record is complete."""
    directory = tmp_path / "state"
    result = preloaded_script(FULL, str(directory)).ok()
    found = json.loads(result.out.splitlines()[-1])
    assert found["full"] > 0
    assert found["left"] == ["run-train.json"]
    path = records.path_of(directory, "train")
    assert (
        "jaxmon cannot keep the record of the run, and retries: [Errno 27] File too "
        f"large: '{path}'."
    ) in found["doubts"]
    assert result.err.count("jaxmon cannot keep the record of the run") == 1
    record = records.read(path)
    assert record.steps > found["full"]
    assert (record.starts, record.ended) == (1, "stopped")


FORKED = """
import os, pathlib, sys, warnings
import jax, jaxmon

directory = pathlib.Path(sys.argv[1])
agent = jaxmon.instrument(
    run="train", run_state=directory, run_interval=0.1, port=None, socket=False
)
step = jax.jit(lambda x: x + 1)
for _ in jaxmon.steps(range(5), start=10):
    step(1.0)
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
jaxmon.uninstrument()
again = jaxmon.instrument(
    run="train", run_state=directory, run_interval=0.1, port=None, socket=False
)
step = jax.jit(lambda x: x + 1)
for _ in jaxmon.steps(range(5), start=15):
    step(1.0)
"""


def test_a_fork_and_a_second_agent_are_no_attempts(preloaded_script, tmp_path):
    """The child leaves the record alone; the second agent continues it."""
    preloaded_script(FORKED, str(tmp_path)).ok()
    record = records.read(records.path_of(tmp_path, "train"))
    assert (record.starts, record.interruptions) == (1, {})
    assert (record.first, record.furthest, record.lost_steps) == (10, 20, 0)
