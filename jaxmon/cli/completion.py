"""``jaxmon completion``: the Tab key completes commands, options and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from jaxmon.cli import output
from jaxmon.cli.options import Commands, argument, subcommand


# Where each shell finds it: the variable and the default of a directory, and the file.
_FILES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/jaxmon"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/jaxmon.fish"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_jaxmon"),
}
_SHELL: Any = argument(click.Choice(sorted(_FILES)), required=False)


@click.group(cls=Commands)
def command() -> None:
    """Complete commands, options and files with the Tab key."""


@subcommand(command)
def install(*, shell: str | None = _SHELL) -> None:
    """
    Install completion for a SHELL, by default that of the user.

    Writes one file, and changes no configuration of the shell. In bash it takes effect
    with the package bash-completion.

    Examples:
      jaxmon completion install
      jaxmon completion install zsh
    """
    from jaxmon.host.files import whole

    name = _chosen(shell)
    variable, default, file = _FILES[name]
    path = Path(os.environ.get(variable) or Path.home() / default) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.write(path, _script(name).encode())
    output.line(path)
    if name == "zsh":
        text = f"add to ~/.zshrc, before compinit: fpath+=({path.parent})"
        output.line(text, err=True)
    output.line("It takes effect in shells that are started from now on.", err=True)


@subcommand(command)
def show(*, shell: str | None = _SHELL) -> None:
    """
    Print the script for a SHELL, by default that of the user.

    Example:
      eval "$(jaxmon completion show bash)"
    """
    output.lines(_script(_chosen(shell)))


def _chosen(shell: str | None) -> str:
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in _FILES:
        shells = ", ".join(_FILES)
        msg = f"the user's shell is {name or 'unknown'}; give one of {shells}"
        raise click.UsageError(msg)
    return name


def _script(shell: str) -> str:
    """Return what makes *shell* ask ``jaxmon`` itself, in a tenth of a second."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        msg = f"this release of click knows no completion for {shell}"
        raise click.UsageError(msg)
    asked = found(click.Group(), {}, "jaxmon", "_JAXMON_COMPLETE")
    return asked.source_template % asked.source_vars()
