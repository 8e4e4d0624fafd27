"""The likely cause of what is wrong, in one sentence, out of the findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxmon.report.status.model import Reason
from jaxmon.report.status.verdicts import HostVerdict, ProcessVerdict


_COMPILES = ("recompile", "recompiles", "operations", "compiled_together")
_TOPICS: Mapping[str, Sequence[str]] = {
    "requests_fail": ("requests", "oom", "error"),
    "requests_hang": ("hanging", "stalled"),
    "requests_wait": (*_COMPILES, "cold_requests", "compile_share"),
    "loop_stuck": ("stalled",),
    "loop_slow": ("slower",),
    "nonfinite": ("nonfinite", "nonfinite_value"),
}
"""Which findings say why, the first that there is; by the kind of reason."""

# Otherwise, where its time goes lately.
_OF_TIME = ("requests_hang", "requests_slow", "loop_stuck", "loop_slow")
# What these say first, their reason has said already.
_IN_EVIDENCE = ("requests",)


def explained(reasons: Iterable[Reason], verdict: HostVerdict) -> list[Reason]:
    """Return *reasons* with what is known of their causes."""
    return [{**one, "because": _because(one, verdict)} for one in reasons]


def _because(reason: Reason, verdict: HostVerdict) -> str:
    known = verdict.processes
    processes = [known[one] for one in reason["workers"] if one in known]
    if reason["kind"] == "finding":
        return reason["because"]
    found = _found(reason, processes)
    return next((one for one in found if one not in reason["text"]), "")


def _found(reason: Reason, processes: Sequence[ProcessVerdict]) -> Iterator[str]:
    for topic in _TOPICS.get(reason["kind"], ()):
        every = [one for of in processes for one in of.findings or ()]
        # Of several, the one on the same route or loop, else the most expensive.
        fitting = sorted(
            (one for one in every if one["topic"] == topic),
            key=lambda one: (one["subject"] != reason["subject"], -_cost(one)),
        )
        yield from (text for one in fitting if (text := sentence_of(one)))
    if reason["kind"] == "silent":
        yield from (f"It {one.trouble}." for one in processes if one.trouble)
    if reason["kind"] in _OF_TIME:
        yield from (one.doing for one in processes if one.doing)


def sentence_of(finding: Mapping[str, Any]) -> str:
    """Return the cause that *finding* names."""
    if finding["topic"] in _IN_EVIDENCE:
        return f"{finding['evidence'][0]}." if finding["evidence"] else ""
    text, where = str(finding["verdict"]), str(finding["where"])
    return f"{text} At {where}." if where and where not in text else text


def _cost(finding: Mapping[str, Any]) -> float:
    return float(finding["seconds"])
