"""``jaxmon compiles run``: where a program's compile time goes."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import AS_JSON, Whole, argument, flag, option, subcommand
from jaxmon.errors import CommandError, WireError
from jaxmon.host.formats.layout import counted, duration, share


if TYPE_CHECKING:
    from jaxmon.preflight.profile.passes import CompileTimes, TracedCompile

_SMALL, _REST = 0.01, "less than 1 % each"
_NAMES = {
    "load": "loading from the cache",
    "not recorded": "XLA, not recorded",
    "in no pass": "XLA, in none of its passes",
    "rest": "in none of these",
}


@subcommand(name="run", context_settings={"allow_interspersed_args": False})
def command(
    *,
    as_module: bool = flag("-m"),
    as_code: bool = flag("-c"),
    top: int = option(Whole(1), default=10),
    as_json: bool = AS_JSON,
    program: str = argument(),
    args: tuple[str, ...] = argument(click.UNPROCESSED, nargs=-1),
) -> int:
    """
    Run PROGRAM as `python` does, and print where its compile time went.

    For each XLA program of its functions, and for those of JAX's own together: seconds
    to trace, to lower, to load from the persistent cache, and in XLA by group of
    passes. XLA's profiler records each compile, 128 MiB in all, and nothing else. On
    GPUs this requires JAXMON_PROFILE_GPU=1. A program that profiles itself is not
    disturbed.

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
    from jaxmon.cli.run import interpreted, words_of
    from jaxmon.host.files import whole
    from jaxmon.preflight.baseline.run import instrumented
    from jaxmon.preflight.profile.passes import read

    words = words_of(program, args, as_module=as_module, as_code=as_code)
    with whole.directory("jaxmon-compiles-") as directory:
        settings = {"port": None, "socket": False, "passes_dir": str(directory)}
        stream = sys.__stderr__ if as_json else None
        code = instrumented(interpreted(words), settings, stdout=stream)
        try:
            found = read(directory)
        except (ValueError, WireError) as error:
            msg = f"the traces cannot be read: {error}; run the command again"
            raise CommandError(msg) from error
    document = {
        "exit_code": code,
        "programs": [vars(of) for of in found.programs],
        "unfinished": found.unfinished,
        "folds": found.folds,
    }
    output.result(document, _lines(found, code, top), as_json=as_json)
    return code


def _lines(found: CompileTimes, code: int, top: int) -> Iterator[str]:
    if code:
        yield f"the program failed with exit code {code}; until then:"
    if not (found.programs or found.unfinished):
        yield "nothing was compiled in the process; its children are not observed"
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
        yield from _block(name, [program], found.folds.get(program.function))
    rest = [program for _, program in blocks[top:]]
    yield from _block(counted(len(rest), "other program"), rest)
    internal = [program for program in found.programs if program.internal]
    name = f"{counted(len(internal), 'program')} of JAX's own functions"
    yield from _block(name, internal)
    if len(found.programs) > 1:
        yield from _block("all", found.programs)
    for name, count in Counter(found.unfinished).items():
        yield f"{name}: {counted(count, 'compile')} did not finish"
    for why, count in Counter(of.untraced for of in found.programs).items():
        if why:
            yield f"without XLA's passes: {counted(count, 'program')}, since {why}"


def _block(
    name: str, programs: Sequence[TracedCompile], folds: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield lines on *programs* together, if there are any."""
    if not programs:
        return
    seconds = sum(program.seconds for program in programs)
    yield f"{name}: {duration(seconds)}"
    parts: dict[str, float] = defaultdict(float)
    for program in programs:
        for part, spent in program.parts.items():
            parts[part] += spent
    small = [part for part, spent in parts.items() if spent < _SMALL * seconds]
    if rest := sum(parts.pop(part) for part in small):
        parts[_REST] = rest
    for part, spent in sorted(parts.items(), key=itemgetter(1), reverse=True):
        row = f"{_NAMES.get(part, part):28}{duration(spent):>10}"
        about = f"  most likely {', '.join(folds)}" if folds and "fold" in part else ""
        yield f"  {row}{share(spent, seconds):>8}{about}"
    yield ""
