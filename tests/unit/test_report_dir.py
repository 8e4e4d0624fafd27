"""The directory of reports: ours alone, bounded, never half a file."""

import errno
import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from jaxmon.agent.reports.directory import (
    MAX_BYTES,
    MAX_REPORTS,
    ReportDirectory,
    ReportDirError,
    stem_of,
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory for temporary files in which others could make files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    return tmp_path


def write(directory: ReportDirectory, number: int = 1) -> Path:
    return directory.write(
        stem_of(1_000_000_000 + number, number), {".json": "{}\n", ".txt": "text\n"}
    )


def test_a_report_is_two_files_for_this_user_only(temporary: Path) -> None:
    """By default they are in a directory of our own among the temporary files."""
    path = write(ReportDirectory())

    assert path.parent == temporary / "jaxmon-reports"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.name == f"oom-20010909T014641Z-{os.getpid()}-1.json"
    assert path.read_text() == "{}\n"
    assert path.with_suffix(".txt").read_text() == "text\n"
    for found in path.parent.iterdir():
        assert stat.S_IMODE(found.stat().st_mode) == 0o600


def test_a_host_without_a_directory_for_temporary_files(monkeypatch, tmp_path):
    """An agent starts; a report needs a place that is chosen."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)

    assert ReportDirectory().path.name == "jaxmon-reports"
    assert write(ReportDirectory(str(tmp_path))).exists()


def test_a_link_in_place_of_the_directory_is_refused(temporary: Path) -> None:
    """Another user may have created it, to make us write elsewhere."""
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / "jaxmon-reports").symlink_to(elsewhere)

    with pytest.raises(ReportDirError, match=r"is a symbolic link.*JAXMON_REPORT_DIR"):
        write(ReportDirectory())
    with pytest.raises(ReportDirError, match="is a symbolic link"):
        write(ReportDirectory(str(temporary / "jaxmon-reports")))

    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(temporary: Path) -> None:
    """Its owner could read, replace and remove what we write."""
    foreign = temporary / "jaxmon-reports"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)

    for directory in (ReportDirectory(), ReportDirectory(str(foreign))):
        with pytest.raises(ReportDirError, match="belongs to uid 12345, not to 0"):
            write(directory)
    assert list(foreign.iterdir()) == []


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """Nor is a file that is there written to: the new one replaces the link itself."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    reports = tmp_path / "reports"
    reports.mkdir()
    stem = stem_of(1_000_000_001, 1)
    (reports / f"{stem}.json").symlink_to(victim)
    part = reports / f".{stem}.txt.{os.getpid()}.part"
    part.symlink_to(victim)

    with pytest.raises(FileExistsError):
        write(ReportDirectory(str(reports)))

    assert victim.read_text() == "untouched"
    assert not (reports / f"{stem}.json").is_symlink()


def test_a_default_directory_that_others_may_enter_is_closed(temporary: Path) -> None:
    """It is ours, whatever the mode it was left with."""
    (temporary / "jaxmon-reports").mkdir(mode=0o777)
    (temporary / "jaxmon-reports").chmod(0o777)

    path = write(ReportDirectory())

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_mode_of_a_directory_that_was_chosen_is_left_alone(tmp_path: Path) -> None:
    """The user has reasons, and the files are closed anyway."""
    tmp_path.chmod(0o750)

    path = write(ReportDirectory(str(tmp_path)))

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_oldest_reports_make_room(tmp_path: Path) -> None:
    """Twenty reports of all processes are kept; other files stay."""
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "oom-notes.json").write_text("kept")
    directory = ReportDirectory(str(tmp_path))

    for number in range(MAX_REPORTS + 5):
        write(directory, number)

    names = {found.name for found in tmp_path.iterdir()}
    assert {"mine.txt", "oom-notes.json"} < names
    assert len(names) == 2 * MAX_REPORTS + 2
    for suffix in (".json", ".txt"):
        assert f"{stem_of(1_000_000_004, 4)}{suffix}" not in names
        assert f"{stem_of(1_000_000_005, 5)}{suffix}" in names


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """An unfinished file goes after an hour; one that may still be written stays."""
    old, new = tmp_path / ".oom-a.part", tmp_path / ".oom-b.part"
    for path in (old, new):
        path.touch()
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))

    write(ReportDirectory(str(tmp_path)))

    assert not old.exists()
    assert new.exists()


def test_a_file_is_cut(tmp_path: Path) -> None:
    """No file of a report exceeds 256 KiB, and odd characters do not stop it."""
    texts = {".txt": "\ud800" + "x" * (2 * MAX_BYTES)}

    path = ReportDirectory(str(tmp_path)).write(stem_of(0, 1), texts)

    assert path.stat().st_size == MAX_BYTES == 256 * 1024


def test_a_full_disk_leaves_no_half_report(tmp_path, monkeypatch):
    """A file appears complete or not at all, and the error says why."""
    write(ReportDirectory(str(tmp_path)))
    before = set(tmp_path.iterdir())
    original = os.write

    def full(descriptor: int, content: bytes) -> int:
        if len(content) > 2:
            return original(descriptor, content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write(ReportDirectory(str(tmp_path)), 2)
    monkeypatch.undo()

    assert set(tmp_path.iterdir()) == before


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    """The message contains the path, the reason and a remedy."""
    taken = tmp_path / "taken"
    taken.touch()

    with pytest.raises(ReportDirError, match=r"taken is unusable: .*set JAXMON_"):
        write(ReportDirectory(str(taken)))


def test_a_relative_directory_is_that_of_the_beginning(tmp_path, monkeypatch):
    """A program that changes its directory finds its reports."""
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    directory = ReportDirectory("reports")
    monkeypatch.chdir(tmp_path / "later")

    assert write(directory).parent == tmp_path / "reports"
