"""What a part of an agent is, and one that is not loaded before it has work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family
from jaxmon.host.http.messages import Request, Response
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.host.http.server import Handler


_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Explanation(NamedTuple):
    """
    What a part contributes to the facts of a process, on request: records of
    `jaxmon.facts`. Thread-safe; takes milliseconds, or half a second where something is
    read for whoever asks.

    Attributes:
        sections: by field of `jaxmon.facts.process.Snapshot`.
        functions: by field of `jaxmon.facts.functions.Function`, then by function.
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
        """
        Update periodic data now.

        Args:
            asked: whether the program requested it, which includes data updated only on
                request.
        """

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
        """
        Begin to send what is left; called before anything stops. Never blocks: all that
        is sent at the end is sent at the same time.
        """

    def stop(self) -> None:
        """
        Stop threads and release data, waiting for nothing beyond the guard's deadline.
        Idempotent.
        """

    def abandon(self) -> None:
        """
        Leave everything to the parent process; called in a forked child. Takes no lock
        and does not block.
        """


# The timer rings ten times a second; what it alone loads can wait so long.
_TIMER_SECONDS = 1.0


class Loading:
    """
    When late parts may be loaded.

    Args:
        guard: contains what fails then.

    Attributes:
        guard: as given.
        lock: held while a part is loaded, and while the process forks: a child could
            never import what a thread of its parent was importing.
        closed: whether no more are loaded: at exit, imports may fail, and make Python
            forget what ended the program.
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.lock = RLock()
        self.closed = False


class LatePart(Part):
    """
    Stands for a part that has nothing to do yet, and loads it when it has.

    Whatever fails then is a failure of that part, which is loaded no more.

    Args:
        name: of the part.
        make: returns the part.
        loading: when it may be loaded.
        observers: lists of `jaxmon.agent.context.Observers`, by name: the first event
            of each loads the part, which then has the place in the list.
        pages: its endpoints, which load it too.
        scraped: whether collecting loads it.

    Attributes:
        part: that, once loaded.
    """

    def __init__(  # noqa: PLR0913 - all that may load it
        self,
        name: str,
        make: Callable[[], Part],
        loading: Loading,
        observers: Mapping[str, list[Callable[..., Any]]],
        *,
        pages: Iterable[str] = (),
        scraped: bool = False,
    ) -> None:
        self.name = name
        self.part: Part | None = None
        self._make = make
        self._loading = loading
        self._lists = observers
        self._pages = pages
        self._scraped = scraped
        self._hooks: Hooks | None = None
        self._began: float | None = None
        self._stopped = False
        # A signal handler may compile within an import.
        self._is_loading = False
        self._observers: dict[str, Callable[..., Any]] = {}
        self._wakers = {one: functools.partial(self._wake, one) for one in observers}
        for one, found in observers.items():
            found.append(self._wakers[one])

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
                part.start()
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

    def _wake(self, name: str, *event: Any) -> Any:
        """Pass an *event* to the part."""
        if name == "timer" and not self._is_due():
            return None
        found, waker = self._lists[name], self._wakers[name]
        place = found.index(waker) if waker in found else len(found)
        if self.load() is None:
            return None
        if name in self._observers:
            return self._observers[name](*event)
        # The next one has moved here, and whoever notifies the list is past that.
        return found[place](*event) if place < len(found) else None

    def _is_due(self) -> bool:
        return self._began is not None and monotonic() - self._began >= _TIMER_SECONDS

    def attach(self, hooks: Hooks) -> None:
        """Attach hooks to JAX once there is something to observe."""
        self._hooks = hooks

    def start(self) -> None:
        """Start what is periodic once there is something to do."""
        self._began = monotonic()

    def refresh(self, *, asked: bool) -> None:
        """Update periodic data."""
        if self.part is not None:
            self.part.refresh(asked=asked)

    def collect(self) -> Iterable[Family]:
        """Return the current metrics, none before there is something to count."""
        part = self.load() if self._scraped else self.part
        return () if part is None else part.collect()

    def explain(self) -> Explanation:
        """Return its contribution to the debug overview."""
        part = self.load()
        return Explanation() if part is None else part.explain()

    def flush(self, seconds: float) -> None:
        """Send what is to be sent."""
        if self.part is not None:
            self.part.flush(seconds)

    def dropped(self) -> Mapping[str, int]:
        """Return the number of dropped items by kind."""
        return {} if self.part is None else self.part.dropped()

    def pages(self) -> Mapping[str, Handler]:
        """Return its endpoints on the Unix socket."""
        return {path: functools.partial(self._page, path) for path in self._pages}

    def _page(self, path: str, request: Request) -> Response | Future[Response]:
        part = self.load()
        if part is None:
            msg = f"jaxmon could not load {self.name}"
            raise LookupError(msg)
        return part.pages()[path](request)

    def send(self) -> None:
        """Begin to send what is left."""
        if self.part is not None:
            self.part.send()

    def stop(self) -> None:
        """Stop it; it is loaded no more."""
        self._stopped = True
        if self.part is not None:
            self.part.stop()

    def abandon(self) -> None:
        """Leave everything to the parent process."""
        self._stopped = True
        if self.part is not None:
            self.part.abandon()
