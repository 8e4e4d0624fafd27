"""
Every instrumented process on the host, over its Unix socket.

The pages of all agents become one, told apart by the label ``worker``. What one
agent does costs that agent alone: a process that was killed has no series but
``jaxmon_agent_up 0`` for as long as its socket lies there, and so has one that
hangs, floods, or serves what is no metrics page. One that ended in order took its
socket with it: it has none.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jaxmon import rundir
from jaxmon.catalog import AGENT_UP
from jaxmon.errors import PageError
from jaxmon.exposition.families import Family, series
from jaxmon.http import fetch
from jaxmon.http.fetch import FetchError, fetch_all
from jaxmon_exporter.collecting import (
    NO_RUN_DIR,
    CollectorUnavailable,
    partial_failures,
)
from jaxmon_exporter.precedence import unowned


log = logging.getLogger("jaxmon.exporter")

BAD_PAGE = "page"
CONFLICT = "agent_conflict"
_FAILURES = (fetch.TIMEOUT, fetch.TOO_LARGE, fetch.BROKEN, BAD_PAGE)


class Agents:
    """
    Collects from the agents in one run directory.

    Args:
        run_dir: may be missing as long as no agent has made it.
        interval: seconds between two rounds.
        timeout: seconds that a round waits for the slowest agent.
        max_bytes: most that one agent's page may have; the largest that jaxmon makes
            have one million. What is read takes some ten times as much memory.
        max_total: most that the pages of all agents may have; the largest are left
            out beyond that.
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
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._troubles: dict[str, str] = {}
        self._failures = Counter({f"agent_{reason}": 0 for reason in _FAILURES})
        self._failures[CONFLICT] = 0
        self._conflicting = False

    def collect(self) -> Iterable[Family]:
        """
        Read all agents at once; at most *timeout* seconds, and parsing.

        Raises:
            CollectorUnavailable: the run directory is not there, or cannot be read.
        """
        sockets = self._sockets()
        answers = fetch_all(
            sockets,
            "/metrics",
            timeout=self._timeout,
            max_bytes=self._max_bytes,
            max_total=self._max_total,
        )
        up = Family(AGENT_UP, [])
        found = [up]
        owned: set[str] = set()
        taken: dict[str, str] = {}
        for worker in sockets:
            try:
                page = _page(worker, answers.pop(worker))
            except FetchError as error:
                if error.reason == fetch.LEFT:  # in order, since we looked
                    self._troubles.pop(worker, None)
                    continue
                self._trouble(worker, error.reason, error)
                page = None
            except PageError as error:
                self._trouble(worker, BAD_PAGE, error)
                page = None
            else:
                self._troubles.pop(worker, None)
            up.samples.append((series(AGENT_UP, worker), 0.0 if page is None else 1.0))
            if page:
                found += unowned(self._compatible(worker, page, taken), owned)
        for worker in self._troubles.keys() - sockets.keys():
            del self._troubles[worker]
        return [*found, partial_failures(self.name, self._failures)]

    def close(self) -> None:
        """Nothing is held between polls."""

    def _sockets(self) -> dict[str, Path]:
        try:
            found = rundir.sockets(self._run_dir)
        except OSError as error:
            message = (
                f"run directory {self._run_dir}: {error.strerror}; run as the user of "
                "the agents or pass --run-dir"
            )
            reason = "run_dir"
            raise CollectorUnavailable(reason, message, costly=False) from error
        if not found and not os.path.lexists(self._run_dir):
            message = (
                f"there is no run directory {self._run_dir}: no agent has run here, or "
                "it was removed, and agents that run make it again within seconds; "
                "where theirs is another, pass --run-dir"
            )
            raise CollectorUnavailable(NO_RUN_DIR, message, costly=False)
        return found

    def _compatible(
        self, worker: str, page: list[Family], taken: dict[str, str]
    ) -> list[Family]:
        """Return what of *page* can stand beside the pages before it."""
        # Where there is a page, it is loaded.
        from jaxmon_exporter.collectors.agents import page as agent_page  # noqa: PLC0415

        kept, errors = agent_page.compatible(page, taken)
        self._failures[CONFLICT] += len(errors)
        if errors and not self._conflicting:
            self._conflicting = True
            log.warning("agent %s: left out: %s", worker, errors[0])
        return kept

    def _trouble(self, worker: str, reason: str, error: Exception) -> None:
        """Count a failure and log it when it is new. A process that ended is none."""
        if reason != fetch.GONE:
            self._failures[f"agent_{reason}"] += 1
        if self._troubles.get(worker) != reason:
            self._troubles[worker] = reason
            log.warning("agent %s: %s: %s", worker, reason, error)


def _page(worker: str, answer: str | FetchError) -> list[Family]:
    """
    Return what an agent answered.

    Raises:
        FetchError: *answer* is none.
        PageError: it is no page, or one that would spoil the page of all agents.
    """
    if isinstance(answer, FetchError):
        raise answer
    # Where there is no agent, none of its grammar is compiled.
    from jaxmon_exporter.collectors.agents import page as agent_page  # noqa: PLC0415

    return agent_page.families(worker, answer)
