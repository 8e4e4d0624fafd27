"""What a sidecar finds out from outside about the end of a process."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog.sidecar import GPU_XID_LAST_TIMESTAMP_SECONDS
from jaxmon.exposition.families import Family, series
from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.endings import age_of
from jaxmon.facts.host import XidError
from jaxmon.host.resources import container, hung
from jaxmon_exporter.endings import Closings, Kills, xids
from tests.helpers.processes import exits_are_reported, until


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return a run directory, which is not there yet."""
    return tmp_path / "run"


@pytest.fixture
def closings(run_dir: Path) -> Iterator[Closings]:
    """Yield what watches the run directory."""
    found = Closings(run_dir, time.monotonic)
    yield found
    found.close()


def test_the_kernel_reports_when_a_record_was_closed(run_dir, closings):
    """However the process ended; reading it, or closing another file, is no end."""
    closings.watch()
    run_dir.mkdir()
    closings.watch()
    with (run_dir / "agent-3.end").open("wb") as record:
        record.write(b"x")
        record.flush()
        (run_dir / "agent-3.end").read_bytes()
        (run_dir / "agent-4.lock").write_bytes(b"")
        (run_dir / "agent-5.end").write_bytes(b"")
        until(lambda: closings.at("5"), "the first")
        assert closings.at("3") is None
        assert closings.at("4") is None
        before = time.monotonic()
    until(lambda: closings.at("3"), "the end")
    ended = closings.at("3")
    assert before <= (ended or 0.0) <= time.monotonic()
    with (run_dir / "agent-3.end").open("r+b"):  # as the sidecar adds an exit status
        pass
    until(lambda: closings.at("3") != ended, "the next")
    assert closings.at("3", completed=True) == ended


def test_a_directory_that_is_recreated_is_watched_again(run_dir, closings):
    """As when a cleaner removed it."""
    run_dir.mkdir()
    closings.watch()
    shutil.rmtree(run_dir)

    def seen() -> Any:
        run_dir.mkdir(exist_ok=True)
        closings.watch()
        (run_dir / "agent-0.end").write_bytes(b"")
        return closings.at("0")

    until(seen, "the new directory")


@exits_are_reported
@pytest.mark.parametrize(
    ("end", "expected"),
    [("os._exit(3)", {"status": 3}), ("os.kill(os.getpid(), 9)", {"signal": 9})],
)
def test_the_kernel_reports_how_a_process_exited(tmp_path, end, expected):
    """As soon as it is gone, whether or not its parent has waited for it."""
    path = tmp_path / "s"
    program = (
        "import os, socket, sys\n"
        "one = socket.socket(socket.AF_UNIX)\n"
        "one.bind(sys.argv[1])\n"
        "one.listen()\n"
        "print(flush=True)\n"
        f"sys.stdin.read()\n{end}\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    with Popen(command, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        number = hung.process_of(path)
        assert number is not None
        assert hung.exit_of(number) is None
        process.stdin.close()
        until(lambda: hung.exit_of(number) == expected, "the end of a zombie")
    assert hung.exit_of(number) == expected
    os.close(number)
    assert hung.process_of(tmp_path / "none") is None


def test_kills_for_memory_are_counted_since_the_last_response(tmp_path: Path) -> None:
    """In the cgroup of the process and on its host, as far as the kernel shows them."""
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("0::/job\n")

    def have(in_group: int, on_host: int) -> int | None:
        (group / "memory.events").write_text(f"oom 9\noom_kill {in_group}\n")
        (tmp_path / "proc/vmstat").write_text(f"pgfault 1\noom_kill {on_host}\n")
        return container.host_oom_kills(tmp_path)

    first = have(1, 5)
    kills, unseen = Kills(7, first, tmp_path), Kills(None, first, tmp_path)
    kills.read(have(2, 6))
    shutil.rmtree(tmp_path / "proc/7")
    last = have(3, 8)
    assert kills.since(last) == {"oom_kills": 1, "host_oom_kills": 2}
    assert unseen.since(last) == {"oom_kills": None, "host_oom_kills": 3}
    shutil.rmtree(group)
    assert kills.since(last)["oom_kills"] is None


def test_the_age_of_words_does_not_depend_on_the_wall_clock() -> None:
    """Unless they are from before a restart of the host."""
    boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
    end = ProcessEnd(boottime=boottime - 5.0, time=time.time() + 900.0)
    assert 5.0 <= (age_of(end) or 0.0) < 300.0
    end = ProcessEnd(boottime=boottime + 9e6, time=time.time() - 50.0)
    assert 50.0 <= (age_of(end) or 0.0) < 350.0
    assert age_of(ProcessEnd()) is None


@pytest.mark.parametrize("age", [0.0, 3500.0])
def test_recent_xids_are_reported(age: float) -> None:
    """Each with its GPU and age, but none that never occurred, or long ago."""
    now, metric = 1_800_000_000.0, GPU_XID_LAST_TIMESTAMP_SECONDS
    samples = [
        (series(metric, "GPU-1", "79"), now - age),
        (series(metric, "GPU-1", "48"), now - 4000.0),
        (series(metric, "GPU-2", "48"), 0.0),
    ]
    other = Family(catalog.OOM_REPORTS, [("", now)])
    found = xids([other, Family(metric, samples)], now)
    assert found == [XidError("GPU-1", "79", age)]
