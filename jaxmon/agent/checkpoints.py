"""
Orbax's saves and restores, from what it reports to `jax.monitoring`.

Durations are Orbax's own, by its wall clock, exact even if several checkpointers work
at once. With several processes, Orbax reports them in the primary one. Nothing of Orbax
is imported or hooked; a program without it pays for a few entries of a dictionary.

Saves and restores in progress, and those that failed. Orbax reports the beginning and
the success of a save, not its failure. One failed if it has not succeeded and nothing
of Orbax runs any more where it ran: on the thread that called it or, once that has
continued, on any.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import orbax
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.jaxlink.orbax import CheckpointKind, in_orbax
from jaxmon.agent.part import Explanation, Part
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, Histogram, family_of, histograms
from jaxmon.facts import marked
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.timeline import FAILED, FINISHED, Timeline
from jaxmon.indicators.work import payers
from jaxmon.otel.traces import spans as conventions
from jaxmon.otel.traces.spans import Child, Payer
from jaxmon.threads import RLock, get_ident


MOST = 64
"""Operations followed at once; of more, the oldest are dropped."""


class CheckpointOperation:
    """
    One save or restore, on the thread that called Orbax. `end` is closed when it
    succeeded or failed, `blocked` when the program continues; `payer` is what it is
    for, if traces are on.
    """

    def __init__(self, kind: CheckpointKind) -> None:
        self.kind = kind
        self.began = now()
        self.payer: Payer | None = None
        self.end: End = []
        self.blocked: End = []
        self.thread = get_ident()

    @property
    def blocks_here(self) -> bool:
        """Whether this thread has called it, and has not continued."""
        return self.thread == get_ident() and not self.blocked

    def close(self, how: float) -> None:
        """Note that it ended now, `FINISHED` or `FAILED`."""
        at = now()
        if not self.blocked:
            self.blocked.append(at)
        self.end.extend((at, how))


class Operations:
    """Those in progress. Thread-safe."""

    def __init__(self) -> None:
        self._open: list[CheckpointOperation] = []
        # Reentrant: a signal handler may save.
        self._lock = RLock()

    def begin(
        self, kind: CheckpointKind
    ) -> tuple[CheckpointOperation, list[CheckpointOperation]]:
        """Return a new operation, and those that failed on this thread before it."""
        begun = CheckpointOperation(kind)
        with self._lock:
            failed = [o for o in self._open if o.blocks_here]
            self._open = [*(o for o in self._open if o not in failed), begun][-MOST:]
        for operation in failed:
            operation.close(FAILED)
        return begun, failed

    def current(self) -> CheckpointOperation | None:
        """Return the one that this thread has called."""
        mine = [o for o in self._open if o.blocks_here]
        return mine[-1] if mine else None

    def unblock(self, kind: CheckpointKind) -> None:
        """Note that the program continues after the call of *kind* on this thread."""
        with self._lock:
            for operation in self._open:
                if operation.kind == kind and operation.blocks_here:
                    operation.blocked.append(now())

    def succeed(self, kind: CheckpointKind) -> CheckpointOperation | None:
        """Note that one of *kind* succeeded: of this thread, else the oldest."""
        with self._lock:
            same = [o for o in self._open if o.kind == kind]
            if not same:
                return None
            mine = [o for o in same if o.blocks_here]
            found = (mine or same)[0]
            self._open.remove(found)
        found.close(FINISHED)
        return found

    def settle(self) -> list[CheckpointOperation]:
        """Return those that have failed since; 0.1 ms if any is in progress."""
        if not self._open:
            return []
        stacks = sys._current_frames()  # noqa: SLF001
        busy = {thread for thread, frame in stacks.items() if in_orbax(frame)}
        del stacks  # a frame keeps what it refers to
        with self._lock:
            failed = [
                o for o in self._open if not (busy if o.blocked else o.thread in busy)
            ]
            self._open = [o for o in self._open if o not in failed]
        for operation in failed:
            operation.close(FAILED)
        return failed

    def in_progress(self) -> Mapping[str, int]:
        """Return how many are in progress, by operation."""
        found = {"save": 0, "restore": 0}
        for operation in list(self._open):
            found[operation.kind.operation] += 1
        return found

    def forget(self) -> None:
        """Follow none any more. Takes no lock."""
        self._open = []


SITE: Final = "checkpoints"

ACTIVITIES: Final = {"save": "checkpoint", "restore": "restore"}
"""The activity that an operation is, on the timeline and in its ages."""

_GIBIBYTE = 1 << 30


class CheckpointPart(Part):
    """Counts checkpoints, and reports them as activities of the *timeline*."""

    name = SITE

    def __init__(self, context: Context, timeline: Timeline) -> None:
        self._guard = context.guard
        self._observers = context.observers
        self._timeline = timeline
        self._operations = Operations()
        self._seconds = {
            name: Histogram(catalog.CHECKPOINT_SECONDS, name)
            for name in catalog.CHECKPOINT_OPERATIONS
        }
        self._bytes = Counter[str]()
        self._failures: dict[str, int] = {}
        self._in_a_row: Counter[str] = Counter()
        # Reentrant: a signal handler may save.
        self._lock = RLock()

    def attach(self, hooks: Hooks) -> None:
        """Receive Orbax's events."""
        heard = self._heard
        hooks.hear(
            {name: heard(self._begin, kind) for name, kind in orbax.STARTS.items()},
            {
                orbax.WAITED: heard(self._waited),
                **{name: heard(self._unblock, k) for name, k in orbax.UNBLOCKS.items()},
                **{name: heard(self._succeed, k) for name, k in orbax.TOTALS.items()},
            },
            {
                **{name: heard(self._saving) for name in orbax.START_TIMES},
                **{
                    name: heard(self._moved, what)
                    for name, what in orbax.GIBIBYTES.items()
                },
            },
        )

    def _begin(self, kind: CheckpointKind) -> None:
        operation, failed = self._operations.begin(kind)
        self._count(failed, kind.operation)
        if self._observers.tracer is not None:
            operation.payer = self._observers.tracer.payer(payers())
        activity = ACTIVITIES[kind.operation]
        self._timeline.follow(activity, operation)
        if kind.operation == "restore":
            self._timeline.open_pause(activity, operation.blocked)

    def _saving(self, milliseconds: float) -> None:
        """Pause the loop since the save began: managers first wait for another."""
        operation = self._operations.current()
        if operation is not None and operation.kind.operation == "save":
            ago = wall_time() - milliseconds / 1000
            self._timeline.open_pause(ACTIVITIES["save"], operation.blocked, ago=ago)

    def _waited(self, seconds: float, _: str | None) -> None:
        self._seconds["wait"].observe(seconds)

    def _unblock(self, kind: CheckpointKind, seconds: float, _: str | None) -> None:
        self._seconds["blocking"].observe(seconds)
        self._operations.unblock(kind)

    def _succeed(self, kind: CheckpointKind, seconds: float, _: str | None) -> None:
        self._seconds[kind.operation].observe(seconds)
        with self._lock:
            self._in_a_row[kind.operation] = 0
        if kind == orbax.SAVE:
            self._seconds["blocking"].observe(seconds)
        if (operation := self._operations.succeed(kind)) is not None:
            self._trace(operation, failed=False)

    def _moved(self, direction: str, gibibytes: float) -> None:
        with self._lock:
            self._bytes[direction] += round(gibibytes * _GIBIBYTE)

    def _heard(self, take: Callable[..., None], *given: Any) -> Callable[..., None]:
        """Return *take* with *given* arguments so that its failures are contained."""

        def contained(*reported: Any) -> None:
            if self._guard.on(SITE):
                with self._guard.contained(SITE):  # would reach Orbax
                    take(*given, *reported)

        return contained

    def _count(self, failed: Iterable[CheckpointOperation], *seen: str) -> None:
        with self._lock:
            for operation in seen:
                self._failures.setdefault(operation, 0)
                self._bytes.setdefault(operation, 0)
            for ended in failed:
                self._failures[ended.kind.operation] += 1
                self._in_a_row[ended.kind.operation] += 1
                self._trace(ended, failed=True)

    def _trace(self, operation: CheckpointOperation, *, failed: bool) -> None:
        tracer, payer = self._observers.tracer, operation.payer
        if tracer is None or payer is None:
            return
        began, name = operation.began, operation.kind.operation
        attributes: dict[str, str | float] = {
            conventions.OPERATION: name,
            conventions.OUTCOME: "error" if failed else "success",
            conventions.BLOCKED: operation.blocked[0] - began,
        }
        whole = f"{conventions.CHECKPOINT} {name}"
        end = operation.end[0]
        tracer.kept(Child(whole, began, end, attributes, failed=failed), payer)

    def collect(self) -> Iterable[Family]:
        """Return times, bytes and failures; nothing without a checkpoint."""
        self._count(self._operations.settle())
        return [
            histograms(
                catalog.CHECKPOINT_SECONDS,
                [seconds for seconds in self._seconds.values() if seconds.count],
            ),
            family_of(catalog.CHECKPOINT_BYTES, self._bytes.copy().items()),
            family_of(catalog.CHECKPOINT_FAILURES, self._failures.copy().items()),
        ]

    def explain(self) -> Explanation:
        """Return the checkpoints so far, by operation."""
        return Explanation({"checkpoints": self._explain})

    def _explain(self) -> tuple[marked.Checkpoints, ...]:
        self._count(self._operations.settle())
        running = self._operations.in_progress()
        found = []
        for operation, seconds in self._seconds.items():
            if not seconds.count and operation not in self._failures:
                continue
            fact = marked.Checkpoints(
                name=operation,
                count=seconds.count,
                mean_seconds=seconds.mean,
                p95_seconds=seconds.quantile(0.95),
            )
            if operation in running:
                fact = fact.replace(
                    in_progress=running[operation],
                    failures=self._failures.get(operation, 0),
                    failed_in_a_row=self._in_a_row[operation],
                    bytes=self._bytes.get(operation, 0),
                )
            found.append(fact)
        return tuple(found)

    def stop(self) -> None:
        """Follow nothing any more: Orbax's threads stay in a parent process."""
        self._operations.forget()

    abandon = stop
