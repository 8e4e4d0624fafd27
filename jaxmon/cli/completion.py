"""``jaxmon completion``: the Tab key completes commands, options and files."""

from __future__ import annotations

import os
from pathlib import Path

import click

from jaxmon.cli import output
from jaxmon.cli.options import argument, flag, subcommand


# Where each shell finds it: the variable and the default of a directory, and the file.
_FILES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/jaxmon"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/jaxmon.fish"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_jaxmon"),
}


@subcommand()
def command(
    *,
    shell: str | None = argument(click.Choice(sorted(_FILES)), required=False),
    show: bool = flag(),
) -> None:
    """
    Install completion with the Tab key in a shell.

    Commands, options and files are completed. SHELL is that of the user, unless given.
    Writes one file, and changes no configuration of the shell. In bash it takes effect
    with the package bash-completion.

    Options:
        show: Print the script instead.

    Examples:
      jaxmon completion
      eval "$(jaxmon completion bash --show)"
    """
    from click.shell_completion import get_completion_class

    from jaxmon.host.files import whole

    name = shell or Path(os.environ.get("SHELL", "")).name
    found = get_completion_class(name) if name in _FILES else None
    if found is None:
        shells = ", ".join(_FILES)
        msg = f"the user's shell is {name or 'unknown'}; give one of {shells}"
        raise click.UsageError(msg)
    asked = found(click.Group(), {}, "jaxmon", "_JAXMON_COMPLETE")
    script = asked.source_template % asked.source_vars()
    if show:
        output.lines(script)
        return
    variable, default, file = _FILES[name]
    path = Path(os.environ.get(variable) or Path.home() / default) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.write(path, script.encode())
    output.line(path)
    if name == "zsh":
        text = f"add to ~/.zshrc, before compinit: fpath+=({path.parent})"
        output.line(text, err=True)
    output.line("It takes effect in shells that are started from now on.", err=True)
