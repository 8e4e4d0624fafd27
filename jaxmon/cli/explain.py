"""``jaxmon explain``: what slows a running process down, and what to do about it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import options, output
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.findings import Painted


_SCHEMA = 1
_EVERY = 5.0
_LEAST_LINES = 12


@options.subcommand()
@click.pass_context
def command(
    context: click.Context,
    *,
    worker: str | None = options.WORKER,
    everyone: bool = options.flag("--all"),
    as_json: bool = options.OF_PROCESS,
    only_stacks: bool = options.flag("--stacks"),
    watch: bool = options.flag(),
    every: float = options.option(options.Number(1, 3600), default=_EVERY),
    colour: bool | None = options.option(bool, "--color/--no-color", default=None),
    run_dir: Path | None = options.JUDGED_RUN_DIR,
) -> None:
    """
    Explain what slows a running process down, and what to do.

    It shows where the time goes, what is recompiled and why, which source lines hold
    device memory or block on transfers, and why the persistent cache misses.

    WORKER is the process's number, as in the `worker` label, its pid, or its name: that
    of its script or module, or the beginning of its command line. If several are
    running and none is given, the worst finding of each is printed. The processes keep
    running meanwhile.

    Options:
        everyone: Every process, the worst first, in brief.
        only_stacks: Print the stacks of its threads.
        watch: Print it again and again, until Ctrl-C.
        every: Seconds between two reports of --watch.
        colour: Whether to use colours; default: on a terminal, unless NO_COLOR is set.

    Exit codes:
      0 the report was printed, whatever it contains
      1 no instrumented process is running, or it does not respond
      2 WORKER names none or several; --json without WORKER or --all, and several run

    Examples:
      jaxmon explain
      jaxmon explain train.py --watch
      jaxmon explain --stacks
      jaxmon explain 3 --json | jq '.findings[].verdict'
    """
    context.color = colour
    if everyone and worker is not None:
        msg = "--all is for all processes; omit it or WORKER"
        raise click.UsageError(msg)

    def show() -> None:
        if only_stacks:
            _show_stacks(worker, run_dir, everyone=everyone, as_json=as_json)
        elif as_json:
            _show_json(worker, run_dir, everyone=everyone)
        else:
            _show(worker, run_dir, everyone=everyone)

    if watch:
        _watch(show, every, clears=not as_json and output.is_terminal(sys.stdout))
    else:
        show()


def _watch(show: Callable[[], None], every: float, *, clears: bool) -> None:
    """Call *show* until Ctrl-C; a process that is gone may come back."""
    while True:
        if clears:
            output.clear()
        else:
            output.line(time.strftime("── %H:%M:%S"), err=True)
        try:
            show()
        except CommandError as error:
            output.line(f"Error: {output.short(error.message)}", err=True)
            output.lines(map(output.short, error.details), err=True)
        time.sleep(every)


def _show(worker: str | None, run_dir: Path | None, *, everyone: bool) -> None:
    from jaxmon.cli import findings
    from jaxmon.cli.workers import candidates, directory_of, ends_beside, pick
    from jaxmon.host.formats.durations import seconds
    from jaxmon.host.formats.layout import wrapped
    from jaxmon.screens.text import explanation
    from jaxmon.symptoms.job import WAITED_FOR, is_held_up

    width, others = output.report_width(), ""
    workers = candidates(None, run_dir) if everyone or worker is None else []
    if workers:
        first, others = ends_beside(workers, directory_of(run_dir))
        for sentence in first:
            _paint(
                findings.Painted(line, findings.BROKEN)
                for line in [*wrapped(sentence, width), ""]
            )
    if everyone or len(workers) > 1:
        several = findings.judged(workers, options.limits_of(run_dir))
        height = max(shutil.get_terminal_size().lines - 1, _LEAST_LINES)
        _paint(
            findings.in_brief(several, width, height)
            if everyone
            else findings.worst(several, width)
        )
    else:
        found = findings.judge(pick(worker, run_dir), run_dir)
        text = explanation(
            found.snapshot, found.findings, worker=found.worker.number, width=width
        )
        _paint(findings.painted(text, found.findings))
        now, rank = found.snapshot.time.now, found.snapshot.process.rank
        lasts = now.seconds >= seconds(found.snapshot.limits.rank_stuck_after)
        pointed = any("`jaxmon job why`" in of.action for of in found.findings)
        waits = is_held_up(rank, found.findings) or (now.barrier and lasts)
        if waits and not pointed:
            _paint(map(findings.Painted, ["", *wrapped(WAITED_FOR, width)]))
    if others:
        _paint(map(findings.Painted, ["", *wrapped(others, width)]))


def _paint(lines: Iterable[Painted]) -> None:
    for line in lines:
        output.line(line.text, colour=line.colour, bold=line.bold)


def _show_json(worker: str | None, run_dir: Path | None, *, everyone: bool) -> None:
    from jaxmon.cli.findings import judge, judged
    from jaxmon.cli.workers import candidates, pick

    if not everyone:
        output.document(judge(pick(worker, run_dir), run_dir).as_json())
        return
    found = judged(candidates(None, run_dir), options.limits_of(run_dir))
    processes = [
        {
            "worker": process.worker.number,
            "pid": process.worker.pid,
            "trouble": process.worker.trouble,
        }
        if process.worker.trouble
        else {"trouble": "", **process.as_json()}
        for process in found
    ]
    output.document({"schema": _SCHEMA, "processes": processes})


def _show_stacks(
    worker: str | None, run_dir: Path | None, *, everyone: bool, as_json: bool
) -> None:
    from jaxmon.cli.workers import candidates, of_kernel, pick
    from jaxmon.screens.time_table import stacks

    workers = candidates(None, run_dir) if everyone else [pick(worker, run_dir)]
    pages = [
        {} if worker.trouble else worker.fetch("/debug/stacks") for worker in workers
    ]
    if as_json:
        documents = [
            {"schema": _SCHEMA, "worker": process.number, **page}
            for process, page in zip(workers, pages, strict=True)
        ]
        output.document(
            {"schema": _SCHEMA, "processes": documents} if everyone else documents[0]
        )
        return
    width = output.report_width()
    for number, (process, page) in enumerate(zip(workers, pages, strict=True)):
        # Slots are no ranks: one may have been mistaken for the other.
        if everyone or process.is_rank:
            output.lines(
                [*([""] if number else []), f"worker {process.description}", ""]
            )
        output.lines(of_kernel(process) if process.trouble else stacks(page, width))
