"""The state that the parts of an agent share, and what they report to each other."""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from jaxmon.agent.counted import CountedFunction, jitted_of
from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import CompilePhases, Function, FunctionTable, label
from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import AnyCall
from jaxmon.agent.jaxlink import backends, jit
from jaxmon.agent.jaxlink.call_sites import CallSites
from jaxmon.agent.jaxlink.frames import MAX_SOURCES
from jaxmon.agent.jaxlink.source_lines import ProgramLine
from jaxmon.agent.scheduler import Scheduler
from jaxmon.clocks import monotonic
from jaxmon.settings import Settings
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from types import FrameType

    from jaxmon.agent.jaxlink.arguments import JitCall, Shapes
    from jaxmon.agent.jaxlink.frames import Jitted
    from jaxmon.otel.traces.tracer import Tracer


# Enough to see that there are several.
_MAX_PER_SOURCE = 8
# Offset of weak references in objects of a type, 0 if it has none. Trying one without
# raises, which costs twenty times as much.
_WEAK = cast("Callable[[type], int]", vars(type)["__weakrefoffset__"].__get__)

Options: TypeAlias = tuple[tuple[str, str, object], ...]
"""Options of a jitted function, each with its text and a key."""


OnSample: TypeAlias = Callable[["Sample"], None]


class Sample(NamedTuple):
    """
    A call that has just returned, of JAX's own object *jitted*; donated arguments
    included. *follow* calls its argument with the next call of the same object, once
    that has returned, or if the other is not 0, one about so many calls later; `None`
    if that is not possible. Observers must not keep it.
    """

    function: Function
    jitted: AnyCall
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any
    follow: Callable[[OnSample, int], None] | None = None


class CountedError(NamedTuple):
    """
    An error that was counted, which observers must not keep. Its *kind* is one of
    `catalog.ERROR_KINDS`; the *message*, its first lines, is empty if it must not be
    quoted; *stage*: how far the call had come; *where*: ``file:line`` of the program.
    """

    function: Function
    kind: str
    error: BaseException
    message: str
    quoted: bool
    stage: str | None
    where: str | None


class Built(NamedTuple):
    """
    A compile that succeeded, between two moments on the performance counter: it *began*
    with the call that needs it. *loaded*: from the persistent cache.
    """

    function: Function
    began: float
    ended: float
    loaded: bool


class Observers:
    """
    Callbacks of the parts, in their order, each called on the thread of the event.

    Attributes:
        sample: called for each sampled call, before its caller has the result.
        returned: for calls that left the fast path and returned, with their function
            and a function that returns the outputs; neither these nor that must be
            kept.
        executed: called with the execution time of a sampled call, its function and the
            shapes of its arguments (see `jaxlink.arguments`), on a thread of
            ours.
        timer: called about as often as a function is sampled, on a thread of ours.
        error: for each error, once.
        compiled: for each jitted function that is compiled, once or more per compile.
        call: for each call of the program's functions that compiles, before that, with
            the call and its options, neither of which must be kept; may return a
            function to be called with its seconds once it has succeeded. Raises
            nothing.
        lowered: for each program of the user's lowered, with its function, a frame
            below which JAX does that, `None` for a call outside of transformations, and
            the jaxpr, which must not be kept; `None` if that is not found.
        executable: for each XLA executable just compiled or loaded, with its function,
            and what that took.
        promotion: for functions with a program that computes in float64 by accident.
        compiling: called before each compile.
        settling: called before a step whose trace is kept ends, to add what is pending;
            raises nothing.
        tracer: makes the spans of compiles and the like, if traces are on.
        logged: called when the program logs values, until something reads them.
        surfaced: for exceptions that left a request, an activity or the source of a
            loop; raises nothing.
        refusing: called with a function about to be compiled, when its call began, and
            what differs from its other programs; may return what raises instead.
        built: likewise after a compile that succeeded.
        served: for calls that left the fast path and returned, with their function and
            executable, if JAX has it.
        stage: ``warming`` during a warm-up, ``warm`` once what is compiled should have
            been before, else empty.
    """

    def __init__(self) -> None:
        self.sample: list[OnSample] = []
        self.returned: list[Callable[[Function, Callable[[], Any]], None]] = []
        self.executed: list[Callable[[Function, Shapes, float], None]] = []
        self.timer: list[Callable[[], None]] = []
        self.error: list[Callable[[CountedError], None]] = []
        self.compiled: list[Callable[[Function, Jitted], None]] = []
        self.call: list[
            Callable[
                [Function, Jitted, JitCall, Options], Callable[[float], None] | None
            ]
        ] = []
        self.lowered: list[Callable[[Function, FrameType | None, Any], None]] = []
        self.executable: list[Callable[[Function, Any, CompilePhases], None]] = []
        self.promotion: list[Callable[[Function], None]] = []
        self.compiling: list[Callable[[], None]] = []
        self.settling: list[Callable[[], None]] = []
        self.tracer: Tracer | None = None
        self.logged: list[Callable[[], object]] = []
        self.surfaced: list[Callable[[BaseException], None]] = []
        self.refusing: list[Callable[[Function, float, str], AnyCall | None]] = []
        self.built: list[Callable[[Built, str], None]] = []
        self.served: list[Callable[[Function, Any], None]] = []
        self.stage = ""


class Jit(NamedTuple):
    """One use of `jax.jit` or `jax.pmap`; later ones have larger numbers."""

    function: Function
    counted: weakref.ref[CountedFunction]
    line: ProgramLine | None
    number: int

    def is_live(self) -> bool:
        """Return whether the object exists."""
        return self.counted() is not None


class Registry:
    """
    Knows which function a counted call belongs to, and keeps none of the objects alive.

    The objects of one function, and their calls, are in `Function.objects`.

    Attributes:
        by_code: the functions by the id of the code that their counted calls run when
            they miss, with that code. Each function has its own copy, equal to JAX's.
            So a frame identifies the function without reading variables, which costs a
            microsecond or two, thousands of times while a large program is traced. A
            pmap has no copy.
        codes_tell: whether `by_code` knows every counted function.
        added: called with each new object, before the program has it.
        complete: whether everything that the program jits from now on is added.
    """

    def __init__(self) -> None:
        self.codes_tell = True
        self.added: list[Callable[[Function, CountedFunction], None]] = []
        self.complete = False
        self._entries: dict[int, tuple[Jit, weakref.ref[Any]]] = {}
        self._sources: dict[str, list[Jit]] = {}
        self._numbers = itertools.count()
        self.by_code: dict[int, tuple[Function, types.CodeType]] = {}
        self._makers: dict[Function, AnyCall] = {}
        self._existing: list[tuple[weakref.ref[Any], str]] | None = None

    def add(
        self,
        function: Function,
        counted: CountedFunction,
        key: object,
        line: ProgramLine | None = None,
    ) -> None:
        """Count calls of *counted*, jitted at *line*; *key* as in `by_key`."""
        function.objects.add(counted)
        # The reference's callback is C and drops the entry with the function, before
        # the key's id can belong to anything else.
        forget = functools.partial(self._entries.pop, id(key))
        record = Jit(function, weakref.ref(counted), line, self.now())
        # Several pmaps of one function share it as their key. A ``PjitInfo`` belongs to
        # one of JAX's objects, and has no weak references.
        alive = key if _WEAK(type(key)) else jitted_of(counted)
        self._entries[id(key)] = record, weakref.ref(alive, forget)
        self._add_source(jit.source_of(key), record)
        function.counted = True
        for notify in self.added:
            notify(function, counted)

    def by_key(self, key: object) -> Function | None:
        """
        Return the function whose calls are counted under *key*, if any: JAX's
        ``PjitInfo`` of a jitted function, or the user's function of a pmap.
        """
        found = self._entries.get(id(key))
        return found[0].function if found else None

    def jit_of(self, key: object) -> Jit | None:
        """Return how the object with this *key*, as in `by_key`, was jitted."""
        found = self._entries.get(id(key))
        return found[0] if found else None

    def _add_source(self, source: str | None, jit: Jit) -> None:
        if source is None:
            return
        sources = self._sources.get(source, [])
        if sources or len(self._sources) < MAX_SOURCES:
            live = filter(Jit.is_live, sources[-_MAX_PER_SOURCE:])
            self._sources[source] = [*live, jit]

    def jitted_from(self, source: str) -> Jit | None:
        """
        Return how the only live object from *source* was jitted, `None` if there are
        several: ``"name at file:line"``, or only the name, which takes longer.
        """
        if " at " in source:
            found = self._sources.get(source, [])
        else:
            start = f"{source} at "
            every = list(self._sources.copy().items())
            found = [
                jitted
                for name, jits in every
                if name.startswith(start)
                for jitted in jits
            ]
        live = list(filter(Jit.is_live, found))
        return live[0] if len(live) == 1 else None

    def number_of(self, jit: Jit | None) -> int:
        """Return the number of *jit*, 0 if that was before us."""
        if jit is not None:
            return jit.number
        return 0 if self.complete else self.now()

    def now(self) -> int:
        """Return a number larger than those of all objects jitted before."""
        return next(self._numbers)

    def maker(
        self, original: AnyCall, missing: types.CodeType, function: Function
    ) -> AnyCall:
        """
        Return a copy of *original*, JAX's ``_cpp_pjit``, in which *missing*, the code
        that a miss runs, is unique to *function*.
        """
        if function not in self._makers:
            code = missing.replace()
            self.by_code[id(code)] = (function, code)
            self._makers[function] = jit.with_code(original, missing, code)
        return self._makers[function]

    def compiled_before(self) -> frozenset[str]:
        """Return labels of objects compiled before; the first call takes 50 ms."""
        if self._existing is None:
            self._existing = [
                (weakref.ref(jitted), label(jitted)[0]) for jitted in jit.existing()
            ]
        return frozenset(
            name for reference, name in self._existing if jit.is_compiled(reference())
        )


class Context(NamedTuple):
    """
    State shared by the parts of an agent, which *began* then by `monotonic`. *jax* is
    the module, whose private parts differ by release; *sites* are the places in the
    program that call jitted functions. *forked*: from a process whose backends this one
    has, without their threads.
    """

    jax: Any
    settings: Settings
    guard: Guard
    scheduler: Scheduler
    table: FunctionTable
    registry: Registry
    events: EventLog
    observers: Observers
    sites: CallSites
    began: float
    forked: bool


def context_of(jax: Any, settings: Settings) -> Context:
    """Return a new context for one agent."""
    guard = Guard()
    return Context(
        jax,
        settings,
        guard,
        Scheduler(guard),
        FunctionTable(settings.max_functions),
        Registry(),
        EventLog(),
        Observers(),
        CallSites(),
        monotonic(),
        backends.forked(jax),
    )
