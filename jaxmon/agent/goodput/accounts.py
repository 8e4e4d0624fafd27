"""
What the wall time of an attempt goes into, added to the record of its run.

Each second is counted once: what the timeline attributes to an activity, and of the
rest, what comes before the first step. Steps up to the furthest of earlier attempts are
done again; of an interval that contains both, time is split by number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxmon.agent.goodput.store import ClockPair
from jaxmon.facts.run import CHECKPOINT, CRASHED, LOST, RECOVERY, STARTUP, RunRecord
from jaxmon.indicators.marks import COMPILE, DATA_WAIT, STEP
from jaxmon.indicators.recorder import OTHER


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
    Keeps the `record` of one attempt, as `begun` returned it, which *continues* what an
    earlier agent of the same process has kept.
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
        found = self._by_name(parts, scale)
        rest = {self._rest(): max(total - accounted, 0.0)}
        stepping = {name: parts.get(name, 0.0) * scale for name in _STEPPING}
        if progress is not None:
            stepping = self._corrected(self._follow(progress, stepping), late)
            self._looped = True
        else:
            rest = self._corrected(rest, late)
            # Where attempts have marked steps, this one has not come to them.
            self._unmarked = self._unmarked or (works and not record.marked)
        for name, part in (*stepping.items(), *rest.items()):
            found[name] = found.get(name, 0.0) + part
        seconds = dict(record.seconds)
        for name, part in found.items():
            if part:
                seconds[name] = seconds.get(name, 0.0) + part
        self._save(saves, record.step)
        self.record = self.record.replace(
            time=now.wall,
            boottime=max(now.boottime, record.boottime),
            seconds=seconds,
            marked=self.record.marked or self._looped,
            fruitless=0 if self._unmarked else self.record.fruitless,
            ended=CRASHED if crashed else self.record.ended,
        )

    def end(self, ending: str) -> None:
        """Note how the attempt ends."""
        self.record = self.record.replace(ended=self.record.ended or ending)

    def _rest(self) -> str:
        if self._looped or self._unmarked:
            return _UNKNOWN
        return RECOVERY if self._restarted else STARTUP

    @staticmethod
    def _by_name(parts: Mapping[str, float], scale: float) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, part in parts.items():
            if name in _STEPPING or name == OTHER:
                continue
            state = _NAMES.get(name, _MARKED)
            found[state] = found.get(state, 0.0) + part * scale
        return found

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
        """
        Count steps without numbers. After a restart they may repeat as many as there
        were: it is unknown what these are.
        """
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
