"""Files of NCCL Inspector that are rotated, replaced, removed, or come back."""

import os
import shutil
from pathlib import Path

import pytest

from tests.fakes.nccl.inspector import Rank
from tests.job.inspected import (
    Inspected,
    Write,
    counted,
    expected,
    some,
)


@pytest.mark.parametrize("seen", [False, True], ids=["between polls", "seen empty"])
def test_rotation_by_truncation(seen, files, write, run_dir):
    """The writer continues behind a hole, which is not read; the copy was."""
    inspected = Inspected(files, run_dir, budget=30_000)
    inspected.reason()
    writer, rank = write(7), Rank()
    for round_ in range(9):
        some(writer, rank, 40)
        page = inspected.poll()
        assert counted(page) == pytest.approx(expected([writer]))
        assert (page["bad_record"], page["behind"]) == (0, 0)
        if round_ > 2:
            shutil.copy(writer.path, f"{writer.path}.{round_}")
            os.truncate(writer.path, 0)
            if seen:
                inspected.poll()


def test_rotation_by_renaming(files: Path, write: Write, run_dir: Path) -> None:
    """The writer goes on in the renamed file, and nothing is read twice."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    writer, rank = write(7), Rank()
    some(writer, rank)
    inspected.poll()
    some(writer, rank)
    writer.path.rename(f"{writer.path}.1")
    writer.path.touch()
    inspected.poll()
    some(writer, rank)
    assert counted(inspected.poll()) == pytest.approx(expected([writer]))
    Path(f"{writer.path}.1").rename(f"{writer.path}-20261127")
    some(writer, rank)
    assert counted(inspected.poll()) == pytest.approx(expected([writer]))


@pytest.mark.parametrize("number", [3, 300], ids=["shorter", "longer"])
def test_another_process_with_the_number(number, files, write, run_dir):
    """It truncates the file of the one before; all that it writes is new."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    first = write(7)
    some(first, Rank(), 100)
    inspected.poll()
    second = write(7)
    second.later(1_000_000)
    some(second, Rank(), number)
    page = inspected.poll()
    assert counted(page) == pytest.approx(expected([first, second]))
    assert page["bad_record"] == 0


def test_files_come_and_go(files: Path, write: Write, run_dir: Path) -> None:
    """What a process that is gone wrote last counts; its file may then be removed."""
    files.rmdir()
    inspected = Inspected(files, run_dir)
    assert inspected.reason() == "no_job"
    files.mkdir()
    writer, other = write(7), write(8)
    some(writer, Rank())
    inspected.poll()
    some(writer, Rank())
    writer.close()
    some(other, Rank())
    wanted = pytest.approx(expected([writer, other]))
    assert counted(inspected.poll()) == wanted
    writer.path.unlink()
    assert counted(inspected.poll()) == wanted
    shutil.rmtree(files)
    assert counted(inspected.poll()) == wanted
    # An hour later its worker is forgotten.
    inspected.now += 3601
    assert inspected.reason() == "no_job"
