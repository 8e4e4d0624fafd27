"""What commands do with a file that is none, or has no end."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.fakes.grafana_rows import TOKEN
from tests.helpers.dashboards import ONCALL
from tests.helpers.processes import Result, some


BASELINE = {"schema": 1, "versions": {}, "functions": {}}
GRAFANA = ("--url", "http://127.0.0.1:1")

COMMANDS = {
    "token": ("dashboards", "push", *GRAFANA, "--token-file", "FILE"),
    "certificates": ("dashboards", "push", *GRAFANA, "--ca-file", "FILE"),
    "dashboard": ("dashboards", "push", *GRAFANA, "FILE"),
    "baseline": ("baseline", "compare", "FILE", "--from", "FILE"),
    "objectives": ("alerts", "check", "FILE"),
    "prices": ("exporter", "--prices", "FILE"),
    "web": ("exporter", "--web-config", "FILE"),
}


def run(name: str, file: Path) -> Result:
    """Run the command *name* on *file*."""
    words = [str(file) if word == "FILE" else word for word in COMMANDS[name]]
    token = None if name == "token" else TOKEN
    done = CliRunner().invoke(main, words, env={"GRAFANA_TOKEN": token})
    assert isinstance(done.exception, SystemExit)
    return Result(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def piped() -> Iterator[Callable[[str], str]]:
    """Return a function that names a pipe with some text, as ``<(...)`` does."""
    with ExitStack() as stack:

        def pipe(text: str) -> str:
            reading, writing = os.pipe()
            stack.callback(os.close, reading)
            os.write(writing, text.encode())
            os.close(writing)
            return f"/dev/fd/{reading}"

        yield pipe


@pytest.mark.parametrize("name", some(COMMANDS, 3))
def test_a_device_without_end_is_refused(name: str) -> None:
    """At once, with a line that names it and what is wanted."""
    done = run(name, Path("/dev/zero"))

    assert done.code in {1, 2}
    assert done.err.startswith("Error: ")
    assert "/dev/zero" in done.err
    assert "is a device, not a regular file" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("name", some(COMMANDS, 3))
def test_a_pipe_that_nobody_writes_to_is_no_wait_for_ever(monkeypatch, tmp_path, name):
    """Some commands take a pipe, and wait for it for half a minute."""
    monkeypatch.setattr("jaxmon.host.files.bounded.PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")

    done = run(name, tmp_path / "pipe")

    assert done.code in {1, 2}
    assert "is a pipe" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("name", some(COMMANDS, 3))
def test_a_file_that_is_too_large_is_refused(tmp_path: Path, name: str) -> None:
    """As a whole: nothing is made of its beginning."""
    with (tmp_path / "large").open("wb") as file:
        file.write(TOKEN.encode() + b"\n")
        file.truncate(100 << 20)

    done = run(name, tmp_path / "large")

    assert done.code in {1, 2}
    assert "too large" in done.err
    assert done.err.count("\n") == 1


def test_process_substitution_goes_on_working(make_site, piped):
    """A token, a dashboard and a baseline come through pipes."""
    site = make_site()
    token, dashboard = piped(TOKEN), piped(json.dumps(ONCALL))

    done = site.push("--token-file", token, files=(dashboard,))

    assert done.code == 0, done.err
    assert list(site.grafana.rows) == [ONCALL["uid"]]
    baseline = json.dumps(BASELINE)
    words = ("baseline", "compare", piped(baseline), "--from")
    compared = CliRunner().invoke(main, [*words, piped(baseline)])
    assert compared.exit_code == 0, compared.output
