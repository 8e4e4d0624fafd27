"""The file of a slot: how its processes ended, and what they counted."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxmon.agent.end_writer import EndWriter
from jaxmon.cli.main import main
from jaxmon.facts import endings
from jaxmon.facts.ending import CRASHED, FINISHED, RUNNING, ProcessEnd, State
from jaxmon.host.formats.json_text import NewerSchemaError
from tests.helpers.processes import clean_environ, run_python


Known = tuple[int, int, str, str]


def record(directory: Path, worker: str = "0") -> Known:
    """Return which process is the latest of *worker*, crashes before, state, loop."""
    return known(endings.slots(directory)[worker].latest)


def known(of: ProcessEnd | None) -> Known:
    """Return the same of a record."""
    assert of is not None
    return of.starts, of.crashes, of.state, of.running


def live(path: Path, *states: State) -> None:
    """Have one process after the other in the slot of *path*, with these ends."""
    for state in states:
        one = EndWriter(path, 0o600)
        one.begin()
        one.end(state)
        one.abandon()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the first slot's record."""
    return tmp_path / "agent-0.end"


def test_a_process_counts_itself_and_says_how_it_ends(path: Path) -> None:
    """While it lives, its slot is held and nothing died; the first end counts."""
    one = EndWriter(path, 0o600)
    one.begin()
    assert record(path.parent) == (1, 0, RUNNING, "")
    assert endings.slots(path.parent)["0"].held
    assert endings.slots(path.parent)["0"].died is False

    one.end(CRASHED)
    one.end(FINISHED)
    one.abandon()

    assert record(path.parent) == (1, 0, CRASHED, "")
    assert not endings.slots(path.parent)["0"].held
    assert endings.slots(path.parent)["0"].died


def test_a_successor_counts_those_that_did_not_finish(path: Path) -> None:
    """
    Starts and crashes add up over the processes of a slot. What may have been a stop
    counts only after another such end, or a crash.
    """
    live(path, FINISHED, CRASHED, RUNNING, FINISHED, RUNNING)

    assert record(path.parent) == (5, 2, RUNNING, "")
    assert endings.slots(path.parent)["0"].died
    live(path, FINISHED)
    assert record(path.parent) == (6, 2, FINISHED, "")
    assert endings.slots(path.parent)["0"].died is False
    live(path, RUNNING, RUNNING, RUNNING, FINISHED)
    assert record(path.parent) == (10, 4, FINISHED, "")


@pytest.mark.parametrize(
    ("states", "repeats"),
    [
        ((RUNNING, RUNNING), True),
        ((CRASHED, CRASHED), True),
        ((FINISHED, RUNNING, CRASHED, RUNNING), True),
        ((RUNNING,), False),
        ((CRASHED,), False),
        ((RUNNING, RUNNING, FINISHED), False),
        ((RUNNING, FINISHED, RUNNING), False),
        ((CRASHED, FINISHED, CRASHED), False),
    ],
)
def test_ends_that_repeat_are_told_beside_what_runs(path, states, repeats):
    """If another process takes the place at once; a single end may be a restart."""
    live(path, *states)
    assert endings.repeated(path.parent) == {}
    one = EndWriter(path, 0o600)
    one.begin()
    found = [
        text.partition(", pid")[0] for text in endings.repeated(path.parent).values()
    ]
    times = len(states) - (states[0] == FINISHED)
    assert found == [f"ended {times} times in a row; the last time"] * repeats
    one.update({"boottime": endings.now()["boottime"] + 40.0})
    assert endings.repeated(path.parent) == {}
    one.abandon()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, 0])
def test_a_process_that_was_killed_is_told_beside_what_replaces_it(path, number):
    """
    As far as the kernel says so: one that was stopped may be a deployment. Commands
    about ended processes list it, though its slot is taken.
    """
    killed = EndWriter(path, 0o600)
    killed.begin()
    killed.update({"signal": int(number)})
    killed.abandon()
    successor = EndWriter(path, 0o600)
    successor.begin()
    found = endings.repeated(path.parent)
    environ = {"JAXMON_RUN_DIR": str(path.parent), "COLUMNS": "200"}
    listed, examined = (
        CliRunner().invoke(main, of.split(), env=environ)
        for of in ("ps --ended", "job post-mortem")
    )
    successor.abandon()
    if number in (signal.SIGKILL, signal.SIGSEGV):
        assert found["0"].startswith("replaces a killed process: pid ")
        assert f"was ended by {number.name}" in found["0"]
        assert listed.stdout.count(f"ended by {number.name}") == 1
        assert f"was ended by {number.name}" in examined.stdout
        assert examined.exit_code == 1
    else:
        assert found == {}
        assert str(os.getpid()) not in listed.stdout + examined.stdout


def test_a_forked_child_leaves_the_record_alone(tmp_path: Path) -> None:
    """It writes nothing, even after its parent."""
    program = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from jaxmon.agent.end_writer import EndWriter\n"
        "from jaxmon.facts.ending import FINISHED\n"
        "one = EndWriter(Path(sys.argv[1]), 0o600)\n"
        "one.begin()\n"
        "if os.fork() == 0:\n"
        "    one.abandon()\n"
        "    one.run('train')\n"
        "    one.end(FINISHED)\n"
        "    one._hold()\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    print('killed', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "agent-0.end")],
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "killed\n"
        process.wait(60)
        found = endings.slots(tmp_path)["0"]
        process.stdin.write("\n")
        process.stdin.flush()

    assert known(found.latest) == (1, 0, RUNNING, "")
    assert found.died


@pytest.mark.parametrize(
    "name", ["train", "", "a b ", '"x" "', "line\nbreak\\n", "für", "🚂"]
)
def test_a_loop_has_any_name(path: Path, name: str) -> None:
    """It is read as it was written, whatever is in it."""
    one = EndWriter(path, 0o600)
    one.begin()
    one.run(name)

    assert record(path.parent) == (1, 0, RUNNING, name)
    one.run("")
    assert record(path.parent) == (1, 0, RUNNING, "")
    one.abandon()


def test_a_long_name_is_cut(path: Path) -> None:
    """The record stays one line within its page."""
    one = EndWriter(path, 0o600)
    one.begin()
    one.run("🚂" * 10_000)

    assert record(path.parent)[3] == "🚂" * 33
    assert path.stat().st_size <= 8192
    one.abandon()


WHOLE = b'{"schema":1,"starts":1,"state":"running"}\n'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\0" * 9000,
        b"x" * 1_000_000,
        b"[1]\n",
        b"\xff" * 4000,
        b"[" * 3000 + b"\n",
        WHOLE[:-1],
        WHOLE.replace(b"1", b"2", 1),
        WHOLE.replace(b'"schema":1,', b""),
        WHOLE.replace(b"running", b"sleeping"),
        WHOLE.replace(b'starts":1', b'starts":-1'),
        WHOLE.replace(b'starts":1', b'starts":true'),
        WHOLE.replace(b'starts":1', b'starts":2'),  # not in its page
        WHOLE.replace(b'starts":1', b'starts":99999999999999999999'),
        b'jaxmon 1 0 running "" of an earlier release\n',
    ],
)
def test_what_is_no_record_counts_as_none(path: Path, content: bytes) -> None:
    """Garbage, and the record of another release, are replaced by a first record."""
    path.write_bytes(bytes(4096) + content)
    assert endings.slots(path.parent) == {}
    live(path, RUNNING)

    assert record(path.parent) == (1, 0, RUNNING, "")
    assert path.stat().st_size <= 8192


def test_a_record_of_a_later_release_is_refused(path: Path) -> None:
    """What it means is not guessed; the reader says why, and others are read."""
    path.write_bytes(bytes(4096) + WHOLE.replace(b"1", b"2", 1))
    live(path.with_name("agent-1.end"), FINISHED)
    refused: dict[str, str] = {}

    assert list(endings.slots(path.parent, refused)) == ["1"]
    assert refused == {"0": "its schema is 2; this jaxmon reads up to 1: upgrade it"}
    with pytest.raises(NewerSchemaError):
        endings.slot(path)


def test_what_is_implausible_in_a_record_is_dropped(path: Path) -> None:
    """The rest is read, and text that cannot be encoded is replaced."""
    odd = b'"pid":-3,"steps":1.5,"code":"3","oom":1,"time":NaN,"rank":true,"causes":[7]'
    text = b'"message":"\\ud800","loop":["a"],"crashes":2'
    path.write_bytes(bytes(4096) + WHOLE.replace(b"}", b"," + odd + b"," + text + b"}"))

    assert endings.slots(path.parent)["0"].latest == ProcessEnd(
        starts=1, crashes=2, message="?"
    )


def test_what_is_no_file_of_ours_is_left_alone(tmp_path: Path) -> None:
    """It is neither followed nor read."""
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / "agent-0.end").mkdir()
    os.mkfifo(tmp_path / "agent-1.end")
    (tmp_path / "agent-2.end").symlink_to(other)
    (tmp_path / "agent-3.end").hardlink_to(other)
    other.chmod(0o440)
    (tmp_path / "agent-12345.end").write_bytes(bytes(4096) + WHOLE)
    (tmp_path / "agent-x.end").write_bytes(bytes(4096) + WHOLE)
    for number in range(4):
        live(tmp_path / f"agent-{number}.end", CRASHED)

    assert endings.slots(tmp_path) == {}
    assert other.read_bytes() == b"precious"
    assert stat.S_IMODE(other.stat().st_mode) == 0o440


def test_without_a_file_there_is_no_record(tmp_path: Path) -> None:
    """A directory that is gone, or read-only, costs the record and nothing else."""
    gone = tmp_path / "gone" / "agent-0.end"
    live(gone, FINISHED)
    assert not gone.parent.exists()

    readonly = tmp_path / "readonly"
    readonly.mkdir()
    live(readonly / "agent-0.end", FINISHED)
    (readonly / "agent-0.end").chmod(0o444)
    readonly.chmod(0o555)
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from jaxmon.agent.end_writer import EndWriter\n"
        "from jaxmon.facts.endings import slots\n"
        "from jaxmon.facts.ending import CRASHED\n"
        "if os.geteuid() == 0:\n"  # who may write anywhere
        "    os.setuid(65534)\n"
        "for one in (EndWriter(Path(f'agent-{n}.end'), 0o600) for n in range(2)):\n"
        "    one.begin()\n"
        "    one.run('train')\n"
        "    one.end(CRASHED)\n"
        "    print(one.record)\n"
        "    one.abandon()\n"
        "print(slots(Path('.'))['0'].latest.starts)\n"
    )
    assert run_python("-c", program, cwd=readonly).ok().out == "None\nNone\n1\n"
    assert record(readonly) == (1, 0, FINISHED, "")


def test_a_process_goes_on_counting_in_a_new_file(path: Path) -> None:
    """If another was in the slot, both count."""
    live(path, CRASHED, CRASHED)
    one = EndWriter(path, 0o600)
    one.begin()
    mine = one.record
    assert known(mine) == (3, 2, RUNNING, "")

    path.unlink()
    one.refresh({"steps": 7})
    assert record(path.parent) == known(mine)
    assert endings.slots(path.parent)["0"].latest.steps == 7
    one.end(FINISHED)
    one.abandon()
    one.begin(mine)
    assert record(path.parent) == known(mine)
    one.end(FINISHED)
    one.abandon()

    live(path, FINISHED)
    one.begin(mine)
    assert record(path.parent) == (5, 2, RUNNING, "")
    one.abandon()


def test_the_end_is_recorded_without_descriptors(path: Path) -> None:
    """What is held open is written to if nothing can be opened."""
    one = EndWriter(path, 0o600)
    one.begin()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        one.run("train")
        one.end(FINISHED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    one.abandon()

    assert record(path.parent) == (1, 0, FINISHED, "train")


def test_another_record_at_the_path_is_left_alone(path: Path) -> None:
    """A record that took the place of ours is its holder's, whoever has the lock."""
    one, other = EndWriter(path, 0o600), EndWriter(path, 0o600)
    one.begin()
    path.unlink()
    other.begin()
    other.run("theirs")
    before = path.read_bytes()
    one.run("ours")
    one.update({"kind": "exit"})
    one.end(CRASHED)
    one.abandon()

    assert path.read_bytes() == before
    other.abandon()


def test_a_record_has_the_permissions_of_its_directory(path: Path) -> None:
    """Others of the group may have the slot next, whatever the umask."""
    before = os.umask(0o077)
    try:
        one = EndWriter(path, 0o660)
        one.begin()
        one.abandon()
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_a_lock_is_acquired_once_it_is_free(path: Path) -> None:
    """A predecessor's may be released after its slot: the next attempt gets it."""
    first, second = EndWriter(path, 0o600), EndWriter(path, 0o600)
    first.begin()
    second.begin()
    first.abandon()
    assert not endings.slots(path.parent)["0"].held

    second.refresh({})
    assert endings.slots(path.parent)["0"].held
    second.abandon()


def test_the_record_of_a_process_survives_its_successor(path: Path) -> None:
    """Each has its own; what is too long for a page is left out, the rest is not."""
    one = EndWriter(path, 0o600)
    one.begin()
    one.update({"kind": "exception", "message": "a" * 100, "rank": 0})
    one.end(CRASHED)
    first = one.record
    one.abandon()
    live(path, FINISHED)
    slot = endings.slots(path.parent)["0"]
    assert known(slot.latest) == (2, 1, FINISHED, "")
    assert slot.before == slot.of(1) == first
    assert (slot.of(1) or slot.latest).message == "a" * 100

    two = EndWriter(path, 0o600)
    two.begin()
    said = {"kind": "exit", "code": 3, "where": "x.py:1", "message": "ü" * 4000}
    two.update(said)
    two.abandon()
    slot = endings.slots(path.parent)["0"]
    assert slot.of(1) is None
    assert known(slot.before) == (2, 1, FINISHED, "")
    assert (slot.latest.kind, slot.latest.code) == ("exit", 3)
    assert (slot.latest.where, slot.latest.message) == ("x.py:1", "")
    assert path.stat().st_size <= 8192


def test_words_that_cannot_be_written_are_lost_without_a_sound(path: Path) -> None:
    """If the file may not grow, the process ends as it would, with what it has."""
    source = f"""
import resource, sys
from pathlib import Path
from jaxmon.agent.end_writer import EndWriter
one = EndWriter(Path({str(path)!r}), 0o600)
one.begin()
sys.dont_write_bytecode = True  # Python would keep half of it
resource.setrlimit(resource.RLIMIT_FSIZE, (4300, 4300))
one.update({{"kind": "exception", "message": "full" * 100}})
one.end("crashed")
"""
    run_python("-c", source).ok()
    assert record(path.parent) == (1, 0, CRASHED, "")
    assert endings.slots(path.parent)["0"].latest.message == ""


# --- exit statuses -------------------------------------------------------------------


def test_an_exit_status_is_added_to_the_record_of_what_is_gone(path: Path) -> None:
    """Not to that of a process that lives, and not to another's."""
    one, two = EndWriter(path, 0o600), EndWriter(path, 0o600)
    one.begin()
    endings.complete(path, 1, {"signal": 9})
    assert endings.slots(path.parent)["0"].latest.signal == 0
    one.abandon()
    endings.complete(path, 2, {"signal": 9})
    two.begin()
    endings.complete(path, 1, {"signal": 9})
    endings.complete(path, 1, {"status": 3})
    slot = endings.slots(path.parent)["0"]
    two.abandon()

    assert slot.before is not None
    assert (slot.before.signal, slot.before.status) == (9, None)
    assert (slot.latest.signal, slot.latest.status) == (0, None)
    victim = path.with_name("victim")
    victim.hardlink_to(path)
    endings.complete(path, 2, {"signal": 9})
    assert endings.slots(path.parent)["0"].latest.signal == 0
