"""What is common to all that observes in an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.exposition.families import Family
from jaxmon.http.server import Handler


_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Explanation(NamedTuple):
    """
    What a part tells a person who looks into this process; asked for when it is wanted.
    JSON types only; milliseconds at most, any thread.

    Attributes:
        sections: of the document, by name.
        functions: facts by label of the function, by their name.
    """

    sections: Mapping[str, Callable[[], Any]] = _EMPTY
    functions: Mapping[str, Callable[[], Mapping[str, Any]]] = _EMPTY


class Part:
    """
    Something that observes. What one does not need is left as it is here, and does
    nothing.

    Attributes:
        name: of its failures.
    """

    name: ClassVar[str]

    def attach(self, hooks: Hooks) -> None:
        """Take places in JAX. Each hook fails by itself; others still attach."""

    def start(self) -> None:
        """Start what runs beside the program."""

    def refresh(self, *, asked: bool) -> None:
        """
        Look now at what is looked at regularly.

        Args:
            asked: by the program, also for what is looked at only then.
        """

    def collect(self) -> Iterable[Family]:
        """Return the figures as they are now; quick, any thread."""
        return ()

    def explain(self) -> Explanation:
        """Return what it can tell besides."""
        return Explanation()

    def dropped(self) -> Mapping[str, int]:
        """Return what was left out because there was too much of it, by kind."""
        return _EMPTY

    def pages(self) -> Mapping[str, Handler]:
        """Return pages of its own on the Unix socket, by path."""
        return _EMPTY

    def stop(self) -> None:
        """Stop what runs and forget what it held. Harmless when repeated."""

    def abandon(self) -> None:
        """
        Leave everything to the parent process; called in a forked child. Takes no lock
        and waits for nothing.
        """
