"""Each rule names its obstacle where it costs something, and stays silent elsewhere."""

from typing import Any

import pytest

from jaxmon.agent.cache.obstacles import CacheState, UncachedPrograms, obstacles


HEALTHY = CacheState(directory="/cache", asked=True, hits=3, size=10, free=100)
LOST = UncachedPrograms(2, 3.0, {"train.step": 2.5, "train.init": 0.5})

TOTAL: dict[str, dict[str, Any]] = {
    "disabled": {"enabled": False},
    "no_directory": {"directory": None},
    "unusable_directory": {"trouble": "it is not a directory"},
    "not_in_use": {"given_up": "it was configured after the first compile"},
}


def reasons(now: CacheState) -> list[str]:
    return [one.reason for one in obstacles(now)]


def test_a_healthy_cache_has_no_obstacle() -> None:
    """Neither defaults nor a first start are one."""
    assert obstacles(HEALTHY) == []
    assert obstacles(CacheState()) == []
    assert obstacles(HEALTHY._replace(hits=0)) == []


@pytest.mark.parametrize("whole", TOTAL)
def test_what_explains_all_misses_is_named_alone(whole: str) -> None:
    """Who has no cache need not hear of thresholds."""
    now = HEALTHY._replace(refused={"host_callback": LOST}, **TOTAL[whole])

    assert reasons(now) == [whole]


def test_several_obstacles_are_named_together() -> None:
    """Each concerns other programs."""
    refused = {"below_threshold": LOST, "host_callback": LOST}

    assert reasons(HEALTHY._replace(refused=refused)) == [
        "below_threshold",
        "host_callback",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"refused": {"below_threshold": LOST._replace(seconds=0.9)}},
        {"hits": 1, "elsewhere": {"jit_step": "/mnt"}},
        {"size": 101, "max_size": 1000},
        {"size": None},
        {"free": None, "size": 101},
        {"directory": None, "asked": False},
        {"directory": None, "asked": False, "max_size": 0},
    ],
)
def test_what_costs_nothing_is_not_named(change: dict[str, Any]) -> None:
    """Little time, a path that is the same, a limit, or nothing known."""
    assert reasons(HEALTHY._replace(**change)) == []


def test_the_worst_functions_are_named_first() -> None:
    """Three at most: the message is for one screen."""
    functions = {"a": 1.0, "b": 4.0, "c": 2.0, "d": 3.0}
    lost = UncachedPrograms(9, 10.0, functions)

    assert str(lost) == "9 programs (b, d, c, ...), 10.0 s of compiling"
    assert (
        str(UncachedPrograms(1, 2.0, {"a": 2.0})) == "1 program (a), 2.0 s of compiling"
    )


def test_a_path_that_is_only_suspected_is_said_to_be() -> None:
    """What an entry does not reveal may also be a changed program."""
    (known,) = obstacles(HEALTHY._replace(hits=0, elsewhere={"jit_f": "/mnt/b"}))
    (unknown,) = obstacles(HEALTHY._replace(hits=0, elsewhere={"jit_f": None}))

    assert "jit_f created under /mnt/b" in known.message
    assert "changed" not in known.advice
    assert "may be another path" in unknown.message
    assert "the program or the versions changed" in unknown.advice
