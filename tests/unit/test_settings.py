"""What a user may choose."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from jaxmon.cli.main import main
from jaxmon.errors import SettingsError
from jaxmon.preflight.doctor import environment
from jaxmon.settings import Settings, load
from jaxmon.testing.budget import SILENT
from jaxmon_exporter.options import SidecarOptions


def test_arguments_win_over_variables_over_defaults() -> None:
    """Each setting is looked up by itself."""
    settings = load(
        {"port": 1}, {"JAXMON_PORT": "2", "JAXMON_HOST": "::1", "JAXMON_OTHER": "x"}
    )

    assert vars(settings) == vars(Settings(port=1, host="::1"))
    with pytest.raises(AttributeError, match="the setting port is fixed"):
        settings.port = 2
    with pytest.raises(TypeError, match="no settings: prt"):
        Settings(prt=1)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("JAXMON_PORT", " 0 ", "port", 0),
        ("JAXMON_PORT", "None", "port", None),
        ("JAXMON_RUN_DIR", "/My Dir", "run_dir", "/My Dir"),
        ("JAXMON_CALLS", "OFF", "calls", False),
        ("JAXMON_ENABLED", "yes", "enabled", True),
        ("JAXMON_MEMORY_INTERVAL", "2.5", "memory_interval", 2.5),
        ("JAXMON_MAX_FUNCTIONS", "12", "max_functions", 12),
        ("JAXMON_FEW_BUCKETS", "calls, Self", "few_buckets", "calls, Self"),
    ],
)
def test_variables_are_read_by_kind(variable, text, name, value):
    """Numbers, switches, directories and ``none`` are understood."""
    assert getattr(load({}, {variable: text}), name) == value


def test_an_empty_variable_is_none() -> None:
    """Agent, sidecar and commands take it for unset."""
    empty = {f"JAXMON_{one.name.upper()}": "" for one in fields(Settings)}

    assert vars(load({}, empty)) == vars(Settings())
    found = load({"port": 1}, {**empty, "JAXMON_HOST": "::1"})
    assert vars(found) == vars(Settings(port=1, host="::1"))
    assert [one.text for one in environment.variables(empty)] == [
        "jaxmon's settings: the defaults"
    ]
    read = 0
    for option, context in options_with_variables(main, click.Context(main)):
        name = str(option.envvar)
        unset = option.consume_value(context, {})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, "")
            assert option.consume_value(context, {}) == unset, name
        read += 1
    assert read > len(fields(SidecarOptions)) // 2


def options_with_variables(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Parameter, click.Context]]:
    """Yield each option of *command*, and of those below it, that has a variable."""
    for one in command.params:
        if one.envvar:
            yield one, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (below := command.get_command(context, name)) is not None:
                inner = click.Context(below, info_name=name, parent=context)
                yield from options_with_variables(below, inner)


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        ({"prot": 1}, {}, "unknown setting 'prot'; settings are enabled, host, port"),
        ({"port": "9466"}, {}, "port='9466' is invalid; give 0 to 65535, or None"),
        ({"port": True}, {}, "port=True is invalid"),
        ({"port": 65536}, {}, "port=65536 is out of range; give 0 to 65535"),
        ({"calls": 1}, {}, "calls=1 is invalid; give True or False"),
        ({"max_functions": 0}, {}, "give 1 to 10000"),
        ({"memory_interval": 0.01}, {}, "give 0.1 to 86400"),
        ({"memory_interval": float("nan")}, {}, "memory_interval=nan is out of range"),
        ({"host": None}, {}, "host=None is invalid; give a host name or address"),
        ({}, {"JAXMON_PORT": "http"}, "JAXMON_PORT='http' is not a whole number; give"),
        ({}, {"JAXMON_LEAK_WINDOW": "1h"}, "JAXMON_LEAK_WINDOW='1h' is not a number;"),
        ({}, {"JAXMON_CALLS": "maybe"}, "JAXMON_CALLS='maybe' is not a boolean; use"),
        ({}, {"JAXMON_PORT": "-1"}, "port=-1 is out of range"),
        ({}, {"JAXMON_PORT": "\u0661"}, "is not a whole number; give one or unset it"),
        ({"host": "\x1b[31mx"}, {}, r"host='\x1b[31mx' is invalid; give a host"),
        (
            {"few_buckets": "calls;self"},
            {},
            "few_buckets='calls;self' is invalid;",
        ),
        ({}, {"JAXMON_FEW_BUCKETS": "gpus"}, "requests, self, training, separated by"),
        ({"host": "x\0y"}, {}, r"host='x\x00y' is invalid; give a host"),
        ({"host": "\udcff"}, {}, r"host='\udcff' is invalid; give a host name"),
    ],
)
def test_a_mistake_says_what_is_allowed(options, environ, message):
    """The message holds the name, what was found, and what may stand there."""
    with pytest.raises(SettingsError) as caught:
        load(options, environ)

    assert message in str(caught.value)


def test_run_dir_may_be_a_path() -> None:
    """A `pathlib.Path` is as good as its text."""
    assert load({"run_dir": Path("/run/x")}, {}).run_dir == "/run/x"


def test_silent_agent_is_given_every_setting() -> None:
    """None is left to the environment of the tests that a budget counts in."""
    assert set(SILENT) == {one.name for one in fields(Settings)}
