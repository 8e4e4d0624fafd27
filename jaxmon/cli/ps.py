"""``jaxmon ps``: the observed processes of this host, and how they are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import options, output
from jaxmon.cli.servers import ACCESS, Access
from jaxmon.errors import CommandError
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    clean,
    counted,
    duration,
    table,
    wrapped,
)
from jaxmon.screens.section import Fields, number, tabulated, words


if TYPE_CHECKING:
    from jaxmon.cli.host import ProcessView
    from jaxmon.facts.ending import ProcessEnd
    from jaxmon.facts.status import Summary

_SCHEMA = 1
_NONE = 1
_WIDE = 110
_INDENT = " " * 7
_COLOURS = {"failing": "red", "degraded": "yellow", "fine": "green"}


def _command(process: ProcessView) -> str:
    return clean(process.command) or UNKNOWN


def _label(process: ProcessView) -> str:
    return clean(process.label) or UNKNOWN


def _devices(process: ProcessView) -> str:
    kinds = [
        clean(device.kind or device.platform) for device in process.summary.devices
    ]
    if not kinds:
        return clean(process.agent.platform or "") or UNKNOWN
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


_PROCESSES: Fields[ProcessView] = (
    words("WORKER", 7, lambda process: clean(process.number)),
    words("RANK", 6, lambda process: process.job_rank),
    number("PID", 8, lambda process: process.agent.pid, str),
    number("AGE", 14, lambda process: process.agent.age, duration),
    (Column("", 2), lambda _: ""),
    words("STATE", 9, lambda process: process.condition),
    words("RATE", 16, lambda process: process.rate),
    words("COMMAND", 32, _command),
    words("JAX", 8, lambda process: clean(process.agent.jax or UNKNOWN)),
    words("DEVICES", 0, _devices),
)


@options.subcommand()
def command(
    *,
    as_json: bool = options.OF_PROCESS,
    ended: bool = options.flag(),
    seconds: float = options.option(options.Number(0, 60), default=1.0),
    url: str | None = options.option(options.BASE_URL),
    run_dir: Path | None = options.JUDGED_RUN_DIR,
    access: Access = ACCESS,
) -> None:
    """
    List the observed processes of a host, and how they are.

    Each has a row: its slot (the `worker` label), its rank in a job of several, pid,
    age, state, requests or steps a second, and command. Slots are taken as processes
    start, and are no ranks. Below a row stands what is wrong. A process that crashed,
    or "ended" without a record, is listed until another takes its slot. One that does
    not respond is "stuck?", one that SIGSTOP stopped is "stopped".

    Options:
        ended: Also list processes that finished, were stopped, or were replaced.
        seconds: How long to count requests and steps.
        url: Ask this sidecar, of another host or container, instead of the agents.

    Exit codes:
      0 there are processes
      1 there are none, or run directory or sidecar cannot be read

    Examples:
      jaxmon ps
      jaxmon ps --url http://host-1:9467
      jaxmon ps --json | jq '.processes[] | select(.state != "running")'
    """
    from jaxmon.cli.host import Sidecar
    from jaxmon.cli.workers import directory_of, nothing_runs
    from jaxmon.host import rundir

    if url is not None and ended:
        msg = "--ended reads the run directory, and --url a sidecar; omit one"
        raise click.UsageError(msg)
    if url is not None:
        directory = run_dir or rundir.locate()
        summary, processes = Sidecar(access.session("sidecar", url), url).processes()
    else:
        directory = directory_of(run_dir, past=ended)
        summary, processes = _read(directory, seconds)
    finished = _finished(directory, processes) if ended else []
    if as_json:
        output.document(_document(summary, processes, finished))
    elif processes or finished:
        window = f"{seconds:g} s" if url is None else "minute"
        _show(summary, processes, finished, window)
    if url is None and run_dir is None and not os.environ.get("JAXMON_RUN_DIR"):
        output.lines(_of_others(directory), err=True)
    if not processes and url is not None:
        msg = f"no instrumented process is running on the host of {url}"
        raise CommandError(msg, exit_code=_NONE)
    if not processes:
        raise nothing_runs(directory)


def _read(directory: Path, seconds: float) -> tuple[Summary, list[ProcessView]]:
    from jaxmon.cli.host import HostReader, Sockets
    from jaxmon.cli.workers import hints, wait_for_start

    host = HostReader(Sockets(directory), options.limits_of(directory))
    host.poll()
    if not host.processes() and wait_for_start(directory):
        host.poll()
    if found := host.processes():
        if not any(process.agent.up for process in found):
            output.lines(hints(directory), err=True)
        time.sleep(seconds)
        host.poll()
        host.judge()
    return host.summary(), host.processes()


def _show(
    summary: Summary,
    processes: Sequence[ProcessView],
    finished: Sequence[tuple[str, ProcessEnd]],
    window: str,
) -> None:
    from jaxmon.facts.ending import IN_ORDER
    from jaxmon.facts.recent import YOUNG
    from jaxmon.symptoms.job import WAITED_FOR, is_held_up

    width = output.report_width()
    answer = summary.answer
    colour = _COLOURS.get(answer.state)
    for line in wrapped(clean(f"{answer.question} {answer.text}"), width):
        output.line(line, colour=colour)
    output.lines([*wrapped(clean(answer.advice), width), ""])
    fields = _PROCESSES
    if any(process.agent.release for process in processes):
        release: Fields[ProcessView] = (
            words("RELEASE", 12, lambda of: clean(of.agent.release) or UNKNOWN),
        )
        fields = (*fields[:-2], *release, *fields[-2:])
    if width < _WIDE:
        fields = (*_PROCESSES[:7], words("COMMAND", 0, _label))
    rows = [
        *tabulated("", fields, processes).rows,
        *(row[: len(fields)] for row in _ended_rows(finished)),
    ]
    if not any(process.job_rank for process in processes):
        fields = (fields[0], *fields[2:])
        rows = [[row[0], *row[2:]] for row in rows]
    layout = [column for column, _ in fields]
    lines = table(layout, rows, width=width, indent="")
    output.line(lines[0])
    for process, line in zip(processes, lines[1:], strict=False):
        output.line(line)
        verdict, colour = clean(process.verdict), _COLOURS.get(process.state)
        for text in wrapped(verdict, width, first=_INDENT, rest=_INDENT):
            output.line(text, colour=colour)
        because = clean(process.because)
        output.lines(wrapped(because, width, first=_INDENT, rest=_INDENT))
    for (_, end), line in zip(finished, lines[len(processes) + 1 :], strict=True):
        text = clean(end.sentence) if end.stop or end.ended not in IN_ORDER else ""
        output.lines([line, *wrapped(text, width, first=_INDENT, rest=_INDENT)])
    agents = [process.agent for process in processes]
    if any(is_held_up(agent.rank, agent.findings or ()) for agent in agents):
        output.lines(["", WAITED_FOR])
    if any(process.rate != UNKNOWN for process in processes):
        text = (
            f"Rates are those of the last {window}. If a process younger than "
            f"{YOUNG:.0f} s did little in it, they are those since its start."
        )
        output.lines(["", *wrapped(text, width)])


def _ended_rows(finished: Sequence[tuple[str, ProcessEnd]]) -> Iterator[list[str]]:
    from jaxmon.facts.endings import age_of
    from jaxmon.screens.programs import without_interpreter

    for worker, end in finished:
        age = age_of(end)
        yield [
            *(worker, ""),
            str(end.pid or UNKNOWN),
            UNKNOWN if age is None else duration(age),
            *("", "ended", UNKNOWN),
            clean(without_interpreter(end.program)) or UNKNOWN,
            *(UNKNOWN, UNKNOWN, UNKNOWN),
        ]


def _finished(
    directory: Path, processes: Sequence[ProcessView]
) -> list[tuple[str, ProcessEnd]]:
    from jaxmon.facts import endings
    from jaxmon.facts.ending import IN_ORDER

    running = {process.number for process in processes}
    over = [
        (worker, end)
        for worker, end in endings.ends(directory).items()
        if worker not in running and end.ended in IN_ORDER
    ]
    return [*endings.replaced(directory).items(), *over]


def _of_others(directory: Path) -> Iterator[str]:
    from jaxmon.host import rundir

    for path, count in rundir.of_others(os.getuid()).items():
        if path == directory:
            continue
        if count is None:
            yield f"{path}: another user's, who can list it, as can root"
        else:
            listed = f"jaxmon ps --run-dir {path}"
            yield f"{path}: {counted(count, 'process')} of another user: {listed}"


def _document(
    summary: Summary,
    processes: Sequence[ProcessView],
    finished: Sequence[tuple[str, ProcessEnd]],
) -> dict[str, Any]:
    from jaxmon.facts.endings import age_of
    from jaxmon.facts.record import encoded

    return {
        "schema": _SCHEMA,
        "answer": encoded(summary.answer),
        "processes": [
            *(
                {
                    "worker": process.number,
                    "rank": process.agent.rank.index,
                    "ranks": process.agent.rank.count,
                    "pid": process.agent.pid,
                    "command": process.agent.program,
                    "age_seconds": process.agent.age,
                    "state": process.condition,
                    "release": process.agent.release,
                    "jax": process.agent.jax,
                    "devices": [
                        {"platform": of.platform, "kind": of.kind}
                        for of in process.summary.devices
                    ],
                    "requests_per_second": process.requests,
                    "steps_per_second": process.steps,
                    "users": process.state,
                    "verdict": process.verdict,
                    "because": process.because,
                }
                for process in processes
            ),
            *(
                {
                    "worker": worker,
                    "pid": end.pid or None,
                    "command": end.program,
                    "state": "ended",
                    "verdict": end.sentence,
                    "ended_seconds_ago": age_of(end),
                }
                for worker, end in finished
            ),
        ],
    }
