"""A server of the page, the boards, and the Prometheus behind them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


_TIMEOUT_SECONDS = 120.0


@contextmanager
def serving(site: Path, boards: Path, prometheus: str, port: int = 0) -> Iterator[str]:
    """
    Serve *site* on the loopback interface; yield its address.

    Args:
        site: with the page, see `bundle`.
        boards: directory with the JSON of boards, served below ``boards/``.
        prometheus: base URL of the server that answers below ``api/``.
        port: TCP port; 0 means any free one.
    """
    handler = partial(_Handler, site, boards, prometheus.rstrip("/"))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(
        self, site: Path, boards: Path, prometheus: str, *args: object
    ) -> None:
        self._boards = boards
        self._prometheus = prometheus
        super().__init__(*args, directory=str(site))  # type: ignore[arg-type]  # as the server passes them

    def do_GET(self) -> None:
        """Serve a file, or ask Prometheus."""
        if self.path.startswith("/api/"):
            self._ask(None)
        elif self.path.startswith("/boards/"):
            board = self._boards / Path(self.path).name
            if board.is_file():
                self._answer(200, "application/json", board.read_bytes())
            else:
                self.send_error(404, "no such board")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """Ask Prometheus."""
        self._ask(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Log nothing: requests that fail are shown in the panel."""

    def _ask(self, body: bytes | None) -> None:
        request = Request(self._prometheus + self.path, data=body)  # noqa: S310 - a URL of the command line
        try:
            with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - likewise
                self._answer(response.status, "application/json", response.read())
        except HTTPError as error:
            with error:
                self._answer(error.code, "application/json", error.read())
        except (URLError, TimeoutError) as error:
            self._answer(502, "text/plain", f"Prometheus: {error}".encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
