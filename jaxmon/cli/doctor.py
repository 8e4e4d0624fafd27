"""``jaxmon doctor``: what will not work here, before a program runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import RUN_DIR


if TYPE_CHECKING:
    from jaxmon.doctor.finding import Finding


_MARKS = {"ok": "ok", "note": "note", "warning": "WARN", "failure": "FAIL"}


@click.command(epilog="Exits with 1 when something fails, with --strict on a warning.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--strict", is_flag=True, help="Exit with 1 on a warning, too.")
@click.option("--verbose", "-v", is_flag=True, help="Show what is in order as well.")
@click.option(
    "--skip-jax", is_flag=True, help="Do not import JAX: no hooks, no cache; quicker."
)
@RUN_DIR
@click.pass_context
def command(
    ctx: click.Context,
    *,
    as_json: bool,
    strict: bool,
    verbose: bool,
    skip_jax: bool,
    run_dir: Path | None,
) -> None:
    """
    Check this environment: versions that do not fit, hooks that do not attach,
    a cache that cannot hit, sockets, drivers.

    Run it where the program will run, as its user and with its environment. No
    accelerator is started: JAX is tried on the CPU, in a process of its own.
    """
    from jaxmon.doctor.finding import worst

    found = _findings(run_dir, skip_jax=skip_jax)
    if as_json:
        output.document([_plain(one) for one in found])
    else:
        _print(found, verbose=verbose)
    grave = worst(found)
    if grave == "failure" or (strict and grave == "warning"):
        ctx.exit(1)


def _findings(run_dir: Path | None, *, skip_jax: bool) -> list[Finding]:
    from jaxmon import rundir
    from jaxmon.doctor import devices, environment, selftest, sockets, versions
    from jaxmon.doctor.finding import Finding
    from jaxmon.errors import SettingsError
    from jaxmon.settings import Settings, load

    try:
        port = load({}).port
    except SettingsError:
        port = Settings().port  # the environment's own check reports it
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        (versions.AREA, versions.check),
        (environment.AREA, lambda: environment.check(os.environ)),
        (sockets.AREA, lambda: sockets.check(run_dir or rundir.locate(), port)),
        (devices.AREA, devices.check),
    ]
    # Where JAX is missing, that is said once.
    if not skip_jax and versions.installed("jax") is not None:
        checks.append((selftest.HOOKS, lambda: selftest.check(os.environ)))
    found: list[Finding] = []
    for area, check in checks:
        try:
            found += check()
        except Exception as error:  # noqa: BLE001 - the other checks are worth having
            text = f"this could not be checked: {type(error).__name__}: {error}"
            found.append(Finding(area, "warning", text))
    return found


def _print(found: list[Finding], *, verbose: bool) -> None:
    from jaxmon.report.layout import clean, wrapped

    width = output.report_width()
    shown = [one for one in found if verbose or one.status != "ok"]
    for one in shown:
        head = f"{_MARKS[one.status]:5}{one.area:13}"
        for line in wrapped(clean(one.text), width, first=head, rest=" " * len(head)):
            output.line(line)
        for line in wrapped(
            clean(one.advice),
            width,
            first=" " * len(head) + "→ ",
            rest=" " * len(head) + "  ",
        ):
            output.line(line)
    in_order = sum(one.status == "ok" for one in found)
    rest = len(found) - in_order
    if shown:
        output.line()
    output.line(
        f"{in_order} checks in order"
        + (f", {rest} to look at." if rest else "; nothing stands in the way.")
    )


def _plain(one: Finding) -> dict[str, str]:
    return {
        "area": one.area,
        "status": one.status,
        "text": one.text,
        "advice": one.advice,
    }
