"""The nccl_inspector collector: what it counts, of whom, and how much of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.agents import Serve
from tests.fakes.nccl.inspector import NEW, OLD, Rank
from tests.helpers.processes import until
from tests.helpers.sidecars import Exporter, exporters, values
from tests.job.inspected import Inspected, Write, agent_in, counted, expected, some


UNRECORDED = 'jaxmon_nccl_unrecorded_collectives_total{{worker="{}",collective="{}"}}'


@pytest.mark.parametrize("version", [OLD, NEW])
def test_counters_are_what_was_written(version, files, write, run_dir, serve):
    """By worker, kind and size, as the writer has counted, of several ranks each."""
    inspected = Inspected(files, run_dir)
    assert inspected.reason() == "no_job"
    for slot in (0, 1):
        serve(slot, agent_in(70 + slot), target="/debug/rank")
    writers = [write(70 + one, version=version) for one in range(3)]
    for writer in writers:
        some(writer, Rank(0), 40)
        some(writer, Rank(1), 9)
    page = inspected.poll()
    wanted = expected(writers[:1], "0") | expected(writers[1:2], "1")
    assert counted(page) == pytest.approx(wanted | expected(writers[2:]))
    some(writers[1], Rank(0), 12)
    wanted |= expected(writers[1:2], "1")
    assert counted(inspected.poll()) == pytest.approx(wanted | expected(writers[2:]))
    assert page["bad_record"] == 0


def test_bus_bandwidth_is_that_of_nccl(files, write, run_dir):
    """Bytes on the bus by seconds are what Inspector says, weighted by time."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    writer = write(7)
    # The example in Inspector's README.
    rank = Rank(2, 8)
    writer.launch(rank, size=17179869184, micros=61974)
    writer.flush()
    page = inspected.poll()
    labels = '{worker="other",collective="AllReduce",size="larger"}'
    bus = page[f"jaxmon_nccl_bus_bytes_total{labels}"]
    seconds = page[f"jaxmon_nccl_collective_seconds_total{labels}"]
    assert bus / seconds == pytest.approx(485.119099e9)


def test_messages_have_a_size_class(files: Path, write: Write, run_dir: Path) -> None:
    """A message of a MiB is not under a MiB."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    writer = write(7)
    for bits in (20, 24, 28):
        for more in (-1, 0):
            writer.launch(Rank(), size=(1 << bits) + more)
    writer.flush()
    assert counted(inspected.poll()) == pytest.approx(expected([writer]))


def test_what_is_not_recorded_is_known_by_number(
    files: Path, write: Write, run_dir: Path
) -> None:
    """Gaps in a rank's numbers of a kind count, but for sends and untimed records."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    writer = write(7, version=OLD)
    ranks = [Rank(0), Rank(1), Rank(0, id="0x1")]
    for rank in ranks:
        writer.skip(rank, "AllReduce", 50)
        writer.launch(rank)
    for kind in ("Send", "Recv"):
        writer.skip(ranks[0], kind, 3)
        writer.launch(ranks[0], kind)
    writer.skip(ranks[0], "AllReduce", 10)
    writer.launch(ranks[0], by="kernel_cpu")
    writer.launch(ranks[0], by="collective_cpu")
    writer.launch(ranks[0])
    writer.flush()
    page = inspected.poll()
    assert page[UNRECORDED.format("other", "AllReduce")] == 12
    assert page[UNRECORDED.format("other", "Send")] == 0
    assert counted(page) == pytest.approx(expected([writer]))
    # Its communicator is created again.
    writer.launch(Rank(0))
    writer.flush()
    assert inspected.poll()[UNRECORDED.format("other", "AllReduce")] == 12


def test_what_was_there_is_ignored(files: Path, write: Write, run_dir: Path) -> None:
    """Also half a line, whose other half comes later; what is new counts at once."""
    old, rank = write(7), Rank()
    some(old, rank, 20)
    old.truth.sums.clear()
    whole = write(8)
    some(whole, Rank(), 1)
    half = whole.path.read_bytes()[:50]
    whole.truth.sums.clear()
    old.raw(half)
    inspected = Inspected(files, run_dir)
    inspected.poll()
    old.raw(whole.path.read_bytes()[50:])
    some(old, rank, 3)
    some(whole, Rank(), 2)
    new = write(9)
    some(new, Rank(), 2)
    page = inspected.poll()
    assert counted(page) == pytest.approx(expected([old, whole, new]))
    assert page["bad_record"] == 0


def test_half_a_line_is_read_when_it_is_whole(files, write, run_dir):
    """The buffer of the writer ends anywhere; each byte more changes nothing."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    writer = write(7)
    some(write(7, "elsewhere"), Rank(), 2)
    lines = (files / "elsewhere-pid7.log").read_bytes()
    cut = lines.index(b"\n") + 1
    for start in range(0, len(lines), 97):
        writer.raw(lines[start : start + 97])
        found = sum(counted(inspected.poll()).values()) > 0
        assert found == (min(start + 97, len(lines)) >= cut)
    writer.truth.add("AllReduce", 700_001, 100, 8)
    writer.truth.add("AllGather", 700_001 << 4, 137, 8)
    assert counted(inspected.poll()) == pytest.approx(expected([writer]))


def test_whose_files_are_read(files: Path, write: Write, run_dir: Path) -> None:
    """Those of this host, in a directory of several, or all."""
    one, every = Inspected(files, run_dir), Inspected(files, run_dir, host="*")
    one.reason(), every.reason()
    ours, theirs = write(7), write(7, "node-70")
    some(ours, Rank())
    some(theirs, Rank(1))
    assert counted(one.poll()) == pytest.approx(expected([ours]))
    assert counted(every.poll()) == pytest.approx(expected([ours, theirs]))


def test_hosts_tell_processes_with_one_number_apart(files, write, run_dir, serve):
    """Pods of a node have the same process numbers."""
    for slot, host in enumerate(("pod-a", "pod-b")):
        serve(slot, agent_in(1, host), target="/debug/rank")
    inspected = Inspected(files, run_dir, host="*")
    inspected.reason()
    writers = [write(1, host) for host in ("pod-a", "pod-b")]
    for number, writer in enumerate(writers):
        some(writer, Rank(), 2 + 6 * number)
    wanted = expected(writers[:1], "0") | expected(writers[1:], "1")
    assert counted(inspected.poll()) == pytest.approx(wanted)


def test_an_agent_may_start_later(files, write, run_dir, serve):
    """What its process recorded before stays with those that have no agent."""
    inspected = Inspected(files, run_dir)
    inspected.reason()
    writer = write(7)
    some(writer, Rank())
    before = expected([writer])
    assert counted(inspected.poll()) == pytest.approx(before)
    serve(3, agent_in(7), target="/debug/rank")
    writer.truth.sums.clear()
    some(writer, Rank())
    inspected.now += 61
    after = expected([writer], "3")
    assert counted(inspected.poll()) == pytest.approx(before | after)


def test_a_flood_is_sampled(files: Path, write: Write, run_dir: Path) -> None:
    """Beyond the budget the newest count, and what lies between is not recorded."""
    inspected = Inspected(files, run_dir, budget=20_000)
    inspected.reason()
    writer, rank = write(7), Rank()
    for _ in range(3):
        for _ in range(500):
            writer.launch(rank)
        writer.flush()
        page = inspected.poll()
    assert page["behind"] == 3
    labels = '{worker="other",collective="AllReduce",size="under_256MiB"}'
    read = page[f"jaxmon_nccl_collectives_total{labels}"]
    assert 90 < read < 150
    # All but those before the first.
    missed = page[UNRECORDED.format("other", "AllReduce")]
    assert missed + read == 1000 + read / 3
    bus = page[f"jaxmon_nccl_bus_bytes_total{labels}"]
    assert bus / page[f"jaxmon_nccl_collective_seconds_total{labels}"] == pytest.approx(
        (64 << 20) * 2 * 7 / 8 / 1e-3
    )


def test_a_flood_takes_nothing_from_others(files, write, run_dir):
    """What files with little leave of the budget is shared by those with more."""
    inspected = Inspected(files, run_dir, budget=20_000)
    inspected.reason()
    flood, middling, *others = (write(pid) for pid in range(10))
    for _ in range(500):
        flood.launch(Rank(), "Broadcast")
    flood.flush()
    some(middling, Rank(), 14)
    for writer in others:
        some(writer, Rank(), 1)
    page = inspected.poll()
    assert page["behind"] == 1
    read = {one: value for one, value in counted(page).items() if "Broad" not in one}
    assert read == pytest.approx(expected([middling, *others]))


def test_the_sidecar_reads_them(
    files: Path, write: Write, run_dir: Path, serve: Serve
) -> None:
    """Across a rotation and a restart the sidecar counts only what is new."""
    here = os.uname().nodename
    serve(0, agent_in(70, here), target="/debug/rank")
    writer, rank = write(70, here, verbose=True), Rank()
    some(writer, rank)

    def started(exporter: Callable[..., Exporter]) -> Exporter:
        disabled = [
            argument
            for name in ("host", "nvml", "gpm", "tpu", "nccl", "agents")
            for argument in ("--disable", name)
        ]
        interval = ("--nccl-inspector-interval", "0.1")
        running = exporter(*disabled, *interval, NCCL_INSPECTOR_DUMP_DIR=str(files))
        running.until_ready()
        return running

    def shows(running: Exporter) -> None:
        wanted = pytest.approx(expected([writer], "0"))
        until(lambda: counted(values(running.get())) == wanted, "what was written")

    with exporters(run_dir) as exporter:
        for _ in range(2):
            writer.truth.sums.clear()
            running = started(exporter)
            some(writer, rank)
            shows(running)
            os.truncate(writer.path, 0)
            some(writer, rank)
            shows(running)
            assert running.stop() == 0
            some(writer, rank)
