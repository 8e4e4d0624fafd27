"""
Checkpoints by Orbax, against clocks and sizes kept by the program that makes them.

Orbax's clock is between one around the call and one around the slowest part within.
"""

import json
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


# Only the programs import it, which takes half a second.
pytestmark = [
    pytest.mark.ground_truth,
    pytest.mark.skipif(find_spec("orbax") is None, reason="needs orbax-checkpoint"),
]

PROGRAM = ROOT / "tests" / "programs" / "checkpoints.py"
SECONDS, TIME = "jaxmon_checkpoint_seconds", "jaxmon_time_seconds_total"
BYTES, FAILURES = "jaxmon_checkpoint_bytes_total", "jaxmon_checkpoint_failures_total"
AGE, RUNNING = "jaxmon_activity_age_seconds", "jaxmon_activity_running_seconds"
# Orbax reads the wall clock, we and the test monotonic ones.
CLOCKS_DIFFER = 0.005


class Books:
    """What the program found, by the moment at which it looked."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.truth = document["truth"]
        self._found = document["found"]

    def of(self, when: str, name: str, **labels: str) -> float | None:
        """Return one series, `None` if it is not exported."""
        texts = ",".join(f'{label}="{text}"' for label, text in labels.items())
        found: float | None = self._found[when].get(
            f"{name}{{{texts}}}" if texts else name
        )
        return found

    def count(self, when: str, operation: str) -> float:
        """Return how many *operation* were counted."""
        return self.of(when, f"{SECONDS}_count", operation=operation) or 0

    def seconds(self, when: str, operation: str) -> float:
        """Return the sum of their times."""
        return self.of(when, f"{SECONDS}_sum", operation=operation) or 0.0

    def spent(self, when: str, activity: str) -> float:
        """Return the wall time attributed to *activity*."""
        return self.of(when, TIME, activity=activity) or 0.0

    def checkpoint_series(self, when: str) -> list[str]:
        """Return every series of checkpoints."""
        return [s for s in self._found[when] if s.startswith("jaxmon_checkpoint")]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Return the books of one run of the program."""
    directory = tmp_path_factory.mktemp("checkpoints")
    found = run_preloaded(str(PROGRAM), str(directory)).ok()
    return Books(json.loads(found.out.splitlines()[-1]))


@pytest.mark.exhaustive
def test_nothing_is_exported_without_a_checkpoint(books: Books) -> None:
    """Orbax alone makes no series."""
    assert books.checkpoint_series("before") == []


def test_a_save_that_blocks_is_timed(books: Books) -> None:
    """It blocks the program until it is committed, and counts as checkpoint."""
    truth = books.truth
    for operation in ("save", "blocking"):
        assert books.count("sync", operation) == 2
        seconds = books.seconds("sync", operation)
        assert truth["sync_inside"] - CLOCKS_DIFFER <= seconds
        assert seconds <= truth["sync"] + CLOCKS_DIFFER
    spent = books.spent("sync", "checkpoint")
    assert truth["sync_inside"] <= spent <= truth["sync"] + CLOCKS_DIFFER
    assert books.of("sync", RUNNING, activity="checkpoint") == 0


def test_a_save_is_known_from_the_stack(books: Books) -> None:
    """Of processes in which Orbax reports nothing: all but the primary one."""
    assert books.truth["activities"] == ["checkpoint", ""]


def test_bytes_are_those_of_the_arrays(books: Books) -> None:
    """Two saves, and one restore, of the same tree: to the byte."""
    size = books.truth["bytes"]
    assert books.of("restore", BYTES, operation="save") == 2 * size
    assert books.of("restore", BYTES, operation="restore") == size


def test_a_restore_is_timed(books: Books) -> None:
    """It is an activity of its own."""
    assert books.count("restore", "restore") == 1
    assert books.seconds("restore", "restore") > 0
    for seconds in (
        books.seconds("restore", "restore"),
        books.spent("restore", "restore"),
    ):
        assert seconds <= books.truth["restore"] + CLOCKS_DIFFER


def test_a_save_in_the_background_blocks_for_a_part_of_it(books: Books) -> None:
    """
    Three saves, of which two wait for the save before. What blocks is the time of the
    calls; the saves themselves last longer, until the last is committed.
    """
    truth, before = books.truth, "restore"
    assert books.count("async", "save") - books.count(before, "save") == 3
    assert books.count("async", "wait") == 3
    blocked = books.seconds("async", "blocking") - books.seconds(before, "blocking")
    waited = books.seconds("async", "wait")
    whole = books.seconds("async", "save") - books.seconds(before, "save")
    assert 0 < waited <= blocked <= truth["async_blocking"] + 3 * CLOCKS_DIFFER
    # Each second spent on them is spent in a call, or at the end.
    assert blocked + truth["async_drain"] <= whole + 3 * CLOCKS_DIFFER
    assert whole <= 3 * truth["async"]
    spent = books.spent("async", "checkpoint") - books.spent(before, "checkpoint")
    assert blocked - 3 * CLOCKS_DIFFER <= spent
    assert spent <= truth["async_blocking"] + 3 * CLOCKS_DIFFER


def test_a_save_is_in_progress_until_it_is_committed(books: Books) -> None:
    """Its age counts from the commit, not from the return of the call."""
    for number in range(3):
        assert books.of(f"async_{number}", RUNNING, activity="checkpoint")
    assert books.of("async", RUNNING, activity="checkpoint") == 0
    age = books.of("async", AGE, activity="checkpoint")
    assert age is not None
    assert age < books.truth["async_drain"]


def test_a_save_that_fails_is_counted_and_renews_no_age(books: Books) -> None:
    """On the spot, in the background for want of space, and when restoring."""
    assert books.of("failed", FAILURES, operation="save") == 1
    assert "File too large" in books.truth["error"]
    assert books.of("full", FAILURES, operation="save") == 2
    assert books.of("full", FAILURES, operation="restore") == 1
    assert books.count("full", "save") == books.count("async", "save")
    assert books.of("full", RUNNING, activity="checkpoint") == 0
    ages = [books.of(w, AGE, activity="checkpoint") for w in ("async", "full", "later")]
    assert ages == sorted(ages, key=lambda age: age or 0.0)


def test_time_after_a_failure_is_no_checkpoint(books: Books) -> None:
    """The loop that goes on ends it."""
    spent = books.spent("failed", "checkpoint") - books.spent("async", "checkpoint")
    assert spent < books.spent("failed", "step") - books.spent("async", "step")
    assert books.spent("later", "checkpoint") == books.spent("full", "checkpoint")


def test_what_the_program_marks_keeps_its_name(books: Books) -> None:
    """Another thread has no wall time of its own; a mark is more than a guess."""
    for when, before in (("thread", "later"), ("marked", "thread")):
        assert books.count(when, "save") - books.count(before, "save") == 1
        assert books.spent(when, "checkpoint") == books.spent(before, "checkpoint")
    assert books.spent("marked", "evaluate") > 0


def test_checkpoints_of_flax_are_those_of_orbax(books: Books) -> None:
    """`flax.training.checkpoints` needs no marks either; it restores NumPy arrays."""
    pytest.importorskip("flax")
    truth, before = books.truth, "marked"
    assert books.count("flax_save", "save") - books.count(before, "save") == 1
    saved = books.seconds("flax_save", "save") - books.seconds(before, "save")
    assert truth["flax_inside"] - CLOCKS_DIFFER <= saved
    assert saved <= truth["flax"] + CLOCKS_DIFFER
    size = books.of("flax_save", BYTES, operation="save") or 0
    assert size - (books.of(before, BYTES, operation="save") or 0) == truth["bytes"]
    assert books.count("flax", "restore") - books.count(before, "restore") == 1
    restored = books.seconds("flax", "restore") - books.seconds(before, "restore")
    assert 0 < restored <= truth["flax_restore"] + CLOCKS_DIFFER


def test_the_overview_lists_them(books: Books) -> None:
    """By operation, with failures and bytes."""
    found, size = books.truth["overview"], books.truth["bytes"]
    assert found["save"]["count"] == 7
    assert found["save"]["failures"] == 2
    assert found["save"]["failed_in_a_row"] <= 2
    assert found["save"]["bytes"] == 7 * size
    assert found["save"]["in_progress"] == 0
    assert found["restore"]["failures"] == 1
    assert books.truth["failures"] == 0


def test_each_is_a_span_of_its_step(books: Books) -> None:
    """Those outside of a loop begin a trace; a failed one says so."""
    spans = [one for one in books.truth["spans"] if "checkpoint " in one["name"]]
    seen = Counter(
        (one["attributes"]["jaxmon.operation"], one["parent"], outcome(one))
        for one in spans
    )
    flax = "flax" in books.truth
    assert seen == {
        ("save", "step train", "success"): 5,
        ("restore", None, "success"): 1 + flax,
        ("save", "step train", "error"): 1,
        ("restore", None, "error"): 1,
        ("save", None, "error"): 1,
        ("save", None, "success"): 2 + flax,
    }
    sync = [one for one in spans if one["parent"] and outcome(one) == "success"][:2]
    seconds = sum(one["seconds"] for one in sync)
    assert books.truth["sync_inside"] - CLOCKS_DIFFER <= seconds
    assert seconds <= books.truth["sync"] + CLOCKS_DIFFER
    for one in sync:
        blocked = one["attributes"]["jaxmon.blocked_seconds"]
        assert blocked <= one["seconds"] + CLOCKS_DIFFER


def outcome(span: dict[str, Any]) -> str:
    """Return how what *span* describes ended."""
    found: str = span["attributes"]["jaxmon.outcome"]
    return found
