"""
How jaxmon learns what JAX does: probes of its functions, and listeners to its events.

A Python wrapper around a function of JAX would show in every traceback and in the
source metadata of every program. A `Probe` does not: the interpreter asks it for
``__call__``, a property; the observer runs inside that lookup and has returned before
the original, which the property returns, is called. The price: an observer sees the
caller's frame, not the arguments or the outcome.

`unregister_event_listener` and its siblings have been public since JAX 0.8.1; before,
they were private and named differently. What raises here does so in the user's jitted
call, so observers and listeners are guarded.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name
from time import perf_counter_ns
from types import FrameType, ModuleType
from typing import Any, Protocol, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.guard import Allowance, Guard, log
from jaxmon.agent.inspection import AnyCall
from jaxmon.indicators.endings import SingleUse
from jaxmon.threads import RLock
from jaxmon.tuples import NamedTuple


_frame = sys._getframe  # noqa: SLF001 - what a probe is for

_times = iter(perf_counter_ns, None)
# Calls that have ended, until they are added up.
_MANY = 256


class Observer(Protocol):
    """Called with caller, not to be kept, and original, which it may replace."""

    def __call__(self, frame: FrameType, original: AnyCall, /) -> AnyCall | None:
        """Observe one call."""
        ...


def ending(call: AnyCall, note: Iterator[object]) -> AnyCall:
    """
    Wrap *call* for one call, at whose end, however it ends, an item of *note* is
    consumed: the interpreter drops the wrapper then. No frame of ours is on the stack
    meanwhile.
    """
    once = SingleUse()
    once.__call__ = call
    once.__del__ = note.__next__
    return once


class Probe:
    """
    Replaces *original* and passes each call to *observe*, until `deactivate`.

    Costs a third of a microsecond per call, a seventh if the *allowance* lets it pass,
    or another function than *caller* makes it. Exceptions of the observer are contained
    by *guard* under the name *site*.
    """

    def __init__(  # noqa: PLR0913 - what each call depends on
        self,
        original: AnyCall,
        observe: Observer,
        *,
        guard: Guard,
        site: str,
        allowance: Allowance | None = None,
        caller: str | None = None,
    ) -> None:
        functools.update_wrapper(self, original)
        self._original = original
        self._observing = observing = [observe]
        off = guard.off

        def call(_: Probe) -> AnyCall:
            if caller is not None and _frame(1).f_code.co_name != caller:
                return original
            if allowance is not None and allowance.passing:
                allowance.passing -= 1
                return original
            if observing and site not in off:
                try:  # no other thread comes in between
                    return observing[0](_frame(1), original) or original
                except Exception:  # noqa: BLE001 - contained: the user's call goes on
                    guard.failed(site)
            return original

        # Not attributes, which are slow to read beside a `__getattr__`, but variables
        # of a function: so each probe has a class.
        self.__class__ = type(Probe.__name__, (Probe,), {"__call__": property(call)})

    def deactivate(self) -> None:
        """Pass calls to the observer no longer."""
        self._observing.clear()

    @property
    def __call__(self) -> AnyCall:
        """The original, or what the observer puts in its place for one call."""
        return self._original

    def __getattr__(self, name: str) -> Any:
        if name == "_original":
            raise AttributeError(name)
        return getattr(self._original, name)

    def __reduce_ex__(self, protocol: object) -> str | tuple[Any, ...]:
        # Cloudpickle, and so Ray, joblib and Dask, pickles functions created by JAX
        # with the globals that they use. Pickled as the original's name, to be looked
        # up there: like any function, unless it is not found there itself.
        name: str = self.__qualname__
        if getattr(sys.modules.get(self.__module__), name, None) is self:
            return name
        return resolve_name, (f"{self.__module__}:{name}",)


SITE = "monitoring"

TRACE = "/jax/core/compile/jaxpr_trace_duration"
LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"
RETRIEVAL = "/jax/compilation_cache/cache_retrieval_time_sec"
CACHE_USED = "/jax/compilation_cache/compile_requests_use_cache"
CACHE_HIT = "/jax/compilation_cache/cache_hits"
CACHE_STORED = "/jax/compilation_cache/cache_misses"
"""JAX's event for an entry about to be written, despite its name."""

TIME_SAVED = "/jax/compilation_cache/compile_time_saved_sec"
"""JAX's event for a hit: whole seconds of compile time, minus retrieval."""


OnEvent: TypeAlias = Callable[[], None]
OnScalar: TypeAlias = Callable[[float], None]
OnDuration: TypeAlias = Callable[[float, str | None], None]


# For each kind of listeners, JAX's functions that add, list and remove them; the latter
# have other names before 0.8.1.
_EVENT, _DURATION, _SCALAR = (
    (
        *("register_event_listener", "get_event_listeners"),
        *("unregister_event_listener", "_unregister_event_listener_by_callback"),
    ),
    (
        "register_event_duration_secs_listener",
        "get_event_duration_listeners",
        "unregister_event_duration_listener",
        "_unregister_event_duration_listener_by_callback",
    ),
    (
        *("register_scalar_listener", "get_scalar_listeners"),
        *("unregister_scalar_listener", "_unregister_scalar_listener_by_callback"),
    ),
)


class _ListenerKind(NamedTuple):
    """One of our listeners, with JAX's functions for its kind."""

    listener: Callable[..., None]
    register: Callable[[Any], None]
    registered: Callable[[], list[Any]]
    unregister: Callable[[Any], None]


class Listeners:
    """
    An event and a duration listener and, since JAX 0.6, one of scalars. What hears an
    event, by its name, is called two frames below the one that reports it: durations
    with JAX's name of the function, `None` up to 0.6.0.
    """

    def __init__(
        self,
        monitoring: ModuleType,
        guard: Guard,
        events: Mapping[str, OnEvent],
        durations: Mapping[str, OnDuration],
        scalars: Mapping[str, OnScalar],
    ) -> None:
        self._monitoring: Any = monitoring
        self._guard, self._off = guard, guard.off
        self._registered = False
        self._warned = False
        # Reentrant: a signal handler may compile.
        self._lock = RLock()
        self._kinds: tuple[_ListenerKind, ...] = ()
        # One function each: they are looked up by equality and identity.
        self._event = self._hears(events)
        self._duration = self._hears(durations, "fun_name")
        self._scalar = self._hears(scalars)

    def register(self) -> None:
        """Start listening; `AttributeError` if this JAX has no such functions."""
        monitoring = self._monitoring
        kinds: list[tuple[tuple[str, str, str, str], Callable[..., None]]]
        kinds = [(_EVENT, self._event), (_DURATION, self._duration)]
        if hasattr(monitoring, _SCALAR[0]):
            kinds.append((_SCALAR, self._scalar))
        found: list[_ListenerKind] = []
        for (add, listed, public, private), listener in kinds:
            remove = public if hasattr(monitoring, public) else private
            calls = (getattr(monitoring, name) for name in (add, listed, remove))
            found.append(_ListenerKind(listener, *calls))
        self._kinds = tuple(found)
        with self._lock:  # a compile on another thread may notice that one is missing
            self._registered = True
            for kind in self._kinds:
                kind.register(kind.listener)

    def unregister(self) -> None:
        """Stop listening. Safe if the listeners have already been cleared."""
        # Without the lock, which another thread may have held at a fork.
        self._registered = False
        self._take_off()

    def restore(self) -> bool:
        """
        Re-register listeners removed by `jax.monitoring.clear_event_listeners`; return
        whether none was missing, so that all events are received. Costs a microsecond.
        """
        if not self._registered:
            return False
        for kind in self._kinds:
            if kind.listener not in kind.registered():
                break
        else:
            return SITE not in self._off
        with self._lock:  # twice would count twice
            missing = [
                kind for kind in self._kinds if kind.listener not in kind.registered()
            ]
            for kind in missing:
                kind.register(kind.listener)
            warned = self._warned or not missing
            self._warned = self._warned or bool(missing)
        if self._is_off():  # meanwhile, by another thread
            self._take_off()
            return False
        if not warned:
            log.warning(
                "jaxmon's jax.monitoring listeners were cleared and have been "
                "re-registered. Compile phases in between are missing. To remove "
                "the listeners for good, call jaxmon.uninstrument()."
            )
        return False

    def _is_off(self) -> bool:
        return not self._registered

    def _take_off(self) -> None:
        for kind in self._kinds:
            # Another thread may do so just now.
            with interrupts.expected(AssertionError, ValueError):
                if kind.listener in kind.registered():
                    kind.unregister(kind.listener)

    def _hears(
        self, takes: Mapping[str, Callable[..., None]], *names: str
    ) -> Callable[..., None]:
        """Return a listener for what *takes* values, and details by these *names*."""

        def hear(event: str, *values: float, **details: Any) -> None:
            take = takes.get(event)
            if take is not None and self._registered and SITE not in self._off:
                try:
                    take(*values, *map(details.get, names))
                except Exception:  # noqa: BLE001 - contained: would reach the user's call
                    self._guard.failed(SITE)

        return hear


class CallbackTimes:
    """Number and time of the calls of Python that programs make at one line."""

    __slots__ = ("_records", "count", "nanoseconds")

    def __init__(self) -> None:
        self.count = self.nanoseconds = 0
        self._records: deque[tuple[int, int]] = deque()

    def began(self, _: FrameType, call: AnyCall) -> AnyCall:
        """Observe one *call*."""
        if len(self._records) >= _MANY:
            self.add_up()
        times = zip((perf_counter_ns(),), _times)  # noqa: B905 - one is endless
        return ending(call, map(self._records.append, times))

    def add_up(self) -> None:
        """Add what has ended since the last time."""
        for _ in range(len(self._records)):
            began, ended = self._records.popleft()
            self.count += 1
            self.nanoseconds += max(ended - began, 0)
