"""``jaxmon warmup``: compile recorded signatures into the persistent cache."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from click import Choice

from jaxmon.cli import options, output
from jaxmon.errors import misuse


if TYPE_CHECKING:
    from jaxmon.preflight.warming import Result

_CACHE = "JAX_COMPILATION_CACHE_DIR"


@options.subcommand()
def command(
    *,
    gate: str | None = options.argument(
        Choice(["check"]), metavar="[check]", required=False
    ),
    file: Path = options.option(
        options.NEW_FILE, "--signatures", "--against", required=True
    ),
    jobs: int = options.option(options.Whole(1, 64), default=1),
    modules: tuple[str, ...] = options.option(
        str, "--module", multiple=True, metavar="MODULE"
    ),
    main: str | None = options.option(str, metavar="MODULE"),
    timeout: float = options.option(options.Number(1, 86_400), default=600.0),
    as_json: bool = options.AS_JSON,
) -> int:
    """
    Compile the signatures in a file into JAX's persistent cache.

    The next process then loads them instead. Imports the program's modules, from the
    current directory or the Python path, in separate processes, and lowers each
    function without calling it. Run it with the same JAX, XLA flags and device kind as
    the service: all are part of the cache's keys.

    With `check`, it compiles nothing: a signature that is not in the cache fails, as do
    programs that the file could not describe.

    Options:
        file: File written by `jaxmon signatures export`. Its modules are imported.
        jobs: Number of processes. Those of an accelerator share its memory.
        modules: Only functions of this module; may be repeated.
        main: Module that ran as the program, to import for functions of `__main__`.
        timeout: Seconds after which an import or a signature has failed.

    Exit codes:
      0 every signature is in the cache
      1 a signature failed, the file is invalid, or a release would compile
      2 the cache directory is not set, or no function was selected

    Examples:
      export JAX_COMPILATION_CACHE_DIR=/cache
      jaxmon warmup --signatures signatures.json --jobs 4
      jaxmon warmup --signatures signatures.json --main mypackage.serve
      jaxmon warmup check --against signatures.json    # would a release compile?
    """
    from jaxmon.facts.signatures import FAILED, STATUSES, read, texts
    from jaxmon.preflight.warming import Result, warm

    if not os.environ.get(_CACHE):
        msg = (
            f"{_CACHE} is not set: there is no cache to fill. Set it to the directory "
            "that the service uses; the path is part of the cache's keys."
        )
        raise misuse(msg)
    document = read(file)
    if modules:
        chosen = tuple(
            function for function in document.functions if function.module in modules
        )
        document = document._replace(functions=chosen)
    total = sum(len(function.signatures) for function in document.functions)
    if not total:
        msg = f"{file} has no signatures to compile"
        if modules:
            msg += f" of {', '.join(modules)}"
        raise misuse(msg)
    check = gate is not None
    arrived: list[Result] = []
    peculiar = {of.function: texts(of.signatures) for of in document.functions}

    def text(result: Result) -> str:
        return _text(result, peculiar[result.function][result.place])

    def progress(result: Result) -> None:
        arrived.append(result)
        output.line(f"[{len(arrived)}/{total}] {text(result)}", err=True)

    results = warm(
        document,
        os.environ,
        jobs=min(jobs, len(document.functions)),
        main=main or document.main,
        seconds=timeout,
        check=check,
        progress=progress,
    )
    counts = {
        status: sum(result.status == status for result in results)
        for status in STATUSES
    }
    totals = ", ".join(f"{number} {status}" for status, number in counts.items())
    failed = [text(result) for result in results if result.status == FAILED]
    unknown = [
        Result(
            function.function, -1, "unchecked", f"{number:,} programs: {reason}", 0.0
        )
        for function in document.functions
        for reason, number in function.not_exportable.items()
        if check
    ]
    failed += [f"{of.function}: {of.status}: {of.reason}" for of in unknown]
    documents = list(map(dataclasses.asdict, [*results, *unknown]))
    output.result(documents, [totals, *failed], as_json=as_json)
    return 1 if counts[FAILED] or unknown or len(results) < total else 0


def _text(result: Result, arguments: str) -> str:
    name = f"{result.function} signature {result.place + 1}"
    name += f" ({arguments})" if arguments else ""
    if result.reason:
        return f"{name}: failed: {result.reason}"
    return f"{name}: {result.status} ({result.seconds:.2f} s)"
