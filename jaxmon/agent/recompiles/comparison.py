"""Compares each compile with the earlier ones of its function."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import Call, call_served_by
from jaxmon.agent.jaxlink.configuration import context_of
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.recompiles.causes import Cause, CauseFinder, History, source_of
from jaxmon.agent.recompiles.signature_builder import SignatureBuilder
from jaxmon.agent.recompiles.signatures import Signature


_IN_MESSAGE = 5


class PendingCause(NamedTuple):
    """Compile cause determined beforehand. Holds no user objects."""

    source: str
    history: History | None
    signature: Signature | None
    cause: str | None
    message: str
    details: Mapping[str, Any]


class Comparison:
    """
    Keeps the signatures of compiles, and compares new ones with them.

    Args:
        context: shared state of the agent.
        site: the site under which failures are counted.
    """

    def __init__(self, context: Context, site: str) -> None:
        self._site = site
        self._guard = context.guard
        self._events = context.events
        settings = context_of(context.jax)
        self._signatures = SignatureBuilder(context.jax, settings.values)
        self._causes = CauseFinder(settings.names, values=context.settings.event_values)

    def find_cause(
        self, frame: FrameType, below: FrameType
    ) -> tuple[Jitted, PendingCause] | None:
        """
        Return the jitted function that is compiled for a call, and why; `None` if
        unknown.

        Called before the compile: afterwards, with cold CPU caches, it would take twice
        as long.

        Args:
            frame: the ``cache_miss`` frame that serves the call.
            below: the frame that it called.
        """
        jitted, call = call_served_by(frame, below)
        if jitted is None:
            return None
        source = source_of(jitted)
        history = self._causes.history(jitted.fun)
        return jitted, self._compare(source, history, self._signature(call))

    def record(
        self, function: Function, pending: PendingCause, *, seconds: float
    ) -> None:
        """
        Record a compile that a call of *function* waited for.

        Args:
            function: the function called.
            pending: found by `find_cause`.
            seconds: time since the call started.
        """
        if pending.cause is None:
            # Unless another thread has compiled it for the first time meanwhile.
            pending = self._compare(*pending[:3])
        self._causes.remember(*pending[:3])
        if pending.cause is None:
            return
        function.count_recompile(pending.cause)
        self._events.add(
            "recompile",
            function.name,
            pending.message,
            **pending.details,
            seconds=seconds,
        )

    def _compare(
        self, source: str, history: History | None, signature: Signature | None
    ) -> PendingCause:
        try:
            cause = self._causes.of(source, history, signature)
        except Exception:  # noqa: BLE001 - contained: the count is the user's
            self._guard.failed(self._site)
            cause = Cause("unknown", ())
        if cause is None:
            return PendingCause(source, history, signature, None, "", {})
        details = {
            "cause": cause.name,
            "differences": [one.as_json() for one in cause.differences],
            "omitted": cause.omitted,
        }
        return PendingCause(
            source, history, signature, cause.name, message(cause), details
        )

    def _signature(self, call: Call | None) -> Signature | None:
        """Return the signature of *call*, `None` if unknown."""
        if call is None or not self._guard.on(self._site):
            return None
        try:
            return self._signatures.of(call)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None


def message(cause: Cause) -> str:
    """Return *cause* as text: its first differences."""
    texts = [one.text for one in cause.differences[:_IN_MESSAGE]]
    more = len(cause.differences) + cause.omitted - len(texts)
    if more:
        texts.append(f"and {more} more")
    return "; ".join(texts) or "no difference found"
