"""The verdict on made-up ranks of a job, and which of them make it slower."""

from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.model import Job, Slowness, Suspects, Verdict
from jaxmon.job.text import lines
from jaxmon.job.verdict import judge


def judged(*documents: dict[str, Any], **options: Any) -> Job:
    """Return the verdict on the only job of a host with these ranks."""
    [job] = judge([host("host-1:9467", {"ranks": list(documents)})], **options).jobs
    return job


def only(job: Job) -> Suspects:
    """Return the only suspects."""
    [found] = job.suspects
    return found


def text(job: Job) -> str:
    """Return what is printed, as one line."""
    return " ".join(" ".join(lines(Verdict((job,)), 100)).split())


def slowness(*ranks: dict[str, Any], **of_host: Any) -> Slowness:
    """Return who makes the job of *ranks* slower, which gets on, on one host."""
    [job] = judge([host("host-1:9467", {"ranks": list(ranks), **of_host})]).jobs
    assert job.slowness is not None
    return job.slowness


def named(found: Slowness) -> list[int | None]:
    """Return the ranks that are slow now."""
    return [one.rank.index for one in found.stragglers]
