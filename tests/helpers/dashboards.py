"""
The dashboards as they are rendered from the defaults, their panels asked as Grafana
would ask for them, and a Grafana to push them to.

The classic ones are read from ``dashboards/``, which every worker does as it collects;
`tests.unit.test_artifacts_docs` compares these files with fresh output.
"""

import json
import math
import os
import re
import stat
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from jaxmon.catalog import BY_NAME
from jaxmon.cli.main import main
from jaxmon_alerts.overviews import OVERVIEWS
from jaxmon_alerts.slo.site import PROCESS_LABELS, SERVICE_LABELS
from jaxmon_dashboards.boards import render_all
from jaxmon_dashboards.grafana.content import content, digest
from tests.fakes.grafana import FakeGrafana
from tests.fakes.grafana_models import resource
from tests.fakes.grafana_rows import TOKEN
from tests.helpers.processes import ROOT, Result, http_get
from tests.helpers.prometheus import Prometheus


RENDERED = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "dashboards").glob("*.json"))
}
DASHBOARDS: dict[str, dict[str, Any]] = {
    name: json.loads(text) for name, text in RENDERED.items()
}

EVERY_DASHBOARD = pytest.mark.parametrize(
    "dashboard", DASHBOARDS.values(), ids=DASHBOARDS
)

_ANYTHING = {"type": "object", "additionalProperties": {}}


@cache
def rendered_v2() -> dict[str, str]:
    """Return the same dashboards in Grafana's v2 model, by file name."""
    return render_all(form="v2")


@cache
def resources() -> dict[str, dict[str, Any]]:
    """Return what `rendered_v2` says."""
    return {name: json.loads(text) for name, text in rendered_v2().items()}


def published(variable: str) -> dict[str, Any]:
    """
    Return the schema of a dashboard in the file that the environment *variable* names.

    It is in jsonschema/ of grafana-foundation-sdk's repository but not in its wheel,
    and not ours to keep here.
    """
    if variable not in os.environ:
        pytest.skip(f"{variable} names no schema of grafana-foundation-sdk")
    schema: dict[str, Any] = _relaxed(
        json.loads(Path(os.environ[variable]).read_text())
    )
    return schema


def _relaxed(schema: Any) -> Any:
    """Return *schema* with "anything" where it says "any object"."""
    if isinstance(schema, dict):
        if schema.items() >= _ANYTHING.items():
            return {}
        return {key: _relaxed(value) for key, value in schema.items()}
    return [_relaxed(one) for one in schema] if isinstance(schema, list) else schema


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels, those of collapsed rows included, rows left out."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def distinct() -> Iterator[dict[str, Any]]:
    """Yield each panel once, though several boards may show it."""
    seen = set()
    for dashboard in DASHBOARDS.values():
        for panel in panels(dashboard):
            if panel["title"] not in seen:
                seen.add(panel["title"])
                yield panel


def filled(text: str, *, over: str) -> str:
    """Return a query with everything chosen, *over* that time, by the minute."""
    windows = {"rate_interval": "2m", "interval": "1m", "range": over}
    text = re.sub(r"\$__(\w+)", lambda found: windows[found[1]], text)
    return re.sub(r"\$(\w+|\{\w+:pipe\})", ".*", text)


def expression(title: str, column: str = "", *, over: str) -> str:
    """Return the query of a panel as `filled`: the only one, or that of *column*."""
    (found,) = (
        target["expr"]
        for panel in distinct()
        if panel["title"] == title
        for target in panel["targets"]
        if column in ("", target["legendFormat"])
    )
    return filled(found, over=over)


def reread(dashboard: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        # The SDK warns of its classic models when they are imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
        text = JSONEncoder().encode(Dashboard.from_json(dashboard))
    return json.loads(text, object_hook=out_of_the_menu)


def out_of_the_menu(read: dict[str, Any]) -> dict[str, Any]:
    # The models put every link and annotation there, whatever they were read from.
    if read.get("placement") == "inControlsMenu":
        del read["placement"]
    return read


Series = list[dict[str, Any]]

# Labels that a site's Prometheus adds, and this one does not.
_SITE = (*SERVICE_LABELS, *PROCESS_LABELS)

VARIABLES: dict[str, dict[str, Any]] = {
    one["name"]: one
    for dashboard in DASHBOARDS.values()
    for one in dashboard["templating"]["list"]
}


class Grafana:
    """
    Asks Prometheus what Grafana would ask for a dashboard.

    Args:
        server: has the data.
        job: what is chosen for the variable ``job``.
        chosen: what is chosen for others; everything by default.
    """

    def __init__(self, server: Prometheus, job: str, **chosen: str) -> None:
        self.job = job
        self._url = f"{server.url}/api/v1"
        self._variables = {
            "__rate_interval": "15s",
            "__interval": "1s",
            "__range": "1m",
            "job": job,
            "instance": ".+",
            "worker": ".*",
            "function": ".*",
            "device": ".*",
            **chosen,
        }

    def expression(self, text: str) -> str:
        """Return *text* with variables filled in; an unknown one is an error."""
        return re.sub(
            r"\$\{?([a-z_]\w*)(:pipe)?\}?",
            lambda found: self._value(found[1], escaped=not found[2]),
            text,
        )

    def _value(self, name: str, *, escaped: bool = True) -> str:
        if name in self._variables:
            return self._variables[name]
        if pattern := VARIABLES[name].get("allValue"):
            return str(pattern)
        # Without a pattern of its own, all of a variable is what was found.
        found = "|".join(self.values(VARIABLES[name]))
        return f"({found})" if escaped else found

    def series(self, text: str, *, instant: bool, seconds: float = 30) -> Series:
        """Return what a query yields now, or over the last *seconds*."""
        now = time.time()
        query = {"query": self.expression(text)}
        data = (
            self._ask("query", **query, time=now)
            if instant
            else self._ask("query_range", **query, start=now - seconds, end=now, step=1)
        )
        found: Series = data["result"]
        return found

    def values(self, variable: Mapping[str, Any]) -> list[str]:
        """Return what a variable's query finds."""
        text: str = variable["definition"]
        if query := re.fullmatch(r"query_result\((.+)\)", text):
            lines = (
                "".join(f'{label}="{value}"' for label, value in one["metric"].items())
                for one in self.series(query[1], instant=True)
            )
            pattern = re.compile(variable["regex"].strip("/"))
            return sorted({found[1] for one in lines if (found := pattern.search(one))})
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", text)
        assert found is not None
        match = self.expression(found[1])
        values: list[str] = self._ask(f"label/{found[2]}/values", **{"match[]": match})
        return values

    def _ask(self, path: str, **parameters: Any) -> Any:
        answer = json.loads(http_get(f"{self._url}/{path}?{urlencode(parameters)}"))
        assert answer["status"] == "success"
        assert not answer.get("warnings")
        assert not answer.get("infos")
        return answer["data"]


def problems(
    grafana: Grafana, panel: dict[str, Any], *, without: tuple[str, ...] = ()
) -> Iterator[str]:
    """
    Say what is wrong with the answers to the queries of *panel*.

    Args:
        grafana: answers.
        panel: as in the dashboard.
        without: labels that a legend may name in vain.
    """
    for target in panel["targets"]:
        name = f"{grafana.job}: {panel['title']} {target['refId']}"
        found = grafana.series(target["expr"], instant=target.get("instant", False))
        if not found:
            yield f"{name}: no data"
        for one in found:
            samples = one.get("values") or [one["value"]]
            values = [float(value) for _, value in samples]
            if all(map(math.isnan, values)):
                yield f"{name}: nothing but NaN in {one['metric']}"
            if panel["fieldConfig"]["defaults"].get("max") == 1 and not all(
                value <= 1.05 for value in values
            ):
                yield f"{name}: {max(values)} is no ratio"
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        seen = {
            label for one in found for label, value in one["metric"].items() if value
        }
        if absent := legend - seen - {*without, *_SITE}:
            yield f"{name}: no series has the label {sorted(absent)}"


# Metrics of which series are recorded.
RECORDED = {one.name: one.metric for one in OVERVIEWS}


def is_sidecars(panel: Mapping[str, Any]) -> bool:
    """Return whether a panel shows what no agent exports by itself."""
    names = re.findall(r"`([\w:]+)`", panel["description"])
    metrics = [BY_NAME.get(one) or RECORDED.get(one) for one in names]
    return any("agent" not in one.sources for one in metrics if one)


def settled(
    probes: Sequence[Callable[[], Iterable[str]]],
    *,
    before: Callable[[], None] = lambda: None,
    seconds: float = 90.0,
) -> None:
    """
    Wait until no probe finds a problem; fail with those that remain.

    Only those that found one are asked again; when none is left, all of them are.

    Args:
        probes: say what is wrong.
        before: called before each round.
        seconds: to wait.
    """
    deadline = time.monotonic() + seconds
    asked = list(probes)
    while True:
        before()
        found = [(probe, list(probe())) for probe in asked]
        failing = [probe for probe, said in found if said]
        if not failing and len(asked) == len(probes):
            return
        if failing:
            if time.monotonic() > deadline:
                problems = [line for _, said in found for line in said]
                pytest.fail("\n".join(problems), pytrace=False)
            time.sleep(1)
        asked = failing or list(probes)


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
        self, *options: str, files: tuple[str, ...] | None = None, **environ: str | None
    ) -> Result:
        """Run ``push``; what it prints fits 80 columns, addresses aside."""
        backups = ("--backup-dir", str(self.directory / "backups"))
        done = self.run("push", *backups, *options, files=files, **environ)
        if "--json" not in options:
            wide = [line for line in done.out.splitlines() if len(line) > 80]
            assert [line for line in wide if "/" not in line] == []
        return done

    def outcomes(self, *options: str) -> tuple[int, dict[str, str]]:
        done = self.push("--json", *options)
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
