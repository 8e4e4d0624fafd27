"""The dashboards that a command is about: generated, or from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.artifacts.dashboards import Format
    from jaxmon.grafana.content import Dashboard
    from jaxmon.grafana.push import Folder


Choice: TypeAlias = Literal["auto", "classic", "v2"]


@dataclass(frozen=True)
class Generation:
    """What shapes generated dashboards, as the command line has it."""

    slo_file: Path | None
    runbook_base: str | None
    datasource: str | None = None

    def rendered(self, form: Format = "classic") -> dict[str, str]:
        """Return the generated dashboards, in the model *form*, by file name."""
        from jaxmon.cli.extras import require

        require("dashboards", "grafana_foundation_sdk")
        from jaxmon.artifacts.dashboards import Options, render_all

        default = Options()
        return render_all(
            Options(
                slo=self.slo_file,
                runbooks=self.runbook_base or default.runbooks,
                datasource=self.datasource or default.datasource,
            ),
            form,
        )

    def dashboards(self, files: Sequence[Path], form: Choice) -> list[Dashboard]:
        """
        Return the dashboards in *files*, in their models, without any those that are
        generated.
        """
        from jaxmon.grafana import content

        if not files:
            return self._generated(form)
        if form != "auto" or self.slo_file or self.runbook_base or self.datasource:
            msg = (
                "--slo, --runbook-base, --datasource and --format apply to generated "
                "dashboards; give either these or FILES"
            )
            raise click.UsageError(msg)
        found = content.load(files)
        if not found:
            msg = "no dashboards: the given directories have no *.json files"
            raise CommandError(msg)
        return found

    def _generated(self, form: Choice) -> list[Dashboard]:
        from jaxmon.grafana import content

        if form != "auto":
            return content.parse_all(self.rendered(form))
        twins = {one.uid: one for one in content.parse_all(self.rendered("v2"))}
        return [
            replace(one, twin=twins[one.uid])
            for one in content.parse_all(self.rendered("classic"))
        ]


def folder_of(uid: str, title: str = "") -> Folder:
    """
    Return the folder that the options name.

    Raises:
        UsageError: the uid is invalid.
    """
    from jaxmon.grafana.content import is_uid
    from jaxmon.grafana.push import Folder

    if not is_uid(uid):
        msg = f"--folder={uid!r} is invalid; give 1 to 40 letters, digits, - or _"
        raise click.UsageError(msg)
    return Folder(uid, title)
