"""
``jaxmon runbook``: what to do when an alert fires, without a browser.
"""

from __future__ import annotations

import difflib

import click

from jaxmon.errors import CommandError


@click.group
def command() -> None:
    """
    Read what to do when an alert fires.
    """


@command.command("list")
def list_names() -> None:
    """
    List the runbooks: alert, and what it means.
    """
    from jaxmon.artifacts import runbooks

    names = runbooks.names()
    width = max(map(len, names), default=0)
    for name in names:
        click.echo(f"{name:{width}}  {runbooks.summary(name)}")


@command.command(epilog="\b\nExample:\n  jaxmon runbook show JaxmonRecompileStorm")
@click.argument("name")
def show(name: str) -> None:
    """
    Print the runbook of the alert NAME.
    """
    from jaxmon.artifacts import runbooks

    found = {one.lower(): one for one in runbooks.names()}
    for spelling in (name.lower(), f"jaxmon{name.lower()}"):
        if spelling in found:
            click.echo(runbooks.read(found[spelling]), nl=False)
            return
    close = difflib.get_close_matches(name, found.values(), 3, 0.4)
    hint = f"similar are {', '.join(close)}" if close else "see: jaxmon runbook list"
    msg = f"no runbook {name!r}; {hint}"
    raise CommandError(msg)
