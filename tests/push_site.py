"""
What tests of `jaxmon dashboards` share: a Grafana, two dashboards, and what holds after
every push.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon_dashboards.grafana.content import digest
from jaxmon_dashboards.grafana.models import content
from tests.fakes.grafana import FakeGrafana
from tests.fakes.grafana_models import resource
from tests.fakes.grafana_rows import TOKEN
from tests.support import Result


PUSHER = "sa-1-jaxmon"

# For what only one of Grafana's models has.
CLASSIC = pytest.mark.parametrize("model", ["classic"])
V2 = pytest.mark.parametrize("model", ["v2"])
# For many cases of what both have.
MANY = pytest.mark.parametrize(
    "model", ["classic", pytest.param("v2", marks=pytest.mark.exhaustive)]
)

# Requests that save a dashboard, and those that write anything, in either model.
SAVE = "^(POST /api/dashboards/db|(POST|PUT) /apis/)"
WRITE = "^(POST|PUT)"

ONCALL: dict[str, Any] = {
    "uid": "jaxmon-oncall",
    "title": "On-call",
    "tags": ["jaxmon"],
    "schemaVersion": 39,
    "refresh": "30s",
    "panels": [{"id": 1, "type": "stat", "title": "Budget", "options": {"x": 1.0}}],
    "templating": {"list": [{"name": "datasource", "type": "datasource"}]},
    "fromAFutureRelease": {"kept": ["as", "it", "is"]},
}
DEBUG: dict[str, Any] = {
    **ONCALL,
    "uid": "jaxmon-debug",
    "title": "Debug",
    "panels": [{"id": 1, "type": "timeseries", "title": "Compiles"}],
}


@dataclass
class Site:
    """A Grafana, a directory with two dashboards, and what pushes there printed."""

    grafana: FakeGrafana
    directory: Path
    printed: list[str] = field(default_factory=list)
    url: str = ""
    options: tuple[str, ...] = ()
    token: str = TOKEN

    def __post_init__(self) -> None:
        self.url = self.url or self.grafana.url
        (self.directory / "dashboards").mkdir()
        self.write(ONCALL)
        self.write(DEBUG)

    @property
    def model(self) -> str:
        """The model of the dashboards in the directory, and of those made by hand."""
        return self.grafana.model

    @property
    def backups(self) -> list[Path]:
        return sorted((self.directory / "backups").glob("*.json"))

    def write(self, body: dict[str, Any]) -> None:
        """Make the classic *body*, in our model, what is to be pushed under its uid."""
        path = self.directory / "dashboards" / f"{body['uid']}.json"
        path.write_text(json.dumps(resource(body) if self.model == "v2" else body))

    def pushed_elsewhere(self, body: dict[str, Any]) -> None:
        """Let another push, by another release, save *body*."""
        row = self.grafana.rows[body["uid"]]
        written = resource(body) if self.model == "v2" else body
        message = f"jaxmon push 9 sha256:{digest(written)}"
        changes = {key: value for key, value in body.items() if key != "uid"}
        row.notes["jaxmon/pushed"] = f"{message} generation:{row.generation + 1}"
        self.grafana.edit(body["uid"], author=PUSHER, message=message, **changes)

    def run(
        self,
        command: str,
        *options: str,
        files: tuple[str, ...] | None = None,
        **environ: str | None,
    ) -> Result:
        """Run a subcommand in this process, by default on the directory."""
        if files is None:
            files = (str(self.directory / "dashboards"),)
        done = CliRunner().invoke(
            main,
            [
                "dashboards",
                command,
                *("--url", self.url),
                *self.options,
                *options,
                *files,
            ],
            env={"GRAFANA_TOKEN": self.token, "NO_PROXY": None, **environ},
        )
        self.printed += [done.stdout, done.stderr, repr(done.exception)]
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Result(done.exit_code, done.stdout, done.stderr)

    def push(
        self,
        *options: str,
        files: tuple[str, ...] | None = None,
        **environ: str | None,
    ) -> Result:
        """
        Run ``push``; what it prints fits a terminal of 80 columns, addresses aside.
        """
        backups = ("--backup-dir", str(self.directory / "backups"))
        done = self.run("push", *backups, *options, files=files, **environ)
        if "json" not in options:
            wide = [line for line in done.out.splitlines() if len(line) > 80]
            assert [line for line in wide if "/" not in line] == []
        return done

    def outcomes(self, *options: str) -> tuple[int, dict[str, str]]:
        """Push and return the exit code and the outcome of each dashboard."""
        done = self.push("--output", "json", *options)
        found = json.loads(done.out)["dashboards"]
        return done.code, {one["uid"]: one["outcome"] for one in found}


def check_site(site: Site) -> None:
    """Assert what holds after every case; see the docstring of this module."""
    site.grafana.faults.clear()
    site.push()
    before = site.grafana.writes
    site.push()
    assert site.grafana.writes == before, "one more push wrote something"
    assert site.grafana.violations == [], site.grafana.violations
    saved = [content(json.loads(path.read_text())) for path in site.backups]
    for row in site.grafana.rows.values():
        for old, new in zip(row.versions, row.versions[1:], strict=False):
            if new.author == PUSHER != old.author:
                assert content(old.body) in saved, f"{row.uid}: an edit was lost"
    for path in site.backups:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert leaks(site) == []


def leaks(site: Site) -> list[str]:
    """Return where the token is found."""
    texts = {f"printed {i}": text for i, text in enumerate(site.printed)}
    texts |= {
        str(path): path.read_text()
        for path in site.directory.rglob("*")
        if path.is_file() and path.name != "token"
    }
    for i, seen in enumerate(site.grafana.seen):
        texts[f"request {i}"] = f"{seen.line} {seen.headers} {seen.body!r}"
    for row in site.grafana.rows.values():
        texts[row.uid] = repr(row)
    return [where for where, text in texts.items() if site.token in text]
