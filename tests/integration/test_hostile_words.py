"""What servers and agents say is neither obeyed by a terminal nor a way for secrets."""

import base64
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from jaxmon.cli.exporter import LogFormatter
from jaxmon.cli.main import main
from jaxmon.host.http.fetch import FetchError
from jaxmon.host.http.server import Handler, Response, Server
from jaxmon.preflight.profile import xspace
from jaxmon_exporter.collectors.dcgm import fetch_page
from tests.fakes.hostile import Answer, hostile
from tests.fakes.http import FaultyServer, Reply, Seen
from tests.helpers.adversaries import HOSTILE, harmful
from tests.helpers.dashboards import ONCALL
from tests.helpers.processes import some
from tests.helpers.traces import Code


TOKEN = "glsa_this+Is/The~Token=OfTheTest"  # noqa: S105 - opens nothing
BASIC = base64.b64encode(f"user:{TOKEN}".encode()).decode()
ECHOED = (
    TOKEN,
    f"Bearer {TOKEN}",
    quote(TOKEN, safe=""),
    base64.b64encode(TOKEN.encode()).decode(),
    BASIC,
    TOKEN.encode().hex(),
)
WORDS = f"{HOSTILE} {' '.join(ECHOED)}"
# Of BASIC what is about the token, and does not depend on what follows it.
FORMS = (TOKEN, *ECHOED[2:4], BASIC[8:].rstrip("=")[:-1], ECHOED[5])


def grafana(refused: str, status: int):
    """
    Return how a Grafana answers that says `WORDS` wherever it may say something, and
    refuses what matches *refused*.
    """

    def answer(seen: Seen, _: str) -> Reply:
        if refused and re.search(refused, seen.line):
            return Reply(status, {"message": WORDS, "status": WORDS})
        if "/versions" in seen.target:
            return Reply(200, {"message": WORDS, "version": 3})
        if "/api/dashboards/uid/" in seen.target:
            body = {**ONCALL, "version": 3, "title": WORDS, WORDS: [WORDS]}
            meta = {"folderUid": WORDS, "updatedBy": WORDS, "updated": WORDS}
            return Reply(200, {"dashboard": body, "meta": meta})
        if "/api/search" in seen.target:
            return Reply(200, [{"title": "On-call", "uid": WORDS}])
        return Reply(200, dict.fromkeys(("version", "title", "url", "status"), WORDS))

    return answer


def check(text: str) -> None:
    """Assert that *text* is harmless and holds no form of the token."""
    assert harmful(text) == []
    assert [form for form in FORMS if form.lower() in text.lower()] == []


def strings(value: Any) -> Iterator[str]:
    """Yield every string in decoded JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


@pytest.mark.parametrize("status", some([400, 401, 403, 404, 409, 412, 500], 3))
@pytest.mark.parametrize(
    "refused", ["", "health", "folders", "search", "uid/[^/]*$", "versions", "POST"]
)
def test_a_grafana_that_repeats_the_token(refused, status, tmp_path):
    """In no place where it may say something, in no form, in text and in JSON."""
    file = tmp_path / "one.json"
    file.write_text(json.dumps(ONCALL))
    with FaultyServer(grafana(refused, status)) as server:
        common = ("--url", f"http://127.0.0.1:{server.port}", str(file))
        backups = ("--backup-dir", str(tmp_path / "backups"))
        for words in (
            ("push", *backups, *common),
            ("push", "--force", *backups, *common),
            ("push", "--force", "--dry-run", *backups, *common),
            ("push", "--force", "--json", *backups, *common),
            ("diff", *common),
        ):
            result = CliRunner().invoke(
                main, ["dashboards", *words], env={"GRAFANA_TOKEN": TOKEN}
            )
            assert isinstance(result.exception, SystemExit) or not result.exception
            check(result.stdout)
            check(result.stderr)
            if "json" in words and result.stdout:
                for one in strings(json.loads(result.stdout)):
                    assert [form for form in FORMS if form in one] == []


@pytest.mark.parametrize("status", [301, 429])
def test_headers_that_repeat_the_token(status):
    """An address to go to, and a time to wait, are words of the server as well."""
    headers = {"Location": f"/{TOKEN}\x1b[31m", "Retry-After": "100"}
    reply = Reply(status, {"message": WORDS}, headers)
    with FaultyServer(lambda *_: reply) as server:
        result = CliRunner().invoke(
            main,
            ["dashboards", "diff", "--url", f"http://127.0.0.1:{server.port}"],
            env={"GRAFANA_TOKEN": TOKEN},
        )
    assert result.exit_code == 1
    check(result.stderr)


def test_a_proxy_that_repeats_its_password(monkeypatch):
    """The reason for which it refuses may hold what it was sent."""
    first = f"HTTP/1.1 407 {TOKEN} Basic {BASIC} \x1b[31m\r\n\r\n".encode()
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr("jaxmon_dashboards.grafana.session._backoff", lambda _: 0.0)
    with hostile(Answer(first, b"")) as server:
        proxy = server.url.replace("//", f"//user:{quote(TOKEN, safe='')}@")
        monkeypatch.setenv("https_proxy", proxy)
        result = CliRunner().invoke(
            main,
            ["dashboards", "diff", "--url", "https://grafana.test"],
            env={"GRAFANA_TOKEN": "glsa_another_one"},
        )
    assert "Tunnel connection failed: 407" in result.stderr
    check(result.stderr)


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 {} {}\r\n\r\n",
        "{} {}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: {}/{}\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_an_exporter_that_repeats_its_password(head):
    """Neither the reason nor the type of a page of another exporter holds it."""
    with hostile(Answer(head.format(TOKEN, BASIC).encode(), b"")) as server:
        url = server.url.replace("//", f"//user:{quote(TOKEN, safe='')}@")
        try:
            said, _ = fetch_page(f"{url}/metrics", timeout=30, max_bytes=1 << 20)
        except FetchError as error:
            said = str(error)
    assert "[secret]" in said
    check(LogFormatter().format(logging.LogRecord("", 30, "", 0, said, (), None)))


@contextmanager
def agent(run_dir: Path, pages: dict[str, bytes], **headers: str) -> Iterator[None]:
    def page(body: bytes) -> Handler:
        return lambda _: Response(body, headers=headers)

    handlers = {target: page(body) for target, body in pages.items()}
    server = Server(handlers, name="agent")
    server.listen_unix(run_dir / "agent-0.sock")
    server.start()
    try:
        yield
    finally:
        server.stop()


OVERVIEW = {
    "schema": 1,
    "process": dict.fromkeys(("program", "jax", "jaxmon", "python", "pid"), HOSTILE),
    "functions": {
        HOSTILE: {
            "calls": 9,
            "misses": 5,
            "compiles": {HOSTILE: 3},
            "recompiles": {HOSTILE: 3},
            "errors": {HOSTILE: 3},
            "phases": {HOSTILE: {"seconds": 3}},
            "determinism": {"not_repeated": HOSTILE},
        }
    },
    "hooks": {HOSTILE: False},
    "internal_errors": {HOSTILE: 3},
    "cache": {
        "enabled": True,
        "directory": HOSTILE,
        "obstacles": [dict.fromkeys(("reason", "message", "advice"), HOSTILE)],
    },
    "memory": {"devices": [{"device": HOSTILE, "kind": HOSTILE, "in_use": 1}]},
    "allocations": {"lines": [{"file": HOSTILE, "line": 3, "function": HOSTILE}]},
    "transfers": {"lines": [{"file": HOSTILE, "line": 3, "direction": HOSTILE}]},
    "errors": {"oom_reports": [HOSTILE]},
}
EVENTS = {
    "events": [
        {
            "number": 1,
            "time": 1.0,
            "kind": kind,
            "function": HOSTILE,
            "message": HOSTILE,
            "details": {"cause": HOSTILE, "differences": [{"text": HOSTILE}]},
        }
        for kind in ("recompile", HOSTILE)
    ]
}


def test_explain_of_an_agent_with_words(run_dir):
    """The report is harmless, and the same as JSON says all."""
    pages = {
        "/debug/overview": json.dumps(OVERVIEW).encode(),
        "/debug/events": json.dumps(EVENTS).encode(),
    }
    with agent(run_dir, pages):
        text = CliRunner().invoke(main, ["explain"])
        form = CliRunner().invoke(main, ["explain", "--json"])
    assert (text.exit_code, form.exit_code) == (0, 0)
    assert harmful(text.output + form.output) == []
    assert json.loads(form.stdout)["overview"] == OVERVIEW


def test_profile_of_an_agent_with_words(run_dir, tmp_path, monkeypatch):
    """Names in a trace and the reason why it is short come from the program."""
    plane = xspace.Plane
    words = HOSTILE.replace("\ud800", "")
    code = Code({"here": [(words, 3, words)]})
    code.computation(
        code.instruction(words, "dot", stack="here", path=f"jit(f)/{words}/{words}")
    )
    events = (xspace.TraceEvent(words, 0, 10, words, words, 1),)
    planes = (plane(words, (xspace.TraceLine(words, 0, events),)),)
    found = xspace.Space(planes, {1: code.proto(words)})
    monkeypatch.setattr(xspace, "parse", lambda _: found)
    odd = "x\x1b[31m\x9b2J"
    short = {"jaxmon-cut-short": odd, "jaxmon-without-programs": odd}
    pages = {
        "/debug/overview": json.dumps(OVERVIEW).encode(),
        "/debug/profile": b"",
        "/debug/functions": json.dumps({"functions": {HOSTILE: {}}}).encode(),
    }
    with agent(run_dir, pages, **short):
        text = CliRunner().invoke(
            main, ["profile", "--out", str(tmp_path / HOSTILE[:9])]
        )
        form = CliRunner().invoke(main, ["profile", "--json", "--out", str(tmp_path)])
    assert (text.exit_code, form.exit_code) == (0, 0), text.output
    assert harmful(text.output + form.output) == []
    assert json.loads(form.stdout)["operations"][0]["operation"] == words
