"""
The directory where agents and sidecar meet.
"""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import pytest

from jaxmon import rundir
from jaxmon.rundir import RunDirError, acquire, locate, sockets


def test_the_first_answer_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The argument, ``JAXMON_RUN_DIR``, ``XDG_RUNTIME_DIR``, then the temporary directory.
    """
    both = {"JAXMON_RUN_DIR": "/from/env", "XDG_RUNTIME_DIR": "/run/user/1"}

    assert locate("/given", both) == Path("/given")
    assert locate(None, both) == Path("/from/env")
    assert locate(None, {**both, "JAXMON_RUN_DIR": ""}) == Path("/run/user/1/jaxmon")
    assert locate(None, {}).parent == Path(tempfile.gettempdir())


def test_no_directory_for_temporary_files_is_needed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Where none can be written, as on a read-only root, a run directory that can be is
    used all the same, and one is still named.
    """

    def none_usable() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", none_usable)
    slot = acquire(run_dir)
    slot.release()

    assert slot.number == 0
    assert locate(None, {}).name.startswith("jaxmon-")


def test_slots_are_the_lowest_free_numbers(run_dir: Path) -> None:
    """
    A released number is taken again; release twice is harmless.
    """
    first, second, third = acquire(run_dir), acquire(run_dir), acquire(run_dir)
    second.release()
    second.release()
    again = acquire(run_dir)

    assert [first.number, third.number, again.number] == [0, 2, 1]
    for slot in (first, third, again):
        slot.release()
    assert list(run_dir.iterdir()) == []


def test_an_abandoned_slot_keeps_its_files(run_dir: Path) -> None:
    """
    A forked child lets go of the descriptor only.
    """
    slot = acquire(run_dir)
    slot.abandon()
    slot.release()

    assert [path.name for path in run_dir.iterdir()] == ["agent-0.lock"]


def test_a_stale_socket_is_removed_with_the_slot(run_dir: Path) -> None:
    """
    What a killed process left in the slot is gone before the next one binds.
    """
    (run_dir / "agent-0.sock").write_text("")
    (run_dir / "agent-0.lock").write_text("")
    slot = acquire(run_dir)

    assert slot.number == 0
    assert not slot.socket.exists()
    slot.release()


def test_a_slot_that_cannot_be_cleared_is_let_go(run_dir: Path) -> None:
    """
    The lock is not held after the error.
    """
    (run_dir / "agent-0.sock").mkdir()
    with pytest.raises(RunDirError, match=r"cannot replace .*agent-0.sock"):
        acquire(run_dir)

    with (run_dir / "agent-0.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_full_directory_is_an_error(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The message says how many slots are taken, and what to do.
    """
    monkeypatch.setattr(rundir, "MAX_SLOTS", 2)
    slots = [acquire(run_dir), acquire(run_dir)]
    with pytest.raises(RunDirError, match=r"all 2 slots in .* are taken; set another"):
        acquire(run_dir)
    for slot in slots:
        slot.release()


def test_sockets_are_found_by_worker_in_order(run_dir: Path) -> None:
    """
    Numbers sort as numbers; other files and a missing directory are nothing.
    """
    for name in ("agent-10.sock", "agent-2.sock", "agent-2.lock", "agent-x.sock"):
        (run_dir / name).write_text("")

    assert sockets(run_dir) == {
        "2": run_dir / "agent-2.sock",
        "10": run_dir / "agent-10.sock",
    }
    assert list(sockets(run_dir)) == ["2", "10"]
    assert sockets(run_dir / "missing") == {}


def test_files_are_private_unless_the_directory_is_shared(run_dir: Path) -> None:
    """
    A set-group-ID directory that its group may write is shared, as a volume with an
    fsGroup is; one of these bits alone says nothing.
    """
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
