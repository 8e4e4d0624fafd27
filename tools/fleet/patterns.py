"""Lives that say whether rules are right: a quiet one, and budgets that burn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tools.fleet import layout
from tools.fleet.faults import Fault
from tools.fleet.layout import DAY, Pod
from tools.fleet.replay import Firing


HOUR = 3600.0
_FIRST_DAY = 5
_CLUSTER = "c0"


@dataclass(frozen=True)
class Burn:
    """
    What happens to the requests of one service within 30 days, from the sixth on.

    Args:
        kind: of the faults.
        amount: see `Fault`.
        hours: how long each lasts.
        times: how many there are, one every *every* hours.
        speed: of all requests, relative to those recorded.
    """

    text: str
    amount: float
    hours: float
    times: int = 1
    every: float = 24.0
    speed: float = 1.0
    kind: str = "errors"

    def faults(self, job: str, start: float) -> Iterator[Fault]:
        """Yield the faults of *job* in a simulation that starts at *start*."""
        for number in range(self.times):
            begins = start + _FIRST_DAY * DAY + number * self.every * HOUR
            ends = begins + self.hours * HOUR
            yield Fault(self.kind, _CLUSTER, job, begins, ends, self.amount)


BURNS = (
    Burn("all requests fail for 20 minutes", 1.0, 1 / 3),
    Burn("all requests fail for 2 minutes", 1.0, 1 / 30),
    Burn("2 % fail for 2 hours", 0.02, 2),
    Burn("0.8 % fail for 12 hours", 0.008, 12),
    Burn("0.4 % fail for a day", 0.004, 24),
    Burn("0.15 % fail for 4 days", 0.0015, 96),
    Burn("0.05 % fail for 20 days, half the budget", 0.0005, 480),
    Burn("all fail for 1 minute a day, 20 times", 1.0, 1 / 60, 20),
    Burn("3 % fail for 10 minutes every 2 hours, for 2 days", 0.03, 1 / 6, 24, 2),
    Burn("4 requests a minute, all fail for 40 minutes", 1.0, 2 / 3, speed=0.002),
    Burn("4 requests a minute, one in 20 fails for 5 days", 0.05, 120, speed=0.002),
    Burn("no request finishes for an hour", 1.0, 1, kind="hang"),
    Burn("nothing happens", 0.0, 1),
)


def burning(start: float) -> tuple[list[Pod], list[Fault], dict[str, Burn]]:
    """Return a service for each of `BURNS`, their faults, and which is whose."""
    jobs = 2 * len(BURNS)
    shape = layout.Shape(
        processes=layout.WORKERS * jobs, clusters=1, jobs=jobs, churn=False
    )
    by_job = {f"serve-{2 * index}": burn for index, burn in enumerate(BURNS)}
    pods = []
    for pod in layout.pods(shape, start, start + 30 * DAY):
        if burn := by_job.get(pod.job):
            lives = tuple(
                replace(one, speed=one.speed * burn.speed) for one in pod.lives
            )
            pods.append(replace(pod, lives=lives))
    faults = [one for job, burn in by_job.items() for one in burn.faults(job, start)]
    return pods, faults, by_job


def burn_table(found: Sequence[Firing], by_job: dict[str, Burn], start: float) -> str:
    """Return which alerts fired for which burn, and when, as Markdown."""
    lines = [
        "| what happens | alert | severity | pace | times | after | resolved after |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for job, burn in by_job.items():
        begins = start + _FIRST_DAY * DAY
        mine: dict[tuple[str, str, str], list[Firing]] = {}
        for one in found:
            labels = dict(one.labels)
            if labels.get("job") == job and one.severity != "info":
                pace = (
                    f"{labels['factor']}x of {labels['long']}"
                    if "factor" in labels
                    else ""
                )
                mine.setdefault((one.alert, one.severity, pace), []).append(one)
        for (alert, severity, pace), firings in sorted(mine.items()):
            last = firings[-1].end
            over = begins + ((burn.times - 1) * burn.every + burn.hours) * HOUR
            ends = "never" if last is None else _span(last - over)
            lines.append(
                f"| {burn.text} | {alert} | {severity} | {pace} | {len(firings)} | "
                f"{_span(firings[0].start - begins)} | {ends} |"
            )
        if not mine:
            lines.append(f"| {burn.text} | none | | | | | |")
    return "\n".join(lines) + "\n"


def quiet_table(found: Sequence[Firing], start: float) -> str:
    """Return what fired although nothing was wrong, as Markdown."""
    if not found:
        return "Nothing fired.\n"
    kinds = Counter((one.alert, one.severity) for one in found)
    lines = [
        "| alert | severity | times | first after | longest | subject |",
        "|---|---|---:|---:|---:|---|",
    ]
    for (alert, severity), count in kinds.most_common():
        first = next(
            one for one in found if (one.alert, one.severity) == (alert, severity)
        )
        own = dict(first.labels)
        subject = ", ".join(f"{name} {own[name]}" for name in _SUBJECT if name in own)
        after = _span(first.start - start)
        longest = _longest(found, alert, severity)
        lines.append(
            f"| {alert} | {severity} | {count} | {after} | {longest} | {subject} |"
        )
    return "\n".join(lines) + "\n"


def _longest(found: Sequence[Firing], alert: str, severity: str) -> str:
    lengths = [
        one.end - one.start if one.end else float("inf")
        for one in found
        if (one.alert, one.severity) == (alert, severity)
    ]
    longest = max(lengths)
    return _span(longest) if longest < float("inf") else "does not end"


_SUBJECT = (
    "cluster",
    "job",
    "route",
    "function",
    "loop",
    "instance",
    "worker",
    "factor",
    "long",
)


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    sign, minutes = ("-" if minutes < 0 else ""), abs(minutes)
    days, minutes = divmod(minutes, 1440)
    hours, minutes = divmod(minutes, 60)
    parts = [
        f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n
    ]
    return sign + (" ".join(parts) or "0m")
