"""Loop metrics: steps, items, data wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram, family_of, histograms
from jaxmon.indicators.endings import End, noting, now, on_finalize
from jaxmon.indicators.marks import LoopCounts, LoopMark
from jaxmon.indicators.recorder import ByLabel, Labels
from jaxmon.indicators.timeline import Timeline
from jaxmon.threads import RLock
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.facts import marked


# Between two readings; of more, the latest count.
_MOST_NUMBERED = 64


class RunningLoop(NamedTuple):
    """A run of a loop; *life* records its end when it is no longer referenced."""

    end: End
    life: ref[Any]
    mark: LoopMark
    timeline: Timeline


class StepLoop:
    """
    The metrics of loops with one name; several may run at once. `counts` are without
    what its runs have only noted; `numbered` has, where steps were given a number, the
    count of `steps` before, and how many of the whole run were done until then.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._running: list[RunningLoop] = []
        self.counts = LoopCounts(name)
        self.numbered: deque[tuple[int, int]] = deque(maxlen=_MOST_NUMBERED)
        self._lock = RLock()

    def begin(
        self, timeline: Timeline, end: End, run: object, *, opening: float = 0.0
    ) -> LoopMark:
        """
        Count a loop as running until *end*, recorded when *run* is no longer
        referenced, and open its activity. Its start counts as a step, so that a first
        step that never ends is noticed; it has taken *opening* seconds already.
        """
        settled = self._settled()
        mark = timeline.open_loop(end, settled, opening=opening)
        with self._lock:
            self._running = [run for run in self._running if not run.end]
            life = on_finalize(run, noting(end))
            self._running.append(RunningLoop(end, life, mark, timeline))
            settled.last_step = now()
        return mark

    @property
    def running(self) -> int:
        """Number of running loops of this name."""
        return sum(not run.end for run in list(self._running))

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self._settled().steps

    @property
    def waited(self) -> float:
        """Seconds of waiting for data."""
        return self._settled().waited

    @property
    def seconds(self) -> Histogram:
        """Seconds of steps."""
        return self._settled().seconds

    def number(self, start: int) -> None:
        """Note that *start* steps of the whole run were done before the next one."""
        steps = self.steps
        with self._lock:
            self.numbered.append((steps, max(start, 0)))

    def position(self) -> tuple[int, list[tuple[int, int]]]:
        """Return its steps, and what was `numbered` since the last call."""
        steps = self.steps
        with self._lock:
            found = list(self.numbered)
            self.numbered.clear()
            return steps, found

    @property
    def age(self) -> float:
        """Seconds since one of them started or completed a step."""
        return max(now() - self._settled().last_step, 0.0)

    def _settled(self) -> LoopCounts:
        # Without the lock, which may be taken while that of the timeline is held.
        for run in list(self._running):
            run.timeline.settle(run.mark)
        return self.counts

    def attend(self) -> None:
        """Have runs account for their next turn at once; takes no lock."""
        for run in list(self._running):
            run.mark.note = None

    def explain(self) -> marked.Loop:
        """Return the steps so far; the wait for data is part of a step."""
        from jaxmon.facts import marked  # noqa: PLC0415 - on request

        spent = self.seconds.sum
        return marked.Loop(
            name=self.name,
            steps=self.steps,
            running=self.running,
            mean_seconds=self.seconds.mean,
            p50_seconds=self.seconds.quantile(0.5),
            p95_seconds=self.seconds.quantile(0.95),
            p99_seconds=self.seconds.quantile(0.99),
            data_wait_seconds=self.waited,
            data_wait_ratio=min(self.waited / spent, 1.0) if spent else None,
            last_step_seconds=self.age,
        )


class Loops(ByLabel[StepLoop]):
    """
    Loops by label, at most *limit* of them, and as many names of items.

    `on_change` is called when a loop has begun or ended, unless left without a call, as
    by ``break``; it may raise. `on_step` is called with the loop of a finished step,
    and raises nothing; after it was set, `attend`.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(Labels(limit), StepLoop)
        self.on_change: Callable[[], object] | None = None
        self.on_step: Callable[[StepLoop], object] | None = None
        self.item_labels = Labels(limit)
        self._items: dict[tuple[str, str], int] = {}

    def changed(self) -> None:
        """Note that a loop has begun or ended."""
        if self.on_change is not None:
            self.on_change()

    def attend(self) -> None:
        """Have all runs notice at their next step what was set meanwhile."""
        for loop in self:
            loop.attend()

    def running(self) -> str:
        """Return the name of the outermost loop that runs, ``""`` if none does."""
        return next(iter([loop.name for loop in self if loop.running]), "")

    def count_items(self, mark: LoopMark, loop: StepLoop, item: str) -> None:
        """Count the items of *mark*, a run of *loop*: from 0, so that they appear."""
        mark.item = loop.name, self.item_labels.admit(item)
        self._items.setdefault(mark.item, 0)
        mark.totals = self._items

    def explain(self) -> tuple[marked.Loop, ...]:
        """Return the steps so far, by loop."""
        return tuple([loop.explain() for loop in self])

    def collect(self) -> list[Family]:
        """Return the families of loops."""
        loops = list(self)
        running = [(loop.name, loop.age) for loop in loops if loop.running]
        return [
            histograms(catalog.STEP_SECONDS, [loop.seconds for loop in loops]),
            family_of(catalog.STEPS, [(loop.name, loop.steps) for loop in loops]),
            family_of(
                catalog.ITEMS, [(*key, n) for key, n in self._items.copy().items()]
            ),
            family_of(
                catalog.DATA_WAIT_SECONDS, [(loop.name, loop.waited) for loop in loops]
            ),
            family_of(catalog.STEP_AGE_SECONDS, running),
        ]
