"""What a report begins with: the process, the answer, numbers and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from jaxmon.formats.layout import UNKNOWN, amount, duration, share, size
from jaxmon.report.html.elements import NOTHING, Html, element, folded, prose, text
from jaxmon.report.programs import label
from jaxmon.report.runs.model import Found, Reason, Run
from jaxmon.report.sections import won_back
from jaxmon.settings import RUNBOOKS


_STATES = {
    "running": ("", "still running"),
    "finished": ("good", "finished"),
    "crashed": ("bad", "crashed"),
}
_FEW = 10
_TAGS = {"failure": "Failure", "time": "Time", "hint": "Hint", "note": "Note"}


def title(run: Run) -> str:
    """Return the title of the page."""
    return f"{label(run.snapshot.process.program) or 'a process'} · jaxmon"


def header(run: Run) -> Html:
    """Return the line on the process."""
    process = run.snapshot.process
    tone, state = _STATES.get(run.state, ("", run.state))
    name = element("span", text(label(process.program) or f"pid {process.pid}"))
    heading = element("h1", text("jaxmon"), name)
    since, until = _moment(process.started), _moment(process.now)
    when = f"{since} to {until} UTC" if since else f"{until} UTC"
    facts = [
        f"pid {process.pid}" if process.pid is not None else "",
        f"worker {run.worker}" if run.worker else "",
        run.host,
        when,
        f"observed for {duration(process.observed_seconds)}",
    ]
    sentence = " · ".join(filter(None, facts))
    return element(
        "header",
        element(
            "div",
            heading,
            element("div", text(state), id="state", class_=f"dot {tone}"),
        ),
        element("p", text(sentence), class_="facts"),
    )


def answer(run: Run) -> Html:
    """Return whether users were all right."""
    found = run.answer
    reasons = found.reasons[1:] if found.reasons else ()
    more = [_reason(one) for one in reasons]
    because = found.reasons[0].because if found.reasons else ""
    asked = (
        "Are users all right?" if run.state == "running" else ("Were users all right?")
    )
    return element(
        "section",
        element(
            "div",
            element("h2", text(asked)),
            element("p", text(found.text), id="answer-text"),
            element("p", text(because), class_="because") if because else NOTHING,
            element("ul", *more, id="answer-more") if more else NOTHING,
            element("p", text(found.advice), id="answer-advice")
            if found.advice
            else NOTHING,
        ),
        id="answer",
        class_=found.state,
    )


def _reason(one: Reason) -> Html:
    said = element("span", text(one.text[:1].upper() + one.text[1:]))
    because = element("span", text(f" {one.because}"), class_="because")
    return element("li", said, because if one.because else NOTHING)


def numbers(run: Run) -> Html:
    """Return the numbers that say most."""
    shown = [
        element("div", element("dt", text(name)), element("dd", text(value)))
        for name, value in _numbers(run)
    ]
    return element("dl", *shown, aria_label="Since the start")


def findings(run: Run) -> Html:
    """Return what to change, the most urgent first."""
    observed = run.snapshot.process.observed_seconds
    items = [_finding(one, observed) for one in run.findings]
    few = _FEW if len(items) > _FEW + 1 else len(items)
    quiet = element("p", text(run.quiet), class_="quiet") if run.quiet else NOTHING
    listed = folded(_list(items[:few]), _list(items[few:]), len(items) - few)
    return element(
        "section",
        element("div", element("h2", text("Findings")), class_="head"),
        element("div", quiet, listed, class_="card"),
        id="findings",
    )


def _list(items: Sequence[Html]) -> Html:
    return element("ol", *items, class_="findings") if items else NOTHING


def _finding(one: Found, observed: float) -> Html:
    tag = element("span", text(_TAGS.get(one.urgency, "")), class_=f"tag {one.urgency}")
    evidence = [element("code", text(line)) for line in one.evidence]
    said = [
        text(line) for line in won_back(one.urgency, one.seconds, observed, one.panel)
    ]
    if one.runbook:
        address = f"{RUNBOOKS}{one.runbook}.md"
        said.append(element("a", text(one.runbook), href=address, rel="noreferrer"))
    small = Html(" · ".join(said))
    return element(
        "li",
        element("p", tag, element("strong", text(one.verdict))),
        *evidence,
        element("p", prose(f"Advice: {one.action}")) if one.action else NOTHING,
        element("small", small) if said else NOTHING,
    )


def _numbers(run: Run) -> Iterable[tuple[str, str]]:
    snapshot = run.snapshot
    observed = snapshot.process.observed_seconds
    finished = [one for route in snapshot.requests for one in route.finished]
    count = sum(one.count for one in finished)
    failed = sum(one.count for one in finished if one.outcome == "error")
    if count:
        yield "requests", _count(count)
        yield "of them failed", share(failed, count)
    if steps := sum(loop.steps for loop in snapshot.steps):
        yield "steps", _count(steps)
    took = snapshot.compile_time  # of all threads
    part = share(took, observed) if took <= observed else UNKNOWN
    yield "of the time compiling", part
    users = [one for one in snapshot.functions if not one.internal]
    yield "recompiles", _count(sum(sum(one.recompiles.values()) for one in users))
    if not count:
        yield "errors", _count(sum(sum(one.errors.values()) for one in users))
    peaks = [one.peak for one in snapshot.memory.devices if one.peak]
    if peaks:
        yield "peak of a device", size(max(peaks))
    else:
        peak = snapshot.usual.peak_resident_bytes
        yield "peak on the host", UNKNOWN if peak is None else size(peak)
    if not (count and steps):
        yield "cache hit rate", _hit_rate(run)


def _hit_rate(run: Run) -> str:
    known = [one for one in run.snapshot.functions if one.hits is not None]
    calls = sum(one.calls or 0 for one in known)
    hits = sum(one.hits or 0 for one in known)
    return share(hits, calls) if calls else UNKNOWN


def _count(number: int) -> str:
    many = 100_000
    return amount(number) if number >= many else f"{number:,}"


def _moment(time: float) -> str:
    if not time:
        return ""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""
