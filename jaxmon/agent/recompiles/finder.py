"""
Finds out, from JAX's frames, why a function is compiled again.

The signature of each compile is compared with the earlier ones of its function. What is
known of functions that are compiled while JAX transforms them is kept here, too.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from types import FrameType
from typing import TypeAlias

from jaxmon import interrupts
from jaxmon.agent.context import Context, Jit
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import JitCall, call_served_by
from jaxmon.agent.jaxlink.configuration import context_of
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import function_of
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import Transformed, transformed_at
from jaxmon.agent.recompiles.causes import Cause, Histories, History
from jaxmon.agent.recompiles.recreations import Created, created
from jaxmon.agent.recompiles.signatures import Options, Signature, SignatureBuilder


_IN_MESSAGE = 5
_MAX_NAMES = 1_000
_MAX_PROGRAMS = 64


Compared: TypeAlias = tuple[
    History | None, Created | None, Signature | None, History | None
]


class PendingCause:
    """
    Compile cause determined beforehand. Holds no user objects.

    Attributes:
        compared: history, creation, signature and kind, as in `Histories.of`.
        cause: why it is compiled, `None` if for the first time.
        place: the line of the program to be changed, empty if unknown.
        noted: called with the seconds once it is compiled.
        remembered: `Histories.remembered` when the cause was determined.
    """

    __slots__ = ("cause", "compared", "noted", "place", "remembered")

    def __init__(
        self, compared: Compared, cause: Cause | None, remembered: int
    ) -> None:
        self.compared = compared
        self.cause = cause
        self.place = ""
        self.noted: list[Callable[[float], None]] = []
        self.remembered = remembered


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
        history = self._histories.history(jitted.fun)
        signature = None if call is None else self._signature(call)
        created = None
        if not (function.internal or (history is not None and history.compiled)):
            created = self._created(jitted, signature)
        pending = self._compare((history, created, signature, None), frame)
        if call is not None and not function.internal:
            options: Options = () if signature is None else signature.options
            for see in self._observers:
                if (note := see(function, jitted, call, options)) is not None:
                    pending.noted.append(note)
        return jitted, pending

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
        transformations = self._transformations
        transformed = transformations.named(found)
        try:
            if transformed is None and (
                jit := self._registry.jitted_from(found.names[0])
            ):
                transformed = self._never_compiled(jit, found)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
        return None if transformed is None else transformed.function

    def _never_compiled(
        self, jit: Jit, found: Transformed
    ) -> TransformedFunction | None:
        """
        Return a function whose program is compiled, but never in its call, as under
        `jax.checkpoint`.
        """
        transformations, fun = self._transformations, function_of(jit.counted())
        if fun is None:
            return None
        if transformations.of(fun) is None:
            jitted = Jitted(fun, fun, found.names[0], call=False)
            transformations.add(fun, jit.function, self._new(jitted, jit, None))
        transformed = transformations.of(fun)
        if transformed is not None:
            transformations.compiles(transformed, found)
        return transformed

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
            transformed = self._transformed_function(function, found)
            if transformed is None:
                return None
            operands = self._signatures.operands(found.operands, found.avals)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None
        program = found.kind, found.structure
        history = transformed.history(program)
        new = None if history.compiled else transformed.created.program(program)
        signature = (
            transformed.signature or self._signatures.without_call()
        ).applied_to(operands)
        kind = transformed.history(found.kind)
        return self._compare((history, new, signature, kind), frame)

    def _transformed_function(
        self, function: Function, found: Transformed
    ) -> TransformedFunction | None:
        """Return the function whose program *found* is."""
        transformations, jitted = self._transformations, found.jitted
        if jitted is None:
            return transformations.named(found)
        signature = None if found.call is None else self._signature(found.call)
        if transformations.of(jitted.fun) is None:
            jit = self._registry.jit_of(jitted.key)
            transformations.add(jitted.fun, function, self._new(jitted, jit, signature))
        transformed = transformations.of(jitted.fun)
        if transformed is not None:
            transformed.signature = signature
            transformations.compiles(transformed, found)
        return transformed

    def _created(self, jitted: Jitted, signature: Signature | None) -> Created | None:
        """Return what distinguishes a function of the program not compiled before."""
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

    def _place(self, created: Created | None, frame: FrameType) -> str:
        """Return the line of the program to be changed, an empty text if unknown."""
        jit = None if created is None else created.jit
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
            differences=[difference.as_json() for difference in cause.differences],
            omitted=cause.omitted,
            **details,
            seconds=seconds,
            calls=function.calls_and_hits()[0],
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
        except Exception:  # noqa: BLE001 - contained: the count is the user's
            self._guard.failed(self._site)
            return Cause("unknown", ())

    def _signature(self, call: JitCall) -> Signature | None:
        """Return the signature of *call*, if known; its leaves are read, too."""
        if self._site in self._guard.off:
            return None
        try:
            return self._signatures.of(call)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self._site)
            return None


def message(cause: Cause) -> str:
    """Return *cause* as text: its first differences."""
    texts = [difference.text for difference in cause.differences[:_IN_MESSAGE]]
    more = len(cause.differences) + cause.omitted - len(texts)
    if more:
        texts.append(f"and {more} more")
    return "; ".join(texts) or "no difference found"


class TransformedFunction:
    """
    A function object that was compiled under a transformation.

    Args:
        function: its statistics.
        created: how it was created.

    Attributes:
        signature: of the call that was transformed last, without its operands.
    """

    __slots__ = ("_histories", "created", "function", "signature")

    def __init__(self, function: Function, created: Created) -> None:
        self.function = function
        self.created = created
        self.signature: Signature | None = None
        self._histories: dict[Hashable, History] = {}

    def history(self, program: Hashable) -> History:
        """Return the history of a *program*, or of all programs of a kind."""
        if program not in self._histories and len(self._histories) >= _MAX_PROGRAMS:
            self._histories.pop(next(iter(self._histories)), None)
        fresh = History(self.created.fun)
        return self._histories.setdefault(program, fresh)


class Transformations:
    """The functions that were compiled under a transformation."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[TransformedFunction, weakref.ref[object]]] = {}
        # `None` if several functions have the name.
        self._by_name: dict[str, TransformedFunction | None] = {}

    def of(self, fun: object) -> TransformedFunction | None:
        """Return what is known of *fun*."""
        found = self._by_id.get(id(fun))
        return found[0] if found else None

    def add(self, fun: object, function: Function, created: Created) -> None:
        """Add *fun*; it is dropped with it."""
        key, transformed = id(fun), TransformedFunction(function, created)
        try:
            # The callback is C and runs before the id can be reused.
            reference = weakref.ref(fun, functools.partial(self._by_id.pop, key))
        except TypeError as error:
            interrupts.pass_on(error)
            return
        self._by_id[key] = transformed, reference

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
