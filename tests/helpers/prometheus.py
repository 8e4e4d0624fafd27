"""A real Prometheus, and a real Alertmanager with a receiver for it to call."""

import json
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml

from tests.helpers.processes import (
    DEADLINE_SECONDS,
    free_port,
    http_get,
    require_program,
    until,
)


class Server:
    """A program that listens on a port, for the length of a ``with`` block."""

    directory: Path
    url: str
    name: ClassVar[str]
    patience: ClassVar[float] = DEADLINE_SECONDS

    def command(self, port: int) -> list[str]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        # The port may be taken between choosing it and binding it.
        for _ in range(3):
            if self._start(free_port()):
                return self
        raise AssertionError((self.directory / "log").read_text())

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(max(240, self.patience))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self, port: int) -> bool:
        """Start it; return `False` when it exits before it is ready."""
        self.url = f"http://127.0.0.1:{port}"
        with (self.directory / "log").open("w") as log:
            self._process = subprocess.Popen(
                self.command(port), stdout=log, stderr=subprocess.STDOUT
            )
        try:
            until(
                lambda: self._process.poll() is not None or self._ready(),
                f"{self.name} to be ready",
                seconds=self.patience,
            )
        except BaseException:
            self.__exit__()
            raise
        return self._process.poll() is None

    def _ready(self) -> bool:
        try:
            return bool(http_get(f"{self.url}/-/ready"))
        except (URLError, ConnectionError):
            return False


@dataclass
class Prometheus(Server):
    """
    A real Prometheus server, for the length of a ``with`` block.

    Args:
        directory: empty; holds configuration, data and log.
        targets: ``host:port`` by job.
        interval: time between two scrapes.
        config: further top-level entries of the configuration, such as
            ``rule_files``; relative paths start at *directory*.
        options: further words of its command line.
        program: its path; that on the ``PATH`` by default.
    """

    name: ClassVar[str] = "Prometheus"
    directory: Path
    targets_by_job: dict[str, list[str]]
    interval: str = "1s"
    config: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    program: str = ""
    url: str = field(default="", init=False)

    def __enter__(self) -> Self:
        self.program = self.program or require_program("prometheus")
        (self.directory / "prometheus.yml").write_text(yaml.safe_dump(self._settings()))
        return super().__enter__()

    def command(self, port: int) -> list[str]:
        return [
            self.program,
            f"--config.file={self.directory}/prometheus.yml",
            f"--storage.tsdb.path={self.directory}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            *self.options,
        ]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that *expression* yields now."""
        data = self._api("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def targets(self) -> dict[str, str]:
        """Return the health of each target by address: ``up`` or ``down``."""
        active = self._api("targets")["activeTargets"]
        return {one["labels"]["instance"]: one["health"] for one in active}

    def failing_rules(self) -> dict[str, str]:
        """Return the error of each rule whose latest evaluation failed, by name."""
        return {
            rule["name"]: rule["lastError"]
            for group in self._api("rules")["groups"]
            for rule in group["rules"]
            if rule["health"] == "err"
        }

    def until_up(self) -> None:
        """Wait until every target has been scraped with success."""
        until(lambda: set(self.targets().values()) == {"up"}, "targets to be up")

    def until_query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Wait until *expression* yields something, and return it."""
        return until(lambda: self.query(expression), f"a result of {expression}")

    def _settings(self) -> dict[str, Any]:
        return {
            "global": {
                "scrape_interval": self.interval,
                "scrape_timeout": self.interval,
                "evaluation_interval": self.interval,
            },
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses}]}
                for job, addresses in self.targets_by_job.items()
            ],
            **self.config,
        }

    def get(self, target: str) -> Any:
        """Return the data that its interface answers to *target*."""
        return json.loads(http_get(f"{self.url}/api/v1/{target}"))["data"]

    def _api(self, path: str, **parameters: str) -> Any:
        return self.get(f"{path}?{urlencode(parameters)}")


class Webhook:
    """Keeps the notifications that it gets, for the length of a ``with`` block."""

    def __init__(self) -> None:
        self._received: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook._add(self.path, json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens; the path that follows is kept with each notification."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def alerts(self, status: str = "firing") -> list[tuple[str, dict[str, Any]]]:
        """Return receiver path and alert of everything received with this *status*."""
        with self._lock:
            received = list(self._received)
        return [
            (path, alert)
            for path, notification in received
            for alert in notification["alerts"]
            if alert["status"] == status
        ]

    def notifications(self, path: str) -> list[dict[str, Any]]:
        """Return the notifications that came to *path*."""
        with self._lock:
            return [one for where, one in self._received if where == path]

    def until_alert(
        self, name: str, status: str = "firing", *, seconds: float = DEADLINE_SECONDS
    ) -> tuple[str, dict[str, Any]]:
        """Wait for a notification about the alert *name*, and return path and alert."""

        def find() -> list[tuple[str, dict[str, Any]]]:
            return [
                found
                for found in self.alerts(status)
                if found[1]["labels"]["alertname"] == name
            ]

        return until(find, f"{name} to be {status}", seconds=seconds)[0]

    def _add(self, path: str, notification: dict[str, Any]) -> None:
        with self._lock:
            self._received.append((path, notification))


@dataclass
class Alertmanager(Server):
    """
    A real Alertmanager, for the length of a ``with`` block.

    Args:
        directory: empty; holds data and log.
        config: its configuration file.
        web: its web configuration file (passwords).
    """

    name: ClassVar[str] = "Alertmanager"
    directory: Path
    config: Path
    web: Path | None = None
    url: str = field(default="", init=False)

    def command(self, port: int) -> list[str]:
        return [
            require_program("prometheus-alertmanager"),
            f"--config.file={self.config}",
            f"--storage.path={self.directory}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            *([f"--web.config.file={self.web}"] if self.web else []),
        ]

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def post(self, *alerts: dict[str, str]) -> None:
        """Report alerts with these labels as firing from now on."""
        now = datetime.now(UTC)
        document = [
            {
                "labels": labels,
                "annotations": {},
                "startsAt": now.isoformat(),
                "endsAt": (now + timedelta(hours=1)).isoformat(),
            }
            for labels in alerts
        ]
        self.send(document)

    def send(self, document: list[dict[str, Any]]) -> None:
        """Report alerts as Prometheus does, with the times that they have."""
        request = Request(
            f"{self.url}/api/v2/alerts",
            json.dumps(document).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=60) as response:
            response.read()

    def states(self) -> dict[str, str]:
        """Return the state of each alert by name and severity: ``Name/page``."""
        return {
            f"{one['labels']['alertname']}/{one['labels']['severity']}": str(
                one["status"]["state"]
            )
            for one in json.loads(http_get(f"{self.url}/api/v2/alerts"))
        }

    def _ready(self) -> bool:
        try:
            return bool(http_get(f"{self.url}/-/ready"))
        except HTTPError:  # it asks who we are
            return True
        except (URLError, ConnectionError):
            return False
