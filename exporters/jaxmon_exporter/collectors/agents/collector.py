"""
Every instrumented process on the host, over its Unix socket.

All agents' metrics are combined, distinguished by the label ``worker``. A faulty agent
affects only itself: a killed process only has ``jaxmon_agent_up 0`` while its socket
exists, and so does one that hangs, floods, or does not serve metrics. A process that
exits cleanly removes its socket. What it counted stays for a while, and its successor
adds to it (`jaxmon.facts.endings`). What else stays is of its slot: how many agents
started in it, and how many of them did not finish.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jaxmon.catalog import AGENT_UP
from jaxmon.errors import PageError
from jaxmon.exposition.families import Family, by_label
from jaxmon.facts import endings
from jaxmon.facts.endings import SlotEnds
from jaxmon.host import rundir
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon_exporter.collecting import (
    NO_RUN_DIR,
    CollectorUnavailable,
    partial_failures,
)
from jaxmon_exporter.collectors.agents.slots import (
    EndedCounts,
    ExitStatuses,
    SlotSeries,
    changed,
)
from jaxmon_exporter.precedence import unowned


log = logging.getLogger("jaxmon.exporter")

BAD_PAGE = "page"
CONFLICT = "agent_conflict"
# Exemplars are in OpenMetrics alone.
_ACCEPT = "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"
_FAILURES = (fetch.TIMEOUT, fetch.TOO_LARGE, fetch.BROKEN, BAD_PAGE)


class Agents:
    """
    Collects from the agents in one run directory.

    Args:
        run_dir: may be missing until an agent creates it.
        interval: seconds between polls.
        timeout: seconds that a poll waits for the slowest agent.
        max_bytes: maximum size of one agent's response; jaxmon's largest are about 1
            MB. Parsed, it takes about ten times as much memory.
        max_total: maximum size of all agents' responses; beyond that, the largest are
            dropped.
    """

    name = "agents"

    def __init__(
        self,
        run_dir: Path,
        *,
        interval: float = 2.0,
        timeout: float = 3.0,
        max_bytes: int = 4 << 20,
        max_total: int = 16 << 20,
    ) -> None:
        self.interval = interval
        self.deadline = timeout + 5.0
        self._run_dir = run_dir
        self._series = SlotSeries()
        self._exits = ExitStatuses(run_dir)
        self._ended = EndedCounts(run_dir, max_total)
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._troubles: dict[str, str] = {}
        self._failures = Counter({f"agent_{reason}": 0 for reason in _FAILURES})
        self._failures[CONFLICT] = 0
        self._conflicting = False
        # What is wrong with records of a later release.
        self._refused: dict[str, str] = {}

    def collect(self) -> Iterable[Family]:
        """
        Read all agents concurrently; takes at most *timeout* seconds, plus parsing.

        Raises:
            CollectorUnavailable: the run directory is missing or unreadable.
        """
        sockets = self._sockets()
        before = self._slots()
        answers = fetch_all(
            sockets,
            "/metrics",
            accept=_ACCEPT,
            timeout=self._timeout,
            max_bytes=self._max_bytes,
            max_total=self._max_total,
        )
        # After the responses: what died meanwhile is dead, and what it counted is kept.
        refused: dict[str, str] = {}
        slots = self._slots(refused)
        for worker, trouble in self._ended.read(slots).items():
            self._trouble(f"{worker} (ended)", BAD_PAGE, trouble)
        for worker in refused.keys() - self._refused.keys():
            self._trouble(f"{worker} (record)", BAD_PAGE, PageError(refused[worker]))
        self._refused = refused
        self._exits.follow(slots, sockets)
        pages, gone = self._pages(answers)
        up = {worker: float(page is not None) for worker, page in pages.items()}
        responded = {worker for worker, is_up in up.items() if is_up}
        # Where another process started meanwhile, it is unknown whose page it is.
        known = {
            worker: page
            for worker, page in pages.items()
            if page and not changed(before, slots, worker)
        }
        found, owned = [by_label(AGENT_UP, up)], set[str]()
        taken: dict[str, str] = {}
        for worker, page in self._ended.merged(known, slots):
            found += unowned(self._compatible(worker, page, taken), owned)
        ends = self._series.families(slots, up=responded, gone=gone)
        return [*found, *ends, partial_failures(self.name, self._failures)]

    def close(self) -> None:
        """Follow no process any more."""
        self._exits.close()

    def _pages(
        self, answers: dict[str, str | FetchError]
    ) -> tuple[dict[str, list[Family] | None], set[str]]:
        """
        Return the families of each agent, `None` if it has a socket and no valid
        response, and on whose sockets nothing listens. Removes *answers*.
        """
        pages: dict[str, list[Family] | None] = {}
        gone = set()
        for worker in list(answers):
            pages[worker] = None
            try:
                pages[worker] = _page(worker, answers.pop(worker))
            except FetchError as error:
                if error.reason == fetch.LEFT:  # in order, since we looked
                    self._troubles.pop(worker, None)
                    del pages[worker]
                    continue
                self._trouble(worker, error.reason, error)
                if error.reason == fetch.GONE:
                    gone.add(worker)
            except PageError as error:
                self._trouble(worker, BAD_PAGE, error)
            else:
                self._troubles.pop(worker, None)
        for worker in self._troubles.keys() - pages.keys():
            del self._troubles[worker]
        return pages, gone

    def _sockets(self) -> dict[str, Path]:
        try:
            found = rundir.sockets(self._run_dir)
        except OSError as error:
            message = (
                f"run directory {self._run_dir}: {error.strerror}; run as the "
                "agents' user or set --run-dir"
            )
            reason = "run_dir"
            raise CollectorUnavailable(reason, message, costly=False) from error
        if not found and not os.path.lexists(self._run_dir):
            message = (
                f"run directory {self._run_dir} does not exist: no agent has run "
                "here yet, or it was removed (running agents recreate it within "
                "seconds); if agents use another directory, set --run-dir"
            )
            raise CollectorUnavailable(NO_RUN_DIR, message, costly=False)
        return found

    def _slots(self, refused: dict[str, str] | None = None) -> dict[str, SlotEnds]:
        try:
            return endings.slots(self._run_dir, refused)
        except OSError:  # removed meanwhile; it was there for the sockets
            return {}

    def _compatible(
        self, worker: str, page: list[Family], taken: dict[str, str]
    ) -> list[Family]:
        """
        Return the families of *page* that do not conflict with those of earlier agents.
        """
        # The parser is loaded only when there is a response.
        from jaxmon_exporter.collectors.agents import page as agent_page  # noqa: PLC0415

        kept, errors = agent_page.compatible(page, taken)
        self._failures[CONFLICT] += len(errors)
        if errors and not self._conflicting:
            self._conflicting = True
            log.warning("agent %s: dropped: %s", worker, errors[0])
        return kept

    def _trouble(self, worker: str, reason: str, error: Exception) -> None:
        """
        Count a failure, and log it if it is new. A process that exited is not a
        failure.
        """
        if reason != fetch.GONE:
            self._failures[f"agent_{reason}"] += 1
        if self._troubles.get(worker) != reason:
            self._troubles[worker] = reason
            log.warning("agent %s: %s: %s", worker, reason, error)


def _page(worker: str, answer: str | FetchError) -> list[Family]:
    """
    Return the parsed response of an agent.

    Raises:
        FetchError: *answer* is an error.
        PageError: it is invalid, or would make the combined output invalid.
    """
    if isinstance(answer, FetchError):
        raise answer
    # Where there is no agent, none of its grammar is compiled.
    from jaxmon_exporter.collectors.agents import page as agent_page  # noqa: PLC0415

    return agent_page.families(worker, answer)
