"""How the time of attempts is added to the record of their run."""

from __future__ import annotations

import json
import os
import random
import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.agent.goodput import identity
from jaxmon.agent.goodput.accounts import Accounts, Progress
from jaxmon.agent.goodput.identity import Moment, Run, Writer
from jaxmon.agent.goodput.store import Store, SupersededError
from jaxmon.agent.goodput.succession import begun
from jaxmon.cli.main import main
from jaxmon.report.goodput import record as records
from jaxmon.report.goodput.record import NewerRecordError, RunRecord, RunRecordError
from jaxmon.report.job.records import host
from jaxmon.settings import load


RUN = Run("train", None, Path("/nowhere"))


def writer(number: int, boot: str = "boot") -> Writer:
    """Return a process that does not run."""
    return Writer(boot, 4_000_000 + number, str(number))


class Simulated:
    """A run whose clocks and steps are made up."""

    def __init__(self) -> None:
        self.wall, self.boottime = 1_000_000.0, 500.0
        self.record: RunRecord | None = None
        self.attempts = 0
        self.wall_time = 0.0

    def attempt(self, **changes: Any) -> None:
        """Begin another one, in a process that starts now."""
        self.attempts += 1
        me = writer(self.attempts, changes.pop("boot", "boot"))
        run = RUN._replace(**changes)
        now = Moment(self.wall, self.boottime)
        self.record = begun(self.record, run, me, host="host", now=now, age=0.0)
        self.accounts = Accounts(self.record)
        self.spent: dict[str, float] = {}
        self.steps = 0
        self.numbered: list[tuple[int, int]] = []
        self.looped = False
        self.late = 0.0

    def start(self, number: int | None) -> None:
        """Begin the loop at a step."""
        self.looped = True
        if number is not None:
            self.numbered.append((self.steps, number))

    def do(self, seconds: float, activity: str = "", *, steps: int = 0) -> None:
        """Let time go by, and the record with it."""
        self.wait(seconds)
        if activity:
            self.spent[activity] = self.spent.get(activity, 0.0) + seconds
        self.steps += steps
        numbered, self.numbered = self.numbered, []
        progress = Progress("train", self.steps, numbered, 0.0, running=True)
        now = Moment(self.wall, self.boottime)
        given = progress if self.looped else None
        self.accounts.advance(now, self.spent, given, late=self.late)
        self.record = self.accounts.record

    def wait(self, seconds: float) -> None:
        """Let time go by unseen."""
        self.wall += seconds
        self.boottime += seconds

    @property
    def known(self) -> RunRecord:
        """The record."""
        assert self.record is not None
        return self.record


def test_steps_are_done_again_up_to_the_furthest() -> None:
    """A restart from step 10 of 15: five steps are lost, and the next one is new."""
    run = Simulated()
    run.attempt()
    run.do(3.0)
    run.start(0)
    run.do(15.0, "step", steps=15)
    run.wait(20.0)
    run.attempt()
    run.do(2.0, "restore")
    run.start(10)
    run.do(6.0, "step", steps=6)

    assert run.known.seconds == {
        "startup": 3.0,
        "step": 16.0,
        "waiting": 20.0,
        "recovery": 2.0,
        "lost_progress": 5.0,
    }
    assert (run.known.lost_steps, run.known.steps) == (5, 16)
    assert run.known.goodput == pytest.approx(16 / 46)


def test_an_unfinished_step_is_lost_as_well() -> None:
    """Its time counts as progress at first, and is given back as it is done again."""
    run = Simulated()
    run.attempt()
    run.start(0)
    run.do(4.0, "step", steps=4)
    run.do(0.6, "step")
    assert run.known.seconds["step"] == pytest.approx(4.6)
    run.attempt()
    run.start(4)
    run.do(1.0, "step", steps=1)

    assert run.known.lost_steps == 0
    assert run.known.seconds["step"] == pytest.approx(5.0)
    assert run.known.seconds["lost_progress"] == pytest.approx(0.6)


def test_steps_without_numbers_are_no_progress_until_they_must_be() -> None:
    """After a restart, as many as there were may be the same again."""
    run = Simulated()
    run.attempt()
    run.start(None)
    run.do(5.0, "step", steps=5)
    run.attempt()
    run.start(None)
    run.do(8.0, "step", steps=8)

    assert run.known.seconds["unknown"] == pytest.approx(5.0)
    assert run.known.seconds["step"] == pytest.approx(8.0)
    assert (run.known.lost_steps, run.known.furthest) == (0, 8)


def test_a_rollback_within_a_process_is_lost_progress() -> None:
    """A loop that begins again at an earlier step needs no restart for that."""
    run = Simulated()
    run.attempt()
    run.start(0)
    run.do(6.0, "step", steps=6)
    run.start(2)
    run.do(4.0, "step", steps=4)
    assert run.known.seconds["lost_progress"] == pytest.approx(4.0)
    assert run.known.lost_steps == 4


def test_compiles_that_seemed_to_be_steps_are_counted_later() -> None:
    """What was read too early is taken from the next steps, so the sum is right."""
    run = Simulated()
    run.attempt()
    run.start(0)
    run.do(10.0, "step")
    run.late = 7.0
    run.do(3.0, "step", steps=1)
    assert run.known.seconds == {"step": 10.0, "compile": 3.0}
    run.do(9.0, "step", steps=9)
    assert run.known.seconds == {"step": 15.0, "compile": 7.0}
    run.do(1.0, "step", steps=1)
    assert run.known.seconds == {"step": 16.0, "compile": 7.0}


def test_attempts_without_a_new_step_are_counted() -> None:
    """A crash loop counts up, also if it repeats old steps; a new step ends it."""
    run = Simulated()
    run.attempt()
    run.start(0)
    run.do(5.0, "step", steps=5)
    for expected in (1, 2, 3):
        run.attempt()
        run.start(0)
        run.do(2.0, "step", steps=2)
        assert run.known.fruitless == expected
    run.do(4.0, "step", steps=4)
    assert run.known.fruitless == 0


def test_the_time_to_resume_spans_attempts_that_do_not() -> None:
    """It is counted from the interruption to the end of the next step."""
    run = Simulated()
    run.attempt()
    run.start(0)
    run.do(5.0, "step", steps=5)
    run.wait(10.0)
    run.attempt()
    run.do(3.0)
    run.wait(10.0)
    run.attempt()
    run.do(2.0)
    run.start(5)
    run.do(1.0, "step", steps=1)
    assert run.known.resumes == 1
    assert run.known.resume_seconds == pytest.approx(26.0)
    assert run.known.interruptions == {"killed": 2}


def test_attempts_that_nobody_saw_are_counted_by_the_scheduler() -> None:
    """Between its numbers 0 and 3 there were two more; a new record begins at two."""
    run = Simulated()
    run.attempt(attempt=0)
    run.attempt(attempt=3)
    assert run.known.interruptions == {"killed": 1, "unseen": 2}
    fresh = Simulated()
    fresh.attempt(attempt=2)
    assert fresh.known.interruptions == {"unseen": 2}


def test_a_clock_that_is_set_does_no_harm() -> None:
    """On one host it is not used; between hosts, no time is negative."""
    run = Simulated()
    run.attempt()
    run.do(5.0)
    run.wall -= 1e6
    run.do(5.0)
    run.wait(7.0)
    run.attempt()
    assert run.known.seconds["waiting"] == pytest.approx(7.0)
    run.wall -= 1e6
    run.attempt(boot="another")
    assert run.known.seconds["waiting"] == pytest.approx(7.0)


@pytest.mark.parametrize("seed", range(20))
def test_activities_always_add_up(seed: int) -> None:
    """Whatever comes, each second is counted once, and no counter decreases."""
    chosen = random.Random(seed)  # noqa: S311 - repeatable, hides nothing
    run = Simulated()
    began, before = run.boottime, dict[str, float]()
    for _ in range(6):
        run.attempt()
        run.do(chosen.random())
        run.start(chosen.choice([None, 0, run.known.furthest, run.known.step]))
        for _ in range(20):
            activity = chosen.choice(
                ["step", "data_wait", "compile", "eval", "", "other"]
            )
            run.do(chosen.random(), activity, steps=chosen.choice([0, 0, 1, 7]))
            if chosen.random() < 0.05:
                run.start(chosen.randrange(30))
            assert run.known.wall == pytest.approx(run.boottime - began)
            for name, seconds in before.items():
                assert run.known.seconds[name] >= seconds - 1e-9
            before = dict(run.known.seconds)
        run.wait(chosen.random())


# --- The file ------------------------------------------------------------------------


def held(directory: Path, me: Writer) -> tuple[Store, RunRecord]:
    """Return a store that keeps the record, and the record."""
    store = Store(RUN._replace(directory=directory), me)
    found = store.begin()
    assert found is not None
    store.write(found[0])
    return store, found[0]


def test_a_process_whose_successor_writes_stops(tmp_path: Path) -> None:
    """The later attempt keeps the record, whatever is still written."""
    first, mine = held(tmp_path, writer(1))
    second, theirs = held(tmp_path, writer(2))
    with pytest.raises(SupersededError, match="another process"):
        first.write(mine)
    # It read before, and wrote after.
    first.path.write_bytes(mine.as_json())
    second.write(theirs)
    assert records.read(second.path).writer == str(writer(2))
    assert records.read(second.path).starts == 2


def test_of_two_that_begin_at_once_one_stops(tmp_path: Path) -> None:
    """They agree on which, whoever writes last."""
    stores = [Store(RUN._replace(directory=tmp_path), writer(n)) for n in (1, 2)]
    begun_ = [one.begin() for one in stores]
    mine = [one[0] for one in begun_ if one]
    stores[1].write(mine[1])
    with pytest.raises(SupersededError):
        stores[0].write(mine[0])


def test_a_living_process_keeps_its_record(tmp_path: Path) -> None:
    """Another one of this host has to wait until it has ended."""
    me = identity.this_process()
    held(tmp_path, me)
    assert Store(RUN._replace(directory=tmp_path), writer(1, me.boot)).begin() is None
    assert identity.lives(str(me), writer(1, me.boot))
    assert not identity.lives(str(me), writer(1, "another boot"))
    assert not identity.lives(str(me._replace(started="1")), writer(1, me.boot))


def test_a_new_agent_in_the_same_process_is_no_new_attempt(tmp_path: Path) -> None:
    """The time in between is unknown, and nothing was interrupted."""
    held(tmp_path, writer(1))
    found = Store(RUN._replace(directory=tmp_path), writer(1)).begin()
    assert found is not None
    record, continues = found
    assert continues
    assert (record.starts, record.interruptions) == (1, {})


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\0" * 512, b"{}", b"[1]", b'{"schema": 1, "run": "x", "starts": 0}'),
        b'{"schema": 1, "starts": 1, "run": 7}',
        *(b"[" * 10_000, b'{"schema": "1"}', "{'ä'".encode("latin-1")),
    ],
)
def test_what_is_no_record_is_replaced(tmp_path: Path, content: bytes) -> None:
    """The run begins anew, and says so in its log."""
    path = records.path_of(tmp_path, RUN.name)
    path.write_bytes(content)
    _, record = held(tmp_path, writer(1))
    assert record.starts == 1
    assert records.read(path) == record


def test_a_record_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    """It may mean what this one does not know."""
    store, record = held(tmp_path, writer(1))
    store.path.write_bytes(replace(record, schema=records.SCHEMA + 1).as_json())
    before = store.path.read_bytes()
    with pytest.raises(NewerRecordError):
        Store(RUN._replace(directory=tmp_path), writer(2)).begin()
    with pytest.raises(NewerRecordError):
        store.write(record)
    assert store.path.read_bytes() == before


def test_impossible_numbers_count_as_none(tmp_path: Path) -> None:
    """Negative, infinite and huge ones, and what has another type."""
    store, record = held(tmp_path, writer(1))
    document = json.loads(record.as_json())
    document |= {
        "seconds": {"step": -5, "compile": 1e300, "sleep": 4, "waiting": "long"},
        "interruptions": {"killed": -1, "crashed": 2, "x": 3},
        "lost_steps": -3,
        "down": -1,
        "furthest": 1,
        "step": 9,
        "attempt": -2,
    }
    store.path.write_text(json.dumps(document))
    found = records.read(store.path)
    assert found.seconds == {"compile": 1e15}
    assert found.interruptions == {"crashed": 2}
    assert (found.lost_steps, found.down, found.furthest, found.attempt) == (0, 0, 9, 0)


def test_a_directory_in_its_place_is_an_error(tmp_path: Path) -> None:
    """Which is retried, and changes nothing."""
    path = records.path_of(tmp_path, RUN.name)
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        Store(RUN._replace(directory=tmp_path), writer(1)).begin()
    with pytest.raises(RunRecordError):
        records.from_document(None)


def test_names_become_names_of_files(tmp_path: Path) -> None:
    """Whatever they contain, and different ones differ."""
    assert records.path_of(tmp_path, "train-7").name == "run-train-7.json"
    odd = {records.path_of(tmp_path, one) for one in ("a/b", "a b", "../a", "ä" * 500)}
    assert len(odd) == 4
    for one in odd:
        assert one.parent == tmp_path
        assert len(os.fsencode(one.name)) < 200


# --- Which run -----------------------------------------------------------------------


def test_schedulers_name_job_and_attempt() -> None:
    """A number that begins at 1 counts one less; nonsense counts as none."""
    environ = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2"}
    assert (identity.job_of(environ), identity.attempt_of(environ)) == ("4711", 2)
    assert identity.attempt_of({"AWS_BATCH_JOB_ATTEMPT": "1"}) == 0
    assert identity.attempt_of({"SLURM_RESTART_COUNT": "-1"}) is None
    assert identity.attempt_of({"TORCHELASTIC_RESTART_COUNT": "9" * 20}) is None
    assert identity.job_of({}) == ""


def test_a_run_is_named_by_settings_scheduler_or_directory(tmp_path: Path) -> None:
    """Without a name or a directory in the settings there is none."""
    environ = {"SLURM_JOB_ID": "4711", "JAXMON_RUN_DIR": str(tmp_path)}

    def of(environ: dict[str, str], **options: Any) -> Run:
        return identity.run_of(load(options, {}), environ)

    assert not identity.is_run(load({}, environ))
    state = tmp_path / "llama"
    assert of(environ, run_state=str(state)) == Run("4711", None, state)
    assert of({}, run_state=str(state)) == Run("llama", None, state)
    assert of(environ, run="x", attempt=3) == Run("x", 3, tmp_path / "runs")


# --- What people read ----------------------------------------------------------------


def test_the_record_is_printed(tmp_path: Path) -> None:
    """Time by activity, most first, and what was lost."""
    run = Simulated()
    run.attempt()
    run.start(0)
    run.do(3600.0, "step", steps=60)
    run.wait(600.0)
    run.attempt()
    run.start(50)
    run.do(900.0, "step", steps=15)
    path = records.path_of(tmp_path, "train")
    path.write_bytes(replace(run.known, time=time.time()).as_json())

    found = CliRunner().invoke(main, ["job", "goodput", str(tmp_path)])
    assert found.exit_code == 0
    text = re.sub(" +", " ", found.output)
    assert text.startswith("train: goodput 76 % of 1 h 25 min, attempt 2\n")
    assert "steps, each once 1 h 5 min 76 %\n" in text
    assert "steps done again 10 min 12 %\n between attempts 10 min 12 %\n" in text
    assert "65 steps done; 10 had to be done again\n" in text
    assert "interrupted once (1 killed), every 1 h 15 min on average; " in text
    assert "just now by host" in text

    document = CliRunner().invoke(main, ["job", "goodput", str(path), "--json"])
    [one] = json.loads(document.output)["runs"]
    assert one["goodput"] == pytest.approx(3900 / 5100)
    assert one["seconds_between_failures"] == pytest.approx(4500)


def test_without_a_record_there_is_nothing_to_print(tmp_path: Path) -> None:
    """Which is no success; a file that is none is an error."""
    runner = CliRunner()
    assert runner.invoke(main, ["job", "goodput", str(tmp_path)]).exit_code == 3
    odd = tmp_path / "odd"
    odd.write_text("{")
    assert runner.invoke(main, ["job", "goodput", str(odd)]).exit_code == 2


def test_sidecars_pass_records_on() -> None:
    """Also that of a process that is no rank of a job."""
    run = Simulated()
    run.attempt()
    document = {"ranks": [{"run": asdict(run.known)}, {"run": {}}, {}]}
    [found] = host("a:1", json.loads(json.dumps(document))).runs
    assert records.from_document(found) == run.known
