"""
The likely cause of what is wrong, in one sentence: out of the findings or, for who may
not see them, of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxmon import catalog
from jaxmon.formats.layout import clean, times
from jaxmon.report.findings.words import WHY
from jaxmon.report.status.model import Reason
from jaxmon.report.status.reading import Reading
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


def explained(
    reasons: Iterable[Reason], verdict: HostVerdict, now: Reading
) -> list[Reason]:
    """Return *reasons* with what is known of their causes."""
    return [{**one, "because": _because(one, verdict, now)} for one in reasons]


def _because(reason: Reason, verdict: HostVerdict, now: Reading) -> str:
    known = verdict.processes
    processes = [known[one] for one in reason["workers"] if one in known]
    if reason["kind"] == "finding":
        return reason["because"]
    found = _found(reason, processes)
    named = (one for one in found if one not in reason["text"])
    return next(named, "") or _counted(reason, now)


def _counted(reason: Reason, now: Reading) -> str:
    """Return which function was recompiled most, if requests wait for compiles."""
    recompiled = {
        key[1:]: count
        for key, count in now.of(catalog.RECOMPILES).items()
        if key[0] in reason["workers"] and count
    }
    if reason["kind"] != "requests_wait" or not recompiled:
        return ""
    (function, cause), count = max(recompiled.items(), key=lambda item: item[1])
    why = f" because {WHY[cause]}" if cause in WHY else ""
    return f"{clean(function)} was recompiled {times(int(count))}{why}."


def _found(reason: Reason, processes: Sequence[ProcessVerdict]) -> Iterator[str]:
    if reason["kind"] == "requests_fail":
        yield from _out_of_memory(processes)
    for topic in _TOPICS.get(reason["kind"], ()):
        every = [one for of in processes for one in of.findings or ()]
        # Of several, the one on the same route or loop, else the most expensive.
        fitting = sorted(
            (one for one in every if one["topic"] == topic),
            key=lambda one: (one["subject"] != reason["subject"], -_cost(one)),
        )
        yield from (text for one in fitting if (text := sentence_of(one)))
    if reason["kind"] == "crashed":
        yield from (one.verdict for one in processes if one.verdict)
    if reason["kind"] == "silent":
        yield from (f"It {one.trouble}." for one in processes if one.trouble)
    if reason["kind"] in _OF_TIME:
        yield from (one.doing for one in processes if one.doing)


def _out_of_memory(processes: Sequence[ProcessVerdict]) -> Iterator[str]:
    """Yield that memory ran out on the line of most failures: JAX's class of exception
    does not say so.
    """
    for process in processes:
        of = {one["topic"]: one for one in process.findings or ()}
        if "oom" in of and "requests" in of:
            where, failures = of["oom"]["where"], of["requests"]["evidence"]
            if where and failures and f" at {where}:" in failures[0]:
                yield sentence_of(of["oom"])


def sentence_of(finding: Mapping[str, Any]) -> str:
    """Return the cause that *finding* names."""
    if finding["topic"] in _IN_EVIDENCE:
        return f"{finding['evidence'][0]}." if finding["evidence"] else ""
    text, where = str(finding["verdict"]), str(finding["where"])
    return f"{text} At {where}." if where and where not in text else text


def _cost(finding: Mapping[str, Any]) -> float:
    return float(finding["seconds"])
