"""The nccl collector, and the RAS of jobs that are well, stuck, or gone."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator

import pytest

from jaxmon.http.fetch import FetchError
from jaxmon_exporter.collectors.nccl import client
from jaxmon_exporter.collectors.nccl.client import is_here, place_of, query
from jaxmon_exporter.collectors.nccl.collector import Nccl
from jaxmon_exporter.collectors.nccl.json_reply import parse as parse_json
from jaxmon_exporter.collectors.nccl.report import BrokenReplyError
from jaxmon_exporter.collectors.nccl.text_reply import parse as parse_text
from jaxmon_exporter.polling import Poller
from tests.fakes.hostile import Answer, hostile
from tests.fakes.nccl import Job, as_json, as_text, job, ras
from tests.support import each


LAG, MISSING = "jaxmon_nccl_rank_lag", "jaxmon_nccl_missing_processes"
GREETED = b"SERVER PROTOCOL 2\nOK\nOK\n"
FORMATS = {
    "json": {"speaks_json": True},
    "text": {"speaks_json": False},
    "text of 2.24": {"speaks_json": False, "old": True},
}
# Hosts, and polls without a query at least and at most; in trouble as well.
PAUSES = (
    (1, (4, 8), (2, 2)),
    (9, (6, 12), (2, 4)),
    (64, (14, 26), (4, 8)),
    (200, (14, 26), (4, 8)),
)
each_format = each({name: (options,) for name, options in FORMATS.items()})


def at_once(least: int, _: int) -> int:
    """Return the least, and no pause at first."""
    return 0 if least < 2 else least


def never(_: int, __: int) -> int:
    """Return no pause at all."""
    return 0


def poller(address: str, chance: Callable[[int, int], int] = never, **more) -> Poller:
    """Return the poller of a collector that waits for nothing."""
    return Poller(Nccl(address, chance=chance, **more))


def values(polled: Poller) -> dict[str, float]:
    """Poll, and return every series of the metrics of the job."""
    polled.poll()
    assert polled.status().success, polled.status().message
    found = {name: value for one in polled.families() for name, value in one.samples}
    return {
        name.removeprefix("jaxmon_nccl_"): value
        for name, value in found.items()
        if "_age_" not in name
    }


def expected(job: Job, **stuck: float) -> dict[str, float]:
    """Return what the model of a job holds, counted without replies."""
    found = {f'info{{version="{job.version}",cuda="12.8",driver="13.0"}}': 1.0}
    troubles = [*job.processes().values()]
    for state, trouble in (("responding", ""), ("unresponsive",) * 2, ("dead",) * 2):
        found[f'processes{{state="{state}"}}'] = troubles.count(trouble)
    found["gpus"] = len({(one.host, one.pid) for one in job.every()})
    found["nodes"] = len({one.host for one in job.every()})
    levels = [max(one.levels) for one in job.communicators]
    states = ("unknown", "init", "running", "finalize", "abort")
    for level, state in enumerate(states):
        found[f'communicators{{state="{state}"}}'] = levels.count(level)
    for kind in ("mismatch", "error", "incomplete"):
        count = sum(kind.upper() in one.errors for one in job.communicators)
        found[f'faulty_communicators{{kind="{kind}"}}'] = count
    found['faulty_communicators{kind="stuck"}'] = stuck.get("communicators", 0)
    found["lagging_ranks"] = stuck.get("ranks", 0)
    found["collection_seconds"] = 0.25
    found["collection_timeouts"] = job.timeouts
    return found


def healthy() -> Job:
    return job(4, 8, communicators=3)


def initialising() -> Job:
    made = healthy()
    for one in made.communicators[1].members:
        one.init = 7
    return made


def ending() -> Job:
    made = healthy()
    for one in made.communicators[0].members[:2]:
        one.finalize = True
    for one in made.communicators[0].members[6:]:
        one.trouble = "left"
    return made


def aborted() -> Job:
    made = healthy()
    made.communicators[2].members[5].abort = True
    return made


def failed() -> Job:
    made = healthy()
    made.communicators[1].members[9].error = 2
    return made


def unlike() -> Job:
    made = job(3, 4)
    del made.communicators[0].members[-1]
    made.timeouts = 2
    return made


def lossy() -> Job:
    made = healthy()
    for each_ in made.communicators:
        each_.members[3].trouble = "dead"
        for one in each_.members[16:24]:
            one.trouble = "unresponsive"
    return made


JOBS = (healthy, initialising, ending, aborted, failed, unlike, lossy)


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


def test_what_is_sent() -> None:
    """It talks as NVIDIA's client does, with a timeout, and asks for JSON first."""
    with ras(healthy()) as served:
        values(poller(served.address))
        served.speaks_json = False
        values(poller(served.address))
        commands = ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "STATUS"]
        assert served.commands == [commands, commands]


def test_a_job_that_comes_and_goes(free_port: int) -> None:
    """No job is normal, before and after one, and leaves no values behind."""
    polled = poller(f"127.0.0.1:{free_port}")
    polled.poll()
    status = polled.status()
    assert (status.reason, status.absent) == ("no_job", True)
    assert "NCCL_RAS_ADDR" in status.message
    with ras(healthy()) as served:
        polled = poller(served.address)
        assert values(polled)
    polled.poll()
    status = polled.status()
    assert (status.success, status.reason, status.absent) == (False, "no_job", True)
    assert polled.families() == []


def test_a_stopped_process_hides_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a host share the port: another one responds to the next attempt."""
    monkeypatch.setattr(client, "_GREETING_SECONDS", 0.1)
    with ras(healthy(), unheard=3) as served:
        assert values(poller(served.address)) == expected(served.job)
        served.unheard = 4
        polled = poller(served.address)
        polled.poll()
        assert polled.status().reason == "timeout"
        assert not polled.status().absent


def test_the_sidecar_of_the_first_rank_queries_for_all() -> None:
    """Others query now and then, say how old that is, and name no rank."""
    now = [100.0]
    made = lossy()
    with ras(made) as served:
        first = poller(served.address, at_once)
        for _ in range(5):
            found = values(first)
        assert served.queries == 5
        assert [name for name in found if "missing" in name]
        elsewhere = poller(served.address, at_once, clock=lambda: now[0])
        for one in made.every():
            one.host = one.host.replace("127.0.", "192.0.2.")[:-2]
        for _ in range(15):
            found = values(elsewhere)
            now[0] += 15
        assert served.queries == 5 + 5
    assert found == expected(made)
    (age,) = (one.samples for one in elsewhere.families() if "_age_" in one.metric.name)
    assert age == [("jaxmon_nccl_reply_age_seconds", 30.0)]


def test_without_a_place_each_fourth_poll_queries() -> None:
    """Text names no host of a healthy job: all sidecars query, each now and then."""
    with ras(healthy(), speaks_json=False) as served:
        polled = poller(served.address, at_once)
        for _ in range(8):
            values(polled)
        assert served.queries == 2


@each({str(nodes): (nodes, *pauses) for nodes, *pauses in PAUSES})
def test_the_larger_a_job_the_rarer_a_query(
    nodes: int, usual: tuple[int, int], troubled: tuple[int, int]
) -> None:
    """Sidecars away from the first rank share the queries; trouble makes them more."""
    drawn: list[tuple[int, int]] = []

    def chance(least: int, most: int) -> int:
        drawn.append((least, most))
        return 0

    made = job(nodes, 2)
    for one in made.every():
        one.host = one.host.replace("127.", "203.")
    with ras(made) as served:
        polled = poller(served.address, chance)
        values(polled)
        made.communicators[0].members[1].trouble = "unresponsive"
        values(polled)
    assert drawn == [(0, 3), usual, troubled]


def test_sidecars_that_start_together_do_not_query_together() -> None:
    """The first query is in one of the first polls, by chance."""
    with ras(healthy()) as served:
        polled = poller(served.address, lambda _, most: most)
        assert [bool(values(polled)) for _ in range(4)] == [False] * 3 + [True]


def test_what_is_too_large_in_json_is_read_as_text() -> None:
    """A job beyond the limit is described, if in fewer words."""
    with ras(healthy()) as served:
        polled = poller(served.address, max_bytes=10_000)
        polled.poll()
        assert polled.status().reason == "too_large"
        assert values(polled) == expected(served.job)
        assert served.commands[-1] == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "STATUS"]


LISTENERS = {
    "no end": (Answer(GREETED, b"x" * 65536), "too_large", 600),
    "drips": (Answer(GREETED, b"x", 0.01), "timeout", 0.3),
    "stops": (Answer(GREETED, b""), "timeout", 0.3),
    "half a line": (Answer(GREETED[:-2], b""), "timeout", 0.3),
    "one line": (Answer(b"SERVER PROTOCOL 2\n", b"x" * 999), "not_ras", 600),
    "HTTP": (Answer(b"HTTP/1.1 400 Bad Request\r\n", b"\r\n"), "not_ras", 600),
    "silence": (Answer(b"", b""), "timeout", 600),
    "a greeting that drips": (Answer(b"", b"S", 0.01), "timeout", 600),
}


@pytest.mark.parametrize("who", LISTENERS)
def test_who_listens_may_do_anything(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a listener sends, a query ends in time and size, with a reason."""
    answer, reason, seconds = LISTENERS[who]
    monkeypatch.setattr(client, "_GREETING_SECONDS", 0.1)
    with hostile(answer) as server:
        place = server.listener.getsockname()
        with pytest.raises(FetchError) as raised:
            query(place, seconds=seconds, max_bytes=1 << 20)
    assert raised.value.reason == reason


def mangled() -> Iterator[bytes]:
    """Return replies that are none, or are those of a job with one thing changed."""
    made = lossy()
    made.version = "2.29.2"
    good = as_json(made)
    chance = random.Random(5)  # noqa: S311 - no secret
    yield from (b"", b"\0\xff", b"[]", b"null", b"{}", b"[" * 5000, b"ERROR: x\n")
    wrong: object
    for wrong in (None, "x", -1, [], {}, 1e300, True):
        for key in json.loads(good):
            yield json.dumps(json.loads(good) | {key: wrong}).encode()
        for where in ("ranks", "missing_ranks", "size", "hash"):
            reply = json.loads(good)
            reply["communicators"][0][where] = wrong
            yield json.dumps(reply).encode()
        for where in ("rank", "host", "pid", "nvml_dev", "status", "collective_counts"):
            reply = json.loads(good)
            for one in reply["communicators"][0]["ranks"][:2]:
                one[where] = wrong
            yield json.dumps(reply).encode()
    for text in (good.encode(), as_text(lossy()).encode()):
        for _ in range(20):
            start = chance.randrange(len(text))
            yield text[:start]
            yield text[:start] + chance.randbytes(9) + text[start + 9 :]


def test_garbage_is_one_kind_of_failure() -> None:
    """Both parsers return a report or reject; they raise nothing else."""
    rejected = 0
    for body in mangled():
        for parse in (parse_json, parse_text):
            try:
                parse(body)
            except BrokenReplyError:
                rejected += 1
    assert rejected > 200


def test_garbage_is_reported() -> None:
    """The reason is one word, and the last values are gone."""
    with ras(healthy()) as served:
        polled = poller(served.address)
        assert values(polled)
        served.body = b"{}"
        polled.poll()
        assert polled.status().reason == "not_ras"
        assert polled.families() == []


def test_processes_that_ras_does_not_know() -> None:
    """Missing ranks without an address count one by one."""
    made = job(1, 4)
    for one in made.communicators[0].members[2:]:
        one.host, one.pid, one.trouble = "unknown", -1, "unresponsive"
    report = parse_json(as_json(made).encode())
    assert report.processes == {"responding": 2, "unresponsive": 2}
    assert report.missing == {"unknown": 2}


def test_the_comma_that_is_missing_in_2_28() -> None:
    """A reply with missing ranks is no JSON in NCCL 2.28, and is in later ones."""
    old, new = lossy(), lossy()
    new.version = "2.29.2"
    with pytest.raises(json.JSONDecodeError):
        json.loads(as_json(old))
    json.loads(as_json(new))
    reports = [parse_json(as_json(one).encode()) for one in (old, new)]
    assert reports[0]._replace(version="2.29.2") == reports[1]


def test_no_communicator_yet() -> None:
    """A job without communicators is one, in both formats."""
    report = parse_json(as_json(Job([])).encode())
    assert (report.communicators, report.gpus) == ({}, 0)
    text = as_text(job(2, 2))
    head, _, rest = text.partition("Group ")
    tail = rest.partition("\nErrors")[2]
    empty = f"{head}No communicator data collected!\n\nErrors{tail}"
    report = parse_text(empty.encode())
    assert (report.communicators, report.gpus) == ({}, 4)


@each(
    {name: (name,) for name in ("", "localhost", "a:", ":1", "a:0", "a:70000", "a:x")}
)
def test_addresses_that_are_none(address: str) -> None:
    """An address needs host and port."""
    with pytest.raises(ValueError, match="give"):
        place_of(address)


def test_addresses() -> None:
    """They are written as for NCCL."""
    assert place_of("localhost:28028") == ("localhost", 28028)
    assert place_of("[::1]:1") == ("::1", 1)


def test_where_an_address_is() -> None:
    """An address is this host's, another's, or says nothing."""
    assert is_here("127.0.0.1") is True
    assert is_here("192.0.2.7") is False
    assert [is_here(one) for one in ("", "unknown", "fe80::1")] == [None] * 3


def test_localhost_is_both_addresses() -> None:
    """NCCL listens at one of them: it is found, and nothing is where none listens."""
    with ras(healthy()) as served:
        port = served.address.rpartition(":")[2]
        assert values(poller(f"localhost:{port}")) == expected(served.job)
    if is_here("::1"):
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
            port = listener.getsockname()[1]
            assert client.found(("localhost", port)) == ("::1", port)
    assert client.found(("localhost", int(port))) is None
