"""``jaxmon alerts``: rules and routing from ``slo.yaml``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import Number, with_options
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.artifacts.alerts import Options
    from jaxmon.artifacts.alerts.build import Format
    from jaxmon.artifacts.slo import Slos

# Of promtool, and of amtool.
_SECONDS = 60.0

_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(["prometheus", "prometheusrule", "mimir"]),
        default="prometheus",
        show_default=True,
        help=(
            "Write rule files, one PrometheusRule resource, or one namespace for the "
            "ruler of Mimir."
        ),
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


@click.group
def command() -> None:
    """
    Recording rules, alerts and routing, from slo.yaml.

    One file defines the objectives and all other limits; without it, the
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
    help="Objectives and limits.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="alerts",
    show_default=True,
    help="Directory to write to.",
)
@with_options(*_OPTIONS)
def build(
    *,
    slo_file: Path | None,
    out: Path,
    form: Format,
    time_scale: float,
) -> None:
    """Write the files and list those that changed."""
    from jaxmon.artifacts import slo, write
    from jaxmon.artifacts.alerts import Options, render

    files = render(slo.load(slo_file), Options(scale=time_scale), form=form)
    for name in write.write(out, files):
        output.line(out / name)


@command.command(
    epilog=(
        "\b\nExit codes:\n  0 the file is valid\n  1 it is invalid, or the rules of "
        "--against differ\n\n\b\nExample:\n  "
        "jaxmon alerts check slo.yaml --against alerts"
    )
)
@click.argument(
    "slo_file", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option(
    "--against",
    metavar="DIRECTORY|URL",
    help=(
        "Compare with the files in this directory, or with the rules that the "
        "Prometheus at this URL has loaded, and report differences."
    ),
)
@with_options(*_OPTIONS)
def check(
    *,
    slo_file: Path | None,
    against: str | None,
    form: Format,
    time_scale: float,
) -> None:
    """
    Validate SLO_FILE and the rules generated from it.

    Runs promtool and amtool as well where they are installed. Writes nothing.
    """
    from jaxmon.artifacts import slo
    from jaxmon.artifacts.alerts import Options, render

    slos = slo.load(slo_file)
    options = Options(scale=time_scale)
    for tool in missing_tools():
        output.line(f"{tool} is not installed; skipping its checks", err=True)
    reports = list(problems(render(slos, options)))
    if against:
        reports += _differences(against, slos, options, form)
    for report in reports:
        output.lines(report)
    if reports:
        msg = f"{len(reports)} problem(s) found"
        raise CommandError(msg)
    output.line(f"{len(slos.slos)} SLOs: no problems")


def _differences(against: str, slos: Slos, options: Options, form: Format) -> list[str]:
    """Return how the rules differ from those in a directory, or at a URL."""
    from jaxmon.artifacts import write
    from jaxmon.artifacts.alerts import all_groups, render
    from jaxmon.cli import loaded

    if against.startswith(("http://", "https://")):
        groups = [one.document() for one in all_groups(slos, options)]
        return [f"{one}\n" for one in loaded.differences(against, groups)]
    if not Path(against).is_dir():
        msg = f"--against={against} is neither a directory nor a URL"
        raise click.UsageError(msg)
    return list(write.check(Path(against), render(slos, options, form=form)))


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
