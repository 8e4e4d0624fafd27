"""Where alerts are seen: a stack of our own, or one that is in use."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from jaxmon.errors import CommandError
from jaxmon_alerts.gameday import stack
from jaxmon_alerts.gameday.children import HOST
from jaxmon_alerts.gameday.stack import MonitoringStack


_MOST_BYTES = 4 << 20
_SECONDS = 10.0

Labels = Mapping[str, str]


class Firing(NamedTuple):
    """An alert that fires, in a service."""

    name: str
    severity: str
    job: str


class AlertSite(Protocol):
    """Scrapes what it is told, and knows which alerts fire."""

    scale: float

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Scrape *targets*, ``host:port`` by job, and no others."""

    def firing(self) -> list[Firing]:
        """
        Return the alerts that fire, without those that only inhibit others;
        `CommandError` if they cannot be read.
        """


class Receiver:
    """A webhook that knows which alerts fire, on threads of its own."""

    def __init__(self) -> None:
        self._firing: dict[str, Labels] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        # All of them end with the block.
        self._server.daemon_threads = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="jaxmon-webhook"
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Base URL; the path that follows does not matter."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def firing(self) -> Mapping[str, Labels]:
        """Return the labels of the alerts that fire, by Alertmanager's fingerprint."""
        with self._lock:
            return dict(self._firing)

    def take(self, notification: Any) -> None:
        """Record a decoded notification; raises what indexing raises if it is none."""
        with self._lock:
            for alert in notification["alerts"]:
                if alert["status"] == "firing":
                    self._firing[alert["fingerprint"]] = dict(alert["labels"].items())
                else:
                    self._firing.pop(alert["fingerprint"], None)


class OwnSite:
    """A stack that was started for this; an alert fires once that is notified."""

    scale: float = stack.SCALE

    def __init__(self, running: MonitoringStack, receiver: Receiver) -> None:
        self._stack = running
        self._receiver = receiver
        self._muted: set[str] = set()

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Scrape *targets*."""
        stack.write_targets(self._stack.targets, targets)

    def firing(self) -> list[Firing]:
        """Return the alerts that were notified and are not resolved."""
        url = self._stack.alertmanager
        alerts = stack.fetch("Alertmanager", f"{url}/api/v2/alerts")
        try:
            # Of those that something inhibits, "suppressed".
            states = {
                str(alert["fingerprint"]): alert["status"]["state"] for alert in alerts
            }
        except (LookupError, TypeError) as error:
            msg = f"{url} returned an invalid alert: {error!r}"
            raise CommandError(msg) from error
        self._muted.update(
            fingerprint
            for fingerprint, state in states.items()
            if state == "suppressed"
        )
        return _relevant(
            labels
            for fingerprint, labels in self._receiver.firing().items()
            # Of an alert that ends while it is inhibited, the end is not notified.
            if fingerprint in states or fingerprint not in self._muted
        )


class TheirSite:
    """
    A stack in use; an alert fires once its Prometheus says so. *targets* is a file for
    its ``file_sd_configs``, which is written here.
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
            return _relevant(
                alert["labels"] for alert in found if alert["state"] == "firing"
            )
        except (AttributeError, LookupError, TypeError) as error:
            msg = f"{self._prometheus} returned an invalid alert: {error!r}"
            raise CommandError(msg) from error


def _relevant(found: Iterable[Labels]) -> list[Firing]:
    alerts = [
        Firing(labels["alertname"], labels.get("severity", ""), labels.get("job", ""))
        for labels in found
    ]
    return [alert for alert in alerts if alert.severity != "info"]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_POST(self) -> None:
            """Take a notification."""
            try:
                length = int(self.headers["Content-Length"])
                receiver.take(json.loads(self.rfile.read(min(length, _MOST_BYTES))))
            except (AttributeError, LookupError, TypeError, ValueError):
                self.send_error(HTTPStatus.BAD_REQUEST)
            else:
                self.send_response(HTTPStatus.NO_CONTENT)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler
