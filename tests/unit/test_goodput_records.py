"""Records of runs: who writes them, and what people read."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.agent.goodput import store as identity
from jaxmon.agent.goodput.store import AttemptIdentity, Store, SupersededError, Writer
from jaxmon.cli.main import main
from jaxmon.facts import run as records
from jaxmon.facts.host import host
from jaxmon.facts.record import encoded
from jaxmon.facts.run import NewerRecordError, RunRecord, RunRecordError
from jaxmon.settings import load
from tests.helpers.runs import RUN, Simulated, writer


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


def test_a_link_in_the_place_of_a_record_is_not_written_through(tmp_path: Path) -> None:
    """Others who may write in the directory link to what is not theirs."""
    victim, _ = held(tmp_path / "elsewhere", writer(1))
    before = victim.path.read_bytes()
    for name, link in (("hard", os.link), ("soft", os.symlink)):
        (tmp_path / name).mkdir()
        link(victim.path, records.path_of(tmp_path / name, RUN.name))
        if name == "hard":
            assert held(tmp_path / name, writer(2))[0].path.stat().st_nlink == 1
        else:
            with pytest.raises(OSError, match="it is a symbolic link; give a file"):
                held(tmp_path / name, writer(2))

    assert victim.path.read_bytes() == before


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
    """The run begins anew, and what was there is kept."""
    path = records.path_of(tmp_path, RUN.name)
    path.write_bytes(content)
    clock = iter([0.0, 89.0, 100.0]).__next__
    store = Store(RUN._replace(directory=tmp_path), writer(1), clock)
    for _ in range(2):
        with pytest.raises(OSError, match="is not the record of a run"):
            store.begin()
    assert (path.read_bytes(), store.broken) == (content, "")
    found = store.begin()
    assert found is not None
    record = found[0]
    store.write(record)
    assert record.starts == 1
    assert records.read(path) == record
    (aside,) = set(tmp_path.iterdir()) - {path}
    assert aside.read_bytes() == content
    assert store.broken.startswith(f"{path} is not the record of a run")
    assert store.broken.endswith(f"{aside.name}, and the record of the run begins anew")
    assert records.paths(tmp_path) == [path]


def test_a_record_seen_in_part_is_kept(tmp_path: Path) -> None:
    """Once it can be read, it goes on, and the doubt begins anew with the next one."""
    store, record = held(tmp_path, writer(1))
    whole = store.path.read_bytes()
    clock = iter([0.0, 200.0, 201.0]).__next__
    later = Store(RUN._replace(directory=tmp_path), writer(2), clock)
    for content in (whole[:-2], whole, whole[:-2], whole[:-2], whole):
        store.path.write_bytes(content)
        if content == whole:
            found = later.begin()
            assert found is not None
            assert found[0].starts == record.starts + 1
        else:
            with pytest.raises(OSError, match="not JSON"):
                later.begin()
    assert later.broken == ""
    assert records.paths(tmp_path) == [store.path]


def test_a_record_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    """It may mean what this one does not know."""
    store, record = held(tmp_path, writer(1))
    store.path.write_bytes(record.replace(schema=records.SCHEMA + 1).as_json())
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
    assert found.seconds == {}
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
    """Those of the settings come first."""
    environ = {"SLURM_JOB_ID": "4711", "JAXMON_RUN_DIR": str(tmp_path)}

    def of(environ: dict[str, str], **options: Any) -> AttemptIdentity:
        return identity.run_of(load(options, {}), environ)

    state = tmp_path / "llama"
    assert of(environ, run_state=str(state)) == AttemptIdentity("4711", None, state)
    assert of({}, run_state=str(state)) == AttemptIdentity("llama", None, state)
    assert of(environ, run="x", attempt=3) == AttemptIdentity("x", 3, tmp_path / "runs")


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
    path.write_bytes(run.known.replace(time=time.time()).as_json())

    found = CliRunner().invoke(main, ["job", "goodput", str(tmp_path)])
    assert found.exit_code == 0
    text = re.sub(" +", " ", found.output)
    assert text.startswith("train: goodput 76 % of 1 h 25 min, attempt 2\n")
    assert "steps, each once 1 h 5 min 76 %\n" in text
    assert "steps done again 10 min 12 %\n between attempts 10 min 12 %\n" in text
    assert "65 steps done; 10 had to be done again\n" in text
    assert "interrupted once (1 killed); the next step " in text
    assert "just now by host" in text

    document = CliRunner().invoke(main, ["job", "goodput", str(path), "--json"])
    [one] = json.loads(document.output)["runs"]
    assert one["goodput"] == pytest.approx(3900 / 5100)
    assert one["seconds_between_interruptions"] == pytest.approx(4500)


def test_without_a_record_there_is_nothing_to_print(tmp_path: Path) -> None:
    """Which is no success; a file that is none is an error."""
    runner = CliRunner()
    assert runner.invoke(main, ["job", "goodput", str(tmp_path)]).exit_code == 3
    odd = tmp_path / "odd"
    odd.write_text("{")
    assert runner.invoke(main, ["job", "goodput", str(odd)]).exit_code == 2


def test_a_broken_record_does_not_hide_the_others(tmp_path: Path) -> None:
    """It is an error all the same, after them."""
    _, mine = held(tmp_path, writer(1))
    records.path_of(tmp_path, "a").write_text("{")
    for option in ([], ["--json"]):
        found = CliRunner().invoke(main, ["job", "goodput", str(tmp_path), *option])
        assert found.exit_code == 2
        assert mine.run in found.stdout
        assert "run-a.json is not the record of a run" in found.stderr


def test_of_the_attempts_that_sidecars_remember_the_latest_counts() -> None:
    """Whichever is read first; a run of the same name that began apart is another."""
    run, known = Simulated(), []
    for _ in range(3):
        run.attempt()
        known.append(run.known)
    other = run.known.replace(began=run.known.began + 1, starts=1)
    for order in (known, known[::-1]):
        assert records.latest([*order, other]) == [known[-1], other]


def test_sidecars_pass_records_on() -> None:
    """Also that of a process that is no rank of a job."""
    run = Simulated()
    run.attempt()
    document = {"ranks": [{"run": encoded(run.known.filled())}, {"run": {}}, {}]}
    [found] = host("a:1", json.loads(json.dumps(document))).runs
    assert records.from_document(found) == run.known
