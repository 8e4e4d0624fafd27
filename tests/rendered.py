"""
The dashboards as they are rendered from the defaults, and what Grafana's SDK reads.

The classic ones are read from ``dashboards/``, which every worker does as it collects;
`tests.unit.test_artifacts_docs` compares these files with fresh output.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jaxmon_dashboards.boards import render_all
from tests.support import ROOT


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
    """
    Return the query of a panel as `filled`: its only one, or that whose legend is
    *column*.
    """
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
