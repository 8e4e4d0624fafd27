"""The sidecar's findings: those of `jaxmon explain`, from agents of all kinds."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jaxmon.facts.record import encoded
from jaxmon.facts.status import HostVerdict, ProcessVerdict
from jaxmon.host.http.server import Request, Response
from jaxmon.limits import Limits
from jaxmon_exporter import judge as judging
from jaxmon_exporter import service
from jaxmon_exporter.judge import judge
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.service import Service
from tests.fakes.agents import Raw
from tests.helpers.findings import recompiling
from tests.helpers.processes import ROOT, http_get, until
from tests.helpers.sidecars import LONG, SHORT, Exporter, Host, exporters


FIELDS = ("topic", "subject", "verdict", "where", "action", "urgency", "runbook")
STORM = "__main__.forward was recompiled 6 times because an argument's shape changed."
# Two faults, or none; what explain and the sidecar say of it while it stands still.
# The ledger would differ between the three, so no time is spent but on faults.
PROGRAM = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
import jaxmon
jaxmon.instrument(port=None, report=True, time_interval=0)
import jax, numpy as np
from click.testing import CliRunner
from jaxmon.cli.main import main
from tests.helpers.sidecars import exporters
from tests.helpers.processes import until

@jax.jit
def forward(x):
    return x * 2

for size in range(1, 8 if {faulty} else 2):
    forward(np.ones(size, np.float32))
    for _ in range(5 * {faulty}):
        try:
            forward("not an array <b>")
        except TypeError:
            pass

run_dir = Path(os.environ["JAXMON_RUN_DIR"])
with exporters(run_dir) as start:
    running = start("--agents-interval", "0.2", "--disable", "nvml")
    until(lambda: running.summary()["agents"], "the agent")
    until(lambda: running.summary()["agents"][0]["findings"] is not None, "findings")
    summary = running.summary()
explained = json.loads(CliRunner().invoke(main, ["explain", "0", "--json"]).stdout)
print(json.dumps([explained["findings"], summary]))
"""


@pytest.fixture
def host(run_dir: Path) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(run_dir, stack)


@pytest.fixture
def exporter(run_dir: Path) -> Iterator[Callable[..., Exporter]]:
    """Return a function that starts ``jaxmon exporter`` on a free port."""
    with exporters(run_dir) as start:
        yield start


def compiled_at(finished: float) -> dict[str, Any]:
    """Return the overview of a process that compiled what others compile."""
    return recompiling(
        compiles={"compiled": 1},
        recompiles={},
        program={"fingerprint": "abc", "finished": finished, "devices": 1},
    )


def topics(process: ProcessVerdict) -> list[str]:
    assert process.findings is not None, process.trouble
    return [one.topic for one in process.findings]


def without_ages(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what does not change while the program stands still."""
    return [
        {name: one[name] for name in FIELDS}
        for one in findings
        if one["topic"] != "short"  # it says how short
    ]


def test_explain_sidecar_and_exit_report_say_the_same(
    preloaded_script: Callable[..., Any],
) -> None:
    """The faults of one program have the same words in all three, in the same order."""
    done = preloaded_script(PROGRAM.format(root=str(ROOT), faulty=True)).ok()
    explained, summary = json.loads(done.out.splitlines()[-1])
    (agent,) = summary["agents"]
    report = " ".join(done.err.partition("FINDINGS")[2].split())

    assert {one["topic"] for one in explained} >= {"error", "recompile"}
    assert any(one["verdict"].startswith(STORM) for one in explained)
    assert without_ages(agent["findings"]) == without_ages(explained)
    assert {*agent["findings"][0]} == {*explained[0]}
    assert (agent["verdict"], agent["trouble"]) == ("", "")
    places = [report.index(" ".join(one["verdict"].split())) for one in explained[:2]]
    assert places == sorted(places)
    assert summary["findings"]["age"] < 10
    assert summary["findings"]["trouble"] == ""


def test_what_several_processes_have_in_common_is_there_once(host: Host) -> None:
    """Processes that compile together are listed; each has the finding as well."""
    for slot, finished in enumerate((1000.0, 1010.0, 5000.0)):
        host.agent(slot, compiled_at(finished))
    found = host.judge()

    (together,) = map(encoded, found.shared)
    assert together["workers"] == ["0", "1"]
    assert together["verdict"].startswith(
        "2 processes of this host compiled train.step"
    )
    with_it = [n for n in "012" if "compiled_together" in topics(found.processes[n])]
    assert with_it == ["0", "1"]
    assert not hasattr((found.processes["0"].findings or [None])[0], "workers")


def test_agents_in_trouble_cost_only_themselves(host: Host, raw: Raw) -> None:
    """Each has a reason, and the others are read completely."""
    done = threading.Event()
    hang = {"schema": 1, "functions": {}}

    def half(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"functions"')

    host.agent(0, recompiling())
    raw(1, lambda _: done.wait(90))
    raw(2, half)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(host.run_dir / "agent-3.sock"))
    host.agent(4, b"<html>")
    host.agent(5, {"schema": 99, "functions": {"f": 3, "g": {"phases": [1]}}, "new": 1})
    host.agent(6, hang, b"[" * 1000 + b"]" * 1000)
    host.agent(7, recompiling(), {"events": "none"})
    try:
        found = host.judge(timeout=SHORT)
        # The others, too, may be slow, on a machine that has other work to do.
        if found.processes["0"].trouble or found.processes["7"].trouble:
            found = host.judge(timeout=60 * SHORT)
    finally:
        done.set()
    troubles = {worker: one.trouble for worker, one in found.processes.items()}

    assert troubles["1"].startswith("does not respond: no complete response within")
    assert "truncated after" in troubles["2"]
    assert troubles["3"] == "does not respond: nothing is listening on its socket"
    assert "not JSON" in troubles["4"]
    assert "deeper than 90 levels" in troubles["6"]
    assert all(found.processes[n].findings is None for n in "123456")
    newer = "cannot be read: its schema is 99; this jaxmon reads up to 1: upgrade it"
    assert (troubles["5"], found.processes["5"].verdict) == (newer, "")
    assert found.processes["0"].notes == ()
    for n in "07":
        assert "recompile" in topics(found.processes[n])
        assert (found.processes[n].pid, troubles[n]) == (7, "")


def test_hostile_text_is_one_harmless_line(host: Host) -> None:
    """Control sequences and line breaks of an agent arrive spelled out."""
    host.agent(0, recompiling("\x1b[2J\u202eevil\r\n<script>"))
    (finding, *_) = host.judge().processes["0"].findings or []

    assert finding.subject == "\\x1b[2J\\u202eevil  <script>"
    assert finding.verdict.isprintable()


def test_agents_are_asked_only_when_someone_reads(
    host: Host, exporter: Callable[..., Exporter]
) -> None:
    """Scrapes ask no agent for findings; many readers ask each of them once."""
    for slot in range(3):
        host.agent(slot, recompiling())
    running = exporter("--agents-interval", "0.2")
    until(lambda: len(running.summary()["agents"]) == 3, "the agents")
    asked = len(host.asked)
    assert asked == 6
    summaries: list[Any] = []
    readers = [
        threading.Thread(target=lambda: summaries.append(running.summary()))
        for _ in range(20)
    ]
    for one in readers:
        one.start()
    for one in readers:
        one.join(90)
    ages = [one["findings"]["age"] for one in summaries]
    running.get()

    assert len(ages) == 20
    if max(ages) < 10:  # as fast as any machine should be
        assert len(host.asked) == asked
    for agent in summaries[0]["agents"]:
        assert agent["findings"][0]["topic"] == "recompile"


def test_scrapes_do_not_wait_for_findings(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the findings are read, readers of these wait, and a scrape does not."""
    asked, go = threading.Event(), threading.Event()

    def wait(_: Path, __: Limits, *, timeout: float) -> HostVerdict:
        del timeout
        asked.set()
        assert go.wait(90)
        return HostVerdict(trouble="read at last")

    monkeypatch.setattr(judging, "judge", wait)
    disabled = ("nvml", "gpm", "tpu")
    options = SidecarOptions(
        host="127.0.0.1", port=0, run_dir=run_dir, disabled=disabled
    )
    running = Service(options)
    url = f"http://127.0.0.1:{running.start()}"
    found: list[Any] = []
    readers = [
        threading.Thread(target=lambda: found.append(http_get(f"{url}/api/summary")))
        for _ in range(3)
    ]
    try:
        for one in readers:
            one.start()
        assert asked.wait(90)
        assert "jaxmon_build_info" in http_get(f"{url}/metrics")
        assert http_get(f"{url}/-/healthy") == "healthy\n"
        assert found == []
        go.set()
        for one in readers:
            one.join(90)
    finally:
        go.set()
        running.stop()

    assert [json.loads(one)["findings"]["trouble"] for one in found] == [
        "read at last"
    ] * 3


@pytest.mark.parametrize(
    ("options", "trusted", "reason"),
    [
        ({}, True, ""),
        ({}, False, "not shown here"),
        ({"findings": "all"}, False, ""),
        ({"findings": "off"}, True, "disabled by --findings off"),
        ({"disabled": ("agents",)}, True, "the agents collector is disabled"),
    ],
)
def test_findings_are_for_those_who_may_read_them(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    trusted: bool,  # noqa: FBT001
    reason: str,
) -> None:
    """Others get all but the findings, with the reason, and no agent is asked."""
    monkeypatch.setattr(service, "_FINDINGS_TIMEOUT", LONG)
    monkeypatch.setattr(service, "_FINDINGS_PATIENCE", 3 * LONG)
    host.agent(0, recompiling())
    running = Service(SidecarOptions(run_dir=host.run_dir, **options))
    request = Request("GET", "/api/summary", trusted=trusted)
    response = running._server.routes["/api/summary"](request)
    if not isinstance(response, Response):
        response = response.result(90)
    found = json.loads(response.body)["findings"]

    assert (reason in found["trouble"]) if reason else found["trouble"] == ""
    assert (found["age"] is None) is bool(reason)
    assert bool(host.asked) is not bool(reason)


def test_a_directory_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Instead of findings there is the reason."""
    (tmp_path / "file").write_text("")
    found = judge(tmp_path / "file", Limits(), timeout=LONG)
    assert found.trouble == f"unknown: run directory {tmp_path}/file: Not a directory"
