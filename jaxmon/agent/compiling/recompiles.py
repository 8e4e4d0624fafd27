"""
Recompiles: counted by cause, and told with every difference.
"""

from __future__ import annotations

from jaxmon.agent.compiling.causes import Cause, Causes
from jaxmon.agent.compiling.configuration import context_of
from jaxmon.agent.compiling.signatures import Call, Signature, Signatures
from jaxmon.agent.compiling.stack import Jitted
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function


SITE = "causes"

_IN_MESSAGE = 5


class Recompiles:
    """
    Finds out why calls compile again. Where it cannot, the cause is ``unknown``.
    """

    def __init__(self, context: Context) -> None:
        self._guard = context.guard
        self._events = context.events
        settings = context_of(context.jax)
        self._signatures = Signatures(context.jax, settings.values)
        self._causes = Causes(settings.names, values=context.settings.event_values)

    def signature(self, call: Call | None) -> Signature | None:
        """
        Return the signature of *call*, `None` where it cannot be told.

        Contained: a tree may hold classes whose ``__hash__`` raises anything.
        """
        if call is None or not self._guard.on(SITE):
            return None
        try:
            return self._signatures.of(call)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(SITE)
            return None

    def judge(
        self,
        function: Function,
        jitted: Jitted,
        signature: Signature | None,
        *,
        seconds: float,
    ) -> None:
        """
        Take note of a compile that a call of *function* had to wait for.

        Args:
            function: whose figures.
            jitted: what was compiled.
            signature: for which call.
            seconds: how long the call has been at it.
        """
        try:
            cause = self._causes.of(jitted, signature)
        except Exception:  # noqa: BLE001 - contained: the count is the user's
            self._guard.failed(SITE)
            cause = Cause("unknown", ())
        if cause is None:
            return
        function.count_recompile(cause.name)
        self._events.add(
            "recompile",
            function.name,
            message(cause),
            cause=cause.name,
            differences=[one.as_json() for one in cause.differences],
            omitted=cause.omitted,
            seconds=seconds,
        )


def message(cause: Cause) -> str:
    """
    Return *cause* for people: its first differences.
    """
    texts = [one.text for one in cause.differences[:_IN_MESSAGE]]
    more = len(cause.differences) + cause.omitted - len(texts)
    if more:
        texts.append(f"and {more} more")
    return "; ".join(texts) or "no difference found"
