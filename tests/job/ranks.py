"""What ranks of a job report, made up."""

from typing import Any


STEP = "__main__.train_step"


def report(
    index: int,
    *,
    count: int = 4,
    calls: int | None = 812,
    state: str = "python",
    function: str = "",
    place: str = "train.py:58",
    activity: str = "",
    lock: bool = False,
    age: float | None = 60.0,
    usual: float = 0.0,
    step_age: float | None = None,
    fingerprint: str = "f00d",
    coordinator: str = "10.0.0.1:1234",
    starved: float | None = None,
    **of_sidecar: Any,
) -> dict[str, Any]:
    """Return what the rank *index* reports, and its sidecar of it."""
    functions = {} if calls is None else {STEP: {"calls": calls, "devices": 8}}
    if functions:
        functions[STEP]["fingerprint"] = fingerprint  # type: ignore[assignment]
    loops = {}
    if step_age is not None:
        loops["train"] = {"steps": 100, "age_seconds": step_age}
    return {
        "schema": 1,
        "index": index,
        "count": count,
        "coordinator": coordinator,
        "host": f"host-{index // 8}",
        "pid": 1000 + index,
        "observed_seconds": 500.0,
        "loops": loops,
        "functions": functions,
        "pace": {"age_seconds": age, "usual_seconds": usual},
        "now": {
            "state": state,
            "place": place,
            "function": function,
            "activity": activity,
            "lock": lock,
            "seconds": age or 0.0,
            "stack": [f"{place} in main"],
        },
        "compiling": {"count": 0, "seconds": 0.0, "function": ""},
        "starved_ratio": starved,
        "worker": str(index),
        "since_seconds": 0.0,
        "trouble": "",
        "stopped": False,
        "ended": "",
        "ended_seconds": 0.0,
        **of_sidecar,
    }


def waiting(number: int, *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
    """Return ranks that wait in a call of `STEP`."""
    return [
        report(first + one, state="device", function=STEP, **options)
        for one in range(number)
    ]


def fetching(index: int, **options: Any) -> dict[str, Any]:
    """Return a rank of eight that waits for results."""
    return report(index, count=8, state="fetch", place="train.py:60", **options)


def ranks(number: int, **options: Any) -> list[dict[str, Any]]:
    """Return ranks that do this and that."""
    states = ("device", "python", "data_wait", "fetch")
    return [
        report(one, state=states[one % 4], calls=811 + one % 2, **options)
        for one in range(number)
    ]
