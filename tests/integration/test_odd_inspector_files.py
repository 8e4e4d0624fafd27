"""What else may be in the directory of NCCL Inspector's files, and in them."""

import errno
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmon_exporter.collectors import inspector as inspector_files
from jaxmon_exporter.collectors.collectives import BrokenRecordError, parse
from tests.fakes.nccl.inspector import Rank, Writer
from tests.job.inspected import HOST, Inspected, counted, expected, some


WRONG: tuple[object, ...] = (
    None,
    "x",
    "nan",
    -1,
    1e300,
    10**30,
    0.5,
    True,
    [],
    {},
    float("nan"),
)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Return what writes the file of one process."""
    with Writer(tmp_path, HOST, 7) as made:
        yield made


def mangled(line: bytes) -> Iterator[bytes]:
    """Return lines that are none of Inspector's, or differ from *line* in one thing."""
    yield from (b"{}", b"[]", b"null", b"7", b"\xff", b"x", b"[" * 200_000, b"{" * 9000)
    good = json.loads(line)
    for part, field in (
        *(("header", name) for name in good["header"]),
        *(("coll_perf", name) for name in good["coll_perf"]),
    ):
        for wrong in WRONG:
            yield json.dumps(good | {part: good[part] | {field: wrong}}).encode()
        left = {name: one for name, one in good[part].items() if name != field}
        yield json.dumps(good | {part: left}).encode()
    for part in good:
        for wrong in WRONG:
            yield json.dumps(good | {part: wrong}).encode()
    chance = random.Random(5)  # noqa: S311 - no secret
    for _ in range(200):
        start = chance.randrange(len(line))
        yield line[:start]
        yield line[:start] + chance.randbytes(5) + line[start + 5 :]


def test_odd_lines_are_rejected_one_by_one(writer: Writer) -> None:
    """A line is a record with values of a machine that exists, or is rejected."""
    some(writer, Rank(), 1)
    [line] = writer.path.read_bytes().splitlines()
    rejected, read = 0, []
    for odd in mangled(line):
        try:
            record = parse(odd)
        except BrokenRecordError:
            rejected += 1
        else:
            read += [record] if record else []
    assert rejected > 300
    assert all(0 <= one.seconds <= 1e5 and 0 <= one.bus <= 1e20 for one in read)
    assert all(
        0 <= one.rank < one.ranks and 0 <= one.message <= 1 << 60 for one in read
    )
    assert {one.collective for one in read} == {"AllReduce", "other"}


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


def test_what_becomes_a_link_is_not_followed(writer, tmp_path, run_dir, monkeypatch):
    """Not even between the scan and the opening of a file."""
    inspected = Inspected(tmp_path, run_dir)
    inspected.poll()
    some(writer, Rank())
    real = os.open

    def swapped(path: str, flags: int) -> int:
        monkeypatch.undo()
        writer.path.rename(tmp_path / "kept")
        writer.path.symlink_to(tmp_path / "kept")
        return real(path, flags)

    monkeypatch.setattr(os, "open", swapped)
    page = inspected.poll()
    assert (counted(page), page["unreadable"]) == ({}, 1)


def test_a_disk_that_fails_costs_one_file(writer, tmp_path, run_dir, monkeypatch):
    """The others are read, and that one when its disk is well again."""
    inspected = Inspected(tmp_path, run_dir)
    inspected.poll()
    with Writer(tmp_path, HOST, 8) as other:
        some(other, Rank(), 3)
        some(writer, Rank(), 9)
        failing, real = other.path.stat().st_ino, os.pread

        def pread(descriptor: int, size: int, offset: int) -> bytes:
            if os.fstat(descriptor).st_ino == failing:
                raise OSError(errno.EIO, "input/output error")
            return real(descriptor, size, offset)

        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", pread)
            page = inspected.poll()
        assert page["unreadable"] == 1
        assert counted(page) == pytest.approx(expected([writer]))
        page = inspected.poll()
        assert counted(page) == pytest.approx(expected([writer, other]))


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


def test_files_that_come_and_go_are_forgotten(tmp_path, run_dir, monkeypatch):
    """Of those that are not there any more, some are known, in case they come back."""
    monkeypatch.setattr(inspector_files, "_MOST_FILES", 20)
    inspected = Inspected(tmp_path, run_dir)
    for pid in range(100, 150):
        path = tmp_path / f"{HOST}-pid{pid}.log"
        path.write_bytes(b"{}\n")
        inspected.poll()
        path.unlink()
    assert len(inspected.collector._directory._files) == 20


def test_a_directory_that_may_not_be_read(tmp_path: Path, run_dir: Path) -> None:
    """It is a failure, unlike one that is not there yet."""
    (tmp_path / "file").write_text("")
    assert Inspected(tmp_path / "file", run_dir).reason() == "no_access"
    assert Inspected(tmp_path / "none", run_dir).reason() == "no_job"
