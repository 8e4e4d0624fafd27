"""
The record of a run, as a part of the agent of process 0.

The record is written where storage that does not respond holds up nothing else. In the
other processes of a job that ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import NamedTuple

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.goodput import store as identity
from jaxmon.agent.goodput.store import ClockPair, Store, SupersededError
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family, family_of, gauge
from jaxmon.facts import run as facts
from jaxmon.facts.run import CHECKPOINT, LOST, RECOVERY, RunRecord
from jaxmon.host import rundir
from jaxmon.indicators.loops import Loops, StepLoop
from jaxmon.indicators.marks import COMPILE, DATA_WAIT, STEP
from jaxmon.indicators.recorder import OTHER
from jaxmon.indicators.timeline import Timeline
from jaxmon.threads import RLock


_MARKED, _UNKNOWN = "marked", "unknown"
_NAMES = {COMPILE: COMPILE, CHECKPOINT: CHECKPOINT, "restore": RECOVERY}
_STEPPING = (STEP, DATA_WAIT)


class Progress(NamedTuple):
    """
    How far the *loop* of an attempt has come: *steps* were done in this process, the
    latest so many seconds ago; where they were *numbered* since the last time, see
    `Loop`.
    """

    loop: str
    steps: int
    numbered: Iterable[tuple[int, int]]
    age: float
    running: bool


class Accounts:
    """
    Keeps the `record` of one attempt, which an earlier agent here may have begun.

    Each second is counted once: what the timeline attributes to an activity, and of the
    rest, what comes before the first step. Steps up to the furthest of earlier attempts
    are done again; of an interval that contains both, time is split by number of steps.
    """

    def __init__(self, record: RunRecord, *, continues: bool = False) -> None:
        self.record = record
        self._restarted = record.starts > 1
        self._spent: Mapping[str, float] = {}
        self._loop, self._counted = "", 0
        self._saves = 0
        # The step that the latest save may contain at most: until one is later for
        # certain, they may be parts of one checkpoint.
        self._saved_by = 0
        # Of the compiles that are counted late.
        self._repaid = 0.0
        # Whether its steps have numbers, or can only be counted.
        self._placed = continues
        self._again = LOST
        # Seconds of restoring when steps were last given a number.
        self._restored: float | None = 0.0 if continues else None
        self._looped = continues
        # Whether it works without marking steps.
        self._unmarked = False

    def advance(  # noqa: PLR0913 - what is known of a moment
        self,
        now: ClockPair,
        spent: Mapping[str, float],
        progress: Progress | None,
        *,
        late: float = 0.0,
        saves: int = 0,
        works: bool = False,
        crashed: bool = False,
    ) -> None:
        """
        Account for the time until *now*: *spent* are seconds by activity so far, of
        which *late* ones were of compiles; *progress* is of the loop, if there is one,
        *saves* the checkpoints so far. The program *works* if that is evident, marked
        or not.
        """
        record = self.record
        total = max(now.boottime - record.boottime, 0.0)
        if record.down is not None:
            self.record = record.replace(down=record.down + total)
        changes = {n: s - self._spent.get(n, 0.0) for n, s in spent.items()}
        parts = {name: seconds for name, seconds in changes.items() if seconds > 0}
        self._spent = dict(spent)
        accounted = sum(parts.values()) - parts.get(OTHER, 0.0)
        scale = min(total / accounted, 1.0) if accounted > 0 else 1.0
        found = [
            (_NAMES.get(name, _MARKED), part * scale)
            for name, part in parts.items()
            if name not in _STEPPING and name != OTHER
        ]
        name = RECOVERY if self._restarted else facts.STARTUP
        name = _UNKNOWN if self._looped or self._unmarked else name
        rest = {name: max(total - accounted, 0.0)}
        stepping = {name: parts.get(name, 0.0) * scale for name in _STEPPING}
        if progress is not None:
            stepping = self._corrected(self._follow(progress, stepping), late)
            self._looped = True
        else:
            rest = self._corrected(rest, late)
            # Where attempts have marked steps, this one has not come to them.
            self._unmarked = self._unmarked or (works and not record.marked)
        seconds = dict(record.seconds)
        for name, part in (*found, *stepping.items(), *rest.items()):
            if part:
                seconds[name] = seconds.get(name, 0.0) + part
        self._save(saves, record.step)
        self.record = self.record.replace(
            time=now.wall,
            boottime=max(now.boottime, record.boottime),
            seconds=seconds,
            marked=self.record.marked or self._looped,
            fruitless=0 if self._unmarked else self.record.fruitless,
            ended=facts.CRASHED if crashed else self.record.ended,
        )

    def end(self, ending: str) -> None:
        """Note how the attempt ends."""
        self.record = self.record.replace(ended=self.record.ended or ending)

    def _corrected(self, parts: dict[str, float], late: float) -> dict[str, float]:
        """
        Return *parts* without as much as compiles that had seemed to be the same: no
        counter decreases, so what comes after them is counted as compile instead.
        """
        owed, whole = late - self._repaid, sum(parts.values())
        if owed <= 0 or not whole:
            return parts
        repaid = min(owed, whole)
        self._repaid += repaid
        found = {
            name: seconds * (1 - repaid / whole) for name, seconds in parts.items()
        }
        found[COMPILE] = repaid
        return found

    def _follow(
        self, progress: Progress, stepping: dict[str, float]
    ) -> dict[str, float]:
        if progress.loop != self._loop:
            self._loop, self._counted = progress.loop, 0
        before, again, last = self._counted, 0, self._counted
        for count, start in progress.numbered:
            again += self._walk(count - last)
            last = max(count, last)
            self._place(start)
        if progress.steps > last or progress.running:
            self._place_by_count()
        again += self._walk(progress.steps - last)
        self._counted = max(progress.steps, last)
        done, spent = self._counted - before, sum(stepping.values())
        if done:
            part = again / done
            self._resumed(progress.age + spent * (done - 1) / done)
        else:
            # Of the step in progress.
            part = float(self._placed and self.record.step < self.record.furthest)
        unfinished = 0.0
        if progress.running:
            earlier = 0.0 if done else self.record.unfinished
            unfinished = min(earlier + spent, progress.age) if done else earlier + spent
        new = spent * (1 - part)
        repaid = min(self.record.owed, new)
        part += repaid / spent if spent else 0.0
        self.record = self.record.replace(
            unfinished=unfinished, owed=self.record.owed - repaid
        )
        found = {name: seconds * (1 - part) for name, seconds in stepping.items()}
        found[self._again] = spent * part
        return found

    def _resumed(self, ago: float) -> None:
        """Note that the first step after an interruption ended *ago* seconds."""
        record = self.record
        if record.down is not None:
            self.record = record.replace(
                down=None,
                resumes=record.resumes + 1,
                resume_seconds=record.resume_seconds + max(record.down - ago, 0.0),
            )

    def _save(self, saves: int, step: int) -> None:
        record, new = self.record, saves - self._saves
        self._saves = saves
        if new <= 0:
            return
        saved, before = record.saved, record.saved_before
        if self._placed:  # else the number is that of the attempt before
            latest = min(step, record.step)
            if latest > self._saved_by:
                before = saved
            saved, self._saved_by = max(saved, latest), record.step
        self.record = record.replace(
            saves=record.saves + new,
            saved=saved,
            saved_before=before,
            # The next attempt begins later than this one, numbered or not.
            fruitless=0 if self._again == _UNKNOWN else record.fruitless,
        )

    def _place(self, start: int) -> None:
        """Note that *start* steps of the run were done before the next."""
        record = self.record
        restored = self._spent.get("restore", 0.0)
        if not start and restored == self._restored:
            # Nothing was restored: it numbers the steps of each epoch.
            self.record = record.replace(by_epoch=True)
            return
        self._restored = restored
        if record.by_epoch and not self._placed:
            self._place_by_count()
            return
        if not self._placed and not self._restarted:
            self.record = record.replace(first=start, step=start, furthest=start)
        else:
            lost = record.step - start if self._again == LOST else 0
            behind = 0 if self._placed else max(record.saved_before - start, 0)
            self.record = record.replace(
                step=start,
                furthest=max(record.furthest, start),
                lost_steps=record.lost_steps + max(lost, 0),
                saved=min(record.saved, start),
                saved_before=min(record.saved_before, start),
                behind=record.behind + behind,
                behind_in_all=record.behind_in_all + behind,
                # If it was saved, the step that seemed unfinished was not.
                owed=0.0 if start > record.furthest else record.owed,
            )
        self._placed, self._again = True, LOST

    def _place_by_count(self) -> None:
        """Count steps without numbers; after a restart, some may be repeated."""
        if not self._placed:
            self._placed = True
            if self._restarted:
                self._again = _UNKNOWN
                first = self.record.first
                self.record = self.record.replace(
                    step=first, saved=first, saved_before=first
                )

    def _walk(self, steps: int) -> int:
        record = self.record
        if steps <= 0:
            return 0
        end = record.step + steps
        again = max(min(end, record.furthest) - record.step, 0)
        # Without numbers, and without saves, whether they are new is not known.
        is_known = self._again != _UNKNOWN or record.saves
        fresh = end > record.furthest or not is_known
        self.record = record.replace(
            step=end,
            furthest=max(end, record.furthest),
            fruitless=0 if fresh else record.fruitless,
        )
        return again


# Between two looks at whether this is process 0, and whether the record is free.
_SOON = 1.0
# Calls of one function after which a program evidently works without marking steps: so
# many, or some in so many seconds, if they take long.
_AT_WORK = 100
_SOME, _LONG = 10, 120.0


class RunGoodput(Part):
    """Keeps the record of the run if this is process 0; *crashed*: an error ends it."""

    name = "goodput"

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
            self.name,
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
        except (facts.NewerRecordError, SupersededError) as error:
            self.abandon()
            self._say("jaxmon no longer records the goodput of the run: %s", error)
        except (OSError, JaxmonError) as error:
            text = "jaxmon cannot keep the record of the run, and retries: %s"
            self._say(text, error)
        except Exception:  # noqa: BLE001 - contained: our own thread goes on
            self._guard.failed(self.name, stays_on=True)

    def _write(self, store: Store, *, last: bool) -> None:
        with self._lock:
            current = self._advanced()
            if last and self._accounts is not None:
                self._accounts.end(facts.STOPPED)
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
