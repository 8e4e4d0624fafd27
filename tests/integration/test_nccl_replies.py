"""What a port or a reply may be, besides that of NCCL's RAS."""

import json
import socket

import pytest

from jaxmon.host.http.fetch import FetchError
from jaxmon_exporter.collectors import nccl as client
from jaxmon_exporter.collectors.nccl import is_here, place_of, query
from jaxmon_exporter.collectors.ras_replies import (
    parse_json,
    parse_text,
)
from tests.fakes.hostile import Answer, hostile
from tests.fakes.nccl.jobs import Job, job
from tests.fakes.nccl.json_reply import as_json
from tests.fakes.nccl.server import ras
from tests.fakes.nccl.text_reply import as_text
from tests.helpers.processes import each
from tests.job.nccl import expected, healthy, lossy, poller, values


GREETED = b"SERVER PROTOCOL 2\nOK\nOK\n"
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
    assert [process.host for process in report.absent] == ["unknown"] * 2


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
