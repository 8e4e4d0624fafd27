"""What a process does lately, and what one that marks nothing calls."""

from typing import Any

import pytest

from jaxmon.facts.process import read
from jaxmon.facts.status import CallRate
from jaxmon.screens.time_table import doing
from jaxmon.symptoms.unmarked import call_text, calling
from tests.helpers.findings import findings
from tests.helpers.sidecars import START, Worker, reading, status


SERVES, STORE, REST = "serve.py:82", "store.py:5", "pace.py:60"


def period(*places: tuple[str, str, float], seconds: float = 100.0) -> dict[str, Any]:
    """Return a period in which places took so many seconds, by state."""
    return {
        "seconds": seconds,
        "looks": 1000,
        "states": {},
        "places": [
            {
                "state": state,
                "place": place,
                "seconds": took,
                "activity": "rest" if place == REST else "",
            }
            for state, place, took in places
        ],
    }


CASES = {
    "blocked more than before": (
        period(("device", SERVES, 50.0), ("blocked", STORE, 30.0)),
        period(("device", SERVES, 5000.0), ("blocked", STORE, 10.0), seconds=1e4),
        f"Lately, 30 % of the time goes to {STORE} (blocked outside of JAX).",
    ),
    "as before": (
        period(("device", SERVES, 50.0), ("blocked", STORE, 5.0)),
        period(("device", SERVES, 50.0), ("blocked", STORE, 5.0)),
        f"Lately, 50 % of the time goes to {SERVES} (running jitted functions).",
    ),
    "idle": (period(("idle", SERVES, 99.0)), period(("idle", SERVES, 99.0)), ""),
    "rests, as it says": (period(("blocked", REST, 90.0)), period(), ""),
    "hardly anything": (period(("python", SERVES, 2.0)), period(), ""),
    "unknown": ({}, period(("python", SERVES, 90.0)), ""),
}


@pytest.mark.parametrize("name", CASES)
def test_it_names_the_line_whose_part_grew_most(name: str) -> None:
    """Of lines whose part did not grow it is the largest; none if all are small."""
    recent, since_start, text = CASES[name]
    time = {"recent": recent, "since_start": since_start}
    assert doing(read({"time": time})) == text


def test_what_is_compiled_there_is_named() -> None:
    """If all compiles on that line are of one function."""
    of_step, other = (
        {"state": "compile", "place": SERVES, "function": name, "seconds": 40.0}
        for name in ("m.step", "m.other")
    )
    for places, what in (([of_step], " m.step"), ([of_step, other], "")):
        time = {"recent": {**period(), "places": places}}
        assert f"goes to {SERVES} (compiling{what})." in doing(read({"time": time}))


LOOP = "train.py:9"
STEPS = {"m.step": 30.0, "m.init": 0.1}


def looks(*places: tuple[str, str, str, float], count: int = 1000) -> dict[str, Any]:
    """Return a period of 100 s: state, function, loop and seconds of its places."""
    names = ("state", "function", "loop", "seconds")
    found = [dict(zip(names, place, strict=True)) for place in places]
    states = {
        name: {"seconds": sum(place[3] for place in places if place[0] == name)}
        for name, *_ in places
    }
    return {"seconds": 100.0, "looks": count, "states": states, "places": found}


STEADY = looks(("fetch", "", LOOP, 90.0), ("device", "m.step", LOOP, 8.0))
RARE = looks(("fetch", "", LOOP, 98.0))
NO_LOOPS: dict[str, Any] = {
    "called elsewhere": {
        "recent": looks(("fetch", "", LOOP, 90.0), ("device", "m.step", "", 8.0))
    },
    "in two loops": {
        "recent": looks(
            ("device", "m.step", LOOP, 50.0), ("device", "m.step", "train.py:30", 50.0)
        )
    },
    "waits for work": {
        "recent": looks(("idle", "", LOOP, 60.0), ("device", "m.step", LOOP, 40.0))
    },
    "not known to call it": {"recent": RARE, "loops": {"m.other": LOOP}},
    "called in another": {"recent": RARE, "loops": {"m.step": "train.py:30"}},
    "in no loop": {"recent": looks(("device", "m.step", "", 99.0))},
    "few looks": {"recent": {**STEADY, "looks": 40}},
}


@pytest.mark.parametrize("name", NO_LOOPS)
def test_a_loop_is_recognised_only_where_looks_show_it(name: str) -> None:
    """Calls are counted, and are said in any case."""
    time = {"rates": STEPS, **NO_LOOPS[name]}
    assert calling(read({"time": time})) == CallRate("m.step", 30.0, "")


def test_a_loop_is_recognised_from_samples() -> None:
    """By where calls were found; if they are too short for that, by the code."""
    found = CallRate("m.step", 30.0, LOOP)
    for time in ({"recent": STEADY}, {"recent": RARE, "loops": {"m.step": LOOP}}):
        process = {"time": {"rates": STEPS, **time}}
        assert calling(read(process)) == found
        for mark in ("steps", "requests"):
            assert calling(read({**process, mark: {"name": {}}})) == CallRate()
    for rates in ({}, {"m.step": 0.05}, {"m.a": 1.0, "m.b": 1.0, "m.c": 1.0}):
        process = {"time": {"rates": rates, "recent": STEADY}}
        assert calling(read(process)) == CallRate()
    assert call_text(CallRate()) == ""
    text = f"in a repeating loop at {LOOP} (recognised, not marked)."
    assert call_text(found) == f"m.step: 30 calls a second, {text}"


@pytest.mark.parametrize(
    ("calls", "seconds", "said"),
    [
        (30 * 600, 600.0, ""),
        (30 * 60 + 40 * 540, 600.0, ""),
        (30 * 60 + 90 * 540, 600.0, "; before, about 90"),
        (30 * 60 + 90 * 40, 100.0, ""),
    ],
    ids=["steady", "little slower", "slower", "young"],
)
def test_a_loop_that_has_become_slower_has_its_earlier_rate(calls, seconds, said):
    """About, and only far slower ones; what it took to start and compile is apart."""
    whole = {"seconds": seconds + 50, "states": {"compile": {"seconds": 50.0}}}
    time = {"rates": STEPS, "rates_seconds": 60.0, "recent": STEADY}
    facts = {"time": {**time, "since_start": whole}}
    found = calling(read({**facts, "functions": {"m.step": {"calls": calls}}}))

    assert call_text(found).endswith(f"(recognised, not marked){said}.")


def test_a_rate_has_a_window_and_calls_in_it() -> None:
    """What called for the last time a while ago has no rate, but an age."""

    def text(**time: object) -> str:
        return call_text(calling(read({"time": {"rates": STEPS, **time}})))

    assert text(rates_seconds=70.0) == "m.step: 30 calls a second in the last minute."
    assert text(rates_seconds=20.0) == "m.step: 30 calls a second in the last 20 s."
    assert text(call_age=2.0).startswith("m.step: 30 calls a second")
    assert text(call_age=4.0) == "No call for 4.0 s."
    rare = text(rates={"m.step": 1.1}, rates_seconds=70.0, call_age=8.0)
    assert rare.startswith("m.step: 1.1 calls a second")
    now = {"called": ["m.step"]}
    assert text(call_age=180.0, now=now) == "m.step: no call for 3 min."
    assert text(call_age=180.0, jax_age=12.0, now=now) == "m.step: no call for 3 min."
    # It calls what was compiled ahead of time; or waits for what it called last.
    assert text(call_age=180.0, jax_age=2.0, now=now) == ""
    fetches = {**now, "state": "fetch", "seconds": 179.0}
    assert (
        text(call_age=180.0, jax_age=0.0, now=fetches) == "m.step: no call for 3 min."
    )
    waits = {**now, "work": True, "place": "train.py:16"}
    says = "m.step: no call for 3 min; waits for work at train.py:16."
    assert text(call_age=180.0, now=waits) == says
    idle = {
        **period(("idle", "train.py:16", 99.0)),
        "states": {"idle": {"seconds": 99.0}},
    }
    time = {"since_start": idle, "recent": idle, "now": waits}
    (finding,) = [f for f in findings(time=time) if f.topic == "idle"]
    assert "If some is due, find the thread" in finding.action
    assert text(call_age=180.0, now={**now, "function": "m.step"}) == ""
    assert text(rates={"m.step": 0.134}, rates_seconds=7.0) == ""
    several = {"called": ["m.step", "m.other"]}
    assert text(call_age=180.0, now=several) == "No call for 3 min."


def test_what_a_library_jits_is_named_with_the_line_that_calls_it() -> None:
    """If the program jits something itself, that is what it does."""
    helper = {"package": "optax", "calls": 9}
    places = period(("device", "train.py:9", 50.0))
    places["places"][0]["function"] = "optax.tree_bias_correction"
    time = {"rates": {"optax.tree_bias_correction": 8.0}, "since_start": places}
    process = {"time": time, "functions": {"optax.tree_bias_correction": helper}}
    text = "optax.tree_bias_correction, called at train.py:9: 8 calls a second."
    assert call_text(calling(read(process))) == text
    time["rates"] = {"optax.tree_bias_correction": 8.0, "m.step": 4.0}
    assert calling(read(process)).function == "m.step"


@pytest.mark.parametrize(("seconds", "said"), [(10.0, "10 s"), (60.0, "minute")])
def test_a_rate_of_less_than_a_minute_says_so(seconds: float, said: str) -> None:
    """``ps`` counts for a second; what is silent then may not be for a minute."""
    worker = Worker()
    worker.requests(9)
    before = reading(worker, at=START + 600.0 - seconds)
    silent = status(worker, before=before).answer.text
    assert silent == f"Yes, as far as known: no request and no step in the last {said}."
    worker.steps(20, 0.1)
    found = status(worker, before=before).answer.text
    lately = "" if said == "minute" else f", in the last {said}"
    assert found.startswith(f"Yes{lately}: ")
    assert found.endswith(" a second in loop train.")
