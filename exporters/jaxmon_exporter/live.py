"""What goes on on the host: the status that the sidecar's page shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from jaxmon.exposition.families import Family
from jaxmon.facts.charts import EVERY, ChartSamples
from jaxmon.facts.reading import read
from jaxmon.facts.recent import TEN_MINUTES, Window
from jaxmon.facts.status import CollectorSummary
from jaxmon.limits import Limits
from jaxmon_exporter.collecting import Clock


if TYPE_CHECKING:
    from jaxmon.facts.charts import ShownCharts
    from jaxmon.facts.status import HostVerdict, Summary
    from jaxmon.symptoms.answer import Onsets
    from jaxmon_exporter.polling import Status


class Live:
    """
    Samples what is measured, so that a page that is opened knows the last minute.

    Args:
        families: returns the latest values of all collectors.
        version: of jaxmon.
        run_dir: where the agents are.
        limits: by which they are judged.
        clock: Unix time.
    """

    every = EVERY
    """Seconds between two samples."""

    def __init__(
        self,
        families: Callable[[], Iterable[Family]],
        *,
        version: str,
        run_dir: str,
        limits: Limits | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._families = families
        self._version = version
        self._run_dir = run_dir
        self._limits = limits
        self._clock = clock
        self._window = Window()
        self._history = ChartSamples()
        self._onsets: Onsets | None = None

    def sample(self) -> None:
        """Keep the latest values, without those of functions."""
        now = read(self._families(), time=self._clock(), details=False)
        self._window.add(now)
        self._history.add(now)

    def charts(self, worker: str | None) -> ShownCharts | None:
        """Return the samples of the host, or of one process; `None` without any."""
        return self._history.charts(worker)

    def summary(
        self,
        statuses: Sequence[Status],
        verdict: HostVerdict,
        worker: str | None = None,
    ) -> Summary | None:
        """
        Return the status as of now, with the findings in *verdict*: of the host, or of
        the process *worker*, `None` if there is none.
        """
        from jaxmon.facts.reading import by_process  # noqa: PLC0415 - few look
        from jaxmon.screens.status.summary import summarise  # noqa: PLC0415 - likewise
        from jaxmon.symptoms import answer  # noqa: PLC0415 - likewise

        now = read(self._families(), time=self._clock())
        before = self._window.before(now.time)
        earlier = self._window.before(now.time, TEN_MINUTES)
        if worker is not None:
            found = by_process(now).get(worker)
            if found is None or not worker:
                return None
            now, verdict = found, verdict.of(worker)
            before, earlier = (
                None if past is None else by_process(past).get(worker)
                for past in (before, earlier)
            )
        elif self._onsets is None:
            self._onsets = answer.Onsets()
        return summarise(
            now,
            before,
            earlier,
            version=self._version,
            whole=worker is None,
            run_dir=self._run_dir,
            verdict=verdict,
            limits=self._limits,
            onsets=None if worker else self._onsets,
            collectors=[] if worker else [_collector(one) for one in statuses],
        )


def _collector(status: Status) -> CollectorSummary:
    errors = {reason: count for reason, count in status.errors.items() if count}
    return CollectorSummary(*status[:-1], errors)
