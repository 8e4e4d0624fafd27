"""The sections of a report one by one: what they say where not all is known."""

from typing import Any

from jaxmon.facts import SCHEMA
from jaxmon.facts.process import read
from jaxmon.screens import tables
from jaxmon.screens.notes import notes as notes_of
from jaxmon.screens.text import functions
from jaxmon.version import version


def notes(page: dict[str, Any]) -> str:
    """Return the notes as one line."""
    return " ".join(line.strip() for line in notes_of(read(page), 80))


def test_another_version_is_noted() -> None:
    """Data of another jaxmon may be missing, and what cannot be is dropped."""
    page: dict[str, Any] = {"schema": SCHEMA, "process": {"jaxmon": version()}}
    assert notes(page) == ""

    assert notes({**page, "process": {"jaxmon": "0.0.1"}}) == (
        f"NOTES The process runs jaxmon 0.0.1, this is {version()}: data "
        "may be missing."
    )
    odd = {"observed_seconds": 1e308, "started": -(10**400), "now": True}
    assert notes({**page, "process": {**page["process"], **odd}}) == (
        "NOTES The process reports implausible values, which are dropped: "
        "observed_seconds, started."
    )


def test_a_crowded_host_is_noted() -> None:
    """Who reads long times learns that the program could not run all the while."""
    text = notes({"usual": {"waiting": 0.62}})

    assert text.startswith(
        "NOTES Threads of this process waited for a processor for 62"
    )
    assert notes({"usual": {"waiting": 0.3}}) == ""


def test_functions_that_are_not_repeated_are_noted() -> None:
    """Who asked for repetitions learns why some functions have none."""
    functions = {
        f"train.f{number}": {"determinism": {"not_repeated": "numpy_argument"}}
        for number in range(10)
    }
    text = notes({"functions": functions})

    assert text.startswith(
        "NOTES Not re-run for determinism checks (shadow_interval): train.f0 "
        "(numpy argument), train.f1 "
    )
    assert text.endswith("train.f7 (numpy argument) and 2 more.")


def test_readiness_that_nobody_announced_is_said_to_be_inferred() -> None:
    """Only of what serves requests, and does not say itself that it is ready."""

    def text(**ready: float) -> str:
        page = {
            "process": {"now": 2000.0},
            "requests": {"/chat": {}},
            "functions": {"f": {"phases": {"trace": {"count": 1, "seconds": 1.0}}}},
            "ready": {"quiet": 800.0, "compiled": 2, **ready},
        }
        return " ".join(functions(read(page)).lines(200))

    assert "Inferred: ready for 20 min, as five minutes without a compile" in text()
    assert "; 2 compiles since then." in text()
    assert "Inferred" not in text(since=900.0)
    assert "Inferred" not in text(quiet=0.0)


def test_growth_is_not_told_after_one_look() -> None:
    """It is unknown whether a line in a single snapshot grew."""
    line = {"file": "a.py", "line": 3, "bytes": 4096, "arrays": 2, "growth_bytes": 0}
    looks = {"time": 90.0, "seconds": 0.0, "lines": [line]}
    page = {"process": {"now": 100.0}, "allocations": looks}

    heading, titles, row = tables.memory_lines(read(page)).lines(80)
    assert heading == "MEMORY BY SOURCE LINE (snapshot 10 s ago)"
    assert titles.split() == ["SIZE", "ARRAYS", "GROWTH", "SOURCE", "LINE"]
    assert row.split() == ["4", "KiB", "2", "-", "a.py:3"]


def test_a_transfer_without_a_line_is_told() -> None:
    """Where no line of the program is known, the column is not blank."""
    line = {"direction": "sync", "how": "unknown", "count": 5, "seconds": 0.5}

    *_, row = tables.transfers(read({"transfers": {"lines": [line]}})).lines(80)
    assert row.split() == ["5", "0", "B", "0.50", "s", "sync", "-"]


def test_loading_is_no_compiling() -> None:
    """What the persistent cache returns is beside what was compiled."""
    phases = {
        name: {"seconds": seconds, "count": 1}
        for name, seconds in (("backend_compile", 4.0), ("cache_retrieval", 30.0))
    }
    one = {"calls": 9, "compiles": {"compiled": 1, "cache_hit": 8}, "phases": phases}
    found = functions(
        read({"process": {"observed_seconds": 40.0}, "functions": {"f": one}})
    )

    assert found.about == (
        ": 4.0 s, 10 % of 40.0 s; 30.0 s of loading from the persistent cache"
    )
    assert [row[-1] for row in found.rows] == ["4.0 s"]
