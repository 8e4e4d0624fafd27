"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.indicators import Recorded, recording


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Return what is recorded while the test runs."""
    with recording() as found:
        yield found
