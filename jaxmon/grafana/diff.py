"""How a stored dashboard differs from the one that should be there."""

from __future__ import annotations

from difflib import unified_diff

from jaxmon.grafana.client import Stored
from jaxmon.grafana.content import lines
from jaxmon.grafana.plan import Step


def diff(step: Step) -> list[str]:
    """Return a unified diff of the contents, stored to desired; empty when equal."""
    stored = step.observed
    found = lines(stored.body) if isinstance(stored, Stored) else []
    name = (
        f"{step.desired.uid} in Grafana, version {stored.version}"
        if isinstance(stored, Stored)
        else f"{step.desired.uid} in Grafana: none"
    )
    return list(
        unified_diff(
            found,
            lines(step.desired.body),
            name,
            f"{step.desired.uid} as generated",
            lineterm="",
        )
    )
