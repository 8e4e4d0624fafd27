"""The finding on requests that waited for compiles which were recorded."""

from typing import Any

import pytest

from tests.helpers.findings import findings, function


def route(cold: int, seconds: float, *, warm: int = 100) -> dict[str, Any]:
    """Return a route with *cold* requests of that mean, and *warm* ones of 0.5 s."""
    kinds = (("cold", cold, seconds), ("warm", warm, 0.5))
    return {
        "finished": [
            {
                "outcome": "success",
                "start": start,
                "count": count,
                "mean_seconds": mean,
                "p50_seconds": mean,
            }
            for start, count, mean in kinds
            if count
        ]
    }


SIGNATURES = {"recorded": 14, "omitted": 0, "warmed": 0, "failed": 0}


def test_requests_that_waited_for_recorded_compiles_are_found() -> None:
    """With how many and for how long, in all and by route."""
    requests = {"/chat": route(8, 5.5), "/embed": route(2, 3.0), "/ping": route(0, 0)}
    (finding,) = findings(requests=requests, signatures=SIGNATURES)

    assert finding.topic == "cold_requests"
    assert finding.verdict == (
        "10 requests, most to /chat, waited about 45.0 s for compiles that a warm-up "
        "would have avoided."
    )
    assert finding.evidence == (
        "/chat: 8 requests, 40.0 s",
        "/embed: 2 requests, 5.0 s",
    )
    assert "14 signatures" in finding.action
    assert finding.seconds == 4.0  # all that was compiled


@pytest.mark.parametrize(
    "different",
    [
        {"signatures": {**SIGNATURES, "recorded": 0}},
        {"signatures": {**SIGNATURES, "warmed": 3}},
        {"requests": {"/chat": route(8, 2.0)}},
        {"requests": {"/chat": route(8, 5.5, warm=0)}},
        {"process": {"observed_seconds": 86_400.0, "now": 90_000.0}},
    ],
    ids=["not recorded", "warmed up", "soon over", "never warm", "long ago"],
)
def test_others_are_not(different: dict[str, Any]) -> None:
    """A warm-up could not have avoided it, or it is not worth one."""
    parts = {"requests": {"/chat": route(8, 5.5)}, "signatures": SIGNATURES}
    assert findings(**{**parts, **different}) == []


def test_requests_that_wait_come_before_what_happens_once() -> None:
    """
    What they waited for is the time that compiling took, and a hint comes later; other
    compiles are a finding of their own if they take much of the time.
    """
    parts: dict[str, Any] = {
        "requests": {"/chat": route(8, 20.5)},
        "signatures": SIGNATURES,
        "cache": {"enabled": False, "obstacles": {"no_directory": {"count": 1}}},
    }

    def compiling(seconds: float) -> Any:
        return function(phases={"backend_compile": {"seconds": seconds}})

    found = findings(**parts, functions=compiling(170.0))
    assert [one.topic for one in found] == ["cold_requests", "cache"]
    assert found[0].seconds == 160.0
    del parts["cache"]
    found = findings(**parts, functions=compiling(170.0))
    assert [one.topic for one in found] == ["cold_requests"]
    found = findings(**parts, functions=compiling(300.0))
    assert [one.topic for one in found] == ["cold_requests", "compile_share"]


def test_of_a_function_that_keeps_recompiling_its_recompiles_are_found() -> None:
    """The next process would have others."""
    (finding,) = findings(
        requests={"/chat": route(8, 5.5)},
        signatures=SIGNATURES,
        functions=function(calls=100, recompiles={"shape": 50}),
    )
    assert finding.topic == "recompile"


def warmed(minutes: float, **of: Any) -> list[Any]:
    """Return what is found of a process that was ready so long ago."""
    found = {
        "name": "serve.predict",
        "signatures": 31,
        "calls": 12_340,
        "used": 24,
        "unused": 7,
        "unused_signatures": ["[1]: float32[7,4]", "[1]: float32[9,4]"],
        "seconds": 41.0,
        **of,
    }
    now = 100_000.0
    ready = {
        "since": now - 60 * minutes,
        "warmed": [found],
        "where": "serve.py:12",
    }
    process = {"observed_seconds": 60 * minutes, "now": now}
    return findings(ready=ready, process=process)


def test_what_is_warmed_in_vain_is_found() -> None:
    """With the line that warms up, what that took, and which they are."""
    (finding,) = warmed(120)

    assert (finding.topic, finding.where) == ("warmed_in_vain", "serve.py:12")
    assert finding.verdict == (
        "A warm-up took 41.0 s for 7 signatures that no call has used in the 2 h since "
        "the process is ready."
    )
    assert finding.evidence == (
        "serve.predict, 7 of 31: [1]: float32[7,4]; [1]: float32[9,4]",
    )
    assert "jaxmon signatures export --used" in finding.action


def test_it_is_not_found_before_it_is_known() -> None:
    """Nor if it took no time, or all were used."""
    assert warmed(30) == []
    assert warmed(120, seconds=0.2) == []
    assert warmed(120, unused=0, seconds=0.0) == []
