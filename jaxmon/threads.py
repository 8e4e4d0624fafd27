"""
Threads inside the user's program, and locks for what they share with it.

They are started below `threading`, which does not list them: a program that joins or
counts its threads does so as without us. They are no greenlets, and their locks wait
for none, however much gevent or eventlet has replaced, and whenever.

Python treats them as daemon threads: nothing waits for them at exit, but as long as a
`Deadline` allows.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from jaxmon.clocks import monotonic, original


_thread: Final[Any] = original("_thread")
Lock: Final[Callable[[], threading.Lock]] = _thread.allocate_lock
RLock: Final[Callable[[], threading.RLock]] = _thread.RLock
get_ident: Final[Callable[[], int]] = _thread.get_ident
get_native_id: Final[Callable[[], int]] = _thread.get_native_id

_started: dict[int, DaemonThread] = {}


class Event:
    """As `threading.Event`; only a thread that waits may `clear` it."""

    def __init__(self) -> None:
        self._is_set = False
        # Held until the event is set, and by each waiter for an instant afterwards.
        self._unset = Lock()
        self._unset.acquire()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Let all waiters continue. Idempotent."""
        self._is_set = True
        with suppress(RuntimeError):  # it is not held
            self._unset.release()

    def clear(self) -> None:
        """Wait from now on."""
        self._is_set = False
        self._unset.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most *timeout* seconds; return whether it is set."""
        unlist()
        if self._unset.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            with suppress(RuntimeError):  # it was set meanwhile
                self._unset.release()
        return self._is_set


class DaemonThread:
    """
    A thread that the program neither sees nor waits for; `sys.unraisablehook` gets what
    *target* raises. Its number in Python, *ident*, is `None` until it has started.
    """

    def __init__(self, name: str, target: Callable[[], None]) -> None:
        self.name = name
        self.ident: int | None = None
        self._targets = [target]
        self._process: int | None = None
        self._unfinished = Lock()
        self._unfinished.acquire()

    def start(self) -> None:
        """Start it, once. Raises `RuntimeError`: no threads are left, or at exit."""
        self._process = os.getpid()
        self.ident = _thread.start_new_thread(self._begin, ())
        _started[self.ident] = self  # as `_begin` does, which may come later

    def is_alive(self) -> bool:
        """Return whether it has started, in this process, and not finished."""
        return (
            self.ident is not None
            and self._process == os.getpid()
            and self._unfinished.locked()
        )

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has finished, at most *timeout* seconds."""
        if self.is_alive() and self._unfinished.acquire(
            timeout=-1 if timeout is None else max(timeout, 0)
        ):
            self._unfinished.release()

    def prevent(self) -> bool:
        """Return whether the target will never run: *start* was interrupted."""
        return bool(self._take())

    def _begin(self) -> None:
        ident = self.ident = get_ident()
        _started[ident] = self
        try:
            for target in self._take():
                target()
        finally:
            unlist()
            _started.pop(ident, None)
            self._unfinished.release()

    def _take(self) -> list[Callable[[], None]]:
        try:
            return [self._targets.pop()]
        except IndexError:
            return []


def current() -> DaemonThread | None:
    """Return the thread of ours that calls this, `None` on those of the program."""
    return _of(get_ident())


def is_ours(ident: int) -> bool:
    """Return whether *ident* is the number of a thread of ours."""
    return _of(ident) is not None


def running() -> list[DaemonThread]:
    """Return our threads."""
    return [thread for thread in list(_started.values()) if thread.is_alive()]


def main_ident() -> int:
    """Return the number of the main thread; gevent gives it that of a greenlet."""
    if threading.get_native_id() == os.getpid():
        return get_ident()
    return threading.main_thread().ident or 0


def unlist() -> None:
    """
    Remove our threads from `threading`: a finalizer, a log handler or a library may
    have called `threading.current_thread`, which lists the thread that it runs on, this
    one or one that waits in C code, as for an answer by gRPC. Idempotent; 1 µs.
    """
    active: dict[int, Any] = threading._active  # type: ignore[attr-defined] # noqa: SLF001
    listed = [ident for ident in list(_started) if ident in active and is_ours(ident)]
    if current() is not None:
        listed.append(threading.get_ident())  # which may be gevent's number for it
    for ident in listed:
        if (found := active.pop(ident, None)) is not None:
            # Python 3.13 keeps it until the thread has finished.
            threading._dangling.discard(found)  # type: ignore[attr-defined] # noqa: SLF001


def is_named(record: logging.LogRecord) -> bool:
    """Give *record* the name of our thread that logs it, and unlist that; keeps all."""
    if (thread := current()) is not None:
        record.threadName = thread.name
        unlist()
    return True


def _of(ident: int) -> DaemonThread | None:
    thread = _started.get(ident)
    # A forked child has the numbers of its parent's threads.
    return thread if thread is not None and thread.is_alive() else None


SECONDS = 3.0

# What hangs must leave time for the others.
_SHARE = 2 / 3


class Deadline:
    """
    The *seconds* that all share who wait at the end of a program; it is passed to them.
    They pass between `begin` and `pause`: what else happens at exit takes none of them.
    """

    def __init__(
        self, seconds: float = SECONDS, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: float | None = None

    def begin(self) -> None:
        """Let time pass, if it does not yet."""
        if self._since is None:
            self._since = self._clock()

    def pause(self) -> None:
        """Let no time pass until `begin`."""
        self._seconds, self._since = self.left(), None

    def left(self) -> float:
        """Return the seconds that are left, 0 or more."""
        spent = 0.0 if self._since is None else self._clock() - self._since
        return max(self._seconds - spent, 0.0)

    def portion(self) -> float:
        """Return the seconds that the next one may wait: two thirds of what is left."""
        return self.left() * _SHARE


class ExportThread:
    """
    A daemon thread, *name*, that exports every *interval* seconds, or only when asked
    to (`None`), and once more before it ends. *run* runs its body.
    """

    def __init__(
        self,
        name: str,
        interval: float | None,
        run: Callable[[Callable[[], None]], Any],
    ) -> None:
        self._title, self._interval, self._run = name, interval, run
        self._wake = Event()
        # Reentrant: the garbage collector may end a span while it is held.
        self._lock = RLock()
        # Who waits for an export that begins after they asked.
        self._asked: list[Event] = []
        self._thread: DaemonThread | None = None
        self._stopped = self._over = False

    def start(self) -> None:
        """Start the thread. Raises `RuntimeError`: none is left."""
        # Stored before it starts: the garbage collector may end a span meanwhile, on
        # this thread.
        self._thread = thread = DaemonThread(self._title, lambda: self._run(self._work))
        try:
            thread.start()
        except BaseException:  # no threads left, or the program's
            if thread.prevent():
                self._thread = None
            raise

    def push(self) -> Event:
        """Export soon; what is returned is set when that has ended. Never blocks."""
        done = Event()
        with self._lock:
            if self._stopped or not self._is_running():
                done.set()
            else:
                self._asked.append(done)
        self._wake.set()
        return done

    def end(self) -> None:
        """Have the thread stop once it has exported what there is. Idempotent."""
        with self._lock:
            self._stopped = True
            running = self._is_running()
        self._wake.set()
        if not running:
            self._close()

    def end_by(self, deadline: Deadline, *, most: float = SECONDS) -> bool:
        """
        Export once more and stop, until the *deadline*; return whether that took no
        longer than *most* seconds. Else attempts end.
        """
        self.end()
        if (thread := self._thread) is None:
            return True
        thread.join(min(most, deadline.portion()))
        if in_time := not thread.is_alive():
            return in_time
        self._over = True
        self._close()  # only a response that does not come is waited for
        thread.join(deadline.portion())
        return in_time

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        stopping = False
        try:
            while not stopping:
                self._wake.wait(self._interval)
                self._wake.clear()
                with self._lock:
                    stopping, asked, self._asked = self._stopped, self._asked, []
                if not self._over:
                    self._export()
                for done in asked:
                    done.set()
        finally:
            self._close()

    def _export(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """End the connections, and attempts to export; may be called again."""
        raise NotImplementedError
