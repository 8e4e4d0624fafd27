"""
Entry points: find the subcommand, load it, turn its errors into messages.
"""

from __future__ import annotations

import errno
import io
import sys
from importlib import import_module
from typing import NoReturn

import click

from jaxmon.errors import CommandError, JaxmonError
from jaxmon.version import version


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

COMMANDS = {
    "run": "jaxmon.cli.run",
    "explain": "jaxmon.cli.explain",
    "exporter": "jaxmon.cli.exporter",
    "demo": "jaxmon.cli.demo",
    "profile": "jaxmon.cli.profile",
    "doctor": "jaxmon.cli.doctor",
    "alerts": "jaxmon.cli.alerts",
    "baseline": "jaxmon.cli.baseline",
    "runbook": "jaxmon.cli.runbook",
    "dashboards": "jaxmon.cli.dashboards",
    "generate": "jaxmon.cli.generate",
}


def load(name: str) -> click.Command:
    """
    Return the subcommand *name*, a key of `COMMANDS`.
    """
    command: click.Command = import_module(COMMANDS[name]).command
    return command


class _Commands(click.Group):
    """
    Subcommands that are imported when they are looked up.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return load(cmd_name) if cmd_name in COMMANDS else None

    def invoke(self, ctx: click.Context) -> object:
        _accept_any_text()
        try:
            return super().invoke(ctx)
        except JaxmonError as error:
            _fail(error)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            _fail(CommandError(f"cannot write: {error.strerror}"))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), "-V", "--version", prog_name="jaxmon")
def main() -> None:
    """
    Observability for JAX: compiles, cache hits, recompiles, device memory.

    \b
    In a program:         import jaxmon; jaxmon.instrument()
    Without touching it:  jaxmon run train.py
    Beside it:            jaxmon exporter
    Ask one that runs:    jaxmon explain
    """


def exporter() -> None:
    """
    Run ``jaxmon exporter`` under its own name, ``jaxmon-exporter``.
    """
    try:
        load("exporter").main(prog_name="jaxmon-exporter")
    except JaxmonError as error:
        _fail(error)


def _accept_any_text() -> None:
    """
    Have a question mark written for what the terminal's encoding lacks: a report
    with a few of them is better than none.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(error: JaxmonError) -> NoReturn:
    """
    Say what went wrong and exit, with the code that a `CommandError` asks for.
    """
    click.echo(f"Error: {error}", err=True)
    sys.exit(error.exit_code if isinstance(error, CommandError) else 1)
