"""Common base of the parts of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.exposition.families import Family
from jaxmon.host.http.server import Handler


_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Explanation(NamedTuple):
    """
    What a part contributes to the facts of a process, on request: records of
    `jaxmon.facts`. Thread-safe; takes milliseconds at most.

    Attributes:
        sections: by field of `jaxmon.facts.process.Snapshot`.
        functions: by field of `jaxmon.facts.functions.Function`, then by function.
    """

    sections: Mapping[str, Callable[[], Any]] = _EMPTY
    functions: Mapping[str, Callable[[], Mapping[str, Any]]] = _EMPTY


class Part:
    """
    A part of an agent that observes. The default implementations do nothing.

    Attributes:
        name: the site under which its failures are counted.
    """

    name: ClassVar[str]

    def attach(self, hooks: Hooks) -> None:
        """Attach hooks to JAX. If one fails, the others still attach."""

    def start(self) -> None:
        """Start background threads."""

    def refresh(self, *, asked: bool) -> None:
        """
        Update periodic data now.

        Args:
            asked: whether the program requested it, which includes data updated only on
                request.
        """

    def collect(self) -> Iterable[Family]:
        """Return the current metrics. Fast and thread-safe."""
        return ()

    def explain(self) -> Explanation:
        """Return its contribution to the debug overview."""
        return Explanation()

    def flush(self, seconds: float) -> None:
        """Send what is to be sent, waiting at most so many *seconds*."""

    def dropped(self) -> Mapping[str, int]:
        """Return the number of dropped items by kind."""
        return _EMPTY

    def pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the Unix socket, by path."""
        return _EMPTY

    def public_pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the port, by path; no data of the program."""
        return _EMPTY

    def send(self) -> None:
        """
        Begin to send what is left; called before anything stops. Never blocks: all that
        is sent at the end is sent at the same time.
        """

    def stop(self) -> None:
        """
        Stop threads and release data, waiting for nothing beyond the guard's deadline.
        Idempotent.
        """

    def abandon(self) -> None:
        """
        Leave everything to the parent process; called in a forked child. Takes no lock
        and does not block.
        """
