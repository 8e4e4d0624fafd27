"""What a part of an agent is, and one that is not loaded before it has work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jaxmon import interrupts
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.scheduler import Scheduler
from jaxmon.agent.worker import Job, Worker
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family
from jaxmon.host.http.messages import Request, Response
from jaxmon.settings import Settings
from jaxmon.threads import RLock
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.host.http.server import Handler


_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Explanation(NamedTuple):
    """
    What a part contributes to the facts of a process, on request, by field of
    `jaxmon.facts.process.Snapshot` and of `jaxmon.facts.functions.FunctionFact`, then
    by function: records of `jaxmon.facts`. Thread-safe; takes milliseconds, or half a
    second where something is read on request.
    """

    sections: Mapping[str, Callable[[], Any]] = _EMPTY
    functions: Mapping[str, Callable[[], Mapping[str, Any]]] = _EMPTY


class Part:
    """
    A part of an agent that observes. The default implementations do nothing.

    Attributes:
        name: the site under which its failures are counted.
    """

    name: str

    def attach(self, hooks: Hooks) -> None:
        """Attach hooks to JAX. If one fails, the others still attach."""

    def start(self) -> None:
        """Start background threads."""

    def refresh(self, *, asked: bool) -> None:
        """Update periodic data; if *asked* by the program, also what is so updated."""

    def collect(self) -> Iterable[Family]:
        """Return the current metrics. Fast and thread-safe."""
        return ()

    def explain(self) -> Explanation:
        """Return its contribution to the debug overview."""
        return Explanation()

    def flush(self, seconds: float) -> None:
        """Send what is to be sent, waiting at most so many *seconds*."""

    def dropped(self) -> Mapping[str, int]:
        """Return the number of dropped items by kind."""
        return _EMPTY

    def pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the Unix socket, by path."""
        return _EMPTY

    def public_pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the port, by path; no data of the program."""
        return _EMPTY

    def send(self) -> None:
        """Begin to send what is left, before anything stops. Never blocks."""

    def stop(self) -> None:
        """Stop threads and release data within the guard's deadline. Idempotent."""

    def abandon(self) -> None:
        """Leave all to the parent; in a forked child. Takes no lock, never blocks."""


_ABSENT = Part()

# What is loaded by time alone can wait so long; the timer rings ten times a second.
_SECONDS = 1.0


def begins(what: str, begin: Callable[[], object]) -> bool:
    """Call *begin*, and return whether that is possible; if not, log *what* is not."""
    try:
        begin()
    except (OSError, RuntimeError) as error:  # no descriptors or threads left
        interrupts.pass_on(error)
        log.warning("jaxmon is observing but cannot %s: %s", what, error)
        return False
    return True


class Loading:
    """
    When late parts may be loaded.

    Attributes:
        lock: held while a part is loaded, and while the process forks: a child could
            never import what a thread of its parent was importing.
        closed: whether no more are loaded: at exit, imports may fail, and make Python
            forget what ended the program.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.guard = scheduler.guard
        self.lock = RLock()
        self.closed = False
        self._scheduler = scheduler
        self._worker = Worker("loading", scheduler)

    def soon(self, name: str, load: Job) -> None:
        """Call *load* of the part *name* in a second, on a thread of ours."""

        def turn() -> None:
            self._worker.submit(load)

        self._scheduler.later(_SECONDS, turn, site=name)


class PartRow(NamedTuple):
    """
    A part, and what loads it.

    Attributes:
        name: of the part.
        place: its module, below `jaxmon.agent`, and its class.
        needs: what it is given beside the context, of `jaxmon.agent.parts.NEEDS`.
        enabled: returns whether settings enable it.
        late: lists of `jaxmon.agent.context.Observers`: the first event of each loads
            the part, which then has the place in the list. `None`: at the start. Such a
            part must export nothing before.
        early: returns whether settings need it at the start nevertheless.
        pages, public: its endpoints on the Unix socket and the port, which load it too.
        hears: events of `jax.monitoring` that load it: those without a value,
            durations, scalars.
        scraped: whether collecting loads it: it counts nothing before.
        soon: whether it is loaded a second after the start in any case.
        alone: whether it is given no context.
    """

    name: str
    place: str
    needs: tuple[str, ...] = ()
    enabled: Callable[[Settings], object] = lambda _: True
    late: tuple[str, ...] | None = None
    early: Callable[[Settings], object] = lambda _: False
    pages: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    hears: tuple[tuple[str, ...], ...] = ()
    scraped: bool = False
    soon: bool = False
    alone: bool = False


class LatePart(Part):
    """
    Stands for a part that has nothing to do yet, and loads it when it has, as `part`.

    Whatever fails then is a failure of that part, which is loaded no more. *observers*
    are the lists that its *row* names, *make* returns the part.
    """

    def __init__(
        self,
        row: PartRow,
        make: Callable[[], Part],
        loading: Loading,
        observers: Mapping[str, list[Callable[..., Any]]],
    ) -> None:
        self.name = row.name
        self.part: Part | None = None
        self._row = row
        self._make = make
        self._loading = loading
        self._lists = observers
        self._hooks: Hooks | None = None
        self._began: float | None = None
        self._stopped = False
        # A signal handler may compile within an import.
        self._is_loading = False
        self._observers: dict[str, Callable[..., Any]] = {}
        self._wakers = {name: functools.partial(self._wake, name) for name in observers}
        for event, found in observers.items():
            found.append(self._wakers[event])

    def load(self) -> Part | None:
        """Return the part; `None` if it cannot be loaded. Takes milliseconds, once."""
        if self._may_load():
            with self._loading.lock:
                if self._may_load() and not self._is_loading:
                    self._is_loading = True
                    try:
                        self._load()
                    except MemoryError as error:  # again at the next event
                        interrupts.pass_on(error)
                    except Exception:  # noqa: BLE001 - contained: others still observe
                        self._loading.guard.failed(self.name, stays_on=True)
                        self._stopped = True
                    finally:
                        self._is_loading = False
        return self.part

    def _may_load(self) -> bool:
        return self.part is None and not (self._stopped or self._loading.closed)

    def _load(self) -> None:
        before = {name: len(found) for name, found in self._lists.items()}
        try:
            part = self._make()
            if self._hooks is not None:
                part.attach(self._hooks)
            if self._began is not None:
                begins(f"start {self.name}", part.start)
        except BaseException:
            for name, found in self._lists.items():
                del found[before[name] :]
            raise
        # Its observers take the places of what loaded it.
        for name, found in self._lists.items():
            fresh = found[before[name] :]
            del found[before[name] :]
            at = found.index(self._wakers[name])
            found[at : at + 1] = fresh
            if fresh:
                self._observers[name] = fresh[0]
        self.part = part
        if self._stopped:  # meanwhile, by another thread
            part.stop()

    def _wake(self, name: str, *event: Any) -> Any:
        if name == "timer" and not self._is_due():
            return None
        found, waker = self._lists[name], self._wakers[name]
        place = found.index(waker) if waker in found else len(found)
        if self.load() is None:
            return None
        if name in self._observers:
            return self._observers[name](*event)
        # The next one has moved here, and the loop over the list is past that.
        return found[place](*event) if place < len(found) else None

    def _is_due(self) -> bool:
        return self._began is not None and monotonic() - self._began >= _SECONDS

    def attach(self, hooks: Hooks) -> None:
        """Attach hooks to JAX once there is something to observe."""
        self._hooks = hooks
        if self._row.hears:
            hooks.hear(
                *[
                    {
                        event: functools.partial(self._hear, place, event)
                        for event in names
                    }
                    for place, names in enumerate(self._row.hears)
                ]
            )

    def _hear(self, place: int, name: str, *event: Any) -> None:
        """Pass an *event* of `jax.monitoring` to the part."""
        if self._hooks is not None and self.load() is not None:
            self._hooks.heard[place][name](*event)

    def start(self) -> None:
        """Start what is periodic once there is something to do."""
        self._began = monotonic()
        if self._row.soon:
            self._loading.soon(self.name, self._load_soon)

    def _load_soon(self) -> None:
        self.load()

    def refresh(self, *, asked: bool) -> None:
        """Update periodic data, which loads what is loaded soon if *asked*."""
        part = self.load() if asked and self._row.soon else self.part
        (part or _ABSENT).refresh(asked=asked)

    def collect(self) -> Iterable[Family]:
        """Return the current metrics, none before there is something to count."""
        return ((self.load() if self._row.scraped else self.part) or _ABSENT).collect()

    def explain(self) -> Explanation:
        """Return its contribution to the debug overview."""
        return (self.load() or _ABSENT).explain()

    def flush(self, seconds: float) -> None:
        """Send what is to be sent."""
        (self.part or _ABSENT).flush(seconds)

    def dropped(self) -> Mapping[str, int]:
        """Return the number of dropped items by kind."""
        return (self.part or _ABSENT).dropped()

    def pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the Unix socket."""
        return {path: functools.partial(self._page, path) for path in self._row.pages}

    def public_pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the port."""
        return {path: functools.partial(self._page, path) for path in self._row.public}

    def _page(self, path: str, request: Request) -> Response | Future[Response]:
        part = self.load()
        if part is None:
            msg = f"jaxmon could not load {self.name}"
            raise LookupError(msg)
        return {**part.pages(), **part.public_pages()}[path](request)

    def send(self) -> None:
        """Begin to send what is left."""
        (self.part or _ABSENT).send()

    def stop(self) -> None:
        """Stop it; it is loaded no more."""
        self._stopped = True
        (self.part or _ABSENT).stop()

    def abandon(self) -> None:
        """Leave everything to the parent process."""
        self._stopped = True
        (self.part or _ABSENT).abandon()
