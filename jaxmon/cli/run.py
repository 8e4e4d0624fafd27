"""`jaxmon run`: run a Python program instrumented by jaxmon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jaxmon.cli.launch import is_python, launch
from jaxmon.cli.options import argument, flag, settings, subcommand
from jaxmon.errors import SettingsError, raised


@subcommand(context_settings={"allow_interspersed_args": False})
def command(
    *,
    as_module: bool = flag("-m"),
    as_code: bool = flag("-c"),
    children: bool = flag(),
    no_tcp: bool = flag(),
    chosen: dict[str, Any] = settings(
        "host",
        "port",
        "run_dir",
        "calls",
        "max_functions",
        "memory_interval",
        "report",
        "summary_dir",
    ),
    program: str = argument(),
    args: tuple[str, ...] = argument(click.UNPROCESSED, nargs=-1),
) -> None:
    """
    Run PROGRAM as `python` does, instrumented by jaxmon.

    jaxmon starts when the program imports JAX. Options override the JAXMON_* variables
    of the same name. Processes forked before JAX is imported each get their own agent.
    With --children, so do other Python processes that the program starts and that
    import JAX: workers of uvicorn, multiprocessing, subprocesses.

    Options:
        as_module: PROGRAM is a module name.
        as_code: PROGRAM is Python source.
        children: Also observe the Python processes that PROGRAM starts.
        no_tcp: Serve on the Unix socket only.

    Exit codes:
      otherwise, that of PROGRAM

    Examples:
      jaxmon run train.py --steps 1000
      jaxmon run --port 9500 -m mypackage.serve
      jaxmon run --children -m uvicorn app:app --workers 4
    """
    words = words_of(program, args, as_module=as_module, as_code=as_code)
    if is_python(program) and not (as_module or as_code):
        msg = f"jaxmon run has an interpreter itself; omit {program}: jaxmon run FILE"
        raise click.UsageError(msg)
    settings = {name: value for name, value in chosen.items() if value is not None}
    if no_tcp and "port" in settings:
        msg = "--port and --no-tcp are mutually exclusive"
        raise click.UsageError(msg)
    if no_tcp:
        settings["port"] = None
    for name in ("run_dir", "summary_dir"):
        # The program may change directory before it imports JAX.
        if directory := settings.get(name):
            settings[name] = str(Path(directory).absolute())
    with raised(click.UsageError, "", SettingsError):
        launch(words, settings, children=children)


def words_of(
    program: str, args: Sequence[str], *, as_module: bool, as_code: bool
) -> list[str]:
    """Return what Python is given to run *program*. Raises `click.UsageError`."""
    if as_module and as_code:
        msg = "-m and -c are mutually exclusive"
        raise click.UsageError(msg)
    kind = ["-m"] if as_module else ["-c"] if as_code else []
    return [*kind, program, *args]
