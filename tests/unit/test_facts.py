"""
Records of facts: what one release of an agent or a sidecar reports, and another reads.

`tests/recorded/` has what the release before reported.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.facts.process import Snapshot, read
from jaxmon.facts.reader import from_json
from jaxmon.facts.record import Fact, encoded
from jaxmon.facts.status import FunctionSummary
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.server import Server
from jaxmon.limits import Limits
from jaxmon.symptoms.findings import find
from jaxmon_exporter.judge import judge
from tests.helpers.processes import ROOT


RECORDED = ROOT / "tests" / "recorded"
AGENT = json.loads((RECORDED / "agent.json").read_text())
SIDECAR = json.loads((RECORDED / "sidecar.json").read_text())
EVENTS = {"events": AGENT["events"]}


class Point(Fact):
    """A record in another."""

    name: str = ""
    count: int = 0


class Way(Fact):
    """A record with records in it."""

    name: str = ""
    end: Point | None = None
    points: tuple[Point, ...] = ()

    by_name = ("points",)


def test_a_record_knows_what_was_given() -> None:
    """Only that is encoded; what was not has its default, and counts as equal to it."""
    path = Way("a", points=(Point("b", 2), Point("c")))

    assert (path.end, path.points[1].count) == (None, 0)
    assert encoded(path) == {"name": "a", "points": {"b": {"count": 2}, "c": {}}}
    assert encoded(Way("d").filled()) == {"name": "d", "end": None, "points": {}}
    assert FunctionSummary(name="f", calls=1) != FunctionSummary(name="f", calls=2)
    assert from_json(Way, encoded(path)) == path == path.replace(end=None)
    assert len({Point("b"), Point("b", 0), Point("b", count=1)}) == 2


def test_all_that_an_agent_reported_is_read() -> None:
    """Each value of its overview is a field of a record, and encoded as before."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: known(one) for k, one in value.items() if one is not None}
        return [known(one) for one in value] if isinstance(value, list) else value

    overview = AGENT["overview"]
    assert known(encoded(from_json(Snapshot, overview))) == known(overview)


def test_an_agent_of_the_release_before_is_judged_alike(run_dir: Path) -> None:
    """By a command, and by a sidecar that finds it in the run directory."""
    before = [one["topic"] for one in AGENT["findings"]]
    # 11 % of nine seconds may be less than a tenth: that is no finding any more.
    before.remove("blocked")
    pages = {
        "/debug/overview": AGENT["overview"],
        "/debug/events": EVENTS,
        "/debug/rank": AGENT["rank"],
    }
    server = Server({path: _serving(page) for path, page in pages.items()}, name="old")
    server.listen_unix(run_dir / "agent-0.sock")
    server.start()
    try:
        process = judge(run_dir, Limits(), timeout=60).processes["0"]
    finally:
        server.stop()

    found = find(read(AGENT["overview"], EVENTS))
    assert [one.topic for one in found] == before
    assert process.pid == AGENT["overview"]["process"]["pid"]
    assert process.findings is not None
    subjects = [(one.topic, one.subject) for one in found]
    assert [(one.topic, one.subject) for one in process.findings] == subjects


def test_a_sidecar_of_the_release_before_is_shown() -> None:
    """What it says of the processes of its host is what a command prints of it."""
    pages = {"/api/summary": _of_worker, "/job": _serving(SIDECAR["job"])}
    server = Server(pages, name="old")
    port = server.listen_tcp("127.0.0.1", 0)
    server.start()
    try:
        url, target = f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"
        done = CliRunner().invoke(main, ["ps", "--json", "--url", url])
        why = CliRunner().invoke(main, ["job", "why", "--json", "--targets", target])
    finally:
        server.stop()

    found = json.loads(done.stdout)["processes"]
    assert {one["worker"]: one["pid"] for one in found} == {
        one["worker"]: one["pid"] for one in SIDECAR["summary"]["agents"]
    }
    seen = json.loads(why.stdout)
    assert (seen["answered"], seen["others"]) == (1, len(SIDECAR["job"]["ranks"]))


def test_what_a_later_release_adds_is_ignored() -> None:
    """A key that is unknown, in any record, changes nothing of what is read."""

    def newer(value: Any) -> Any:
        if isinstance(value, tuple):
            return [newer(one) for one in value]
        if isinstance(value, dict):
            return {key: newer(one) for key, one in value.items()}
        if isinstance(value, Fact):
            known = {name: newer(one) for name, one in vars(value).items()}
            return {**known, "later": {"why": [1, None]}, "fields": ["later"]}
        return value

    found = read(AGENT["overview"], EVENTS)
    document = newer(from_json(Snapshot, AGENT["overview"]))
    happened = [{**event, "later": 1} for event in AGENT["events"]]

    assert document["functions"][0]["program"]["later"]
    assert read(document, {"events": happened, "later": 1}) == found


def _of_worker(request: Request) -> Response:
    summary, worker = SIDECAR["summary"], request.query.get("worker")
    agents = [one for one in summary["agents"] if worker in (None, one["worker"])]
    return _serving({**summary, "agents": agents})(request)


def _serving(document: Any) -> Callable[[Request], Response]:
    def respond(_: Request) -> Response:
        return Response(json.dumps(document).encode(), "application/json")

    return respond
