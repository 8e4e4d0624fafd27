"""What would have ended a hang of a job."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.formats.layout import INDENT, wrapped
from jaxmon.report.job.model import FAILED, Job, Kind, State
from jaxmon.report.timeouts import FLAGS, Timeout, timeout


# JAX notices these, and ends the others.
_NOTICED = frozenset((*FAILED, Kind.GONE))


def lines(job: Job, width: int) -> Iterator[str]:
    """Yield what would end the hang of *job*, in lines of at most *width* columns."""
    if text := said(job):
        yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)


def said(job: Job) -> str:
    """Return it; empty if the job does not hang, or nothing is known."""
    if job.state is not State.HUNG or _NOTICED & {one.kind for one in job.suspects}:
        return ""
    setups = [one.setup for one in job.ranks if one.setup]
    known = {(one.get("platform", ""), one.get("jaxlib", "")) for one in setups}
    found = {timeout(*one) for one in known}
    one = found.pop() if len(found) == 1 else None
    if one is None:
        return ""
    values = {setup.get(f"{FLAGS} {one.flag}", "") for setup in setups}
    return _said(one, values)


def _said(one: Timeout, values: set[str]) -> str:
    if values == {""} and not one.default:
        return (
            f"no time limit ends this. {one.assignment} in all processes {one.what}; "
            f"{one.price}"
        )
    shown = ", ".join(sorted(value or one.default or "not set" for value in values))
    return f"{one.flag} is {shown}: it {one.what}"
