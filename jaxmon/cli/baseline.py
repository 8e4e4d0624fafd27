"""``jaxmon baseline``: record what functions cost, and detect regressions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import AS_JSON, argument, flag, option, subcommand
from jaxmon.errors import BaselineError, JaxmonError, misuse, raised


if TYPE_CHECKING:
    from jaxmon.preflight.baseline.record import Baseline
    from jaxmon.preflight.baseline.run import Runner


@click.group
def command() -> None:
    """
    Record what a program costs to compile and run, and compare.

    For each function it records compiles, recompiles, programs, compile seconds, how
    long its calls take, and FLOPs, bytes, fusions and instructions of its latest
    program. A COMMAND is a script, -m, -c or a program. It runs several times, since
    run times differ from run to run, without JAX's persistent cache. Each program is
    waited for before the next one starts.
    """


_RUNS = option(
    click.IntRange(1, 100),
    meaning="How often a command runs at most; fewer than 5 show no slowdown.",
    default=5,
)


@subcommand(command)
def record(
    *,
    runs: int = _RUNS,
    file: Path = argument(click.Path(path_type=Path)),
    words: tuple[str, ...] = argument(
        str, metavar="-- COMMAND...", nargs=-1, required=True
    ),
) -> None:
    """
    Run COMMAND and record its measures in FILE.

    If COMMAND fails, FILE is unchanged and its exit code is returned.

    Examples:
      jaxmon baseline record baseline.json -- train.py --steps 10
      jaxmon baseline record baseline.json -- -m pytest tests
    """
    from jaxmon.preflight.baseline.record import check_writable, from_runs, write

    with raised(misuse, "", JaxmonError):
        check_writable(file)
        measure = _measure(words, runs)
        found = from_runs([measure(number) for number in range(runs)])
        write(found, file)
    count = len(found.functions)
    noun = "function" if count == 1 else "functions"
    output.line(f"{file}: {count} {noun}", err=True)


@subcommand(command)
def compare(
    *,
    other: Path | None = option(click.Path(path_type=Path), "--from"),
    old: str | None = option(str, "--against", metavar="COMMAND"),
    given: tuple[str, ...] = option(
        str, "--tolerance", multiple=True, metavar="MEASURE=VALUE"
    ),
    strict: bool = flag(),
    runs: int = _RUNS,
    as_json: bool = AS_JSON,
    words: tuple[str, ...] = argument(metavar="[FILE] [-- COMMAND...]", nargs=-1),
) -> int:
    """
    Run COMMAND and compare its measures with those in FILE.

    COMMAND runs again, up to --runs times, only while a program may turn out slower.

    Options:
        other: Compare with this recorded file instead of running a command.
        old: Run this command alternately with the other, instead of reading FILE.
        given: Allowed growth of a measure: 5%, 2, 50%+0.5 or off. Repeatable.
        strict: Treat new and missing functions as regressions.

    Examples:
      jaxmon baseline compare baseline.json -- train.py --steps 10
      jaxmon baseline compare --tolerance fusions=2 --tolerance flops=off \\
          baseline.json -- train.py --steps 10
      jaxmon baseline compare baseline.json --from another.json
      jaxmon baseline compare --against 'old/bin/python train.py' -- train.py

    Exit codes:
      0 no regression
      1 a measure grew by more than its tolerance
      2 invalid files or options
      otherwise, COMMAND's exit code if it fails
    """
    from jaxmon.limits.shared import current
    from jaxmon.preflight.baseline.compare import compare as compare_records
    from jaxmon.preflight.baseline.compare import document, lines
    from jaxmon.preflight.baseline.record import Baseline, read, tolerances
    from jaxmon.preflight.baseline.run import compare_runs

    if old is None and not words:
        msg = "give a recorded file, or a command with --against"
        raise click.UsageError(msg)
    file, command = ("", words) if old is not None else (words[0], words[1:])
    if (other is None) != bool(command) or (other is not None and not file):
        msg = "give either a command after --, or a recorded file with --from"
        raise click.UsageError(msg)
    with raised(misuse, "", JaxmonError):
        allowed = tolerances(given, current())
        before = read(Path(file)) if file else _measure(shlex.split(old or ""), runs)
        if other is not None and isinstance(before, Baseline):
            comparison = compare_records(before, read(other), allowed)
        else:
            comparison = compare_runs(before, _measure(command, runs), runs, allowed)
    text = lines(comparison, width=output.report_width())
    output.result(document(comparison), text, as_json=as_json)
    differs = strict and bool(comparison.new or comparison.vanished)
    if differs:
        reason = "--strict: new and vanished functions are regressions"
        output.line(reason, err=as_json)
    return 1 if differs or comparison.worse else 0


def _measure(words: Sequence[str], runs: int) -> Runner:
    """Return what runs the command *words* for measures, and exits if it fails."""
    from jaxmon.cli.launch import interpreted
    from jaxmon.preflight.baseline.run import run

    def measure(number: int) -> Baseline:
        if number:
            output.line(f"run {number + 1} of at most {runs}", err=True)
        code, found = run(words, interpreted())
        if code:
            failed = f"the command failed with exit code {code}"
            output.line(f"{failed}; nothing was recorded or compared", err=True)
            sys.exit(code)
        if not found.functions:
            msg = (
                "the command recorded nothing: it compiled nothing, its Python lacks "
                "jaxmon, or it exited through os._exit()"
            )
            raise BaselineError(msg)
        return found

    return measure
