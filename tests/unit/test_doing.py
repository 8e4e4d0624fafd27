"""What a process does lately, as one sentence."""

from typing import Any

import pytest

from jaxmon.facts.process import read
from jaxmon.screens.time_table import doing


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
