"""`docs/cli.md`: the help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from jaxmon.artifacts.markdown import page
from jaxmon.artifacts.write import HEADER


PATH = "docs/cli.md"

_WIDTH = 80


def render(command: click.Command, name: str) -> str:
    """Return the page for *command* and its subcommands, as *name* prints them."""
    return page(HEADER, "# Commands", *_sections(command, name, None))


def _sections(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[str]:
    # A context of its own: width and colour must not follow the terminal.
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        color=False,
        help_option_names=["-h", "--help"],
    )
    yield f"## {context.command_path}"
    yield f"```text\n{command.get_help(context).rstrip()}\n```"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _sections(found, child, context)
