"""
Every instrumented process on the host, over its Unix socket.

The pages of all agents become one, told apart by the label ``worker``. What one
agent does costs that agent alone: a process that was killed has no series but
``jaxmon_agent_up 0`` for as long as its socket lies there, and so has one that
hangs, floods, or serves what is no metrics page.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jaxmon import rundir
from jaxmon.catalog import AGENT_UP, BORROWED, BY_NAME
from jaxmon.errors import PageError
from jaxmon.exposition import fetch
from jaxmon.exposition.families import Family, series
from jaxmon.exposition.fetch import FetchError, fetch_all
from jaxmon.exposition.parse import labels, parse, relabel, to_family
from jaxmon_exporter.polling import CollectorUnavailable, partial_failures
from jaxmon_exporter.precedence import device_of, unowned


log = logging.getLogger("jaxmon.exporter")

BAD_PAGE = "page"
# An agent may be newer than this, but must not say that a target is down.
_OURS = ("jaxmon_", "process_", "python_")
_BORROWED = {metric.name for metric in BORROWED}
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

    def collect(self) -> Iterable[Family]:
        """
        Read all agents at once; at most *timeout* seconds, and parsing.

        Raises:
            CollectorUnavailable: the run directory cannot be read.
        """
        try:
            sockets = rundir.sockets(self._run_dir)
        except OSError as error:
            message = (
                f"run directory {self._run_dir}: {error.strerror}; run as the user of "
                "the agents or pass --run-dir"
            )
            reason = "run_dir"
            raise CollectorUnavailable(reason, message) from error
        answers = fetch_all(
            sockets,
            "/metrics",
            timeout=self._timeout,
            max_bytes=self._max_bytes,
            max_total=self._max_total,
        )
        up = Family(AGENT_UP)
        found = [up]
        owned: set[str] = set()
        for worker in sockets:
            try:
                page = _families(worker, answers.pop(worker))
            except FetchError as error:
                self._trouble(worker, error.reason, error)
                page = None
            except PageError as error:
                self._trouble(worker, BAD_PAGE, error)
                page = None
            else:
                self._troubles.pop(worker, None)
            up.samples.append((series(AGENT_UP, worker), 0.0 if page is None else 1.0))
            found += unowned(page or [], owned)
        for worker in self._troubles.keys() - sockets.keys():
            del self._troubles[worker]
        return [*found, partial_failures(self.name, self._failures)]

    def close(self) -> None:
        """
        Nothing is held between polls.
        """

    def _trouble(self, worker: str, reason: str, error: Exception) -> None:
        """
        Count a failure and log it when it is new. A process that ended is none.
        """
        if reason != fetch.GONE:
            self._failures[f"agent_{reason}"] += 1
        if self._troubles.get(worker) != reason:
            self._troubles[worker] = reason
            log.warning("agent %s: %s: %s", worker, reason, error)


def _families(worker: str, answer: str | FetchError) -> list[Family]:
    """
    Return an agent's page as families with the label *worker*.

    Raises:
        FetchError: *answer* is none.
        PageError: it is no page, or one that would spoil the page of all agents.
    """
    if isinstance(answer, FetchError):
        raise answer
    families = [
        # A device is not the worker's: others may use it, and the driver tells of it.
        to_family(one if one.name in _BORROWED else relabel(one, "worker", worker))
        for one in parse(answer)
    ]
    for family in families:
        _check(family)
    return families


def _check(family: Family) -> None:
    """
    Refuse what only others may say, other kinds, and series given twice.
    """
    name = family.metric.name
    if not name.startswith(_OURS):
        msg = f"{name} is no metric of jaxmon; they begin with {', '.join(_OURS)}"
        raise PageError(msg)
    known = BY_NAME.get(name)
    if known is not None and "agent" not in known.sources:
        msg = f"{name} is not an agent's to export"
        raise PageError(msg)
    if known is not None and known is not family.metric:
        msg = f"{name} is a {family.metric.kind} there and a {known.kind} here"
        raise PageError(msg)
    if name in _BORROWED:
        _check_devices(family)
    if len({one for one, _ in family.samples}) < len(family.samples):
        msg = f"{name} has a series twice"
        raise PageError(msg)


def _check_devices(family: Family) -> None:
    """
    Refuse what does not say of which device it is, or less than others rely on.
    """
    metric = family.metric
    for name, _ in family.samples:
        if not device_of(name):
            msg = f"{metric.name} does not begin with the uuid of a device"
            raise PageError(msg)
        if missing := set(metric.labels) - labels(name).keys():
            msg = f"{metric.name} has no label {', '.join(sorted(missing))}"
            raise PageError(msg)
