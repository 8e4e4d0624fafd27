"""``jaxmon alerts``: rules and routing from ``slo.yaml``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jaxmon.cli import output
from jaxmon.cli.options import RUNBOOK_BASE, Number, Url
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.artifacts.alerts import Options
    from jaxmon.artifacts.alerts.build import Format

# Of promtool, and of amtool.
_SECONDS = 60.0

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    RUNBOOK_BASE,
    click.option(
        "--webhook",
        type=Url(path_follows=True),
        metavar="URL",
        help="Base URL for Alertmanager notifications; /page and /ticket are appended.",
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(["prometheus", "prometheusrule"]),
        default="prometheus",
        show_default=True,
        help="Write rule files, or one PrometheusRule resource.",
    ),
    click.option(
        "--time-scale",
        type=Number(min=1, max=300),
        default=1.0,
        show_default=True,
        help=(
            "Divide every duration by this factor: with 60, an hour becomes a minute. "
            "For experiments with a Prometheus that scrapes every second."
        ),
    ),
)


def _options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.group
def command() -> None:
    """
    Recording rules, alerts and routing, from slo.yaml.

    One file defines the objectives and the thresholds of other alerts; without it, the
    defaults printed by `jaxmon alerts slo` are used.
    """


@command.command("slo", epilog="\b\nExample:\n  jaxmon alerts slo > slo.yaml")
def print_slo() -> None:
    """Print the default slo.yaml as a starting point."""
    from jaxmon.artifacts import slo

    output.lines(slo.default())


@command.command(
    epilog="\b\nExample:\n  jaxmon alerts build --slo slo.yaml --out alerts"
)
@click.option(
    "--slo",
    "slo_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Objectives and thresholds.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="alerts",
    show_default=True,
    help="Directory to write to.",
)
@_options
def build(
    *,
    slo_file: Path | None,
    out: Path,
    runbook_base: str | None,
    webhook: str | None,
    form: Format,
    time_scale: float,
) -> None:
    """Write the files and list those that changed."""
    from jaxmon.artifacts import slo, write
    from jaxmon.artifacts.alerts import render

    options = _chosen(runbook_base, webhook, time_scale)
    files = render(slo.load(slo_file), options, form=form)
    for name in write.write(out, files):
        output.line(out / name)


@command.command(
    epilog=(
        "\b\nExit codes:\n  0 the file is valid\n  1 it is invalid, or the files in "
        "--against differ\n\n\b\nExample:\n  "
        "jaxmon alerts check slo.yaml --against alerts"
    )
)
@click.argument(
    "slo_file", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Compare with the files in this directory, and report differences.",
)
@_options
def check(
    *,
    slo_file: Path | None,
    against: Path | None,
    runbook_base: str | None,
    webhook: str | None,
    form: Format,
    time_scale: float,
) -> None:
    """
    Validate SLO_FILE and the rules generated from it.

    Runs promtool and amtool as well where they are installed. Writes nothing.
    """
    from jaxmon.artifacts import slo, write
    from jaxmon.artifacts.alerts import render

    slos = slo.load(slo_file)
    options = _chosen(runbook_base, webhook, time_scale)
    for tool in missing_tools():
        output.line(f"{tool} is not installed; skipping its checks", err=True)
    reports = list(problems(render(slos, options)))
    if against:
        reports += write.check(against, render(slos, options, form=form))
    for report in reports:
        output.lines(report)
    if reports:
        msg = f"{len(reports)} problem(s) found"
        raise CommandError(msg)
    output.line(f"{len(slos.slos)} SLOs: no problems")


def _chosen(
    runbook_base: str | None, webhook: str | None, time_scale: float
) -> Options:
    from jaxmon.artifacts.alerts import Options

    given = {"runbook_base": runbook_base, "webhook": webhook}
    chosen = {name: value for name, value in given.items() if value is not None}
    return Options(scale=time_scale, **chosen)


def missing_tools() -> list[str]:
    """Return the programs that `problems` would run but that are not installed."""
    return [tool for tool in ("promtool", "amtool") if shutil.which(tool) is None]


def problems(files: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems that promtool and amtool, if installed, find in *files*."""
    from jaxmon import subprocesses
    from jaxmon.artifacts.alerts.build import ALERTMANAGER, ALERTS, RECORDING
    from jaxmon.files import scratch

    rules = ("check", "rules", "--lint=all", "--lint-fatal", RECORDING, ALERTS)
    routing = ("check-config", ALERTMANAGER)
    with scratch.directory("jaxmon-") as directory:
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
        for tool, arguments in (("promtool", rules), ("amtool", routing)):
            if (program := shutil.which(tool)) is None:
                continue
            command = [program, *arguments]
            try:
                done = subprocesses.run(command, seconds=_SECONDS, cwd=directory)
            except OSError as error:  # TimeoutError, too
                yield f"{tool}: {error}\n"
                continue
            if done.code:
                yield f"{tool}: {done.out}{done.err}"
