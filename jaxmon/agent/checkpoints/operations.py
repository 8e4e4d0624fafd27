"""
Saves and restores in progress, and those that failed.

Orbax reports the beginning and the success of a save, not its failure. One failed if it
has not succeeded and nothing of Orbax runs any more where it ran: on the thread that
called it or, once that has continued, on any.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from jaxmon.agent.jaxlink.orbax import Kind, in_orbax
from jaxmon.indicators.activity_ages import FAILED, FINISHED
from jaxmon.indicators.endings import End, now
from jaxmon.otel.traces.spans import Payer
from jaxmon.threads import RLock, get_ident


MOST = 64
"""Operations followed at once; of more, the oldest are dropped."""


class Operation:
    """
    One save or restore.

    Attributes:
        kind: what it does.
        end: closed when it succeeded or failed.
        blocked: closed when the program continues.
        thread: the thread that called Orbax.
        began: when it began, on the performance counter.
        payer: the request or step that it is for, if traces are on.
    """

    __slots__ = ("began", "blocked", "end", "kind", "payer", "thread")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.began = now()
        self.payer: Payer | None = None
        self.end: End = []
        self.blocked: End = []
        self.thread = get_ident()

    def close(self, how: float) -> None:
        """Note that it ended now, `FINISHED` or `FAILED`."""
        at = now()
        if not self.blocked:
            self.blocked.append(at)
        self.end.extend((at, how))


class Operations:
    """Those in progress. Thread-safe."""

    def __init__(self) -> None:
        self._open: list[Operation] = []
        # Reentrant: a signal handler may save.
        self._lock = RLock()

    def begin(self, kind: Kind) -> tuple[Operation, list[Operation]]:
        """
        Return a new operation, and those that have failed: Orbax saves nothing within a
        save, so what blocked this thread before has raised.
        """
        begun, here = Operation(kind), get_ident()
        with self._lock:
            failed = [
                one for one in self._open if one.thread == here and not one.blocked
            ]
            self._open = [*(o for o in self._open if o not in failed), begun][-MOST:]
        for one in failed:
            one.close(FAILED)
        return begun, failed

    def current(self) -> Operation | None:
        """Return the one that this thread has called."""
        here = get_ident()
        mine = [o for o in self._open if o.thread == here and not o.blocked]
        return mine[-1] if mine else None

    def unblock(self, kind: Kind) -> None:
        """Note that the program continues after the call of *kind* on this thread."""
        here = get_ident()
        with self._lock:
            for one in self._open:
                if one.kind == kind and one.thread == here and not one.blocked:
                    one.blocked.append(now())

    def succeed(self, kind: Kind) -> Operation | None:
        """
        Note that one of *kind* succeeded, and return it: that of this thread, else the
        oldest. A background thread does not say which it was.
        """
        here = get_ident()
        with self._lock:
            same = [one for one in self._open if one.kind == kind]
            if not same:
                return None
            mine = [one for one in same if one.thread == here and not one.blocked]
            found = (mine or same)[0]
            self._open.remove(found)
        found.close(FINISHED)
        return found

    def settle(self) -> list[Operation]:
        """Return those that have failed since; 0.1 ms if any is in progress."""
        if not self._open:
            return []
        stacks = sys._current_frames()  # noqa: SLF001
        busy = {thread for thread, frame in stacks.items() if in_orbax(frame)}
        del stacks  # a frame keeps what it refers to
        with self._lock:
            failed = [
                one
                for one in self._open
                if not (busy if one.blocked else one.thread in busy)
            ]
            self._open = [one for one in self._open if one not in failed]
        for one in failed:
            one.close(FAILED)
        return failed

    def in_progress(self) -> Mapping[str, int]:
        """Return how many are in progress, by operation."""
        found = {"save": 0, "restore": 0}
        for one in list(self._open):
            found[one.kind.operation] += 1
        return found

    def forget(self) -> None:
        """Follow none any more. Takes no lock."""
        self._open = []
