"""An agent in the process of the test, and a look at what it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from jaxmon.agent import Agent

# No sockets and no thread: most tests ask the agent directly.
SILENT: dict[str, Any] = {"port": None, "socket": False, "memory_interval": 0}


@contextmanager
def instrumented(**settings: Any) -> Iterator[Agent]:
    """Run an agent while the block runs; it serves nothing unless *settings* say so."""
    import jaxmon

    agent = jaxmon.instrument(**{**SILENT, **settings})
    try:
        yield agent
    finally:
        jaxmon.uninstrument()


def samples(agent: Agent) -> dict[str, float]:
    """Return the value of every series that *agent* would export now."""
    return {
        series: value for family in agent.collect() for series, value in family.samples
    }


def value(agent: Agent, name: str, **labels: str) -> float:
    """Return the sum of the series called *name* whose labels include *labels*."""
    wanted = [f'{label}="{text}"' for label, text in labels.items()]
    return sum(
        number
        for series, number in samples(agent).items()
        if series.partition("{")[0] == name and all(one in series for one in wanted)
    )
