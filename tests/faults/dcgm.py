"""Rows about a dcgm-exporter whose page fills gaps."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.faults.matrix import Area
from tests.faults.stage import UUID, Stage, success


AREA = Area("dcgm-exporter")
PAGE = (
    "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID.format(0)}",modelName="H100"}} 37\n'
).encode()
BUSY = f'jaxmon_accelerator_utilization_ratio{{uuid="{UUID.format(0)}"}}'


class Exporter(ThreadingHTTPServer):
    """Serves what it is set up with."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body = 200, PAGE
        self.go = threading.Event()
        self.go.set()


class Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.server.go.wait(60)
        try:
            self.send_response(self.server.status)
            self.send_header("Content-Length", str(len(self.server.body)))
            self.end_headers()
            self.wfile.write(self.server.body)
        except OSError:
            pass  # the sidecar had enough of it

    def log_message(self, *_: object) -> None:
        pass


def breaks(stage: Stage, damage: Callable[[Exporter], None], reason: str) -> None:
    exporter = Exporter()
    thread = threading.Thread(target=exporter.serve_forever)
    thread.start()

    def end() -> None:
        exporter.go.set()
        exporter.shutdown()
        exporter.server_close()
        thread.join()

    stage.later(end)
    sidecar = stage.sidecar(
        *("--disable", "host", "--disable", "nvml", "--disable", "gpm"),
        *("--dcgm", f"http://127.0.0.1:{exporter.server_address[1]}/metrics"),
        *("--dcgm-interval", "0.2"),
    )
    stage.until(lambda: sidecar.page().get(BUSY) == 0.37, "the figures")
    damage(exporter)
    stage.shows(lambda: success(sidecar.page(), "dcgm") == 0, "dcgm success 0")
    found = sidecar.collector("dcgm")["reason"]
    stage.expect(found == reason, f"reason {reason}")
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    stage.shows(lambda: BUSY not in sidecar.page(), "its series gone")
    exporter.status, exporter.body = 200, PAGE
    exporter.go.set()
    stage.recovers(lambda: sidecar.page().get(BUSY) == 0.37)


@AREA.row("returns 500", quick=True)
def error(stage: Stage) -> None:
    def damage(exporter: Exporter) -> None:
        exporter.status = 500

    breaks(stage, damage, "http_status")


@AREA.row("returns an empty response")
def empty(stage: Stage) -> None:
    def damage(exporter: Exporter) -> None:
        exporter.body = b""

    breaks(stage, damage, "empty")


@AREA.row("returns garbage")
def garbage(stage: Stage) -> None:
    def damage(exporter: Exporter) -> None:
        exporter.body = b"\x00\xff lorem {ipsum"

    breaks(stage, damage, "not_dcgm")


@AREA.row("does not respond")
def slow(stage: Stage) -> None:
    def damage(exporter: Exporter) -> None:
        exporter.go.clear()

    breaks(stage, damage, "timeout")
