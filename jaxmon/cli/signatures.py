"""``jaxmon signatures``: what a running process was compiled for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import AS_JSON, RUN_DIR, WORKER, argument, flag, subcommand
from jaxmon.errors import CommandError, raised


if TYPE_CHECKING:
    from jaxmon.facts.signatures import Document
    from jaxmon.preflight.warming import Buckets


@click.group
def command() -> None:
    """
    Export what a running process was compiled for, for warm starts.

    `jaxmon warmup` compiles it ahead; docs/persistent-cache.md describes the file.
    """


@subcommand(command)
def export(
    *,
    worker: str | None = WORKER,
    used: bool = flag(),
    as_json: bool = AS_JSON,
    run_dir: Path | None = RUN_DIR,
) -> None:
    """
    Print each function's signatures: shapes, types, static arguments.

    WORKER is the process's number, as in the `worker` label, its pid or its name;
    required only if several are running. No values of arrays are written.

    Options:
        used: Without signatures that were warmed up and that no call has used.
        as_json: For all commands; this one prints nothing else.

    Exit codes:
      0 the file was written
      1 no instrumented process is running, or it does not respond
      2 several are running and none was selected, or none or several have that name

    Examples:
      jaxmon signatures export --out signatures.json
      jaxmon signatures export 3 | jq '.functions[].function'
    """
    from jaxmon.facts.signatures import without_unused

    del as_json
    found = _of_worker(worker, run_dir)
    if used:
        found = without_unused(found)
    count = sum(len(function.signatures) for function in found.functions)
    output.document(found.as_json())
    functions = len(found.functions)
    output.line(f"{functions} functions, {count} signatures", err=True)
    for function in found.functions:
        for reason, number in function.not_exportable.items():
            output.line(
                f"not exportable: {function.function} ({number}): {reason}", err=True
            )


@subcommand(command)
def buckets(
    *,
    source: str | None = argument(metavar="[FILE|WORKER]", required=False),
    as_json: bool = AS_JSON,
    run_dir: Path | None = RUN_DIR,
) -> None:
    """
    Propose sizes to pad to, so that few programs serve all signatures.

    Each line has the number of programs, the fraction of elements that would be
    padding, weighted by calls as sampled, and the sizes.

    Exit codes:
      0 the proposals were printed, if there are any
      1 the file is invalid, or no process responds
      2 several processes are running and none was selected

    Examples:
      jaxmon signatures buckets signatures.json
      jaxmon signatures buckets 3
    """
    from jaxmon.facts.signatures import read
    from jaxmon.preflight.warming import proposals

    is_file = source is not None and (
        Path(source).exists() or "/" in source or source.endswith(".json")
    )
    document = read(Path(str(source))) if is_file else _of_worker(source, run_dir)
    found = proposals(document)
    output.result(list(map(asdict, found)), _lines(found), as_json=as_json)


def _lines(found: Sequence[Buckets]) -> Iterator[str]:
    if not found:
        yield "no function has signatures that differ only in sizes"
    for proposed in found:
        weight = "weighted by samples" if proposed.weighted else "calls are unknown"
        yield f"{proposed.function}: {proposed.programs} programs ({weight})"
        for proposal in proposed.proposals:
            sizes = "; ".join(
                f"{name}: {', '.join(map(str, values))}"
                for name, values in proposal.sizes.items()
            )
            costs = f"{proposal.programs:3} programs  {proposal.waste:6.1%} padding"
            yield f"  {costs}  {sizes}"


def _of_worker(worker: str | None, run_dir: Path | None) -> Document:
    from jaxmon.cli.workers import pick
    from jaxmon.facts.signatures import parsed

    found = pick(worker, run_dir)
    with raised(
        CommandError, f"worker {found.number} returned no signatures", ValueError
    ):
        return parsed(found.fetch("/debug/signatures"))
