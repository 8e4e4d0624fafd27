"""``jaxmon generate``: write the generated files, or check them."""

from __future__ import annotations

from pathlib import Path

from jaxmon.cli import output
from jaxmon.cli.main import require
from jaxmon.cli.options import DIRECTORY, flag, option, subcommand
from jaxmon.errors import CommandError


OWNED: tuple[str, ...] = ("alerts", "dashboards")
"""Directories whose files are all generated, beside the packages that make them."""


def render() -> dict[str, str]:
    """Return every generated file as text by path, relative to the repository."""
    require("generate", "grafana_foundation_sdk")
    from jaxmon.cli import reference
    from jaxmon.cli.main import load, main
    from jaxmon_alerts import rules, slo
    from jaxmon_dashboards import boards

    return {
        "docs/cli.md": reference.commands(main, "jaxmon"),
        reference.INTERNALS: reference.internals(),
        "docs/metrics.md": reference.metrics(),
        reference.OPTIONS: reference.options_module(),
        "docs/settings.md": reference.settings(load("exporter")),
        "alerts/slo.yaml": slo.default(),
        **_in("alerts", rules.render()),
        **_in("dashboards", boards.render_all()),
    }


def _in(directory: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{directory}/{name}": text for name, text in files.items()}


@subcommand()
def command(
    *, out: Path = option(DIRECTORY, default="."), check: bool = flag()
) -> None:
    """
    Write the generated files, or check them.

    They are generated from the catalogue of metrics, the settings, the commands, the
    objectives and the JAX internals in use.

    Options:
        out: Directory to write below.
        check: Write nothing; exit with 1 and list what would change.

    Example:
      jaxmon generate --check
    """
    from jaxmon.host.files import whole

    artifacts = render()
    if not check:
        for path in whole.write_all(out, artifacts, owned=OWNED):
            output.line(path)
        return
    reports = list(whole.check(out, artifacts, owned=OWNED))
    for report in reports:
        output.lines(report)
    if reports:
        msg = f"{len(reports)} generated file(s) out of date; run: jaxmon generate"
        raise CommandError(msg)
