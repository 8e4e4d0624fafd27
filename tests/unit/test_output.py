"""What commands print."""

import io
import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from jaxmon.cli import output
from jaxmon.cli.exporter import LogFormatter
from jaxmon.cli.gameday.scene import DisplayState, SceneLog, finish
from jaxmon.cli.main import COMMANDS, main
from jaxmon.errors import CommandError, JaxmonError
from jaxmon.facts.status import Summary
from jaxmon_alerts.gameday.stack import active
from tests.helpers.adversaries import HOSTILE, harmful
from tests.helpers.processes import ROOT


TOKEN = "glsa_thisIsTheTokenOfTheUnitTests"  # noqa: S105 - opens nothing


def printed(function: Any) -> tuple[str, str]:
    """Return what *function*, as a command, prints on stdout and stderr."""
    result = CliRunner().invoke(click.command(function))
    assert result.exception is None, result.exception
    return result.stdout, result.stderr


def test_a_line_is_one_line():
    """Whatever is in it, and whatever its colour."""

    def command():
        output.line(HOSTILE)
        output.line(HOSTILE, err=True, colour="red")
        output.lines([HOSTILE, "  indented"])
        output.lines("one\ntwo\n")

    out, err = printed(command)
    assert harmful(out + err) == []
    assert len(out.splitlines()) == 5
    assert out.endswith("\n  indented\none\ntwo\n")
    assert len(err.splitlines()) == 1


def test_a_document_stays_json():
    """It is ASCII without control characters, and says what it said, secrets aside."""

    def command():
        output.hide(TOKEN)
        output.document({"a": [HOSTILE, {TOKEN: f"x{TOKEN}"}, 1, None]})

    out, _ = printed(command)
    assert out.isascii()
    assert harmful(out) == []
    assert json.loads(out) == {"a": [HOSTILE, {"[secret]": "x[secret]"}, 1, None]}


def test_secrets_end_with_their_command():
    """Another command knows nothing of them."""

    def one():
        output.hide(TOKEN, "short")
        output.line(f"{TOKEN} is short")

    def other():
        output.line(TOKEN)

    assert printed(one)[0] == "[secret] is short\n"
    assert printed(other)[0] == f"{TOKEN}\n"


@pytest.mark.parametrize(
    "error", [JaxmonError(HOSTILE), CommandError(HOSTILE, details=[HOSTILE, HOSTILE])]
)
def test_an_error_is_a_line_and_its_details(error, monkeypatch):
    """Its text cannot look like another error, nor like one more detail."""

    @click.command
    def command():
        raise error

    monkeypatch.setattr("jaxmon.cli.main.load", lambda _: command)
    result = CliRunner().invoke(main, ["run"])
    first, *rest = result.stderr.removesuffix("\n").split("\n")
    assert first.startswith("Error: a")
    assert all(one.startswith("  a") for one in rest)
    assert len(rest) == len(getattr(error, "details", ()))
    assert harmful(result.stderr) == []


@pytest.mark.parametrize(
    "words",
    [
        [HOSTILE],
        [f"--{HOSTILE}"],
        ["exporter", "--port", HOSTILE],
        ["alerts", "check", "--against", HOSTILE],
        ["alerts", "check", HOSTILE],
        ["explain", HOSTILE, "--run-dir", "/nowhere"],
        ["explain", "--run-dir", f"/{HOSTILE}"],
        ["dashboards", "push", "--url", "http://127.0.0.1", f"/{HOSTILE}"],
        ["dashboards", "push", "--url", f"http://{HOSTILE}"],
        ["dashboards", "push", "--url", "http://127.0.0.1", "--folder", HOSTILE],
        ["runbook", "show", HOSTILE],
        ["baseline", "compare", HOSTILE, "--from", HOSTILE],
        ["baseline", "compare", "--tolerance", HOSTILE, "a", "--from", "b"],
        ["baseline", "record", f"/nowhere/{HOSTILE}", "--", HOSTILE],
        ["exporter", "--prices", HOSTILE],
        ["exporter", "--price", HOSTILE],
        ["exporter", "--dcgm", HOSTILE],
        ["run", "--port", HOSTILE, "x.py"],
        ["profile", HOSTILE, "--run-dir", "/nowhere"],
    ],
)
def test_a_command_line_is_quoted_harmlessly(words, monkeypatch, tmp_path):
    """Names of files, commands and options come from users, or from their scripts."""
    monkeypatch.chdir(tmp_path)
    # No command line holds a zero byte, and of surrogates those for bytes.
    words = [one.replace("\x00", "").replace("\ud800", "\udcff") for one in words]
    result = CliRunner().invoke(main, words, env={"GRAFANA_TOKEN": TOKEN})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
    assert harmful(result.stdout + result.stderr) == []


def test_a_log_is_a_line_for_each_record():
    """What was quoted in a message cannot look like another record, nor a traceback."""
    formatter = LogFormatter("%(levelname)s %(message)s")
    try:
        int(HOSTILE)
    except ValueError as error:
        failure = type(error), ValueError(HOSTILE), error.__traceback__
    record = logging.LogRecord(
        "jaxmon", logging.WARNING, "", 0, "agent %s: %s", (0, HOSTILE), failure
    )
    first, *rest = formatter.format(record).split("\n")
    assert first.startswith("WARNING agent 0: a")
    assert all(one.startswith("  ") for one in rest)
    assert harmful("\n".join([first, *(f"x{one.strip()}" for one in rest)])) == []
    assert "Traceback" in rest[0]


class Terminal(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "terminal"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
        (None, {"TERM": "xterm"}, False),
    ],
)
def test_a_terminal_is_known_by_stream_and_environment(stream, environ, terminal):
    """Only what can be drawn on is one; a stream may be closed."""
    assert output.is_terminal(stream, environ) is terminal


def test_alerts_of_a_prometheus_that_is_none(monkeypatch):
    """What it says of them is shown in a line each."""
    from jaxmon_alerts.gameday.stack import sanitised

    now = datetime.now(UTC).isoformat()
    labels = {"alertname": HOSTILE, "severity": "page", "route": HOSTILE}
    told = sanitised([{"labels": labels, "state": "firing", "activeAt": now}])

    def command():
        shown = SceneLog({"place": HOSTILE})
        scene = DisplayState(0.0, Summary(), active(told), HOSTILE)
        shown.show(scene)
        finish(scene)

    out, _ = printed(command)
    assert harmful(out) == []


def test_no_command_prints_by_itself():
    """There is one place where text is sanitised, so there must be no other."""
    printing = re.compile(r"click\.s?echo\(|(?<![\w.])print\(|std(out|err)\.write\(")
    found = [
        path.name
        for path in sorted((ROOT / "jaxmon/cli").glob("*.py"))
        if printing.search(Path(path).read_text())
    ]
    assert found == ["output.py"]
    assert COMMANDS
