"""What receives Alertmanager's notifications."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


_HOST = "127.0.0.1"
_MOST_BYTES = 4 << 20
_SECONDS = 10.0

Labels = Mapping[str, str]


class Receiver:
    """A webhook that knows which alerts fire, on threads of its own."""

    def __init__(self) -> None:
        self._firing: dict[str, Labels] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer((_HOST, 0), _handler(self))
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
        return f"http://{_HOST}:{self._server.server_address[1]}"

    def firing(self) -> Mapping[str, Labels]:
        """
        Return the labels of the alerts that were notified and are not resolved, by
        Alertmanager's fingerprint.
        """
        with self._lock:
            return dict(self._firing)

    def take(self, notification: Any) -> None:
        """
        Record a decoded notification.

        Raises:
            AttributeError, LookupError, TypeError: it is not one.
        """
        with self._lock:
            for alert in notification["alerts"]:
                if alert["status"] == "firing":
                    self._firing[alert["fingerprint"]] = dict(alert["labels"].items())
                else:
                    self._firing.pop(alert["fingerprint"], None)


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
