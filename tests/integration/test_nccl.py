"""The nccl collector, and the RAS of jobs that are well, stuck, or gone."""

from collections.abc import Callable

from tests.fakes.nccl.jobs import Job, job
from tests.fakes.nccl.json_reply import as_json
from tests.fakes.nccl.server import ras
from tests.helpers.processes import each
from tests.job.nccl import (
    aborted,
    ending,
    expected,
    failed,
    healthy,
    initialising,
    lossy,
    poller,
    unlike,
    values,
)


LAG, MISSING = "jaxmon_nccl_rank_lag", "jaxmon_nccl_missing_processes"
FORMATS = {
    "json": {"speaks_json": True},
    "text": {"speaks_json": False},
    "text of 2.24": {"speaks_json": False, "old": True},
}
JOBS = (healthy, initialising, ending, aborted, failed, unlike, lossy)
each_format = each({name: (options,) for name, options in FORMATS.items()})


@each(
    {
        f"{make.__name__}, {name}": (make, options)
        for make in JOBS
        for name, options in FORMATS.items()
    }
)
def test_a_job_is_described(make: Callable[[], Job], options: dict[str, bool]) -> None:
    """Each format yields what the job is, to the last process and communicator."""
    made = make()
    with ras(made, **options) as served:
        found = values(poller(served.address))
    named = {name: found.pop(name) for name in list(found) if "missing" in name}
    assert found == expected(made)
    lost = [*made.by_trouble("unresponsive"), *made.by_trouble("dead")]
    hosts = [host for host, _ in lost]
    assert named == {
        f'missing_processes{{host="{host}"}}': hosts.count(host) for host in hosts
    }


@each_format
def test_a_rank_is_behind_once_nothing_moves(options: dict[str, bool]) -> None:
    """Counts that differ accuse a rank if they are the same in the next reply only."""
    made = healthy()
    late = made.communicators[1].members[11]
    with ras(made, **options) as served:
        polled = poller(served.address)
        late.counts = [0, 0, 7, 7, 37]
        assert values(polled) == expected(made)
        stuck = expected(made, communicators=1, ranks=1)
        lag = {f'rank_lag{{host="{late.host}",rank="11"}}': 3}
        assert values(polled) == {**stuck, **lag}
        assert values(polled) == {**stuck, **lag}
        late.counts = [0, 0, 7, 7, 38]
        assert values(polled) == expected(made)
        late.counts = [0, 0, 7, 7, 40]
        assert values(polled) == expected(made)


@each_format
def test_ranks_that_launch_nothing(options: dict[str, bool]) -> None:
    """Ranks before their first collective are behind by all of them."""
    made = healthy()
    for one in made.communicators[0].members:
        one.counts = [0, 0, 0, 0, 5]
    for one in made.communicators[0].members[:2]:
        one.counts = [0, 0, 0, 0, 0]
    with ras(made, **options) as served:
        polled = poller(served.address)
        values(polled)
        found = values(polled)
    assert found["lagging_ranks"] == 2
    assert {name: one for name, one in found.items() if "lag{" in name} == {
        f'rank_lag{{host="127.0.1.1",rank="{rank}"}}': 5 for rank in (0, 1)
    }


def test_another_program_is_behind_in_its_own_way() -> None:
    """Of two ranks that launch different collectives, each is behind the other."""
    made = job(1, 8)
    made.communicators[0].members[0].counts = [0, 0, 8, 7, 40]
    made.communicators[0].members[1].counts = [0, 0, 7, 7, 41]
    with ras(made) as served:
        polled = poller(served.address)
        values(polled)
        found = values(polled)
    assert found["lagging_ranks"] == 8
    assert len([name for name in found if "lag{" in name]) == 8


def test_a_large_job_is_read_whole_and_stays_few_series() -> None:
    """1.5 MB of 512 ranks are a few series; of ranks in trouble, the worst eight."""
    made = job(64, 8, communicators=6)
    assert len(as_json(made)) > 1_500_000
    members = made.communicators[0].members
    with ras(made) as served:
        polled = poller(served.address)
        found = values(polled)
        assert found == expected(made)
        assert len(found) == 18
        for place, one in enumerate(members[100:200]):
            one.counts = [0, 0, 7, 7, 39 - place % 30]
        for one in members[300:400]:
            one.trouble = "unresponsive"
        values(polled)
        found = values(polled)
    assert found["lagging_ranks"] == 100
    lags = {name: value for name, value in found.items() if "lag{" in name}
    assert sorted(lags.values()) == [28, 28, 29, 29, 29, 30, 30, 30]
    missing = [value for name, value in found.items() if name.startswith("missing")]
    assert missing == [8] * 8
    assert len(found) == 18 + 8 + 8
