"""``jaxmon runbook``: what to do when an alert fires, without a browser."""

from __future__ import annotations

import difflib
import sys

import click

from jaxmon.cli import output
from jaxmon.errors import CommandError


@click.group
def command() -> None:
    """Read what to do when an alert fires."""


@command.command("list")
def list_names() -> None:
    """
    List the runbooks: alert, and what it means.

    Each is one line where the output goes elsewhere than to a terminal.
    """
    from jaxmon.artifacts import runbooks
    from jaxmon.report.layout import wrapped

    names = runbooks.names()
    longest = max(map(len, names), default=0)
    indent = " " * (longest + 2)
    for name in names:
        head, summary = f"{name:{longest}}  ", runbooks.summary(name)
        if output.is_terminal(sys.stdout):
            lines = wrapped(summary, output.report_width(), first=head, rest=indent)
        else:
            lines = [f"{head}{summary}"]
        output.lines(lines)


@command.command(epilog="\b\nExample:\n  jaxmon runbook show JaxmonRecompileStorm")
@click.argument("name")
def show(name: str) -> None:
    """Print the runbook of the alert NAME."""
    from jaxmon.artifacts import runbooks

    found = {one.lower(): one for one in runbooks.names()}
    for spelling in (name.lower(), f"jaxmon{name.lower()}"):
        if spelling in found:
            output.lines(runbooks.read(found[spelling]))
            return
    close = difflib.get_close_matches(name, found.values(), 3, 0.4)
    hint = f"similar are {', '.join(close)}" if close else "see: jaxmon runbook list"
    msg = f"no runbook {name!r}; {hint}"
    raise CommandError(msg)
