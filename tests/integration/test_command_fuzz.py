"""Command lines that make no sense end with a line that says so, whatever they are."""

import json
import random
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from jaxmon.cli.main import COMMANDS, load, main
from jaxmon.errors import CommandError
from tests.helpers.adversaries import HOSTILE, harmful
from tests.helpers.dashboards import ONCALL
from tests.helpers.processes import free_port, some


LINES = 40
"""For each command."""

TOKEN = "glsa_thisIsTheTokenOfTheUnitTests"  # noqa: S105 - opens nothing

WORDS = (
    *("", " ", "-", "0", "-0", "1", "-1", "7", "nan", "inf", "-inf", "1e308", "1e-320"),
    *("9" * 5000, "0x10", "1_000", "\u0661", "1e", "true", "null", "a" * 5000),
    *("%s", "{}", "../..", "$(id)", "\N{GRINNING FACE}", "\udcff", "caf\u00e9", "*=1"),
    HOSTILE.replace("\x00", "").replace("\ud800", "\udcff"),
    *("http://[", "http://h:99999", "http://a..b", "https://u:p@h", "ftp://h", "//"),
    *("=", "a=b", "H100=nan", "H100=1e999", "=1", "flops=5%", "flops=9e99%"),
    *(
        "30s",
        "{}s".format("9" * 5000),
        "/nowhere/at/all",
        "/dev/null",
        "/proc/self/mem",
    ),
)

FILES = {
    "empty": b"",
    "binary": b"\xff\xfe\x00\x01",
    "words": HOSTILE.encode("utf-8", "surrogatepass"),
    "deep.json": b"[" * 100_000,
    "deep.yaml": b"a: " + b"[" * 100_000,
    "nan.json": b'{"uid": "a", "title": "a", "x": NaN}',
    "huge.json": b'{"uid": "a", "title": "a", "x": ' + b"9" * 5000 + b"}",
    "one.json": json.dumps(ONCALL).encode(),
    "list.yaml": b"- a\n- b\n",
    "slos.yaml": b"slos:\n- name: !!int abc\n",
    "prices.yaml": b"H100: .nan\n",
    "prices.csv": b'H100,"' + b"x" * 200_000,
    "baseline.json": b'{"schema": 1, "versions": {"jax": 5}, "functions": []}',
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with files that are of no use, in which nothing is started."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "directory").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("jaxmon.cli.servers.time.sleep", lambda _: None)

    def started(*_: Any, **__: Any) -> Any:
        msg = "it would have been started"
        raise CommandError(msg)

    monkeypatch.setattr("jaxmon_exporter.service.Service", started)
    monkeypatch.setattr("jaxmon.cli.gameday.demo._start", started)
    monkeypatch.setattr("jaxmon.cli.explain._watch", started)
    monkeypatch.setattr("jaxmon.cli.gameday.command._site", started)
    monkeypatch.setattr("jaxmon.cli.launch.os.execve", started)
    monkeypatch.setattr("jaxmon.preflight.baseline.run.run", started)
    monkeypatch.setattr("jaxmon.preflight.baseline.run.instrumented", started)
    monkeypatch.setattr("jaxmon.preflight.doctor.machine.hooks", lambda _: [])
    return tmp_path


def leaves(name: str) -> list[tuple[str, ...]]:
    """Return the commands below the command *name*."""
    command = load(name)
    if isinstance(command, click.Group):
        return [(name, one) for one in command.commands]
    return [(name,)]


def parameters(words: tuple[str, ...]) -> list[click.Parameter]:
    command = load(words[0])
    if isinstance(command, click.Group):
        command = command.commands[words[1]]
    return command.params


def command_line(words: tuple[str, ...], pick: random.Random) -> list[str]:
    """Return *words* with some of their options and arguments, and values for them."""

    def value() -> str:
        return pick.choice(WORDS if pick.random() < 0.6 else [*FILES, "directory"])

    line: list[str] = list(words)
    arguments: list[str] = []
    for parameter in parameters(words):
        if isinstance(parameter, click.Option):
            wanted = 0.9 if parameter.name == "url" else 0.25
            if parameter.name == "out" or pick.random() < wanted:
                line.append(pick.choice(parameter.opts))
                if parameter.name == "url" and pick.random() < 0.7:
                    line.append(f"http://127.0.0.1:{free_port()}")
                elif not parameter.is_flag:
                    line.append(value())
        elif pick.random() < 0.7:
            arguments += [value() for _ in range(pick.choice((1, 1, 1, 2)))]
    if pick.random() < 0.1:
        line.append(f"--{value()}")
    return [*line, *(["--"] if pick.random() < 0.5 else []), *arguments]


@pytest.mark.parametrize(
    "words", some((one for name in COMMANDS for one in leaves(name)), 3), ids=" ".join
)
def test_nonsense(words, place, run_dir):
    """There is no traceback, but a documented exit code and errors of one line."""
    pick = random.Random(" ".join(words))  # noqa: S311 - the same each time
    # Each builds dashboards.
    lines = 4 if words == ("dashboards", "build") else LINES
    for _ in range(lines):
        line = command_line(words, pick)
        result = CliRunner().invoke(main, line, env={"GRAFANA_TOKEN": TOKEN})
        shown = f"{line!r:.600}\n{result.output[-2000:]}"
        ended = result.exception
        assert ended is None or isinstance(ended, SystemExit), (shown, ended)
        assert result.exit_code in range(6), shown
        assert harmful(result.output) == [], shown
        if result.exit_code in (1, 2) and words != ("doctor",):
            last = result.stderr.rstrip("\n").split("\n")
            errors = [one for one in last if one.startswith("Error: ")]
            assert len(errors) == 1, shown
            assert len(errors[0]) < 1020, shown


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN", "1e999", "Infinity"])
def test_a_number_is_one(value, place):
    """No option that takes a number takes what is none, nor one without end."""
    found = []
    for words in (one for name in COMMANDS for one in leaves(name)):
        for parameter in parameters(words):
            if isinstance(
                parameter.type, (click.types.FloatParamType, click.FloatRange)
            ):
                found.append(parameter.name)
                with pytest.raises(click.BadParameter):
                    parameter.type.convert(value, parameter, None)
    assert {"time_scale", "timeout", "seconds", "memory_interval"} <= set(found)
    assert Path.cwd() == place
