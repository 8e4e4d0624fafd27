"""``jaxmon compiles``: what compiled programs are made of, by line of source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import click

from jaxmon.cli import compiles_run, output
from jaxmon.cli.options import NEW_FILE, OF_PROCESS, RUN_DIR, option, subcommand
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.workers import AgentProcess
    from jaxmon.facts.programs import CompiledProgram
    from jaxmon.preflight.compiled.view import ProcessPrograms


# The agent reads programs that were not read yet, and then their equations.
_SECONDS = 60.0


@subcommand(cls=click.Group, invoke_without_command=True)
def command(
    *,
    worker: str | None = option(str, "--worker", "--pid"),
    function: str | None = option(str),
    page: Path | None = option(NEW_FILE),
    as_json: bool = OF_PROCESS,
    run_dir: Path | None = RUN_DIR,
) -> None:
    """
    Show what compiled programs are made of, by line of source.

    Listed are the loaded programs of a running process with what their compiles took;
    then, for one function, the lines that its latest program comes from: equations as
    JAX traced them, instructions of XLA, FLOPs of products and convolutions, bytes
    written, and copied, on one device per call. If the program before is loaded as
    well, it also shows which lines grew.

    Options:
        worker: The process: its number, pid or name, if several run.
        function: The function to show, as it is listed, or the end of its name; by
            default, the one that took longest to compile.
        page: Write a page to this file, too: flame charts by line, and both programs.

    Exit codes:
      0 the programs were printed
      1 no instrumented process is running, it does not respond, or has no programs
      2 --worker names none or several, or --function no loaded program

    Examples:
      jaxmon compiles
      jaxmon compiles --worker 2 --function train_step --page step.html
      jaxmon compiles --json | jq '.latest.lines[:5]'
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from jaxmon.cli.workers import pick
    from jaxmon.facts.process import read
    from jaxmon.preflight.compiled import view
    from jaxmon.screens.text import heading

    chosen = pick(worker, run_dir)
    found = _programs(chosen, function)
    if page is not None:
        from jaxmon.host.files import whole
        from jaxmon.preflight.compiled.page import render

        program = chosen.program
        whole.write(page, render(found, program).encode(), private=True)
    if as_json:
        output.document(view.document(found))
        return
    width = output.report_width()
    output.line(heading(read(chosen.overview).process, chosen.number, width))
    output.line()
    output.lines(view.text(found, width))


def _programs(worker: AgentProcess, function: str | None) -> ProcessPrograms:
    """Return the programs of *worker*, and the costs of those of *function*."""
    from jaxmon.facts.programs import read
    from jaxmon.facts.reader import mapping
    from jaxmon.preflight.compiled.costs import ProgramCosts
    from jaxmon.preflight.compiled.view import ProcessPrograms, by_cost

    try:
        loaded = read(worker.fetch("/debug/programs", timeout=_SECONDS))
    except ValueError as error:
        msg = f"worker {worker.number} cannot be read: {error}"
        raise CommandError(msg) from error
    programs = by_cost(loaded.programs)
    if not programs:
        msg = f"worker {worker.number} has no loaded program of its user's functions"
        raise CommandError(msg)
    name = _chosen(programs, function)
    same = [program for program in programs if program.function == name]
    same = sorted(same, key=lambda program: -program.finished)[:2]
    target = f"/debug/hlo?newest=2&function={quote(name)}"
    texts, trouble = None, "it is no longer loaded"
    try:
        texts = worker.fetch(target, timeout=_SECONDS).get("programs")
    except CommandError as error:
        trouble = error.message
    # No fields of records: those are one line each.
    found = list(map(mapping, texts if isinstance(texts, list) else ()))
    by_time = {str(text.get("finished")): text for text in found}
    costs = []
    for program in same:
        text = by_time.get(str(program.finished), {})
        missing = str(text.get("omitted", trouble))
        costs.append(ProgramCosts(program, str(text.get("hlo") or ""), missing))
    before = costs[1] if len(costs) > 1 else None
    return ProcessPrograms(programs, costs[0], before, loaded.omitted)


def _chosen(programs: list[CompiledProgram], function: str | None) -> str:
    """Return the label of *function*, by default that of the costliest program."""
    names = list(dict.fromkeys(program.function for program in programs))
    wanted = names[0] if function is None else function
    found = [name for name in names if name.endswith(f".{wanted}")]
    if wanted in names or len(found) == 1:
        return wanted if wanted in names else found[0]
    msg = f"{function!r} is not one function with a loaded program"
    raise CommandError(msg, details=names[:20], exit_code=2)


cast("click.Group", command).add_command(compiles_run.command)
