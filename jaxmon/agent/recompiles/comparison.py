"""Compares each compile with the earlier ones of its function."""

from __future__ import annotations

from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import Call, call_served_by
from jaxmon.agent.jaxlink.configuration import context_of
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.program_lines import ProgramLineFinder
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.recompiles.causes import Cause, CauseFinder, History
from jaxmon.agent.recompiles.recreations import Created, created
from jaxmon.agent.recompiles.signature_builder import SignatureBuilder
from jaxmon.agent.recompiles.signatures import Signature


_IN_MESSAGE = 5


class PendingCause(NamedTuple):
    """Compile cause determined beforehand. Holds no user objects."""

    history: History | None
    created: Created | None
    signature: Signature | None
    cause: str | None
    message: str
    details: dict[str, Any]


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
        self._registry = context.registry
        self._lines = ProgramLineFinder(SourceLineFinder(context.jax))
        settings = context_of(context.jax)
        self._signatures = SignatureBuilder(context.jax, settings.values)
        self._causes = CauseFinder(settings.names, values=context.settings.event_values)

    def find_cause(
        self, function: Function, frame: FrameType, below: FrameType
    ) -> tuple[Jitted, PendingCause] | None:
        """
        Return the jitted function that is compiled for a call, and why; `None` if
        unknown.

        Called before the compile: afterwards, with cold CPU caches, it would take twice
        as long.

        Args:
            function: the function called.
            frame: the ``cache_miss`` frame that serves the call.
            below: the frame that it called.
        """
        jitted, call = call_served_by(frame, below)
        if jitted is None:
            return None
        history = self._causes.history(jitted.fun)
        signature = self._signature(call)
        new = self._created(function, jitted, history, signature)
        pending = self._compare(history, new, signature)
        if pending.cause is not None and (place := self._place(pending, frame)):
            pending.details["place"] = place
        return jitted, pending

    def _created(
        self,
        function: Function,
        jitted: Jitted,
        history: History | None,
        signature: Signature | None,
    ) -> Created | None:
        """Return what distinguishes a function of the program not compiled before."""
        if function.internal or (history is not None and history.compiled):
            return None
        options = () if signature is None else signature.options
        try:
            return created(jitted, self._registry, options=options)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None

    def _place(self, pending: PendingCause, frame: FrameType) -> str:
        """Return the line of the program to be changed, an empty text if unknown."""
        jit = None if pending.created is None else pending.created.jit
        try:
            line = self._lines.that_calls(frame) if jit is None else jit.line
        except Exception:  # noqa: BLE001 - contained: the count is the user's
            self._guard.failed(self._site)
            return ""
        return "" if line is None else line.place

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
        self._causes.remember(*pending[:3], self._registry.now())
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
        self,
        history: History | None,
        new: Created | None,
        signature: Signature | None,
    ) -> PendingCause:
        try:
            cause = self._causes.of(history, new, signature)
        except Exception:  # noqa: BLE001 - contained: the count is the user's
            self._guard.failed(self._site)
            cause = Cause("unknown", ())
        if cause is None:
            return PendingCause(history, new, signature, None, "", {})
        details = {
            "cause": cause.name,
            "differences": [one.as_json() for one in cause.differences],
            "omitted": cause.omitted,
        }
        text = message(cause)
        return PendingCause(history, new, signature, cause.name, text, details)

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
