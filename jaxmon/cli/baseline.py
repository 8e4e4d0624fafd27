"""
``jaxmon baseline``: record what functions cost to compile, and detect regressions.
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

    Recorded per function: compiles, recompiles, programs, compile seconds, and FLOPs,
    bytes, fusions and instructions of its latest program. A COMMAND is a script, -m, -c
    or a program, and runs without JAX's persistent cache.
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
    Run COMMAND and record its measures in FILE.

    If COMMAND fails, FILE is unchanged and its exit code is returned.
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
  0 no regression
  1 a measure grew by more than its tolerance
  2 invalid files or options
  otherwise, COMMAND's exit code if it fails
"""
)
@click.option(
    "--from",
    "other",
    type=click.Path(path_type=Path),
    help="Compare with this recorded file instead of running a command.",
)
@click.option(
    "--tolerance",
    "given",
    multiple=True,
    metavar="MEASURE=VALUE",
    help="Allowed growth of a measure: 5%, 2, 50%+0.5 or off. Repeatable.",
)
@click.option(
    "--strict", is_flag=True, help="Treat new and missing functions as regressions."
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
    """Run COMMAND and compare its measures with those in FILE."""
    from jaxmon.baseline.compare import compare as compared
    from jaxmon.baseline.figures import tolerances
    from jaxmon.baseline.record import read
    from jaxmon.baseline.table import lines

    if (other is None) != bool(words):
        msg = "give either a command after --, or a recorded file with --from"
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
    """
    Run the command *words* and return its measures; if it fails, exit with its code.
    """
    from jaxmon.baseline.run import run
    from jaxmon.cli.run import interpreter_options

    done = run(words, [sys.executable, *interpreter_options(sys.orig_argv, sys.argv)])
    if done.code:
        output.line(
            f"the command failed with exit code {done.code}; nothing was recorded "
            "or compared",
            err=True,
        )
        sys.exit(done.code)
    if not done.record.functions:
        msg = (
            "the command recorded nothing: it compiled nothing, its Python lacks "
            "jaxmon, or it exited through os._exit()"
        )
        raise BaselineError(msg)
    return done.record


@contextmanager
def _as_misuse() -> Iterator[None]:
    try:
        yield
    except JaxmonError as error:
        raise CommandError(str(error), exit_code=_MISUSE) from error
