"""Compares each compile with the earlier ones of its function."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import Call, call_served_by
from jaxmon.agent.jaxlink.configuration import context_of
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import function_of
from jaxmon.agent.jaxlink.program_lines import ProgramLineFinder
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transformed import Transformed, transformed_at
from jaxmon.agent.recompiles.causes import Cause, CauseFinder, History
from jaxmon.agent.recompiles.recreations import Created, created
from jaxmon.agent.recompiles.signature_builder import SignatureBuilder
from jaxmon.agent.recompiles.signatures import Options, Signature
from jaxmon.agent.recompiles.transformations import (
    Transformations,
    TransformedFunction,
)
from jaxmon.agent.registry import Jit


_IN_MESSAGE = 5


class PendingCause(NamedTuple):
    """Compile cause determined beforehand. Holds no user objects."""

    history: History | None
    created: Created | None
    signature: Signature | None
    kind: History | None
    cause: str | None
    message: str
    details: dict[str, Any]
    compiled: tuple[Callable[[float], None], ...] = ()


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
        self._observers = context.observers.call
        self._events = context.events
        self._registry = context.registry
        self._lines = ProgramLineFinder(SourceLineFinder(context.jax))
        settings = context_of(context.jax)
        self._signatures = SignatureBuilder(context.jax, settings.values)
        self._transformations = Transformations()
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
        call, signature = self._signature(call)
        new = self._created(function, jitted, history, signature)
        pending = self._compare(history, new, signature)
        if call is not None and not function.internal:
            options: Options = ()
            if signature is not None:
                options = signature.options
                nodes = [argument.node for argument in signature.arguments]
                call = call._replace(nodes=nodes)
            noted = [see(function, jitted, call, options) for see in self._observers]
            pending = pending._replace(compiled=tuple([one for one in noted if one]))
        return jitted, self._placed(pending, frame)

    def transformed(self, frame: FrameType) -> Transformed | None:
        """
        Return the transformed function whose program is compiled, called by *frame*.
        """
        try:
            return transformed_at(frame)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None

    def owner_of(self, found: Transformed) -> Function | None:
        """Return the function whose program is compiled outside of its call."""
        known = self._transformations
        one = known.named(found)
        try:
            if one is None and (jit := self._registry.jitted_from(found.names[0])):
                one = self._never_compiled(jit, found)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
        return None if one is None else one.function

    def _never_compiled(
        self, jit: Jit, found: Transformed
    ) -> TransformedFunction | None:
        """
        Return a function whose program is compiled, but never in its call, as under
        `jax.checkpoint`.
        """
        known, fun = self._transformations, function_of(jit.counted())
        if fun is None:
            return None
        if known.known(fun) is None:
            jitted = Jitted(fun, fun, found.names[0], call=False)
            known.add(fun, jit.function, self._new(jitted, jit, None))
        one = known.known(fun)
        if one is not None:
            known.compiles(one, found)
        return one

    def find_transformed_cause(
        self, function: Function, found: Transformed, frame: FrameType
    ) -> PendingCause | None:
        """
        Return why a program of *function* is compiled under a transformation, `None` if
        the function is unknown or JAX's.

        Args:
            function: the function.
            found: the program.
            frame: the caller of the compiler.
        """
        if function.internal or not self._guard.on(self._site):
            return None
        try:
            one = self._transformed_function(function, found)
            if one is None:
                return None
            operands = self._signatures.operands(found.operands, found.avals)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None
        program = found.kind, found.structure
        history = one.history(program)
        new = None if history.compiled else one.created.program(program)
        signature = (one.signature or self._signatures.without_call()).applied_to(
            operands
        )
        kind = one.history(found.kind)
        return self._placed(self._compare(history, new, signature, kind), frame)

    def _transformed_function(
        self, function: Function, found: Transformed
    ) -> TransformedFunction | None:
        """Return the function whose program *found* is."""
        known, jitted = self._transformations, found.jitted
        if jitted is None:
            return known.named(found)
        _, signature = self._signature(found.call)
        if known.known(jitted.fun) is None:
            jit = self._registry.jit_of(jitted.key)
            known.add(jitted.fun, function, self._new(jitted, jit, signature))
        one = known.known(jitted.fun)
        if one is not None:
            one.signature = signature
            known.compiles(one, found)
        return one

    def _placed(self, pending: PendingCause, frame: FrameType) -> PendingCause:
        """Return *pending* with the line of the program to be changed."""
        if pending.cause is not None and (place := self._place(pending, frame)):
            pending.details["place"] = place
        return pending

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
        try:
            return self._new(jitted, self._registry.jit_of(jitted.key), signature)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None

    def _new(
        self, jitted: Jitted, jit: Jit | None, signature: Signature | None
    ) -> Created:
        options = () if signature is None else signature.options
        number = self._registry.number_of(jit)
        return created(jitted, jit, number=number, options=options)

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
    ) -> str | None:
        """
        Record a compile that a call of *function* waited for; return its cause.

        Args:
            function: the function called.
            pending: found by `find_cause`.
            seconds: time since the call started.
        """
        for note in pending.compiled:
            note(seconds)
        if pending.cause is None:
            # Unless another thread has compiled it for the first time meanwhile.
            pending = self._compare(*pending[:4])
        self._causes.remember(*pending[:4], self._registry.now())
        if pending.cause is None:
            return None
        function.count_recompile(pending.cause)
        self._events.add(
            "recompile",
            function.name,
            pending.message,
            **pending.details,
            seconds=seconds,
        )
        return pending.cause

    def _compare(
        self,
        history: History | None,
        new: Created | None,
        signature: Signature | None,
        kind: History | None = None,
    ) -> PendingCause:
        known = history, new, signature, kind
        try:
            cause = self._causes.of(*known)
        except Exception:  # noqa: BLE001 - contained: the count is the user's
            self._guard.failed(self._site)
            cause = Cause("unknown", ())
        if cause is None:
            return PendingCause(*known, None, "", {})
        details = {
            "cause": cause.name,
            "differences": [one.as_json() for one in cause.differences],
            "omitted": cause.omitted,
        }
        return PendingCause(*known, cause.name, message(cause), details)

    def _signature(self, call: Call | None) -> tuple[Call | None, Signature | None]:
        """Return *call*, with its leaves by kind, and its signature if known."""
        if call is None or not self._guard.on(self._site):
            return call, None
        try:
            call = call._replace(kinds=self._signatures.kinds(call))
            return call, self._signatures.of(call)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return call, None


def message(cause: Cause) -> str:
    """Return *cause* as text: its first differences."""
    texts = [one.text for one in cause.differences[:_IN_MESSAGE]]
    more = len(cause.differences) + cause.omitted - len(texts)
    if more:
        texts.append(f"and {more} more")
    return "; ".join(texts) or "no difference found"
