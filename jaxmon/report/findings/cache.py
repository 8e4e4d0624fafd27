"""Findings on the persistent cache."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import counted
from jaxmon.report.findings.finding import Finding


NO_CACHE = (
    *("disabled", "no_directory", "below_threshold"),
    *("private_directory", "varying_flags"),
)
"""Obstacles of programs that do without the cache."""


def cache(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect what prevents persistent cache hits."""
    cache = snapshot.cache
    quick = snapshot.compile_time < seconds_in(snapshot.limits.cache_worth)
    for obstacle in cache.obstacles:
        # Most programs have no cache, and start quickly.
        if obstacle.reason in NO_CACHE and quick:
            continue
        yield Finding(
            "cache", obstacle.reason, _sentence(obstacle.message), (), obstacle.advice
        )
    if broken := {kind: n for kind, n in cache.errors.items() if n}:
        counts = " and ".join(
            f"{counted(n, f'{kind} error')}" for kind, n in broken.items()
        )
        failed = [e for e in snapshot.of_kind("cache") if e.details.get("operation")]
        yield Finding(
            "cache",
            "errors",
            f"The persistent cache had {counts}.",
            tuple(event.message for event in failed[-1:]),
            f"Check space and permissions of {cache.directory or 'its directory'}.",
        )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
