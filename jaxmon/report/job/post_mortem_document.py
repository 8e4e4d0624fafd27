"""How jobs failed, as JSON types."""

from __future__ import annotations

from typing import Any

from jaxmon.report.job import SCHEMA
from jaxmon.report.job.failures import Ending, Failure
from jaxmon.report.job.post_mortem import Found, PostMortem
from jaxmon.report.job.post_mortem_text import reached, verdict, what
from jaxmon.report.job.records import Host


_MOST_NUMBERS = 1000


def document(found: Found) -> dict[str, Any]:
    """Return *found* as JSON types; of each list of numbers, at most a thousand."""
    return {
        "schema": SCHEMA,
        "failed": any(job.failed for job in found.jobs),
        "jobs": [_job_document(one) for one in found.jobs],
        "hosts": [_host(one) for one in found.hosts if not one.trouble],
        "silent": [
            {"target": one.target, "trouble": one.trouble}
            for one in found.hosts
            if one.trouble
        ],
        "others": found.others,
        "unknown_rank": [_failure(one, None) for one in found.unknown[:_MOST_NUMBERS]],
    }


def _job_document(job: PostMortem) -> dict[str, Any]:
    def listed(of: tuple[Failure, ...]) -> list[dict[str, Any]]:
        return [_failure(one, job.first) for one in of[:_MOST_NUMBERS]]

    return {
        "coordinator": job.coordinator,
        "processes": job.count,
        "hosts": job.hosts,
        "failed": job.failed,
        "verdict": verdict(job),
        "first": None if job.first is None else _failure(job.first, None),
        "together": listed(job.together),
        "later": listed(job.later),
        "consequences": listed(job.consequences),
        "waiting": job.waiting[:_MOST_NUMBERS],
        "running": sorted(n for one in job.running for n in one.numbers)[
            :_MOST_NUMBERS
        ],
        "finished": job.finished[:_MOST_NUMBERS],
        "missing": job.missing[:_MOST_NUMBERS],
        "restarted": job.restarted[:_MOST_NUMBERS],
    }


def _failure(one: Failure, first: Failure | None) -> dict[str, Any]:
    words = one.rank.words
    return {
        "rank": one.rank.index,
        "host": one.rank.host,
        "target": one.host.target,
        "pid": one.rank.pid,
        "ending": one.ending.value,
        "what": what(one),
        "code": words.code if one.ending is Ending.EXIT else None,
        "of_peers": one.of_peers,
        "where": words.where,
        "function": words.function,
        "reached": list(reached(one)),
        "time": one.time,
        "uncertainty_seconds": (one.last - one.first) / 2,
        "seconds_after_first": None if first is None else one.time - first.time,
        "oom_kills": one.rank.oom_kills,
        "host_oom_kills": one.rank.host_oom_kills,
    }


def _host(host: Host) -> dict[str, Any]:
    return {
        "target": host.target,
        "clock_ahead_seconds": None if host.time is None else host.time - host.asked,
        "uncertainty_seconds": host.within,
        "xids": [
            {"uuid": one.uuid, "xid": one.xid, "time": host.asked - one.age_seconds}
            for one in host.xids
        ],
    }
