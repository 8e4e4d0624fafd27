"""What `jaxmon doctor` found."""

from __future__ import annotations

from jaxmon.preflight.doctor.finding import Check


def by_status(findings: list[Check]) -> dict[str, list[str]]:
    """Return the texts of *findings* by status."""
    found: dict[str, list[str]] = {}
    for one in findings:
        found.setdefault(one.status, []).append(one.text)
    return found
