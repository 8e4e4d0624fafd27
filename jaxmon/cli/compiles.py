"""``jaxmon compiles``: what programs are made of by line, and what compiles take."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from jaxmon.cli import options, output
from jaxmon.errors import CommandError, WireError, raised
from jaxmon.host.formats.layout import clean, counted, duration, share


if TYPE_CHECKING:
    from jaxmon.cli.workers import AgentProcess
    from jaxmon.facts.events import Compiling
    from jaxmon.facts.process import Snapshot
    from jaxmon.facts.programs import CompiledProgram
    from jaxmon.facts.walltime import Period
    from jaxmon.preflight.compiled.costs import ProgramCosts
    from jaxmon.preflight.compiled.listing import Listing
    from jaxmon.preflight.compiled.view import ProcessPrograms
    from jaxmon.preflight.profile.passes import CompileTimes, TracedCompile


# The agent reads programs that were not read yet, and then their equations.
_SECONDS = 60.0
_MOST_TRACED, _LONG_TRACE = 3, 1.0
_SMALL, _REST = 0.01, "less than 1 % each"
# If one program takes that part of all, adding up others says nothing new.
_MOST_OF_ALL = 2 / 3
_NAMES = {
    "load": "loading from the cache",
    "not recorded": "XLA, not recorded",
    "in no pass": "other work of XLA",
    "other passes": "other work of XLA",
    "rest": "other work of JAX",
}


class _CompileCommands(click.Group):
    """Its commands; a number or file that is none may be meant as a process."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return what to run. Raises `click.UsageError`: there is no such command."""
        if args[0].isdecimal() or args[0].endswith(".py"):
            msg = f"no such command {args[0]!r}; a process is --worker {args[0]}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


@options.subcommand(cls=_CompileCommands, invoke_without_command=True)
def command(
    *,
    worker: str | None = options.option(str, "--worker", "--pid"),
    function: str | None = options.option(str),
    page: Path | None = options.option(options.NEW_FILE),
    text: str | None = options.option(click.Choice(["jaxpr", "hlo"])),
    passes: float | None = options.option(
        options.Number(0, 60, min_open=True), metavar="SECONDS"
    ),
    as_json: bool = options.OF_PROCESS,
    run_dir: Path | None = options.RUN_DIR,
) -> None:
    """
    Show what compiled programs are made of, by line of source.

    Listed are the loaded programs of a running process with what their compiles took.
    Then, for one function, the lines that its latest program comes from: equations as
    JAX traced them, instructions of XLA, FLOPs of products and convolutions, bytes
    written, copied and exchanged, on one device per call, and who asked for exchanges.
    HOLDS is, at most, what is in memory of a line when the program holds most. If the
    program before is loaded as well, it also shows which lines grew.

    Options:
        worker: The process: its number, pid or name, if several run.
        function: The function to show, as it is listed, or the end of its name; by
            default, the one that took longest to compile.
        page: Write a page to this file, too: flame charts by line, and both programs.
        text: Print the latest program instead, as JAX traced it or XLA compiled it,
            with the line of source of each row; on the page and in JSON, too.
        passes: Instead, record what is compiled in so many seconds, and print where
            that time went, as `jaxmon compiles run` does. Refused while the program is
            profiling itself.

    Exit codes:
      0 the programs were printed, or what a process without any is compiling
      1 no instrumented process is running, it does not respond, or has no programs
      2 --worker names none or several, or --function no loaded program

    Examples:
      jaxmon compiles
      jaxmon compiles --worker 2 --function train_step --page step.html
      jaxmon compiles --text hlo | grep model.py:88
      jaxmon compiles --pid 4711 --passes 30
      jaxmon compiles --json | jq '.latest.lines[:5]'
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from jaxmon.cli.workers import pick
    from jaxmon.facts.process import read
    from jaxmon.preflight.compiled import view
    from jaxmon.screens.text import heading

    chosen = pick(worker, run_dir)
    if passes is not None:
        if function or page or text:
            msg = "--passes is of all compiles; omit --function, --page and --text"
            raise click.UsageError(msg)
        _record(chosen, passes, as_json=as_json)
        return
    now = read(chosen.overview)
    if (found := _programs(chosen, function, now)) is None:
        _in_progress(now.compiling, chosen.number, as_json=as_json)
        return
    listing = None if text is None else _listing(chosen, found.latest, text)
    if page is not None:
        from jaxmon.host.files import whole
        from jaxmon.preflight.compiled.view import render

        program = chosen.program
        whole.write(page, render(found, program, listing).encode(), private=True)
    if as_json:
        output.document(view.document(found, listing))
        return
    if listing is not None:
        output.lines(listing.lines())
        return
    width = output.report_width()
    output.line(heading(now.process, chosen.number, width))
    output.line()
    output.lines(view.text(found, width))


def _in_progress(now: Compiling, worker: str, *, as_json: bool) -> None:
    from jaxmon.facts.record import encoded
    from jaxmon.symptoms.compiles import program_size

    if not now.count:
        msg = f"worker {worker} has no loaded program of its user's functions"
        raise CommandError(msg)
    text = f"Compiling {now.function} for {duration(now.oldest_seconds)} so far."
    text = f"{text} {program_size(now)}".rstrip()
    output.result({"compiling": encoded(now)}, [text], as_json=as_json)


def _record(worker: AgentProcess, seconds: float, *, as_json: bool) -> None:
    """Print where the compiles went that *worker* begins in so many seconds."""
    from jaxmon.cli.profile import record
    from jaxmon.host.files import whole

    answer = record(worker, f"/debug/passes?seconds={seconds:g}", 2 * _SECONDS)
    data = b"" if answer is None else answer.body
    with whole.directory("jaxmon-compiles-") as directory:
        lines, _, trace = data.partition(b"\0")
        (directory / "0.jsonl").write_bytes(lines)
        (directory / "0.xplane.pb").write_bytes(trace)
        _show(directory, f"in {duration(seconds)}", as_json=as_json)


def _show(
    directory: Path,
    where: str,
    *,
    as_json: bool,
    top: int = 10,
    code: int | None = None,
) -> None:
    from jaxmon.preflight.profile.passes import read

    try:
        found = read(directory)
    except (ValueError, WireError) as error:
        msg = f"the traces cannot be read: {error}; run the command again"
        raise CommandError(msg) from error
    programs = [
        {**vars(of), "lines": [line._asdict() for line in of.lines]}
        for of in found.programs
    ]
    document = {"exit_code": code, **found._asdict(), "programs": programs}
    output.result(document, _lines(found, code, top, where), as_json=as_json)


def _programs(
    worker: AgentProcess, function: str | None, now: Snapshot
) -> ProcessPrograms | None:
    """Return the programs of *worker*, and the costs of *function*'s, if any."""
    from jaxmon.facts.programs import read
    from jaxmon.preflight.compiled.costs import ProgramCosts
    from jaxmon.preflight.compiled.view import ProcessPrograms, by_cost

    with raised(CommandError, f"worker {worker.number} cannot be read", ValueError):
        loaded = read(worker.fetch("/debug/programs", timeout=_SECONDS))
    programs = by_cost(loaded.programs)
    if not programs:
        return None
    name = _chosen(programs, function)
    same = [program for program in programs if program.function == name]
    same = sorted(same, key=lambda program: -program.finished)[:2]
    by_time, trouble = {}, "it is no longer loaded"
    try:
        texts = _texts(worker, f"hlo?newest=2&function={quote(name)}")
        by_time = {str(text.get("finished")): text for text in texts}
    except CommandError as error:
        trouble = error.message
    costs = []
    for program in same:
        text = by_time.get(str(program.finished), {})
        missing = str(text.get("omitted", trouble))
        costs.append(ProgramCosts(program, str(text.get("hlo") or ""), missing))
    before = costs[1] if len(costs) > 1 else None
    traced = [of.trace_seconds or 0.0 for of in programs if of.function == name]
    period = now.time.since_start.certain
    costs[0].notes[:0] = traced_lines(period, name, sum(traced))
    return ProcessPrograms(programs, costs[0], before, loaded.omitted)


def traced_lines(period: Period, function: str, most: float) -> Iterator[str]:
    """Yield what samples say of the lines where *function* was traced, for *most* s."""
    call = period.calls(function)  # where XLA compiles it, too
    seconds = defaultdict[str, float](float)
    for at in period.places:
        if (at.state, at.function) == ("compile", function) and at.place != call:
            seconds[at.place] += at.seconds
    longest = sorted(seconds.items(), key=itemgetter(1), reverse=True)
    for place, took in longest[:_MOST_TRACED]:
        # More than that was in XLA, at a call that is not known as one.
        if place and _LONG_TRACE <= took <= most:
            yield f"Tracing it took at least {duration(took)} at {place}."


def _texts(worker: AgentProcess, target: str) -> list[Mapping[str, Any]]:
    from jaxmon.facts.reader import mapping

    found = worker.fetch(f"/debug/{target}", timeout=_SECONDS).get("programs")
    # No fields of records: those are one line each.
    return list(map(mapping, found if isinstance(found, list) else ()))


def _listing(worker: AgentProcess, latest: ProgramCosts, kind: str) -> Listing:
    from jaxmon.preflight.compiled.listing import of_hlo, of_jaxpr

    if kind == "hlo":
        try:
            return of_hlo(latest.hlo)
        except WireError as error:
            raise CommandError(latest.notes[-1]) from error
    name = latest.program.function
    programs = _texts(worker, f"jaxpr?newest=1&function={quote(name)}")
    with raised(
        CommandError,
        f"worker {worker.number} cannot be read",
        IndexError,
        TypeError,
        ValueError,
    ):
        return of_jaxpr(programs[0] if programs else {})


def _chosen(programs: list[CompiledProgram], function: str | None) -> str:
    names = list(dict.fromkeys(program.function for program in programs))
    wanted = names[0] if function is None else function
    found = [name for name in names if name.endswith(f".{wanted}")]
    if wanted in names or len(found) == 1:
        return wanted if wanted in names else found[0]
    msg = f"{function!r} is not one function with a loaded program"
    raise CommandError(msg, details=names[:20], exit_code=2)


@options.subcommand(command, "run", context_settings={"allow_interspersed_args": False})
def run(
    *,
    as_module: bool = options.flag("-m"),
    as_code: bool = options.flag("-c"),
    top: int = options.option(options.Whole(1), default=10),
    as_json: bool = options.AS_JSON,
    program: str = options.argument(),
    args: tuple[str, ...] = options.argument(click.UNPROCESSED, nargs=-1),
) -> int:
    """
    Run PROGRAM as `python` does, and print where its compile time went.

    For each XLA program of its functions, and for those of JAX's own together: seconds
    to trace, to lower, to load from the persistent cache, and in XLA by group of
    passes; if that is long, the lines that most of it goes into. XLA's profiler records
    each compile, 128 MiB in all, and nothing else. On GPUs this requires
    JAXMON_PROFILE_GPU=1. A program that profiles itself is not disturbed.

    Options:
        as_module: PROGRAM is a module name.
        as_code: PROGRAM is Python source.
        top: Number of XLA programs; the others are summed.
        as_json: Print everything as JSON; PROGRAM's output goes to standard error.

    Exit codes:
      otherwise, that of PROGRAM

    Examples:
      jaxmon compiles run train.py --steps 10
      jaxmon compiles run --json --out compiles.json -m mypackage.train
    """
    from jaxmon.cli.launch import interpreted
    from jaxmon.cli.run import words_of
    from jaxmon.host.files import whole
    from jaxmon.preflight.baseline.run import instrumented

    words = words_of(program, args, as_module=as_module, as_code=as_code)
    with whole.directory("jaxmon-compiles-") as directory:
        settings = {"port": None, "socket": False, "passes_dir": str(directory)}
        stream = sys.__stderr__ if as_json else None
        code = instrumented(interpreted(words), settings, stdout=stream)
        where = "in the process; its children are not observed"
        _show(directory, where, as_json=as_json, top=top, code=code)
    return code


def _lines(
    found: CompileTimes, code: int | None, top: int, where: str
) -> Iterator[str]:
    if code:
        yield f"the program failed with exit code {code}; until then:"
    if not (found.programs or found.unfinished):
        yield f"nothing was compiled {where}"
        return
    functions, number = Counter(of.function for of in found.programs), Counter[str]()
    blocks: list[tuple[str, TracedCompile]] = []
    for program in found.programs:
        if not program.internal:
            name = program.function
            number[name] += 1
            several = f", program {number[name]}" if functions[name] > 1 else ""
            blocks.append((name + several, program))
    blocks.sort(key=lambda block: block[1].seconds, reverse=True)
    for name, program in blocks[:top]:
        yield from _block(name, [program])
    rest = [program for _, program in blocks[top:]]
    yield from _block(counted(len(rest), "other program"), rest)
    internal = [program for program in found.programs if program.internal]
    name = f"{counted(len(internal), 'program')} of JAX's own functions"
    yield from _block(name, internal)
    whole = sum(program.seconds for program in found.programs)
    longest = max((program.seconds for program in found.programs), default=0.0)
    if longest < _MOST_OF_ALL * whole:
        yield from _block("all", found.programs)
    for name, count in Counter(found.unfinished).items():
        yield f"{name}: {counted(count, 'compile')} did not finish"
    for why, count in Counter(of.untraced for of in found.programs).items():
        if why:
            yield f"without XLA's passes: {counted(count, 'program')}, since {why}"


def _block(name: str, programs: Sequence[TracedCompile]) -> Iterator[str]:
    """Yield lines on *programs* together, if there are any."""
    if not programs:
        return
    seconds = sum(program.seconds for program in programs)
    yield f"{name}: {duration(seconds)}"
    for line in programs[0].lines if len(programs) == 1 else ():
        yield f"  {clean(line.where)}: {clean(line.text)}"
    parts: dict[str, float] = defaultdict(float)
    for program in programs:
        for part, spent in program.parts.items():
            parts[_NAMES.get(part, part)] += spent
    small = [part for part, spent in parts.items() if spent < _SMALL * seconds]
    if rest := sum(parts.pop(part) for part in small):
        parts[_REST] = rest
    for part, spent in sorted(parts.items(), key=itemgetter(1), reverse=True):
        yield f"  {part:28}{duration(spent):>10}{share(spent, seconds):>8}"
    yield ""
