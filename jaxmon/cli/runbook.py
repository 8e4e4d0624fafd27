"""
``jaxmon runbook``: runbooks in the terminal.

There is one hand-written runbook per alert, shipped with the package.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from jaxmon.cli import output
from jaxmon.errors import CommandError


HEADINGS = ("Meaning", "Impact", "Diagnosis", "Mitigation")

DIRECTORY = Path(__file__).resolve().parent.parent / "runbooks"
"""A link to the directory in a source tree, the files themselves in a wheel."""


@click.group
def command() -> None:
    """Show the runbook of an alert."""


@command.command("list")
def list_names() -> None:
    """
    List the runbooks with their meaning; one line each if the output is not a terminal.
    """
    from jaxmon.report.layout import wrapped

    every = names()
    longest = max(map(len, every), default=0)
    indent = " " * (longest + 2)
    for name in every:
        head, meaning = f"{name:{longest}}  ", summary(name)
        if output.is_terminal(sys.stdout):
            lines = wrapped(meaning, output.report_width(), first=head, rest=indent)
        else:
            lines = [f"{head}{meaning}"]
        output.lines(lines)


@command.command(epilog="\b\nExample:\n  jaxmon runbook show JaxmonRecompileStorm")
@click.argument("name")
def show(name: str) -> None:
    """Print the runbook of the alert NAME."""
    found = {one.lower(): one for one in names()}
    for spelling in (name.lower(), f"jaxmon{name.lower()}"):
        if spelling in found:
            output.lines(read(found[spelling]))
            return
    close = difflib.get_close_matches(name, found.values(), 3, 0.4)
    hint = f"did you mean {', '.join(close)}?" if close else "see: jaxmon runbook list"
    msg = f"no runbook {name!r}; {hint}"
    raise CommandError(msg)


def names() -> list[str]:
    """Return the names of all runbooks, which are those of the alerts."""
    return sorted(path.stem for path in DIRECTORY.glob("*.md"))


def read(name: str) -> str:
    """Return the text of the runbook *name*, one of `names`."""
    return (DIRECTORY / f"{name}.md").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Return the first sentence of the meaning of the alert *name*."""
    _, _, meaning = read(name).partition("## Meaning")
    paragraph = " ".join(meaning.strip().partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return f"{sentence}." if dot else paragraph
