"""The directory where agents and sidecar meet."""

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jaxmon.host import rundir
from jaxmon.host.rundir import RunDirError, acquire, locate, sockets


def test_the_first_answer_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument comes first, then the variables."""
    both = {"JAXMON_RUN_DIR": "/from/env", "XDG_RUNTIME_DIR": "/run/user/1"}

    assert locate("/given", both) == Path("/given")
    assert locate(None, both) == Path("/from/env")
    assert locate(None, {**both, "JAXMON_RUN_DIR": ""}) == Path("/run/user/1/jaxmon")
    assert locate(None, {}).parent == Path(tempfile.gettempdir())


def test_no_directory_for_temporary_files_is_needed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A usable run directory is used anyway."""

    def none_usable() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", none_usable)
    slot = acquire(run_dir)
    slot.release()

    assert slot.number == 0
    assert locate(None, {}).name.startswith("jaxmon-")


def test_slots_are_the_lowest_free_numbers(run_dir: Path) -> None:
    """A released number is taken again; release twice is harmless."""
    first, second, third = acquire(run_dir), acquire(run_dir), acquire(run_dir)
    second.release()
    second.release()
    again = acquire(run_dir)

    assert [first.number, third.number, again.number] == [0, 2, 1]
    for slot in (first, third, again):
        slot.release()
    assert list(run_dir.iterdir()) == []


def test_an_abandoned_slot_keeps_its_files(run_dir: Path) -> None:
    """A forked child lets go of the descriptor only."""
    slot = acquire(run_dir)
    slot.abandon()
    slot.release()

    assert [path.name for path in run_dir.iterdir()] == ["agent-0.lock"]


def test_a_stale_socket_is_removed_with_the_slot(run_dir: Path) -> None:
    """What a killed process left in the slot is gone before the next one binds."""
    (run_dir / "agent-0.sock").write_text("")
    (run_dir / "agent-0.lock").write_text("")
    slot = acquire(run_dir)

    assert slot.number == 0
    assert not slot.socket.exists()
    slot.release()


def test_a_slot_that_cannot_be_cleared_is_let_go(run_dir: Path) -> None:
    """What cannot be unlinked costs its slot alone, and the lock is not held after."""
    (run_dir / "agent-0.sock").mkdir()
    slot = acquire(run_dir)

    assert slot.number == 1
    slot.release()
    with (run_dir / "agent-0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def directory(path: Path) -> None:
    path.mkdir()


def dangling_link(path: Path) -> None:
    path.symlink_to("nothing")


def link_to_a_file(path: Path) -> None:
    (path.parent / "precious").write_text("kept")
    path.symlink_to("precious")


def other_name_of_a_file(path: Path) -> None:
    (path.parent / "precious").write_text("kept")
    (path.parent / "precious").chmod(0o640)
    path.hardlink_to(path.parent / "precious")


def file_of_another_user(path: Path) -> None:
    path.touch()
    os.chown(path, 1234, 1234)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(str(path))


def readable_by_none(path: Path) -> None:
    path.touch()
    path.chmod(0)


@pytest.mark.parametrize(
    "lies_there",
    [
        *(directory, dangling_link, link_to_a_file, other_name_of_a_file),
        *(fifo, bound_socket, readable_by_none, file_of_another_user),
    ],
)
def test_what_is_no_lock_of_ours_costs_its_slot_alone(
    run_dir: Path, lies_there: Callable[[Path], None]
) -> None:
    """The next slot is free then."""
    if lies_there is readable_by_none and os.getuid() == 0:
        pytest.skip("root reads everything")
    if lies_there is file_of_another_user and os.getuid() != 0:
        pytest.skip("only root makes files of others")
    lock = run_dir / "agent-0.lock"
    lies_there(lock)
    before = lock.lstat()
    slot = acquire(run_dir)
    slot.release()

    assert slot.number == 1
    after = lock.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


def test_a_directory_that_cannot_be_written_is_an_error(run_dir: Path) -> None:
    """Where no lock can be made, there is no use in trying a thousand."""
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    run_dir.chmod(0o500)
    with pytest.raises(RunDirError, match=r"cannot create .*agent-0\.lock.*; set"):
        acquire(run_dir)


@pytest.fixture
def listening() -> Iterator[Callable[[Path], socket.socket]]:
    """Return a function that listens on a path."""
    opened: list[socket.socket] = []

    def listen(path: Path) -> socket.socket:
        one = socket.socket(socket.AF_UNIX)
        opened.append(one)
        one.bind(str(path))
        one.listen()
        return one

    yield listen
    for one in opened:
        one.close()


def test_a_socket_that_answers_is_never_unlinked(
    run_dir: Path, listening: Callable[[Path], socket.socket]
) -> None:
    """The next agent takes another slot."""
    first = acquire(run_dir)
    listening(first.socket)
    first.bound()
    (run_dir / "agent-0.lock").unlink()
    second = acquire(run_dir)

    assert second.number == 1
    assert first.socket.exists()
    second.release()
    first.release()
    assert list(run_dir.iterdir()) == []


def test_a_socket_with_a_full_queue_answers(run_dir, listening):
    """A process that is stopped takes no connections, and lives."""
    busy = listening(run_dir / "agent-0.sock")
    busy.listen(0)
    waiting = []
    for _ in range(4):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(0)
        waiting.append(one)
        try:
            one.connect(str(run_dir / "agent-0.sock"))
        except BlockingIOError:
            break
    slot = acquire(run_dir)
    slot.release()
    for one in waiting:
        one.close()

    assert slot.number == 1
    assert (run_dir / "agent-0.sock").exists()


def test_a_link_in_the_place_of_a_socket_is_not_followed(
    run_dir: Path, listening: Callable[[Path], socket.socket]
) -> None:
    """It is removed, not its target."""
    listening(run_dir / "elsewhere")
    (run_dir / "agent-0.sock").symlink_to("elsewhere")
    slot = acquire(run_dir)

    assert slot.number == 0
    assert not (run_dir / "agent-0.sock").is_symlink()
    assert (run_dir / "elsewhere").exists()
    slot.release()


def test_a_number_is_kept_where_it_is_free(run_dir: Path) -> None:
    """Who listens again asks for its number first."""
    slots = [acquire(run_dir, first=5), acquire(run_dir, first=5)]

    assert [slot.number for slot in slots] == [5, 0]
    for slot in slots:
        slot.release()


def test_a_full_directory_is_an_error(run_dir, monkeypatch):
    """The message says how many slots are taken, and what to do."""
    monkeypatch.setattr(rundir, "MAX_SLOTS", 2)
    slots = [acquire(run_dir), acquire(run_dir)]
    with pytest.raises(RunDirError, match=r"all 2 slots in .* are in use; use another"):
        acquire(run_dir)
    for slot in slots:
        slot.release()


def test_sockets_are_found_by_worker_in_order(run_dir: Path) -> None:
    """Numbers sort as numbers; other files and a missing directory are nothing."""
    for name in ("agent-10.sock", "agent-2.sock", "agent-2.lock", "agent-x.sock"):
        (run_dir / name).write_text("")

    assert sockets(run_dir) == {
        "2": run_dir / "agent-2.sock",
        "10": run_dir / "agent-10.sock",
    }
    assert list(sockets(run_dir)) == ["2", "10"]
    assert sockets(run_dir / "missing") == {}


def test_files_are_private_unless_the_directory_is_shared(run_dir: Path) -> None:
    """A shared one is set-group-ID, and its group may write."""
    for permissions, expected in (
        (0o700, 0o600),
        (0o770, 0o600),
        (0o2700, 0o600),
        (0o2770, 0o660),
        (0o2777, 0o660),
    ):
        run_dir.chmod(permissions)
        slot = acquire(run_dir)
        lock = run_dir / "agent-0.lock"
        assert (slot.mode, lock.stat().st_mode & 0o777) == (expected, expected)
        slot.release()
