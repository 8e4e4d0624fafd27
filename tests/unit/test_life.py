"""The record of a slot."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmon import life
from jaxmon.life import CRASHED, FINISHED, RUNNING, Life, Record
from tests.support import clean_environ, run_python, until


def record(directory: Path, worker: str = "0") -> Record:
    """Return what the file of *worker* has."""
    return life.slots(directory)[worker].record


def live(path: Path, *states: life.State) -> None:
    """Have one process after the other in the slot of *path*, with these ends."""
    for state in states:
        one = Life(path, 0o600)
        one.begin()
        one.end(state)
        one.abandon()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the first slot's record."""
    return tmp_path / "agent-0.life"


def test_a_process_counts_itself_and_says_how_it_ends(path: Path) -> None:
    """While it lives, its slot is held and nothing died; the first end counts."""
    one = Life(path, 0o600)
    one.begin()
    assert record(path.parent) == Record(1, 0, RUNNING, "")
    assert life.slots(path.parent)["0"].held
    assert life.slots(path.parent)["0"].died is False

    one.end(CRASHED)
    one.end(FINISHED)
    one.abandon()

    assert record(path.parent) == Record(1, 0, CRASHED, "")
    assert not life.slots(path.parent)["0"].held
    assert life.slots(path.parent)["0"].died


def test_a_successor_counts_those_that_did_not_finish(path: Path) -> None:
    """Starts and crashes add up over the processes of a slot."""
    live(path, FINISHED, CRASHED, RUNNING, FINISHED, RUNNING)

    assert record(path.parent) == Record(5, 2, RUNNING, "")
    assert life.slots(path.parent)["0"].died
    live(path, FINISHED)
    assert record(path.parent) == Record(6, 3, FINISHED, "")
    assert life.slots(path.parent)["0"].died is False


def test_a_killed_process_has_died(tmp_path: Path) -> None:
    """It could not write anything; the kernel released its lock."""
    path = tmp_path / "agent-7.life"
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from jaxmon.life import Life\n"
        "one = Life(Path(sys.argv[1]), 0o600)\n"
        "one.begin()\n"
        "one.run('train')\n"
        "print('go', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        env=clean_environ(),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alive = life.slots(tmp_path)["7"]
        process.kill()

    assert alive.record == Record(1, 0, RUNNING, "train")
    assert alive.died is False
    until(lambda: life.slots(tmp_path)["7"].died, "the kernel to release the lock")
    assert record(tmp_path, "7") == Record(1, 0, RUNNING, "train")


def test_a_forked_child_leaves_the_record_alone(tmp_path: Path) -> None:
    """
    It writes nothing and holds nothing, even if it outlives its parent, which has died
    then.
    """
    program = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from jaxmon.life import FINISHED, Life\n"
        "one = Life(Path(sys.argv[1]), 0o600)\n"
        "one.begin()\n"
        "if os.fork() == 0:\n"
        "    one.abandon()\n"
        "    one.run('train')\n"
        "    one.end(FINISHED)\n"
        "    one.hold()\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    print('killed', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "agent-0.life")],
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "killed\n"
        process.wait(60)
        found = life.slots(tmp_path)["0"]
        process.stdin.write("\n")
        process.stdin.flush()

    assert found.record == Record(1, 0, RUNNING, "")
    assert found.died


@pytest.mark.parametrize(
    "name",
    ["train", "", "a b ", '"x" "', "line\nbreak\\n", "für", "🚂"],
)
def test_a_loop_has_any_name(path: Path, name: str) -> None:
    """It is read as it was written, whatever is in it."""
    one = Life(path, 0o600)
    one.begin()
    one.run(name)

    assert record(path.parent) == Record(1, 0, RUNNING, name)
    assert path.read_bytes().count(b"\n") == 1
    one.run("")
    assert record(path.parent) == Record(1, 0, RUNNING, "")
    one.abandon()


def test_a_long_name_is_cut(path: Path) -> None:
    """The record stays one line of the same size."""
    one = Life(path, 0o600)
    one.begin()
    size = path.stat().st_size
    one.run("🚂" * 10_000)

    assert record(path.parent).loop == "🚂" * 40
    assert path.stat().st_size == size
    one.abandon()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\0" * 5000,
        b"x" * 100_000,
        b'{"starts": 3}\n',
        b'jaxmon 1 0 sleeping ""\n',
        b'jaxmon -1 0 running ""\n',
        b'jaxmon 99999999999999999999 0 running ""\n',
        b'jaxmon 1 0 running ""',
        b'jaxmon 1 0 running "\\ud800"\n',
        b'jaxmon 1 0 running "\\x"\n',
        b'jaxmon2 1 0 running "" of a later release\n',
    ],
)
def test_what_is_no_record_counts_as_none(path: Path, content: bytes) -> None:
    """Garbage, and the record of another release, are replaced by a first record."""
    path.write_bytes(content)
    assert life.slots(path.parent) == {}
    live(path, RUNNING)

    assert record(path.parent) == Record(1, 0, RUNNING, "")
    assert path.stat().st_size <= 4096


def test_what_is_no_file_of_ours_is_left_alone(tmp_path: Path) -> None:
    """
    A directory, a pipe, a link of either kind and other names are neither followed nor
    read.
    """
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / "agent-0.life").mkdir()
    os.mkfifo(tmp_path / "agent-1.life")
    (tmp_path / "agent-2.life").symlink_to(other)
    (tmp_path / "agent-3.life").hardlink_to(other)
    other.chmod(0o440)
    (tmp_path / "agent-12345.life").write_text('jaxmon 1 0 running ""\n')
    (tmp_path / "agent-x.life").write_text('jaxmon 1 0 running ""\n')
    for number in range(4):
        live(tmp_path / f"agent-{number}.life", CRASHED)

    assert life.slots(tmp_path) == {}
    assert other.read_bytes() == b"precious"
    assert stat.S_IMODE(other.stat().st_mode) == 0o440


def test_without_a_file_there_is_no_record(tmp_path: Path) -> None:
    """A directory that is gone, or read-only, costs the record and nothing else."""
    gone = tmp_path / "gone" / "agent-0.life"
    live(gone, FINISHED)
    assert not gone.parent.exists()

    readonly = tmp_path / "readonly"
    readonly.mkdir()
    live(readonly / "agent-0.life", FINISHED)
    (readonly / "agent-0.life").chmod(0o444)
    readonly.chmod(0o555)
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from jaxmon.life import CRASHED, Life, slots\n"
        "if os.geteuid() == 0:\n"  # who may write anywhere
        "    os.setuid(65534)\n"
        "for one in (Life(Path(f'agent-{n}.life'), 0o600) for n in range(2)):\n"
        "    one.begin()\n"
        "    one.run('train')\n"
        "    one.end(CRASHED)\n"
        "    print(one.record)\n"
        "    one.abandon()\n"
        "print(slots(Path('.'))['0'].record.starts)\n"
    )
    assert run_python("-c", program, cwd=readonly).ok().out == "None\nNone\n1\n"
    assert record(readonly) == Record(1, 0, FINISHED, "")


def test_a_process_goes_on_counting_in_a_new_file(path: Path) -> None:
    """
    If the file was removed, its holder writes its record again; if another process
    was in the slot meanwhile, both count.
    """
    live(path, CRASHED, CRASHED)
    one = Life(path, 0o600)
    one.begin()
    mine = one.record
    assert mine == Record(3, 2, RUNNING, "")
    assert one.in_place()

    path.unlink()
    assert not one.in_place()
    one.abandon()
    one.begin(mine)
    assert record(path.parent) == mine
    one.end(FINISHED)
    one.abandon()
    one.begin(mine)
    assert record(path.parent) == mine
    one.end(FINISHED)
    one.abandon()

    live(path, FINISHED)
    one.begin(mine)
    assert record(path.parent) == Record(5, 2, RUNNING, "")
    one.abandon()


def test_the_end_is_recorded_without_descriptors(path: Path) -> None:
    """What is held open is written to if nothing can be opened."""
    one = Life(path, 0o600)
    one.begin()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        one.run("train")
        one.end(FINISHED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    one.abandon()

    assert record(path.parent) == Record(1, 0, FINISHED, "train")


def test_another_record_at_the_path_is_left_alone(path: Path) -> None:
    """A record that took the place of ours is its holder's, whoever has the lock."""
    one, other = Life(path, 0o600), Life(path, 0o600)
    one.begin()
    path.unlink()
    other.begin()
    other.run("theirs")
    before = path.read_bytes()
    one.run("ours")
    one.say({"kind": "exit"})
    one.end(CRASHED)
    one.abandon()

    assert path.read_bytes() == before
    other.abandon()


def test_a_record_has_the_permissions_of_its_directory(path: Path) -> None:
    """Others of the group may have the slot next, whatever the umask."""
    before = os.umask(0o077)
    try:
        one = Life(path, 0o660)
        one.begin()
        one.abandon()
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_a_lock_is_acquired_once_it_is_free(path: Path) -> None:
    """A predecessor's may be released after its slot: the next attempt gets it."""
    first, second = Life(path, 0o600), Life(path, 0o600)
    first.begin()
    second.begin()
    first.abandon()
    assert not life.slots(path.parent)["0"].held

    second.hold()
    assert life.slots(path.parent)["0"].held
    second.abandon()


def test_last_words_stay_until_a_successor_has_its_own(path: Path) -> None:
    """Whose they are is known from the number of starts; the record is not touched."""
    assert life.last_words(path) == {}
    one = Life(path, 0o600)
    one.begin()
    one.say({"kind": "exception", "message": "a" * 100})
    one.end(CRASHED)
    one.abandon()
    live(path, FINISHED)
    assert record(path.parent) == Record(2, 1, FINISHED, "")
    found = life.last_words(path)
    assert (found["starts"], found["message"]) == (1, "a" * 100)

    two = Life(path, 0o600)
    two.begin()
    two.say({"kind": "exit", "code": 3})
    assert life.last_words(path) == {"starts": 3, "kind": "exit", "code": 3}
    two.say({"kind": "exit", "where": "x.py:1", "message": "ü" * 4000})
    assert life.last_words(path) == {"starts": 3, "kind": "exit", "where": "x.py:1"}
    assert path.stat().st_size <= 4096
    two.abandon()


def test_words_that_are_none_are_not_read(path: Path) -> None:
    """Others may write anything there, and a link is not followed."""
    for content in (b"[1]", b"\xff" * 4000, b'{"kind": ', b"[" * 3000):
        path.write_bytes(b" " * 512 + content)
        assert life.last_words(path) == {}
    path.unlink()
    path.mkdir()
    assert life.last_words(path) == {}


def test_words_that_cannot_be_written_are_lost_without_a_sound(path: Path) -> None:
    """If the file may not grow, the process ends as it would, with its record."""
    source = f"""
import resource, sys
from pathlib import Path
from jaxmon.life import Life
one = Life(Path({str(path)!r}), 0o600)
one.begin()
sys.dont_write_bytecode = True  # Python would keep half of it
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
one.say({{"kind": "exception", "message": "full"}})
one.end("crashed")
"""
    run_python("-c", source).ok()
    assert life.last_words(path) == {}
    assert record(path.parent) == Record(1, 0, CRASHED, "")
