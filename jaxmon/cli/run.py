"""`jaxmon run`: run a Python program with jaxmon in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jaxmon.bootstrap import environment
from jaxmon.cli.options import Number, Whole
from jaxmon.errors import CommandError, SettingsError
from jaxmon.settings import load


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="""
\b
Exit codes:
  2  the command line or a variable is wrong
  otherwise, that of PROGRAM

\b
Examples:
  jaxmon run train.py --steps 1000
  jaxmon run --port 9500 -m mypackage.serve
""",
)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module name.")
@click.option("-c", "as_code", is_flag=True, help="PROGRAM is Python source.")
@click.option("--host", help="Address that the metrics server binds.")
@click.option("--port", type=Whole(0, 65535), help="TCP port; 0 takes any free one.")
@click.option("--no-tcp", is_flag=True, help="Serve on the Unix socket only.")
@click.option("--run-dir", help="Directory of the agents' Unix sockets.")
@click.option("--no-calls", is_flag=True, help="Do not count cached calls.")
@click.option("--max-functions", type=Whole(1, 10_000), help="Most function labels.")
@click.option(
    "--memory-interval",
    type=Number(),
    help="Seconds between looks at memory; 0 for none.",
)
@click.option("--report", is_flag=True, help="Print a summary when PROGRAM ends.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    as_module: bool,
    as_code: bool,
    host: str | None,
    port: int | None,
    no_tcp: bool,
    run_dir: str | None,
    no_calls: bool,
    max_functions: int | None,
    memory_interval: float | None,
    report: bool,
    program: str,
    args: tuple[str, ...],
) -> None:
    """
    Run PROGRAM as `python PROGRAM ARGS...` does, with jaxmon in it.

    jaxmon starts when the program imports JAX. An option wins over the JAXMON_*
    variable of the same name. Processes that the program starts run without jaxmon;
    processes that it forks before importing JAX have an agent each.
    """
    if as_module and as_code:
        msg = "-m and -c exclude each other; give one of them"
        raise click.UsageError(msg)
    if no_tcp and port is not None:
        msg = "--port and --no-tcp exclude each other; give one of them"
        raise click.UsageError(msg)
    given = {
        "host": host,
        "port": port,
        # The program may change directory before it imports JAX.
        "run_dir": run_dir and str(Path(run_dir).absolute()),
        "calls": False if no_calls else None,
        "max_functions": max_functions,
        "memory_interval": memory_interval,
        "report": report or None,
    }
    settings: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if no_tcp:
        settings["port"] = None
    try:
        load(settings)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    kind = ["-m"] if as_module else ["-c"] if as_code else []
    _become([*kind, program, *args], settings)


def _become(arguments: Sequence[str], settings: dict[str, Any]) -> None:
    """
    Replace this process by an interpreter that runs *arguments*. Does not return.

    Raises:
        CommandError: the interpreter would not listen to its environment.
    """
    if sys.flags.isolated or sys.flags.ignore_environment or sys.flags.no_site:
        msg = (
            "python -I, -E and -S keep jaxmon out of the program; run jaxmon without "
            "them, or call jaxmon.instrument() in the program"
        )
        raise CommandError(msg)
    options = interpreter_options(sys.orig_argv, sys.argv)
    os.execve(  # noqa: S606 - the user's program is what we are asked to run
        sys.executable,
        [sys.executable, *options, *arguments],
        environment(os.environ, settings),
    )


def interpreter_options(original: Sequence[str], seen: Sequence[str]) -> list[str]:
    """
    Return the options that Python itself got, from its two argument vectors.

    ``python -u -X dev -m jaxmon.cli.main run x.py`` gives ``["-u", "-X", "dev"]``.
    """
    options = list(original[1 : len(original) - len(seen)])
    if not options or not _is_module_option(options[-1]):
        return options
    *options, last = options
    return [*options, last[:-1]] if last != "-m" else options


def _is_module_option(option: str) -> bool:
    """Tell ``-m``, alone or at the end of a cluster such as ``-um``, from the rest."""
    return option.startswith("-") and option.endswith("m") and option[1:].isalpha()
