"""Where alerts are seen: a stack of our own, or one that is in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from jaxmon.cli.demo import stack
from jaxmon.cli.demo.stack import Stack
from jaxmon.cli.gameday.receiver import Labels, Receiver
from jaxmon.errors import CommandError


class Firing(NamedTuple):
    """
    An alert that fires.

    Attributes:
        name: of the alert.
        severity: ``page`` or ``ticket``.
        job: of which service.
    """

    name: str
    severity: str
    job: str


class Site(Protocol):
    """Scrapes what it is told, and knows which alerts fire."""

    scale: float

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Scrape *targets*, ``host:port`` by job, and no others."""

    def firing(self) -> list[Firing]:
        """
        Return the alerts that fire, without those that only inhibit others.

        Raises:
            CommandError: they cannot be read.
        """


class OwnSite:
    """
    A stack that was started for this; an alert fires once its notification arrives.

    Args:
        running: Prometheus and Alertmanager.
        receiver: to which Alertmanager sends.
    """

    scale: float = stack.SCALE

    def __init__(self, running: Stack, receiver: Receiver) -> None:
        self._stack = running
        self._receiver = receiver
        self._muted: set[str] = set()

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Scrape *targets*."""
        self._stack.scrape(targets)

    def firing(self) -> list[Firing]:
        """Return the alerts that were notified and are not resolved."""
        states = self._stack.alert_states()
        self._muted.update(
            one for one, state in states.items() if state == "suppressed"
        )
        return _relevant(
            labels
            for fingerprint, labels in self._receiver.firing().items()
            # Of an alert that ends while it is inhibited, the end is not notified.
            if fingerprint in states or fingerprint not in self._muted
        )


class TheirSite:
    """
    A stack in use; an alert fires once its Prometheus says so.

    Args:
        prometheus: its URL.
        targets: file for its ``file_sd_configs``, which is written here.
        scale: by which the durations of its rules were divided.
    """

    def __init__(self, prometheus: str, targets: Path, scale: float) -> None:
        self.scale = scale
        self._prometheus = prometheus
        self._targets = targets

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Write *targets* to the file."""
        stack.write_targets(self._targets, targets)

    def firing(self) -> list[Firing]:
        """Return the alerts that fire, whether notified or inhibited."""
        found = stack.alerts_of(self._prometheus)
        try:
            return _relevant(one["labels"] for one in found if one["state"] == "firing")
        except (AttributeError, LookupError, TypeError) as error:
            msg = f"{self._prometheus} returned an invalid alert: {error!r}"
            raise CommandError(msg) from error


def _relevant(found: Iterable[Labels]) -> list[Firing]:
    alerts = [
        Firing(one["alertname"], one.get("severity", ""), one.get("job", ""))
        for one in found
    ]
    return [one for one in alerts if one.severity != "info"]
