"""
The record of a run, as a part of the agent of process 0.

The record is written where storage that does not respond holds up nothing else. In the
other processes of a job that ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Final

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.goodput import store as identity
from jaxmon.agent.goodput.accounts import Accounts, Progress
from jaxmon.agent.goodput.store import Store, SupersededError
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family, family_of, gauge
from jaxmon.facts.run import CHECKPOINT, STOPPED, NewerRecordError, RunRecord
from jaxmon.host import rundir
from jaxmon.indicators.loops import Loops, StepLoop
from jaxmon.indicators.timeline import Timeline
from jaxmon.threads import RLock


SITE: Final = "goodput"

# Between two looks at whether this is process 0, and whether the record is free.
_SOON = 1.0
# Calls of one function after which a program evidently works without marking steps: so
# many, or some in so many seconds, if they take long.
_AT_WORK = 100
_SOME, _LONG = 10, 120.0


class RunGoodput(Part):
    """Keeps the record of the run if this is process 0; *crashed*: an error ends it."""

    name = SITE

    def __init__(
        self,
        context: Context,
        timeline: Timeline,
        loops: Loops,
        *,
        crashed: Callable[[], bool],
    ) -> None:
        self._context = context
        self._guard = context.guard
        self._timeline = timeline
        self._loops = loops
        self._crashed = crashed
        self._every = context.settings.run_interval
        self._run = identity.run_of(context.settings)
        self._store: Store | None = None
        self._accounts: Accounts | None = None
        self._loop: StepLoop | None = None
        self._numbered = False
        # When a jitted function had been called for the first time.
        self._called: float | None = None
        self._written = monotonic()
        self._logged: set[str] = set()
        # Why the record is not kept at present, in words.
        self._trouble = ""
        self._over = False
        self._worker = Worker(
            SITE,
            context.scheduler,
            every=min(self._every, _SOON),
            routine=self._round,
            gives_up=False,
        )
        self._lock = RLock()

    def start(self) -> None:
        """Start to account for the time."""
        if self._store is not None:
            return
        # From here on, not from the first marker on: it compiles before.
        self._timeline.begin()
        self._store = Store(self._run, identity.this_process())
        self._worker.start()

    def send(self) -> None:
        """Write the record for the last time, on its thread."""
        if self._store is not None and not self._over:
            self._worker.submit(partial(self._round, last=True), urgent=True)
            self._over = True

    def stop(self) -> None:
        """Wait until the record is written, within the deadline. Idempotent."""
        self.send()
        self._worker.finish()

    # --- the thread -----------------------------------------------------------------

    def _round(self, *, last: bool = False) -> None:
        """Begin to keep the record, if that is possible now, and write it."""
        if self._over and not last:
            return
        try:
            if self._store is not None and (self._accounts or self._begin(self._store)):
                self._write(self._store, last=last)
                self._trouble = ""
                if broken := self._store.broken:
                    self._warn(broken, broken)
        except (NewerRecordError, SupersededError) as error:
            self.abandon()
            self._say("jaxmon no longer records the goodput of the run: %s", error)
        except (OSError, JaxmonError) as error:
            text = "jaxmon cannot keep the record of the run, and retries: %s"
            self._say(text, error)
        except Exception:  # noqa: BLE001 - contained: our own thread goes on
            self._guard.failed(SITE, stays_on=True)

    def _write(self, store: Store, *, last: bool) -> None:
        with self._lock:
            current = self._advanced()
            if last and self._accounts is not None:
                self._accounts.end(STOPPED)
                current = self._accounts.record
        if current is not None:
            self._prepare()
            store.write(current)
            self._written = monotonic()

    def abandon(self) -> None:
        """Leave the record to another process."""
        self._store, self._accounts, self._over = None, None, True
        self._worker.every = inf

    def _begin(self, store: Store) -> bool:
        place = cluster(self._context.jax)
        if place is None:
            return False
        if place.rank:
            self.abandon()  # to process 0
            return False
        self._prepare()
        found = store.begin()
        if found is None:
            text = "%s is kept by another process that runs on this host"
            self._say(text, store.path)
            return False
        record, continues = found
        self._written = monotonic()
        self._accounts = Accounts(record, continues=continues)
        self._worker.every = self._every
        return True

    def _prepare(self) -> None:
        if self._context.settings.run_state is None:
            rundir.prepare(self._run.directory.parent)

    def _say(self, text: str, about: object) -> None:
        """Warn of what keeps the record from being written, here and in reports."""
        self._trouble = text % about
        self._warn(text, self._trouble)

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning("%s", text)

    # --- accounting -----------------------------------------------------------------

    def _advanced(self) -> RunRecord | None:
        """Return the record up to now, `None` if this process does not keep it."""
        with self._lock:
            accounts = self._accounts
            if accounts is None:
                return None
            progress = self._progress()
            accounts.advance(
                identity.moment(),
                self._timeline.spent(),
                progress,
                late=self._timeline.late,
                saves=self._timeline.count(CHECKPOINT),
                works=progress is None and self._works(),
                crashed=self._crashed(),
            )
            return accounts.record

    def _progress(self) -> Progress | None:
        """Return how far the loop has come: that whose steps have numbers, if any."""
        if not self._numbered:
            loops = list(self._loops)
            found = next((loop for loop in loops if loop.numbered), None)
            self._numbered = found is not None
            self._loop = found or self._loop or next(iter(loops), None)
        loop = self._loop
        if loop is None:
            return None
        steps, numbered = loop.position()
        return Progress(loop.name, steps, numbered, loop.age, loop.running > 0)

    def _works(self) -> bool:
        users = [f for f in self._context.table if not f.internal]
        calls = max([function.objects.calls for function in users], default=0)
        if calls and self._called is None:
            self._called = monotonic()
        long = self._called is not None and monotonic() - self._called >= _LONG
        return calls >= (_SOME if long else _AT_WORK)

    # --- reading --------------------------------------------------------------------

    def collect(self) -> Iterable[Family]:
        """Return what the run took so far; 30 µs."""
        record = self._advanced()
        if record is None:
            return []
        run = record.run
        parts, ended = record.seconds, record.interruptions
        by_part = [(run, n, parts.get(n, 0.0)) for n in catalog.RUN_ACTIVITIES]
        by_end = [(run, n, float(ended.get(n, 0))) for n in catalog.RUN_ENDINGS]
        return [
            family_of(catalog.RUN_SECONDS, by_part),
            family_of(catalog.RUN_INTERRUPTIONS, by_end),
            gauge(catalog.RUN_STEPS, record.steps, run),
            gauge(catalog.RUN_LOST_STEPS, record.lost_steps, run),
            gauge(catalog.RUN_SAVES, record.saves, run),
            gauge(catalog.RUN_RESUMES, record.resumes, run),
            gauge(catalog.RUN_RESUME_SECONDS, record.resume_seconds, run),
            gauge(catalog.RUN_FRUITLESS_ATTEMPTS, record.fruitless, run),
            gauge(catalog.RUN_UNSAVED_SECONDS, monotonic() - self._written, run),
        ]

    def explain(self) -> Explanation:
        """Return the record, and why it is not kept."""
        return Explanation({"run": self.describe, "run_doubts": self._doubts})

    def _doubts(self) -> tuple[str, ...]:
        broken = "" if self._store is None else self._store.broken
        return tuple([text for text in (self._trouble, broken) if text])

    def describe(self) -> RunRecord:
        """Return the record up to now, without any fields if there is none."""
        record = self._advanced()
        return RunRecord() if record is None else record.filled()
