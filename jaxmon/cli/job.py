"""``jaxmon job``: judges the processes of a job together."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import options, output
from jaxmon.cli.sidecars import SIDECARS, Sidecars
from jaxmon.errors import CommandError
from jaxmon.host import rundir
from jaxmon.host.formats import durations
from jaxmon.limits import Limits


if TYPE_CHECKING:
    from jaxmon.facts.run import RunRecord
    from jaxmon.job.model import JobState, Verdict

_HUNG, _FAILED, _BROKEN, _NOTHING = 1, 1, 2, 3
_EVERY = 5.0
_COLOURS = {"hung": "red", "waiting": "yellow", "progressing": "green"}


@click.group
def command() -> None:
    """
    Judge the processes of a `jax.distributed` job together.

    docs/job.md describes what is needed for that.
    """


@options.subcommand(command)
def why(
    *,
    sidecars: Sidecars = SIDECARS,
    after: float | None = options.option(options.Number(1, 86_400)),
    stacks: bool = options.beside(options.flag(), options.LIMITS),
    watch: bool = options.flag(),
    as_json: bool = options.OF_PROCESS,
) -> int:
    """
    Say whether a job makes progress, and which rank holds it up.

    The others wait for it in a hang, or at every step; the cause is printed, too.

    Asks the sidecars of all its hosts at the same time, which were started with
    `--peer-access`, and waits --timeout seconds for all of them together. Without
    any, reads the agents of this host.

    Options:
        after: Seconds without progress that are called a hang, unless longer pauses are
            usual; by default rank_stuck_after of the limits.
        stacks: Also print the stacks of all threads, those that differ first.
        watch: Print it again and again, until Ctrl-C.

    Exit codes:
      0 all jobs make progress, are over, or wait for what may take its time
      1 a job hangs
      3 no host answered, no process of a job runs there, or it is unknown whether
        a job makes progress

    Examples:
      jaxmon job why
      jaxmon job why --targets host-1:9467,host-2:9467
      jaxmon job why --targets ranks.train.svc:9467 --scheme https --ca-file ca.pem
      jaxmon job why --file-sd targets/train.json --stacks
    """
    limits = options.limits_of(None if sidecars.local else rundir.locate())
    if after is not None:
        limits = limits.replaced(rank_stuck_after=durations.text(after))
    while True:
        state = _why(
            sidecars,
            limits,
            stacks=stacks,
            as_json=as_json,
            clear=watch and not as_json,
        )
        if not watch:
            break
        time.sleep(_EVERY)
    return {"hung": _HUNG, "unknown": _NOTHING}.get(state.value, 0)


@options.subcommand(command, "post-mortem")
def post_mortem(
    *, sidecars: Sidecars = SIDECARS, as_json: bool = options.OF_PROCESS
) -> int:
    """
    Say which process of a job failed first, how and where.

    The others fail because of it, and print errors too. Asks the sidecars of all hosts,
    which remember for an hour what the processes left. Clocks of hosts may differ.
    Without sidecars, reads what processes of this host left, also those of no job.

    Exit codes:
      0 no process of a job has failed
      1 one has, or one of this host that belongs to no job
      3 no host answered, no process of a job ran there within the last hour, or no
        failure is known, but a host or a rank is missing

    Examples:
      jaxmon job post-mortem
      jaxmon job post-mortem --targets host-1:9467,host-2:9467
      jaxmon job post-mortem --file-sd targets/train.json --json
    """
    from jaxmon.cli.workers import directory_of, ends
    from jaxmon.facts import endings
    from jaxmon.host.formats.layout import clean, wrapped
    from jaxmon.job.post_mortem import examine
    from jaxmon.job.post_mortem_text import document, lines

    directory = directory_of(None, past=True) if sidecars.local else rundir.locate()
    found = examine(sidecars.ask(timed=True), options.limits_of(directory))
    alone = sidecars.local and not found.jobs
    just, earlier = ends(directory) if alone else ([], [])
    replaced = endings.replaced(directory).values() if alone else ()
    killed = [clean(end.line(endings.age_of(end))) for end in replaced]
    ended = [*just, *killed, *earlier]
    recorded = ends(directory, stopped=True) if alone else ([], [])
    if as_json:
        output.document(document(found))
    elif any(recorded) or killed:
        for sentence in (*recorded[0], *killed, *recorded[1]):
            colour = "red" if sentence in ended else None
            for line in wrapped(sentence, output.report_width()):
                output.line(line, colour=colour)
    else:
        for line in lines(found, output.report_width()):
            failed = line.startswith("FAILED")
            output.line(line, colour="red" if failed else None)
    if ended or any(job.failed for job in found.jobs):
        return _FAILED
    missing = any(job.missing for job in found.jobs)
    unknown = (
        not (found.jobs or killed or any(recorded))
        or missing
        or any(host.trouble for host in found.hosts)
    )
    return _NOTHING if unknown else 0


@options.subcommand(command)
def goodput(
    *,
    paths: tuple[Path, ...] = options.argument(
        click.Path(exists=True, path_type=Path), nargs=-1
    ),
    sidecars: Sidecars = SIDECARS,
    as_json: bool = options.OF_PROCESS,
) -> int:
    """
    Say what a run spent its wall time on, over all its attempts.

    PATHS are records of runs, or the directories that contain them (`run_state`); they
    can be read when nothing runs. With --targets and the like, asks the sidecars
    instead, which were started with `--peer-access`. docs/goodput.md says what is
    recorded.

    Exit codes:
      0 a record was found
      2 usage error, or a file is no record; the others are printed
      3 there is none

    Examples:
      jaxmon job goodput /checkpoints/llama-7b
      jaxmon job goodput --targets host-1:9467
      jaxmon job goodput /checkpoints/llama-7b --json
    """
    from jaxmon.screens.tables import goodput_document as document
    from jaxmon.screens.tables import goodput_lines as lines

    broken: list[str] = []
    found = list(_read(paths, broken)) if paths else _asked(sidecars)
    if as_json:
        output.document({"runs": [document(record) for record in found]})
    else:
        for index, record in enumerate(found):
            if index:
                output.line()
            output.lines(lines(record, output.report_width(), now=time.time()))
    if broken:
        raise CommandError(broken[0], details=broken[1:], exit_code=_BROKEN)
    if not found:
        output.line("no record of a run was found", err=True)
    return 0 if found else _NOTHING


def _read(paths: tuple[Path, ...], broken: list[str]) -> Iterator[RunRecord]:
    from jaxmon.errors import ConfigFileError
    from jaxmon.facts import run as record

    for path in paths:
        for file in record.paths(path):
            try:
                yield record.read(file)
            except (ConfigFileError, record.RunRecordError) as error:
                broken.append(f"{file} {error}")


def _asked(sidecars: Sidecars) -> list[RunRecord]:
    """Return what the sidecars know, which remember attempts that have ended."""
    from jaxmon.facts import run as record

    found = []
    for host in sidecars.ask():
        if host.trouble:
            output.line(f"{host.target}: {host.trouble}", err=True)
        for document in host.runs:
            try:
                found.append(record.from_document(document))
            except record.RunRecordError as error:
                output.line(f"{host.target}: a record {error}", err=True)
    return record.latest(found)


def _why(
    sidecars: Sidecars, limits: Limits, *, stacks: bool, as_json: bool, clear: bool
) -> JobState:
    from jaxmon.job import text
    from jaxmon.job.verdict import judge

    hosts = sidecars.ask(stacks=stacks)
    verdict = judge(hosts, limits)
    groups = text.stack_groups(text.of_hosts(hosts)) if stacks else []
    if as_json:
        whole = text.document(verdict)
        if stacks:
            whole["stacks"] = [group._asdict() for group in groups]
        output.document(whole)
        return text.worst(verdict)
    if clear and output.is_terminal(sys.stdout):
        output.clear()
    _print(verdict)
    if stacks:
        output.lines(["", *text.stack_lines(groups, output.report_width())])
    return text.worst(verdict)


def _print(verdict: Verdict) -> None:
    from jaxmon.job.text import lines

    for line in lines(verdict, output.report_width()):
        state = line.partition(" ")[0].rstrip(":").lower()
        output.line(line, colour=_COLOURS.get(state))
