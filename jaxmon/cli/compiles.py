"""``jaxmon compiles``: what a program compiles, and what that takes."""

from __future__ import annotations

import click

from jaxmon.cli import compiles_run


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Show where the time of compiles goes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


command.add_command(compiles_run.command)
