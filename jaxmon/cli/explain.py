"""``jaxmon explain``: what slows a running process down, and what to do about it."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import output
from jaxmon.cli.limits import LIMITS, limits_of
from jaxmon.cli.options import RUN_DIR, Number
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.judged import Judged
    from jaxmon.cli.painted import Painted
    from jaxmon.cli.workers import AgentProcess


_SCHEMA = 1
_EVERY = 5.0
_LEAST_LINES = 12
# Home, and clear from there: nothing scrolls, and nothing is left of a longer report.
_CLEAR = "\x1b[H\x1b[2J"


@click.command(
    epilog="""
\b
Exit codes:
  0 the report was printed, whatever it contains
  1 no instrumented process is running, or it does not respond
  2 WORKER names none or several; --json without WORKER or --all, and several run

\b
Examples:
  jaxmon explain
  jaxmon explain train.py --watch
  jaxmon explain --stacks
  jaxmon explain 3 --json | jq '.findings[].verdict'
"""
)
@click.argument("worker", required=False)
@click.option(
    "--all", "everyone", is_flag=True, help="Every process, the worst first, in brief."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--stacks", "only_stacks", is_flag=True, help="Print the stacks of its threads."
)
@click.option("--watch", is_flag=True, help="Print it again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=Number(1, 3600),
    default=_EVERY,
    show_default=True,
    help="Seconds between two reports of --watch.",
)
@click.option(
    "--color/--no-color",
    "colour",
    default=None,
    help="Whether to use colours; default: on a terminal, unless NO_COLOR is set.",
)
@RUN_DIR
@LIMITS
@click.pass_context
def command(
    context: click.Context,
    *,
    worker: str | None,
    everyone: bool,
    as_json: bool,
    only_stacks: bool,
    watch: bool,
    every: float,
    colour: bool | None,
    run_dir: Path | None,
) -> None:
    """
    Explain a running process: where its time goes, what it recompiles and why, which
    source lines hold device memory or block on transfers, and why the persistent cache
    misses.

    WORKER is the process's number, as in the `worker` label, its pid, or its name: that
    of its script or module, or the beginning of its command line. If several are
    running and none is given, the worst finding of each is printed. The processes keep
    running meanwhile.
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
    for _ in itertools.count():
        if clears:
            output.control(_CLEAR)
        else:
            output.line(time.strftime("── %H:%M:%S"), err=True)
        try:
            show()
        except CommandError as error:
            output.line(f"Error: {output.short(error.message)}", err=True)
            output.lines(map(output.short, error.details), err=True)
        time.sleep(every)


def _chosen(
    worker: str | None, run_dir: Path | None, *, everyone: bool
) -> list[AgentProcess]:
    """
    Return the processes to explain, several only for *everyone*.

    Raises:
        CommandError: none or several fit, or the one does not respond.
    """
    from jaxmon.cli.selection import candidates, pick

    return candidates(None, run_dir) if everyone else [pick(worker, run_dir)]


def _show(worker: str | None, run_dir: Path | None, *, everyone: bool) -> None:
    from jaxmon.cli.judged import judged
    from jaxmon.cli.selection import candidates, pick

    if everyone or worker is None:
        workers = candidates(None, run_dir)
        if everyone or len(workers) > 1:
            found = judged(workers, limits_of(run_dir))
            _paint(_in_brief(found) if everyone else _verdicts(found))
            return
    _show_one(pick(worker, run_dir), run_dir)


def _show_one(worker: AgentProcess, run_dir: Path | None) -> None:
    from jaxmon.cli.painted import painted
    from jaxmon.screens.text import explanation

    snapshot, findings, _ = _evaluated(worker, run_dir)
    width = output.report_width()
    lines = explanation(snapshot, findings, worker=worker.number, width=width)
    _paint(painted(lines, findings))


def _paint(lines: Iterable[Painted]) -> None:
    for one in lines:
        output.line(one.text, colour=one.colour, bold=one.bold)


def _in_brief(found: Sequence[Judged]) -> Iterator[Painted]:
    """Yield one screen on each process."""
    from jaxmon.cli.painted import BLANK, BROKEN, Painted, painted
    from jaxmon.cli.selection import of_kernel
    from jaxmon.screens.text import screen

    width = output.report_width()
    height = max(shutil.get_terminal_size().lines - 1, _LEAST_LINES)
    for number, one in enumerate(found):
        if number:
            yield BLANK
        if one.worker.trouble:
            yield Painted(f"worker {one.worker.description}", BROKEN, bold=True)
            for line in of_kernel(one.worker)[: height - 1]:
                yield Painted(f"  {line}")
        else:
            lines = screen(
                one.snapshot,
                one.findings,
                worker=one.worker.number,
                width=width,
                height=height,
            )
            yield from painted(lines, one.findings)


def _verdicts(found: Sequence[Judged]) -> Iterator[Painted]:
    """Yield the worst finding of each process, and how to read on."""
    from jaxmon.cli.painted import BLANK, BROKEN, COLOURS, Painted
    from jaxmon.host.formats.layout import counted, duration, shortened, wrapped
    from jaxmon.screens.text import heading
    from jaxmon.symptoms.findings import NOTHING, about, verdict

    width = output.report_width()
    yield Painted(
        f"{len(found)} instrumented processes are running here, the worst first."
    )
    for one in found:
        yield BLANK
        process, age = one.snapshot.process, one.worker.age
        if one.worker.trouble:
            text = shortened(f"worker {one.worker.description}", width)
            yield Painted(text, BROKEN, bold=True)
            continue
        since = "" if age is None else f" · for {duration(age)}"
        title = heading(process, one.worker.number, width - len(since)) + since
        yield Painted(title, bold=True)
        text, colour = verdict(one.findings), None
        if not text:
            text = one.findings[0].verdict
            colour = COLOURS.get(about(one.findings[0]).urgency)
        for line in wrapped(text, width, first="  ", rest="  "):
            yield Painted(line, colour)
        if (rest := len(one.findings) - 1) > 0 and text != NOTHING:
            yield Painted(f"  and {counted(rest, 'further finding')}")
    first = found[0].worker.number
    yield BLANK
    yield Painted(f"One of them: jaxmon explain {first}. All: jaxmon explain --all.")


def _show_json(worker: str | None, run_dir: Path | None, *, everyone: bool) -> None:
    if not everyone:
        chosen = _chosen(worker, run_dir, everyone=False)[0]
        _, findings, events = _evaluated(chosen, run_dir)
        output.document(_document(chosen, findings, events))
        return
    from jaxmon.cli.judged import judged

    found = judged(_chosen(None, run_dir, everyone=True), limits_of(run_dir))
    processes = [
        {
            "worker": one.worker.number,
            "pid": one.worker.pid,
            "trouble": one.worker.trouble,
        }
        if one.worker.trouble
        else {"trouble": "", **_document(one.worker, one.findings, one.events)}
        for one in found
    ]
    output.document({"schema": _SCHEMA, "processes": processes})


def _document(
    worker: AgentProcess, findings: Sequence[Any], events: Any
) -> dict[str, Any]:
    from jaxmon.facts.record import encoded
    from jaxmon.symptoms.findings import as_fact

    return {
        "schema": _SCHEMA,
        "worker": worker.number,
        "pid": worker.pid,
        "findings": [encoded(as_fact(one)) for one in findings],
        "overview": worker.overview,
        **events,
    }


def _evaluated(
    worker: AgentProcess, run_dir: Path | None
) -> tuple[Any, list[Any], Any]:
    """Return what *worker* reports, the findings, and the events."""
    from jaxmon.cli.workers import neighbours
    from jaxmon.facts.process import read
    from jaxmon.symptoms.compiles import is_worth_comparing
    from jaxmon.symptoms.findings import find

    events = worker.fetch("/debug/events")
    limits = limits_of(run_dir)
    snapshot = read(worker.overview, events, limits)
    others = neighbours(worker, run_dir) if is_worth_comparing(snapshot) else []
    return snapshot, find(snapshot, [read(one) for one in others]), events


def _show_stacks(
    worker: str | None, run_dir: Path | None, *, everyone: bool, as_json: bool
) -> None:
    from jaxmon.cli.selection import of_kernel
    from jaxmon.screens.stacks import stacks

    found = _chosen(worker, run_dir, everyone=everyone)
    pages = [(one, {} if one.trouble else one.fetch("/debug/stacks")) for one in found]
    if as_json:
        documents = [
            {"schema": _SCHEMA, "worker": one.number, **page} for one, page in pages
        ]
        output.document(
            {"schema": _SCHEMA, "processes": documents} if everyone else documents[0]
        )
        return
    width = output.report_width()
    for number, (one, page) in enumerate(pages):
        if everyone:
            output.lines([*([""] if number else []), f"worker {one.description}", ""])
        output.lines(of_kernel(one) if one.trouble else stacks(page, width))
