"""Values that are made when they are read, at most so often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from jaxmon_exporter.pages import Refreshed
from tests.helpers.processes import refuse_threads


EVERY, PATIENCE = 10.0, 8.0


class Source:
    """A value whose making a test holds up, on a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cost = self.spent = 0.0
        self.made = 0
        self.errors: list[BaseException] = []
        self.go = threading.Event()
        self.go.set()
        self.refreshed = Refreshed(
            self._make,
            self.errors.append,
            every=EVERY,
            patience=PATIENCE,
            clock=lambda: self.now,
            cpu=lambda: self.spent,
        )

    def _make(self) -> int:
        self.made += 1
        self.spent += self.cost
        assert self.go.wait(90)
        if self.made == 2:
            msg = "the second fails"
            raise ValueError(msg)
        return self.made

    def read(self) -> tuple[int, float] | None:
        """Read as a client does that waits."""
        if (waiting := self.refreshed.refresh()) is not None:
            waiting.result(90)
        return self.refreshed.latest()

    @contextmanager
    def held(self) -> Iterator[Future[None]]:
        """Begin a making that takes until the block ends."""
        self.go.clear()
        making = self.refreshed.refresh()
        assert making is not None
        try:
            yield making
        finally:
            self.go.set()
            making.result(90)


def test_readers_share_what_is_made() -> None:
    """However many read, it is made once in ten seconds, and its age is known."""
    source = Source()
    assert source.refreshed.latest() is None
    with source.held() as making:
        assert [source.refreshed.refresh() for _ in range(50)] == [making] * 50
    source.now += EVERY - 1
    assert [source.read() for _ in range(50)] == [(1, EVERY - 1)] * 50
    assert source.made == 1
    source.now += 1
    source.read()
    assert source.made == 2


def test_a_failure_leaves_the_value_and_is_not_repeated_at_once() -> None:
    """What cannot be made is reported once per turn; the next turn makes it again."""
    source = Source()
    source.read()
    source.now += EVERY
    assert [source.read() for _ in range(3)] == [(1, EVERY)] * 3
    assert [str(error) for error in source.errors] == ["the second fails"]
    source.now += EVERY
    assert source.read() == (3, 0.0)


def test_what_takes_too_long_delays_no_one_further() -> None:
    """A making that is late continues; readers get what was known before."""
    source = Source()
    source.read()
    source.now += 2 * EVERY
    source.made = 5
    with source.held():
        source.now += PATIENCE + 1
        assert source.refreshed.refresh() is None
        assert source.refreshed.latest() == (1, 2 * EVERY + PATIENCE + 1)
    assert source.refreshed.latest() == (6, PATIENCE + 1)


def test_what_is_costly_is_made_less_often() -> None:
    """Readers make the sidecar use a tenth of a core at most."""
    source = Source()
    source.made, source.cost = 5, 4.0
    source.read()
    source.now += 39
    assert source.read() == (6, 39.0)
    source.now += 1
    source.cost = 0.0
    assert source.read() == (7, 0.0)
    source.now += EVERY
    assert source.read() == (8, 0.0)


def test_without_threads_the_value_is_old(monkeypatch):
    """If no thread can be started, that is reported, and nothing waits for it."""
    source = Source()

    refuse_threads(monkeypatch)
    assert source.read() is None
    assert [str(error) for error in source.errors] == ["can't start new thread"]
    monkeypatch.undo()
    source.now += EVERY
    assert source.read() == (1, 0.0)
