"""
Finds out, from JAX's frames, why a function is compiled again.

The signature of each compile is compared with the earlier ones of its function. What is
known of functions that are compiled while JAX transforms them is kept here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from jaxmon.agent.context import Context, Jit, Options
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import JitCall, call_served_by
from jaxmon.agent.jaxlink.configuration import context_of
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import function_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import Transformed, transformed_at
from jaxmon.agent.recompiles.causes import (
    Cause,
    Histories,
    History,
    TransformedFunction,
)
from jaxmon.agent.recompiles.recreations import Created, created
from jaxmon.agent.recompiles.signatures import Signature, SignatureBuilder


_Found = TypeVar("_Found")
_IN_MESSAGE = 5
_MAX_NAMES = 1_000


Compared: TypeAlias = tuple[
    History | None, Created | None, Signature | None, History | None
]


@dataclass(slots=True, eq=False)
class PendingCause:
    """Why a call compiles, `None` for the first time, and the line to be changed."""

    compared: Compared
    cause: Cause | None
    remembered: int
    place: str = ""
    noted: list[Callable[[float], None]] = field(default_factory=list)


class CauseFinder:
    """Compares each compile with the earlier ones of its function."""

    def __init__(self, context: Context, site: str) -> None:
        self._site = site
        self._guard = context.guard
        self._observers = context.observers.call
        self._events = context.events
        self._registry = context.registry
        self._lines = SourceLineFinder(context.jax)
        settings = context_of(context.jax)
        self._signatures = SignatureBuilder(context.jax, settings.values)
        self._transformations = Transformations()
        self._histories = Histories(
            settings.names,
            values=context.settings.event_values,
            stage=lambda: context.observers.stage,
        )

    def note_clear(self, frame: FrameType) -> None:
        """Note that *frame* drops the compiled programs of all functions."""
        line = self._lines.that_calls(frame)
        self._histories.note_clear("" if line is None else line.place)

    def find_cause(
        self, function: Function, frame: FrameType, below: FrameType
    ) -> tuple[Jitted, PendingCause] | None:
        """
        Return the jitted function that is compiled for a call of *function*, and why;
        `None` if unknown. The ``cache_miss`` *frame* serves the call, and has called
        the one *below*.

        Called before the compile: afterwards, with cold CPU caches, it would take twice
        as long.
        """
        jitted, call = call_served_by(frame, below)
        if jitted is None:
            return None
        history = self._histories.history(jitted.fun)
        signature = None if call is None else self._signature(call)
        created = None
        if not (function.internal or (history is not None and history.compiled)):
            jit = self._registry.jit_of(jitted.key)
            created = self._contained(self._new, jitted, jit, signature)
        pending = self._compare((history, created, signature, None), frame)
        if call is not None and not function.internal:
            options: Options = () if signature is None else signature.options
            for see in self._observers:
                if (note := see(function, jitted, call, options)) is not None:
                    pending.noted.append(note)
        return jitted, pending

    def transformed(self, frame: FrameType) -> Transformed | None:
        """Return the transformed function whose program *frame* has compiled."""
        return self._contained(transformed_at, frame)

    def _contained(self, work: Callable[..., _Found], *given: Any) -> _Found | None:
        """Return what *work* does; if it fails, the compile itself still counts."""
        try:
            return work(*given)
        except Exception:  # noqa: BLE001 - contained
            self._guard.failed(self._site)
            return None

    def owner_of(self, found: Transformed) -> Function | None:
        """Return the function whose program is compiled outside of its call."""
        transformed = self._transformations.named(found)
        if transformed is None:
            transformed = self._contained(self._never_compiled, found)
        return None if transformed is None else transformed.function

    def _never_compiled(self, found: Transformed) -> TransformedFunction | None:
        """Return a function never compiled in its call, as under `jax.checkpoint`."""
        jit = self._registry.jitted_from(found.names[0])
        fun = None if jit is None else function_of(jit.counted())
        if jit is None or fun is None:
            return None
        jitted = Jitted(fun, fun, found.names[0], call=False)
        return self._compiled(found, jitted, jit.function, jit, None)

    def find_transformed_cause(
        self, function: Function, found: Transformed, frame: FrameType
    ) -> PendingCause | None:
        """Return why *found* is compiled, by *frame*, `None` if that is not known."""
        if function.internal or not self._guard.on(self._site):
            return None
        transformed = self._contained(self._transformed_function, function, found)
        if transformed is None:
            return None
        given = found.operands, found.avals
        operands = self._contained(self._signatures.operands, *given)
        if operands is None:
            return None
        program = found.kind, found.structure
        history = transformed.history(program)
        new = None if history.compiled else transformed.created.program(program)
        called = transformed.signature or self._signatures.without_call()
        signature = replace(called, operands=operands)
        kind = transformed.history(found.kind)
        return self._compare((history, new, signature, kind), frame)

    def _transformed_function(
        self, function: Function, found: Transformed
    ) -> TransformedFunction | None:
        """Return the function whose program *found* is."""
        jitted = found.jitted
        if jitted is None:
            return self._transformations.named(found)
        signature = None if found.call is None else self._signature(found.call)
        jit = self._registry.jit_of(jitted.key)
        transformed = self._compiled(found, jitted, function, jit, signature)
        if transformed is not None:
            transformed.signature = signature
        return transformed

    def _compiled(
        self,
        found: Transformed,
        jitted: Jitted,
        function: Function,
        jit: Jit | None,
        signature: Signature | None,
    ) -> TransformedFunction | None:
        """Record that *found*, a program of *jitted*, is compiled; return what is."""
        history = self._histories.history(jitted.fun)
        if history is None:
            return None
        if history.transformed is None:
            created = self._new(jitted, jit, signature)
            history.transformed = TransformedFunction(function, created)
        self._transformations.compiles(history.transformed, found)
        return history.transformed

    def _new(
        self, jitted: Jitted, jit: Jit | None, signature: Signature | None
    ) -> Created:
        options = () if signature is None else signature.options
        number = self._registry.number_of(jit)
        return created(jitted, jit, number=number, options=options)

    def _place(self, created: Created | None, frame: FrameType) -> str:
        """Return the line of the program to be changed, an empty text if unknown."""
        jit = None if created is None else created.jit
        line = jit.line if jit else self._contained(self._lines.that_calls, frame)
        return "" if line is None else line.place

    def record(
        self, function: Function, pending: PendingCause, *, seconds: float
    ) -> str | None:
        """Record a compile that a call of *function* waited for; return its cause."""
        for note in pending.noted:
            note(seconds)
        cause, histories = pending.cause, self._histories
        if cause is None and pending.remembered != histories.remembered:
            # Another thread may have compiled it for the first time meanwhile.
            cause = self._cause(pending.compared)
        histories.remember(*pending.compared, self._registry.now())
        if cause is None:
            return None
        function.count_recompile(cause.name)
        details: dict[str, object] = {"place": pending.place} if pending.place else {}
        self._events.add(
            "recompile",
            function.name,
            message(cause),
            cause=cause.name,
            differences=[difference._asdict() for difference in cause.differences],
            omitted=cause.omitted,
            **details,
            seconds=seconds,
            calls=function.calls,
        )
        return cause.name

    def _compare(self, compared: Compared, frame: FrameType) -> PendingCause:
        """Return why what is *compared* is compiled; *frame* calls the compiler."""
        remembered = self._histories.remembered
        pending = PendingCause(compared, self._cause(compared), remembered)
        if pending.cause is not None:
            history, made, *_ = compared
            clears = "" if history is None else history.cleared_at
            is_dropped = pending.cause.name == "evicted"
            pending.place = (is_dropped and clears) or self._place(made, frame)
        return pending

    def _cause(self, compared: Compared) -> Cause | None:
        try:
            return self._histories.of(*compared)
        except Exception:  # noqa: BLE001 - contained
            self._guard.failed(self._site)
            return Cause("unknown", ())

    def _signature(self, call: JitCall) -> Signature | None:
        """Return the signature of *call*, if known; its leaves are read, too."""
        if self._site in self._guard.off:
            return None
        return self._contained(self._signatures.of, call)


def message(cause: Cause) -> str:
    """Return *cause* as text: its first differences."""
    texts = [difference.text for difference in cause.differences[:_IN_MESSAGE]]
    more = len(cause.differences) + cause.omitted - len(texts)
    if more:
        texts.append(f"and {more} more")
    return "; ".join(texts) or "no difference found"


class Transformations:
    """The functions that were compiled under a transformation, by name."""

    def __init__(self) -> None:
        # `None` if several functions have the name.
        self._by_name: dict[str, TransformedFunction | None] = {}

    def compiles(self, transformed: TransformedFunction, found: Transformed) -> None:
        """Record a compile of *transformed* in its call, under the names in *found*."""
        if len(self._by_name) >= _MAX_NAMES:
            self._by_name.clear()
        for name in found.names:
            before = self._by_name.get(name, transformed)
            same = before is not None and before.function is transformed.function
            self._by_name[name] = transformed if same else None

    def named(self, found: Transformed) -> TransformedFunction | None:
        """Return the function that a program outside of its call belongs to."""
        # The first name is the source line, if JAX has it; many functions may have the
        # same bare name.
        transformed = self._by_name.get(found.names[0])
        if transformed is None or len(found.names) > 1:
            return transformed
        fun = transformed.created.fun
        return transformed if fun is not None and fun() is not None else None
