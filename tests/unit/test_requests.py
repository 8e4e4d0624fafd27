"""Requests that a program marks."""

import asyncio
from typing import get_args

import pytest

import jaxmon
from jaxmon.catalog import (
    REQUEST_OUTCOMES,
    REQUEST_SECONDS,
    REQUESTS,
    REQUESTS_IN_PROGRESS,
)
from jaxmon.indicators import requests as open_request
from jaxmon.indicators import routes
from jaxmon.indicators.routes import (
    Outcome,
    RequestRoute,
    Routes,
    Tenant,
    TenantRoute,
)
from jaxmon.indicators.work import mark_cold
from tests.helpers.indicators import recording


COUNT, IN_PROGRESS = REQUESTS.name, REQUESTS_IN_PROGRESS.name
SECONDS_COUNT = f"{REQUEST_SECONDS.name}_count"


# --- what is counted ----------------------------------------------------------


def test_a_request_is_counted_when_it_ends(recorded):
    """Until then it is in progress; all its series are there, at 0."""
    with jaxmon.request("predict"):
        assert recorded.value(IN_PROGRESS, route="predict") == 1
        assert len(recorded.values(COUNT, route="predict")) == 9
        assert recorded.values(SECONDS_COUNT, route="predict") == []
        assert recorded.requests() == {}

    assert recorded.value(IN_PROGRESS, route="predict") == 0
    assert recorded.requests() == {("predict", "success", "warm"): 1}
    assert recorded.values(SECONDS_COUNT, outcome="success", start="warm") == [1]
    assert recorded.values(SECONDS_COUNT) == [1]


def test_latency_is_kept_by_outcome_and_start(recorded):
    """What took long and failed is not among the latencies of what succeeded."""
    for outcome in get_args(Outcome):
        with jaxmon.request("predict") as request:
            request.outcome = outcome
            mark_cold()
    with jaxmon.request("predict"):
        pass

    for outcome in REQUEST_OUTCOMES:
        labels = {"route": "predict", "outcome": outcome, "start": "cold"}
        assert recorded.values(SECONDS_COUNT, **labels) == [1]
    warm = recorded.values(SECONDS_COUNT, start="warm")
    assert warm == recorded.values(SECONDS_COUNT, outcome="success", start="warm")
    assert warm == [1]


def test_an_exception_is_an_error_and_goes_on(recorded):
    """The caller gets the very exception, and the agent is notified."""
    problem = ValueError("no")
    with pytest.raises(ValueError, match="no") as caught, jaxmon.request("predict"):
        raise problem

    assert caught.value is problem
    assert recorded.errors == [problem]
    assert recorded.requests() == {("predict", "error", "warm"): 1}


@pytest.mark.parametrize("gone", [asyncio.CancelledError, GeneratorExit])
def test_a_cancelled_request_is_no_error(recorded, gone):
    """Who left before the answer came is a client's fault, not the service's."""
    with pytest.raises(gone), jaxmon.request("predict"):
        raise gone

    assert recorded.requests() == {("predict", "client_error", "warm"): 1}


def test_the_program_may_say_how_it_ended(recorded):
    """Its word overrides what left the block, and may come early."""
    with jaxmon.request("predict") as request:
        request.outcome = "client_error"
        request.end()
        assert recorded.value(IN_PROGRESS) == 0

    assert recorded.requests() == {("predict", "client_error", "warm"): 1}


def test_requests_within_a_request_are_part_of_it(recorded):
    """Only the outermost is counted, and it learns of the cold."""
    inner = jaxmon.request("inner")

    @inner
    def answer():
        with inner, inner:
            mark_cold()

    with jaxmon.request("outer") as request, inner as same:
        assert same is request
        answer()

    with inner:
        pass
    assert recorded.requests() == {
        ("outer", "success", "cold"): 1,
        ("inner", "success", "warm"): 1,
    }


def test_labels_are_bounded():
    """Routes beyond the limit share one, and each look-up of one is counted."""
    with recording(limit=2) as recorded:
        for route in ("a", "b", "c", "d", "c", "a"):
            with jaxmon.request(route):
                pass

        assert recorded.value(COUNT, route="a") == 2
        assert recorded.value(COUNT, route="other") == 3
        assert recorded.overflow()["route"] == 3


def test_what_shares_a_label_is_made_once():
    """What is notified of new ones hears of two routes, and of what others share."""
    routes, notified = Routes(2), []
    routes.on_new.append(lambda: notified.append(len(routes.kept)))
    found = {routes.of(str(name)).name for name in range(50)}

    assert found == {"0", "1", "other"}
    assert notified == [1, 2, 3]


@pytest.mark.parametrize(
    ("ages", "lately"),
    [((500, 300, 100), 3), ((700, 300, 100), 2), ((500, 300, 130), 0), ((), 0)],
)
def test_callers_who_left_long_ago_have_not_lately(monkeypatch, ages, lately):
    """All are counted; those of ten minutes if one did in the last two."""
    route = RequestRoute("predict")
    for age in ages:
        monkeypatch.setattr(routes, "now", lambda age=age: 1_000.0 - age)
        TenantRoute(route, Tenant("acme")).leave()
    monkeypatch.setattr(routes, "now", lambda: 1_000.0)

    assert route.left.value == len(ages)
    assert route.left_lately() == lately


# --- nobody records, or recording fails ---------------------------------------


def test_nothing_happens_where_nobody_records():
    """Blocks run, decorated functions return, exceptions pass."""
    with jaxmon.request("predict") as request:
        request.outcome = "success"
        mark_cold()
    assert jaxmon.request("predict")(len)("abc") == 3
    with pytest.raises(KeyError), jaxmon.request("predict"):
        raise KeyError


def test_a_request_across_the_end_of_recording_is_dropped():
    """Neither the old figures nor the new ones hear of it."""
    with recording() as old:
        request = jaxmon.request("predict")
        request.__enter__()
    with recording() as new:
        request.__exit__(None, None, None)
        with jaxmon.request("next"):
            pass

        assert old.requests() == {}
        assert new.requests() == {("next", "success", "warm"): 1}


@pytest.mark.contained
@pytest.mark.parametrize(
    ("figures", "method"), [(Routes, "of"), (RequestRoute, "count")]
)
def test_a_failure_of_ours_is_contained(recorded, monkeypatch, figures, method):
    """The request is served; the failure is counted, and logged once."""

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(figures, method, fail)
    for _ in range(20):
        with jaxmon.request("predict"):
            pass

    assert recorded.failures.failures() == {open_request.SITE: 10}


@pytest.mark.contained
def test_an_outcome_that_is_none_is_contained(recorded):
    """A word that is not in the catalogue makes no series."""
    with jaxmon.request("predict") as request:
        request.outcome = "fine"  # type: ignore[assignment]

    assert recorded.requests() == {}
    assert recorded.value(IN_PROGRESS) == 0
    assert recorded.failures.failures() == {open_request.SITE: 1}


def test_a_forked_child_leaves_the_parents_requests_alone(preloaded_script):
    """Blocks open at a fork end without the parent's locks; the child counts anew."""
    program = """
import os, sys, threading
import jax, jaxmon
from tests.helpers import inside
from tests.helpers.agents import SILENT, samples

def count(agent, route):
    return sum(v for s, v in samples(agent).items()
               if s.startswith("jaxmon_requests_total") and f'"{route}"' in s)

agent = jaxmon.instrument(**SILENT)
figures = inside.indicators(agent)
locked, go = threading.Event(), threading.Event()
def hold():
    with figures.timeline._lock, figures.routes.of("outer")._lock:
        locked.set()
        go.wait()
with jaxmon.request("outer"), jaxmon.activity("work"):
    for step in jaxmon.steps([1]):
        threading.Thread(target=hold).start()
        locked.wait()
        pid = os.fork()
        if pid:
            go.set()
            _, status = os.waitpid(pid, 0)
    if pid == 0:
        child = jaxmon.instrument(**SILENT)
        with jaxmon.request("own"):
            pass
        assert count(child, "own") == 1 and count(child, "outer") == 0
        print("child", flush=True)
if pid == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(status) == 0
assert count(agent, "outer") == 1
print("parent")
"""
    done = preloaded_script(program).ok()

    assert done.out.split() == ["child", "parent"]
