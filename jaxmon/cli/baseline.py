"""
``jaxmon baseline``: keep what functions cost to compile, and notice when it grows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.errors import BaselineError, CommandError, JaxmonError


if TYPE_CHECKING:
    from jaxmon.baseline.record import Record

_MISUSE = 2


@click.group
def command() -> None:
    """
    Record what a program costs to compile, and compare.

    Kept by function: compiles, recompiles, programs, compile seconds, and of its
    newest program FLOPs, bytes, fusions and instructions. A COMMAND is a script, -m,
    -c or a program, and runs without JAX's persistent cache.
    """


@command.command(
    epilog="""
\b
Examples:
  jaxmon baseline record baseline.json -- train.py --steps 10
  jaxmon baseline record baseline.json -- -m pytest tests
"""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True)
def record(*, file: Path, words: tuple[str, ...]) -> None:
    """
    Run COMMAND and keep its figures in FILE.

    A COMMAND that fails leaves FILE as it is; its exit code is passed on.
    """
    from jaxmon.baseline.record import check_writable, write

    with _as_misuse():
        check_writable(file)
        found = _run(words)
        write(found, file)
    count = len(found.functions)
    noun = "function" if count == 1 else "functions"
    output.line(f"{file}: {count} {noun}", err=True)


@command.command(
    epilog="""
\b
Examples:
  jaxmon baseline compare baseline.json -- train.py --steps 10
  jaxmon baseline compare --tolerance fusions=2 --tolerance flops=off \\
      baseline.json -- train.py --steps 10
  jaxmon baseline compare baseline.json --from another.json

\b
Exit codes:
  0  no regression
  1  a figure grew by more than its tolerance
  2  the files or options cannot be used
  otherwise, that of COMMAND, if it fails
"""
)
@click.option(
    "--from",
    "other",
    type=click.Path(path_type=Path),
    help="Compare this recorded file; run nothing.",
)
@click.option(
    "--tolerance",
    "given",
    multiple=True,
    metavar="FIGURE=VALUE",
    help="How much a figure may grow: 5%, 2, 50%+0.5 or off. Can be repeated.",
)
@click.option(
    "--strict", is_flag=True, help="New and vanished functions are regressions, too."
)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1)
def compare(
    *,
    other: Path | None,
    given: tuple[str, ...],
    strict: bool,
    file: Path,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND and compare its figures with those in FILE."""
    from jaxmon.baseline.compare import compare as compared
    from jaxmon.baseline.figures import tolerances
    from jaxmon.baseline.record import read
    from jaxmon.baseline.table import lines

    if (other is None) != bool(words):
        msg = "give either a command after --, or --from with a recorded file"
        raise click.UsageError(msg)
    with _as_misuse():
        allowed = tolerances(given)
        before = read(file)
        after = read(other) if other is not None else _run(words)
        comparison = compared(before, after, allowed)
    output.lines(lines(comparison, width=output.report_width()))
    if strict and (comparison.new or comparison.vanished):
        output.line("--strict: new and vanished functions are regressions")
        sys.exit(1)
    if comparison.worse:
        sys.exit(1)


def _run(words: tuple[str, ...]) -> Record:
    """Return what the command *words* cost; where it fails, exit as it did."""
    from jaxmon.baseline.run import run
    from jaxmon.cli.run import interpreter_options

    done = run(words, [sys.executable, *interpreter_options(sys.orig_argv, sys.argv)])
    if done.code:
        output.line(
            f"the command ended with exit code {done.code}: nothing is recorded or "
            "compared",
            err=True,
        )
        sys.exit(done.code)
    if not done.record.functions:
        msg = (
            "the command left no figures: it compiled nothing, or jaxmon is not "
            "installed for its Python, or it ended by os._exit()"
        )
        raise BaselineError(msg)
    return done.record


@contextmanager
def _as_misuse() -> Iterator[None]:
    try:
        yield
    except JaxmonError as error:
        raise CommandError(str(error), exit_code=_MISUSE) from error
