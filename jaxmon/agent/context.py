"""The state that the parts of an agent share, and what they report to each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import Function, FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.arguments import JitCall
from jaxmon.agent.jaxlink.call_sites import CallSites
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.registry import Registry
from jaxmon.agent.scheduler import Scheduler
from jaxmon.clocks import monotonic
from jaxmon.settings import Settings
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.otel.traces.tracer import Tracer


Shapes: TypeAlias = tuple[Hashable, ...]

Options: TypeAlias = tuple[tuple[str, str, object], ...]
"""Options of a jitted function, each with its text and a key."""


class Sample(NamedTuple):
    """
    A call that has just returned. Observers must not keep it.

    Attributes:
        function: the function called.
        jitted: JAX's own jitted object.
        args: the positional arguments, donated ones included.
        kwargs: the keyword arguments.
        outputs: what the call returned.
        follow: calls its argument with the next call of the same object, once that has
            returned; `None` if that is not possible.
    """

    function: Function
    jitted: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any
    follow: Callable[[Callable[[Sample], None]], None] | None = None


class CountedError(NamedTuple):
    """
    An error that was counted. Observers must not keep it.

    Attributes:
        function: the function that it propagated from.
        kind: one of `catalog.ERROR_KINDS`.
        error: the exception.
        message: its first lines, empty if they must not be quoted.
        quoted: whether they may be quoted.
        stage: how far the call had come, if known.
        where: ``file:line`` of the user's program, if known.
    """

    function: Function
    kind: str
    error: BaseException
    message: str
    quoted: bool
    stage: str | None
    where: str | None


class Observers:
    """
    Callbacks of the parts, in their order, each called on the thread of the event.

    Attributes:
        sample: called for each sampled call, before its caller has the result.
        returned: for calls that left the fast path and returned, with their function
            and a function that returns the outputs; neither these nor that must be
            kept.
        executed: called with the execution time of a sampled call, its function and the
            shapes of its arguments (see `jaxmon.agent.sampling.shapes`), on a thread of
            ours.
        timer: called about as often as a function is sampled, on a thread of ours.
        error: for each error, once.
        compiled: for each jitted function that is compiled, once or more per compile.
        call: for each call of the program's functions that compiles, before that, with
            the call and its options, neither of which must be kept; may return a
            function to be called with its seconds once it has succeeded. Raises
            nothing.
        lowered: for each program of the user's lowered, with its function, a frame
            below which JAX does that, and the jaxpr, which must not be kept; `None` if
            that is not found.
        executable: for each XLA executable just compiled or loaded, with its function.
        promotion: for functions with a program that computes in float64 by accident.
        compiling: called before each compile.
        settling: called before a step whose trace is kept ends, to add what is pending;
            raises nothing.
        tracer: makes the spans of compiles and the like, if traces are on.
        logged: called when the program logs values, until something reads them.
        surfaced: for exceptions that left a request, an activity or the source of a
            loop; raises nothing.
    """

    __slots__ = (
        "call",
        "compiled",
        "compiling",
        "error",
        "executable",
        "executed",
        "logged",
        "lowered",
        "promotion",
        "returned",
        "sample",
        "settling",
        "surfaced",
        "timer",
        "tracer",
    )

    def __init__(self) -> None:
        self.sample: list[Callable[[Sample], None]] = []
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
        self.lowered: list[Callable[[Function, FrameType, Any], None]] = []
        self.executable: list[Callable[[Function, Any], None]] = []
        self.promotion: list[Callable[[Function], None]] = []
        self.compiling: list[Callable[[], None]] = []
        self.settling: list[Callable[[], None]] = []
        self.tracer: Tracer | None = None
        self.logged: list[Callable[[], object]] = []
        self.surfaced: list[Callable[[BaseException], None]] = []


class Context(NamedTuple):
    """
    State shared by the parts of an agent.

    Attributes:
        jax: the module; typed as `Any` because its private parts differ by release.
        settings: the settings in effect.
        guard: contains failures of our own code.
        scheduler: has the threads on which parts work.
        table: the functions and their statistics.
        registry: the live jitted objects that run them.
        events: the event log.
        observers: callbacks by which parts notify each other.
        sites: the places in the program that call jitted functions.
        began: when it began, by `monotonic`.
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
    )
