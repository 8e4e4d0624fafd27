"""A verdict on jobs as JSON types."""

from __future__ import annotations

from typing import Any

from jaxmon.report.job import (
    SCHEMA,
    compiles_text,
    latecomers_text,
    nccl_text,
    skew_text,
    slow_words,
    timeouts_text,
)
from jaxmon.report.job.compiles import wasted
from jaxmon.report.job.model import Job, State, Suspects, Verdict
from jaxmon.report.job.skew import skew
from jaxmon.report.job.text import headline
from jaxmon.report.job.words import advised, does, who


_MOST_NUMBERS = 1000
_MOST_NAMES = 10


def document(verdict: Verdict) -> dict[str, Any]:
    """Return *verdict*; of each list of numbers, at most a thousand."""
    return {
        "schema": SCHEMA,
        "state": worst(verdict).value,
        "jobs": [_job(one) for one in verdict.jobs],
        "silent": [
            {"target": target, "trouble": trouble} for target, trouble in verdict.silent
        ],
        "answered": verdict.answered,
        "others": verdict.others,
        "unknown_rank": verdict.unknown,
        "doubts": [
            {"target": target, "doubt": doubt} for target, doubt in verdict.doubts
        ][:_MOST_NUMBERS],
    }


def worst(verdict: Verdict) -> State:
    """Return the state of the job that is worst, unknown if there is none."""
    live = [one.state for one in verdict.jobs if one.state is not State.ENDED]
    if live:
        return live[0]
    return State.ENDED if verdict.jobs else State.UNKNOWN


def _job(job: Job) -> dict[str, Any]:
    waiting = job.waiting
    return {
        "coordinator": job.coordinator,
        "names": sorted({one.job for one in job.ranks if one.job})[:_MOST_NAMES],
        "processes": job.count,
        "hosts": job.hosts,
        "state": job.state.value,
        "verdict": headline(job),
        "seconds_without_progress": job.seconds,
        "hung_from_seconds": job.limit,
        "waiting": {
            "ranks": waiting.numbers[:_MOST_NUMBERS],
            "number": len(waiting.numbers),
            "function": waiting.function,
            "call": waiting.call,
            "where": waiting.place,
        },
        "suspects": [_suspects(one, job.count) for one in job.suspects],
        "ahead": [_suspects(one, job.count) for one in job.ahead],
        "starved": job.starved[:_MOST_NUMBERS],
        "slowness": slow_words.document(job.slowness),
        "latecomers": latecomers_text.document(job.latecomers),
        "nccl": nccl_text.document(job.nccl),
        "time_limit": timeouts_text.said(job),
        "differ": skew_text.document(skew(job.ranks)),
        "compiled_in_vain": compiles_text.document(wasted(job.ranks)),
    }


def _suspects(suspects: Suspects, count: int) -> dict[str, Any]:
    return {
        "kind": suspects.kind.value,
        "verdict": f"{who(suspects)} {does(suspects)}",
        "action": advised(suspects, count),
        "ranks": suspects.numbers[:_MOST_NUMBERS],
        "number": len(suspects.numbers),
        "function": suspects.function,
        "where": suspects.place,
        "seconds": suspects.seconds,
        "calls": suspects.calls,
        "gone": [str(one) for one in suspects.gone],
        "processes": [
            {
                "rank": one.index,
                "host": one.host,
                "pid": one.pid,
                "worker": one.worker,
                "steps": {of.name: of.steps for of in one.loops},
                "stack": one.now.stack,
            }
            for one in suspects.ranks[:10]
        ],
    }
