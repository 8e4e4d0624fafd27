"""Where a terminal reads what goes on on a host: its agents, or its sidecar."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jaxmon.errors import CommandError, PageError
from jaxmon.exposition.families import Family
from jaxmon.facts.reader import from_json, mapping
from jaxmon.facts.record import Fact
from jaxmon.facts.status import HostVerdict, ProcessVerdict
from jaxmon.limits import Limits, shared


if TYPE_CHECKING:
    from jaxmon.host.http.session import Session

_FINDINGS_SECONDS = 3.0


class HostSource(Protocol):
    """Where to read from; each call takes at most some seconds."""

    name: str

    def families(self) -> list[Family]:
        """
        Return what is measured now.

        Raises:
            CommandError: nothing could be read.
        """
        ...

    def limits(self) -> Limits:
        """Return the limits to judge by, as far as they are known."""
        ...

    def verdict(self, limits: Limits) -> HostVerdict:
        """Return the findings on all processes, by *limits*; never raises."""
        ...


class Sockets:
    """The agents in a run directory, over their Unix sockets."""

    def __init__(self, run_dir: Path) -> None:
        from jaxmon_exporter.collectors.agents.collector import Agents

        self.name = str(run_dir)
        self._run_dir = run_dir
        self._agents = Agents(run_dir)
        # What it would log is shown, as the state of a process.
        logging.getLogger("jaxmon.exporter").addHandler(logging.NullHandler())

    def families(self) -> list[Family]:
        """Read all agents; an absent run directory has none."""
        from jaxmon_exporter.polling import NO_RUN_DIR, CollectorUnavailable

        try:
            return list(self._agents.collect())
        except CollectorUnavailable as error:
            if error.reason == NO_RUN_DIR:
                return []
            raise CommandError(str(error)) from error

    def limits(self) -> Limits:
        """Return those of the run directory."""
        return shared.current(self._run_dir)

    def verdict(self, limits: Limits) -> HostVerdict:
        """Evaluate what all agents report."""
        from jaxmon_exporter.judge import judge

        return judge(self._run_dir, limits, timeout=_FINDINGS_SECONDS)


class Sidecar:
    """The sidecar of a host, which also knows its accelerators."""

    def __init__(self, session: Session, url: str) -> None:
        self.name = url
        self._session = session
        self._limits: Limits | None = None

    def families(self) -> list[Family]:
        """Read ``/metrics``, and at first the limits."""
        from jaxmon.exposition.parse import parse, to_family
        from jaxmon.host.http.session import MonitoringError

        try:
            if self._limits is None:
                self.verdict(Limits())
            text = self._session.get("/metrics").body.decode(errors="replace")
            return [to_family(one) for one in parse(text)]
        except MonitoringError as error:
            raise CommandError(str(error)) from error
        except PageError as error:
            msg = f"{self.name} is no sidecar of jaxmon: {error}"
            raise CommandError(msg) from error

    def limits(self) -> Limits:
        """Return its own, or the defaults as long as it has not responded."""
        return self._limits or Limits()

    def verdict(self, limits: Limits) -> HostVerdict:  # noqa: ARG002 - its own
        """Read the findings in ``/api/summary``, by the sidecar's limits."""
        from jaxmon.host.formats import json_text
        from jaxmon.host.http.session import MonitoringError

        try:
            body = self._session.get("/api/summary").body
            found = mapping(json_text.parse(body.decode(errors="replace")))
            self._limits = shared.checked(mapping(found.get("limits")))
        except (MonitoringError, ValueError) as error:
            return HostVerdict(trouble=f"unknown: {error}")
        agents = from_json(_Host, found).agents
        return HostVerdict({one.worker: one for one in agents})


class _Agent(ProcessVerdict):
    """What a sidecar, of perhaps another release, says of a process."""

    worker: str = ""


class _Host(Fact):
    """The processes of its host."""

    agents: tuple[_Agent, ...] = ()
