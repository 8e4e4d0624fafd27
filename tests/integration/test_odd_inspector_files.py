"""What else may be in the directory of NCCL Inspector's files, and in them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmon_exporter.collectors import inspector as inspector_files
from tests.fakes.nccl.inspector import Rank, Writer
from tests.job.inspected import HOST, Inspected, counted, expected, some


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Return what writes the file of one process."""
    with Writer(tmp_path, HOST, 7) as made:
        yield made


def test_odd_lines_cost_themselves_only(writer, tmp_path, run_dir):
    """What is before and after them counts, and they are counted by reason."""
    inspected = Inspected(tmp_path, run_dir)
    inspected.poll()
    some(writer, Rank())
    for odd in (b"{}\n", b"\n\n", b"[" * 100_000 + b"\n", b"\0\0\xff\n"):
        writer.raw(odd)
        some(writer, Rank(), 2)
    page = inspected.poll()
    assert counted(page) == pytest.approx(expected([writer]))
    assert page["bad_record"] == 3
    assert page["long_line"] == 0


def test_a_line_without_end_is_ignored(writer, tmp_path, run_dir):
    """It is never in memory as a whole; what follows it counts."""
    inspected = Inspected(tmp_path, run_dir)
    inspected.poll()
    for _ in range(3):
        writer.raw(b"x" * 300_000)
        assert counted(inspected.poll()) == {}
    writer.raw(b"\n")
    some(writer, Rank())
    page = inspected.poll()
    assert counted(page) == pytest.approx(expected([writer]))
    assert page["long_line"] == 1
    assert page["bad_record"] == 0


def test_what_is_no_file_is_not_opened(writer, tmp_path, run_dir):
    """A pipe does not block, and a link is not followed; both are counted."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"{}\n")
    inspected = Inspected(tmp_path, run_dir)
    inspected.poll()
    os.mkfifo(tmp_path / f"{HOST}-pid1.log")
    (tmp_path / f"{HOST}-pid2.log").symlink_to(elsewhere)
    (tmp_path / f"{HOST}-pid3.log").mkdir()
    (tmp_path / f"{HOST}-pid4.txt").write_bytes(b"{}\n")
    some(writer, Rank())
    page = inspected.poll()
    assert counted(page) == pytest.approx(expected([writer]))
    assert (page["not_a_file"], page["bad_record"]) == (3, 0)


def test_many_files_are_read_up_to_a_number(writer, tmp_path, run_dir, monkeypatch):
    """Of this host; those of dead processes stay. More than that are counted."""
    monkeypatch.setattr(inspector_files, "_MOST_FILES", 20)
    inspected = Inspected(tmp_path, run_dir)
    for number in range(40):
        (tmp_path / f"other-pid{number}.log").write_bytes(b"{}\n")
    for pid in range(100, 119):
        (tmp_path / f"{HOST}-pid{pid}.log").write_bytes(b"{}\n")
    assert inspected.poll()["too_many_files"] == 0
    some(writer, Rank())
    assert counted(inspected.poll()) == pytest.approx(expected([writer]))
    (tmp_path / f"{HOST}-pid99.log").write_bytes(b"")
    page = inspected.poll()
    assert (page["too_many_files"], page["bad_record"]) == (1, 0)
    (tmp_path / f"{HOST}-pid99.log").unlink()
    assert inspected.poll()["too_many_files"] == 1
    monkeypatch.setattr(inspector_files, "_MOST_ENTRIES", 59)
    assert inspected.poll()["too_many_files"] == 2


def test_a_directory_that_may_not_be_read(tmp_path: Path, run_dir: Path) -> None:
    """It is a failure, unlike one that is not there yet."""
    (tmp_path / "file").write_text("")
    assert Inspected(tmp_path / "file", run_dir).reason() == "no_access"
    assert Inspected(tmp_path / "none", run_dir).reason() == "no_job"
