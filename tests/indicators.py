"""Figures of marks without an agent and without JAX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jaxmon.agent.guard import Guard
from jaxmon.catalog import REQUESTS
from jaxmon.indicators import recorder
from jaxmon.indicators.figures import Indicators


@contextmanager
def recording(limit: int = 200) -> Iterator[Recorded]:
    """Record what is marked while the block runs."""
    recorded = Recorded(limit)
    recorder.attach(recorded)
    try:
        yield recorded
    finally:
        recorder.detach(recorded)


class Recorded(Indicators):
    """Indicators that can be inspected, and that keep reported errors."""

    def __init__(self, limit: int) -> None:
        self.errors: list[BaseException] = []
        self.failures = Guard()
        super().__init__(limit, self.failures, on_error=self.errors.append)

    def requests(self) -> dict[tuple[str, ...], float]:
        """
        Return route, outcome and start of the requests that ended, with their number.
        """
        return {
            tuple(part.split('"')[1] for part in one.split(",")): value
            for one, value in self.samples().items()
            if one.startswith(REQUESTS.name) and value
        }

    def samples(self) -> dict[str, float]:
        """Return the value of every series."""
        return {one: value for f in self.collect() for one, value in f.samples}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the series called *name* whose labels include *labels*."""
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the series called *name* whose labels include *labels*."""
        wanted = [f'{label}="{text}"' for label, text in labels.items()]
        return [
            value
            for one, value in self.samples().items()
            if one.partition("{")[0] == name and all(want in one for want in wanted)
        ]
