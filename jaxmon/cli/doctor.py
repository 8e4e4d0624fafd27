"""``jaxmon doctor``: check the environment before a program runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmon.cli import output
from jaxmon.cli.options import AS_JSON, RUN_DIR, flag, subcommand


if TYPE_CHECKING:
    from jaxmon.preflight.doctor import Area, Check


_MARKS = {"ok": "ok", "note": "note", "warning": "WARN", "failure": "FAIL"}


@subcommand()
def command(
    *,
    as_json: bool = AS_JSON,
    strict: bool = flag(),
    verbose: bool = flag("--verbose", "-v"),
    skip_jax: bool = flag(),
    run_dir: Path | None = RUN_DIR,
) -> int:
    """
    Check this environment before a program runs in it.

    It finds incompatible versions, hooks that cannot attach, and problems of the cache,
    sockets and drivers. Run it where the program will run, as its user and with its
    environment. No accelerator is initialised: JAX is tested on the CPU, in a separate
    process.

    Options:
        strict: Also exit with 1 on warnings.
        verbose: Also show checks that passed.
        skip_jax: Skip the checks that import JAX (hooks, cache); faster.

    Exit codes:
      0 no check failed
      1 a check failed or, with --strict, gave a warning
    """
    from jaxmon.preflight.doctor import worst

    found = _findings(run_dir, skip_jax=skip_jax)
    if as_json:
        output.document([asdict(check) for check in found])
    else:
        _print(found, verbose=verbose)
    grave = worst(found)
    return 1 if grave == "failure" or (strict and grave == "warning") else 0


def _findings(run_dir: Path | None, *, skip_jax: bool) -> list[Check]:
    from jaxmon.errors import SettingsError
    from jaxmon.host import rundir
    from jaxmon.preflight.doctor import environment, machine
    from jaxmon.settings import Settings, load

    try:
        port = load({}).port
    except SettingsError:
        port = Settings().port  # the environment's own check reports it
    checks: list[tuple[Area, Callable[[], Iterable[Check]]]] = [
        (environment.VERSIONS, environment.versions),
        (environment.VARIABLES, lambda: environment.variables(os.environ)),
        (machine.SOCKETS, lambda: machine.sockets(run_dir or rundir.locate(), port)),
        (machine.DEVICES, machine.devices),
        (environment.HANGS, lambda: environment.hangs(os.environ)),
        (environment.NCCL, lambda: environment.nccl(os.environ)),
    ]
    # Where JAX is missing, that is said once.
    if not skip_jax and environment.installed("jax") is not None:
        checks.append((machine.HOOKS, lambda: machine.hooks(os.environ)))
    found: list[Check] = []
    for area, check in checks:
        try:
            found += check()
        except Exception as error:  # noqa: BLE001 - the other checks are worth having
            text = f"check failed to run: {type(error).__name__}: {error}"
            found.append(area.warning(text))
    return found


def _print(found: list[Check], *, verbose: bool) -> None:
    from jaxmon.host.formats.layout import clean, counted, wrapped

    width = output.report_width()
    shown = [check for check in found if verbose or check.status != "ok"]
    for check in shown:
        head = f"{_MARKS[check.status]:5}{check.area:13}"
        indent = " " * len(head)
        output.lines(wrapped(clean(check.text), width, first=head, rest=indent))
        first, rest = f"{indent}→ ", f"{indent}  "
        output.lines(wrapped(clean(check.advice), width, first=first, rest=rest))
    in_order = sum(check.status == "ok" for check in found)
    notes = sum(check.status == "note" for check in found)
    wrong = len(found) - in_order - notes
    if shown:
        output.line()
    needs = "needs" if wrong == 1 else "need"
    output.line(
        f"{counted(in_order, 'check')} passed"
        + (f", {wrong} {needs} attention." if wrong else "; no problems found.")
    )
