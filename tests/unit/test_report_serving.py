"""Findings on queues and batches, from depths and fills as programs have them."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from jaxmon.facts.record import encoded
from jaxmon.indicators.queues import DepthHistory
from jaxmon.symptoms.alert import PAGE
from jaxmon.symptoms.symptom import Finding
from tests.helpers.findings import findings, function, ledger


def found(depth: Callable[[float], float], *, minutes: float) -> list[Finding]:
    """Return the findings on a queue, scraped every 15 s, whose depth is a function."""
    now = 0.0
    history = DepthHistory(clock=lambda: now)
    while now <= minutes * 60:
        history.note(int(depth(now)))
        now += 15
    now -= 15
    return findings(None, queues={"decode": encoded(history.explain())})


GROWING: dict[str, Callable[[float], float]] = {
    "slightly too slow": lambda s: 2 + s / 8,
    "much too slow": lambda s: 50 * s,
    "with bursts": lambda s: s + 40 * random.Random(int(s)).random(),  # noqa: S311 - noise
}
HEALTHY: dict[str, Callable[[float], float]] = {
    "empty": lambda _: 0,
    "bursts that drain": lambda s: (s * 7) % 400,
    "noise": lambda s: 100 + 50 * random.Random(int(s)).random(),  # noqa: S311 - noise
    "bounded": lambda s: min(s * 10, 512),
    "work that arrived at once": lambda s: 0 if s < 120 else 10_000 - s,
    "draining": lambda s: 5_000 - 4 * s,
    "a few": lambda s: s / 60,
    "a deep one that sways": lambda s: 1_000 + 200 * math.sin(s / 20),
}


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("minutes", [5, 10, 60])
def test_a_queue_that_grows_is_found(name: str, minutes: int) -> None:
    """Its lowest depth rises in each third of the time."""
    (finding,) = found(GROWING[name], minutes=minutes)

    assert (finding.topic, finding.subject) == ("queue", "decode")
    assert "more arrives than is served" in finding.verdict


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("minutes", [1, 3, 5, 10, 60])
def test_a_queue_that_does_its_work_is_not(name: str, minutes: int) -> None:
    """A queue may be deep, fill up, or get work at once."""
    assert found(HEALTHY[name], minutes=minutes) == []


def test_the_verdict_quotes_the_depths() -> None:
    """It says from what to what the queue grew, and in which time."""
    (finding,) = found(lambda s: 10 + s, minutes=5)

    assert finding.verdict == (
        "Queue decode grew from 10 to 310 waiting items in 5 min, and never drained: "
        "more arrives than is served."
    )


def padded(fill: float, *, calls: int = 9_000, seconds: float | None) -> list[Finding]:
    """
    Return the findings on batches of that fill, whose program ran so often in the ten
    minutes, for so many seconds.
    """
    samples: dict[str, Any] = {"samples": 9, "execution_mean": seconds}
    routes = {
        "predict": {"batches": {"count": calls, "fill_ratio": fill}},
        "health": {"batches": None, "finished": []},
        "embed": {"batches": {"count": 0, "fill_ratio": None}},
    }
    return findings(
        None, requests=routes, functions=function(calls=calls, samples=samples)
    )


def test_padding_that_takes_time_is_found() -> None:
    """The share of the execution time that went into padding can be won back."""
    (finding,) = padded(0.2, seconds=0.05)

    assert (finding.topic, finding.subject) == ("padding", "predict")
    assert finding.seconds == pytest.approx(0.8 * 9_000 * 0.05)
    assert finding.verdict == (
        "Batches of predict are 80 % padding: 9,000 of them took about 7 min 30 s of "
        "execution, 6 min of it for padding."
    )


def test_padding_counts_where_execution_times_are_unknown() -> None:
    """What the program waits for the device is about what it executes."""
    period = {
        "seconds": 600.0,
        "looks": 6_000,
        "states": {"fetch": {"seconds": 450.0, "error_seconds": 5.0}},
    }
    routes = {"predict": {"batches": {"count": 9_000, "fill_ratio": 0.2}}}
    every = findings(
        None,
        requests=routes,
        functions=function(samples={"samples": 9, "execution_seconds": None}),
        time={"since_start": period},
    )

    (finding,) = [one for one in every if one.topic == "padding"]
    assert finding.seconds == pytest.approx(0.8 * 450.0)


@pytest.mark.parametrize(
    "figures",
    [
        {"fill": 0.9, "seconds": 0.06},
        {"fill": 0.1, "seconds": 0.001},
        {"fill": 0.1, "seconds": None},
        {"fill": 0.1, "seconds": 2.0, "calls": 50},
    ],
)
def test_padding_that_costs_nothing_is_not(figures: dict[str, Any]) -> None:
    """Full or few batches, idle devices and unknown times need no change."""
    assert padded(**figures) == []


def requests_of(finished: int, p95: float, oldest: float, **more: Any) -> list[Finding]:
    """Return the findings on a route with a request in progress for so long."""
    kind = {"outcome": "success", "count": finished}
    warm, cold = (
        {**kind, "start": start, "p95_seconds": seconds}
        for start, seconds in (("warm", p95), ("cold", 60.0))
    )
    route = {"in_progress": 1, "oldest_seconds": oldest, "finished": [cold, warm]}
    return findings(None, requests={"predict": route}, **more)


def test_a_request_that_hangs_is_found_with_its_line() -> None:
    """It is in progress for far longer than others take, and its stack says where."""
    stack = ["store.py:8 in load", "serve.py:30 in handle", "serve.py:9 in <module>"]
    (finding,) = requests_of(
        900, 0.02, 40.0, time={"requests": {"predict": {"stack": stack}}}
    )
    assert (finding.topic, finding.subject) == ("hanging", "predict")
    assert finding.where == "store.py:8"
    assert finding.evidence == tuple(stack)
    assert finding.verdict == (
        "A request to predict has been in progress for 40.0 s, now at store.py:8; 95 % "
        "of warm requests take up to ~20 ms."
    )


def test_a_request_hangs_in_a_line_of_the_program() -> None:
    """Whatever of the standard library that line has called."""
    stack = ["/lib/socket.py:718 in readinto", "store.py:8 in load", "serve.py:9 in m"]
    hangs = {"stack": stack, "place": "store.py:8"}
    (finding,) = requests_of(900, 0.02, 40.0, time={"requests": {"predict": hangs}})
    assert finding.where == "store.py:8"
    assert "now at store.py:8;" in finding.verdict
    assert finding.evidence[:2] == ("store.py:8 in load", f"innermost: {stack[0]}")


def test_the_line_of_a_request_that_hangs_may_be_unknown() -> None:
    """In an event loop no stack is that of the request."""
    (finding,) = requests_of(900, 0.02, 40.0)
    assert (finding.where, finding.evidence) == ("", ())
    assert "in progress for 40.0 s; 95 %" in finding.verdict


@pytest.mark.parametrize(
    ("finished", "p95", "oldest"), [(900, 0.02, 14.0), (900, 2.0, 59.0), (19, 0.02, 99)]
)
def test_a_request_that_takes_its_time_is_not(finished, p95, oldest):
    """It is young, or requests of its kind take long, or nothing is known of them."""
    assert requests_of(finished, p95, oldest) == []


def unanswered(oldest: float, state: str, *outcomes: str, **more: Any) -> list[Finding]:
    """Return the findings on a route with *outcomes* so far, and one in progress."""
    finished = [{"outcome": of, "start": "warm", "count": 1} for of in outcomes]
    route = {"in_progress": 4, "oldest_seconds": oldest, "finished": finished}
    stack = ["web.py:25 in score", "flask/app.py:9 in dispatch"]
    hangs = {"stack": stack, "place": "web.py:25", "state": state}
    time = {"requests": {"/score": hangs}}
    return findings(None, requests={"/score": route}, time=time, **more)


def test_a_route_that_has_answered_none_hangs_after_a_minute() -> None:
    """As after a bad deploy: what its requests usually take is not known."""
    for outcomes in ((), ("client_error",)):
        (finding,) = unanswered(76.0, "python", *outcomes)
        assert (finding.topic, finding.subject) == ("hanging", "/score")
        assert finding.where == "web.py:25"
        assert finding.verdict == (
            "A request to /score has been in progress for 1 min 16 s, now at "
            "web.py:25; none to it has succeeded yet."
        )


@pytest.mark.parametrize("outcome", ["success", "error"])
def test_a_route_that_has_answered_one_may_take_its_time(outcome: str) -> None:
    """How long is not known of so few."""
    assert unanswered(76.0, "python", outcome) == []
    assert unanswered(59.0, "python") == []


def test_a_first_request_that_computes_or_compiles_does_not_hang() -> None:
    """Its first compile takes 90 s, or its program does."""
    for state in ("compile", "device", "fetch"):
        assert unanswered(90.0, state) == []
    compiling = {"count": 1, "oldest_seconds": 88.0}
    assert unanswered(90.0, "python", compiling=compiling) == []


def test_failed_requests_name_what_failed_and_where() -> None:
    """The most frequent failures are the evidence, the first its line."""
    kind = {"outcome": "error", "start": "warm", "count": 50}
    failures = [
        {"error": "status 503", "where": "", "count": 3, "latest": 999.0},
        {"error": "StoreDown", "where": "store.py:8", "count": 40, "latest": 998.0},
        {"error": "", "where": "", "count": 7, "latest": 990.0},
    ]
    route = {"finished": [kind], "failures": failures}
    (finding,) = findings(None, requests={"predict": route})
    assert finding.where == "store.py:8"
    assert finding.evidence == (
        "StoreDown at store.py:8: 40 times, the latest 2 s ago",
        "no exception, and no status: 7 times, the latest 10 s ago",
        "status 503: 3 times, the latest 1 s ago",
    )


def test_checkpoints_are_found_while_the_latest_failed() -> None:
    """Failures before one that succeeded are over."""
    of = {"save": {"failures": 9, "failed_in_a_row": 2}, "restore": {"failures": 1}}
    (finding,) = findings(None, checkpoints=of)
    assert (finding.topic, finding.subject) == ("checkpoint", "save")
    assert finding.verdict == "The latest 2 checkpoint saves failed."


def test_a_handler_that_computes_keeps_the_event_loop() -> None:
    """Others wait for it; what another thread does, or Python, is not JAX's fault."""

    def told(**place: Any) -> list[Finding]:
        one = {"place": "serve.py:9", "state": "fetch", "seconds": 120.0, **place}
        period = {"seconds": 600.0, "looks": 6_000, "places": [one]}
        all_ = findings(time={"since_start": period})
        return [finding for finding in all_ if finding.topic == "event_loop"]

    (only,) = told(event_loop=True)
    assert (only.where, only.seconds) == ("serve.py:9", 120.0)
    assert told(event_loop=True, seconds=50.0) == []
    assert told(event_loop=True, state="idle") == []
    assert told(event_loop=False) == []


@pytest.mark.parametrize(
    ("turns", "turn_seconds", "topic"),
    [(20, 0.9, "event_loop"), (19, 0.9, "blocked"), (20, 0.02, "blocked")],
)
def test_requests_that_wait_for_a_blocked_loop_are_not_all_right(
    turns: int, turn_seconds: float, topic: str
) -> None:
    """Few, or a short wait, prove nothing. Callers who waited long and left page."""
    place = {"place": "serve.py:9", "state": "blocked", "seconds": 75.0}
    period = {"seconds": 100.0, "looks": 1_000, "places": [place]}
    period["states"] = {"blocked": {"seconds": 75.0, "error_seconds": 1.0}}
    time = {"since_start": period, "turns": turns, "turn_seconds": turn_seconds}
    assert [of.topic for of in findings(time=time)] == ["blocked"]
    place["event_loop"] = True
    (only,) = findings(time=time)
    assert (only.topic, only.where) == (topic, "serve.py:9")
    assert "asyncio.to_thread" in only.action
    assert only.severity == ("ticket" if topic == "event_loop" else None)
    if only.severity:
        held = "Coroutines kept the event loop from other requests for 1 min 15 s, 75 %"
        assert only.verdict.startswith(held)
        waited = "lately, requests waited for 0.90 s on average before they reached the"
        assert only.evidence[0].startswith(waited)
        for wait, left, severity in (
            (9, 9, "ticket"),
            (12, 1, "ticket"),  # the others a week ago
            (12, 9, PAGE),
        ):
            time["turn_seconds"] = wait
            route = {"left": 9, "left_lately": left}
            (only,) = findings(time=time, requests={"predict": route})
            assert only.severity == severity


def test_a_handler_that_computes_in_python_keeps_the_event_loop() -> None:
    """If requests wait, and each takes long there, at a line of the program."""

    def topics(waits: float, served: int = 300, **place: Any) -> list[Finding]:
        one = {"place": "serve.py:9", "state": "python", "event_loop": True, **place}
        period = {
            "seconds": 100.0,
            "looks": 1_000,
            "places": [{**one, "seconds": 75.0}],
        }
        period["states"] = {"python": {"seconds": 75.0, "error_seconds": 1.0}}
        time = {"since_start": period, "turns": 20, "turn_seconds": waits}
        counts = {"outcome": "success", "count": 6 * served}
        found = findings(time=time, requests={"predict": {"finished": [counts]}})
        return [of for of in found if of.topic in {"event_loop", "host"}]

    (only,) = topics(0.3)
    assert (only.topic, only.where, only.severity) == (
        "event_loop",
        "serve.py:9",
        "ticket",
    )
    assert "or in another process" in only.action
    healthy = topics(0.02), topics(0.3, 1600), topics(0.3, event_loop=False)
    for of in (*healthy, topics(0.3, place="")):
        assert [finding.topic for finding in of] == ["host"]


@pytest.mark.parametrize(
    ("left", "seconds", "topics"),
    [
        (34, 300.0, ["event_loop"]),
        (34, 290.0, ["callers_left", "event_loop"]),
        (0, 300.0, ["event_loop"]),
    ],
)
def test_callers_who_leave_a_held_event_loop_are_evidence(
    left: int, seconds: float, topics: list[str]
) -> None:
    """What keeps it is the cause, and is said in the answer; a small part is none."""
    place = {"place": "serve.py:9", "state": "fetch", "event_loop": True}
    places = [{**place, "seconds": seconds}]
    period = {"seconds": 600.0, "looks": 6_000, "places": places}
    done = [{"outcome": "client_error", "start": "warm", "count": 49}]
    route = {"left": left, "finished": done}
    found = findings(None, requests={"/score": route}, time={"since_start": period})
    assert [of.topic for of in found] == topics
    held = found[-1]
    is_cause = bool(left) and len(topics) == 1
    assert held.severity == ("ticket" if is_cause else None)
    assert [text[:26] for text in held.evidence] == ["34 callers of /score left "] * (
        is_cause
    )


def failed(**more: Any) -> dict[str, Any]:
    """Return that a thread has failed."""
    error = {"type": "ValueError", "message": "empty job", "where": "work.py:25"}
    found = {"kind": "thread", "name": "consume", "function": "process", **error}
    return {**found, "age_seconds": 51.0, **more}


def test_a_thread_that_fails_is_found_while_others_go_on() -> None:
    """Once, with the latest first: whether another one does its work is not known."""
    earlier = failed(name="reload", type="KeyError", message="", age_seconds=200.0)
    (finding,) = findings(None, time={"failed": [failed(), earlier]})
    assert (finding.topic, finding.subject) == ("thread_failed", "consume")
    assert finding.verdict == (
        "Thread consume ended 51 s ago by an uncaught exception, at work.py:25 in "
        "process: ValueError: empty job."
    )
    (other,) = finding.evidence
    assert other.startswith("earlier, thread reload ended 3 min 20 s ago by KeyError")


@pytest.mark.parametrize(
    "handled", [{"handled": True}, {"kind": "task"}, {"kind": "process", "code": 3}]
)
def test_what_the_program_may_handle_is_not(handled: dict[str, Any]) -> None:
    """By a hook of its own, or when it reads the result."""
    assert findings(None, time={"failed": [failed(**handled)]}) == []


def test_a_thread_that_is_waited_for_is_named_once() -> None:
    """As the cause of what does not get on."""
    waits = {"state": "data_wait", "seconds": 60.0, "gone": [failed()]}
    (finding,) = findings(None, time={"now": waits, "failed": [failed()]})
    assert finding.topic == "stalled"
    assert finding.verdict.startswith("Thread consume ended 51 s ago")


@pytest.mark.parametrize(
    ("left", "finished", "found"), [(34, 49, True), (34, 80, False), (4, 4, False)]
)
def test_a_route_that_most_callers_leave_is_found(
    left: int,
    finished: int,
    found: bool,  # noqa: FBT001
) -> None:
    """With where its threads are meanwhile; a few who leave change their minds."""
    done = [{"outcome": "client_error", "start": "warm", "count": finished}]
    route = {"left": left, "finished": done, "in_progress": 9, "queued": 7}
    blocked = ledger({"blocked": 0.8})
    every = findings(None, requests={"/score": route}, time=blocked)
    of_callers = [finding for finding in every if finding.topic == "callers_left"]
    assert bool(of_callers) == found
    for finding in of_callers:
        assert finding.subject == "/score"
        assert finding.verdict == (
            "34 callers of /score left before a response began, 69 % of 49."
        )
        queued, place = finding.evidence
        assert (
            queued == "of 9 requests in progress, 7 with an item that waits in a queue"
        )
        assert place == "threads were blocked outside of JAX for 8 min: blocked.py:7"


def test_a_thread_that_failed_stands_above_what_hangs() -> None:
    """No stack is that of a task, so the advice speaks of none."""
    time = {"failed": [failed(message="too small.")]}
    (cause, hangs) = requests_of(900, 0.02, 40.0, time=time)
    assert (cause.topic, hangs.topic) == ("thread_failed", "hanging")
    assert cause.verdict.endswith("process: ValueError: too small.")
    assert hangs.action == "`jaxmon explain --stacks` shows all threads."
    (stands,) = unanswered(76.0, "python")
    assert stands.action.startswith("The stack shows what it waits for")
