"""Fixtures of the unit tests."""

from collections.abc import Iterator

import pytest

from jaxmon.agent.guard import Guard
from jaxmon.agent.scheduler import Scheduler
from tests.helpers.agents import threads


@pytest.fixture
def guard() -> Guard:
    """Return a guard that has seen nothing."""
    return Guard()


@pytest.fixture
def scheduler(guard: Guard) -> Iterator[Scheduler]:
    """Return a scheduler that is stopped after the test, with all that it runs."""
    one = Scheduler(guard)
    yield one
    one.stop()
    assert threads("jaxmon-worker", "jaxmon-scheduler") == []
