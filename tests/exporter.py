"""``jaxmon exporter`` as a process, and its pages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from jaxmon.exposition.parse import parse
from tests.support import clean_environ, http_get, until


JAXMON = str(Path(sys.executable).with_name("jaxmon"))
STOP_SECONDS = 60.0


class Exporter:
    """A running sidecar."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.url = ""
        self.log: list[str] = []
        for line in process.stderr:
            self.log.append(line)
            if match := re.fullmatch(
                r"jaxmon exporter: http://(?:localhost|127\.0\.0\.1):(\d+)/\n", line
            ):
                self.url = f"http://127.0.0.1:{match[1]}"
                break
        self._reader = threading.Thread(target=self._read, args=(process.stderr,))
        self._reader.start()

    def get(self, path: str = "/metrics", *, accept: str = "text/plain") -> str:
        return http_get(f"{self.url}{path}", Accept=accept)

    def summary(self) -> Any:
        return json.loads(self.get("/api/summary"))

    def until_ready(self) -> None:
        until(self._ready, "the first poll of each collector")

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self._reader.join()

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def _ready(self) -> bool:
        try:
            return self.get("/-/ready") == "ready\n"
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return False
            raise

    def _read(self, stream: Any) -> None:
        self.log += stream


@contextmanager
def exporters(run_dir: Path) -> Iterator[Callable[..., Exporter]]:
    """Give a function that starts ``jaxmon exporter`` on a free port."""
    with ExitStack() as stack:

        def start(*arguments: str, **environ: str) -> Exporter:
            process = stack.enter_context(
                subprocess.Popen(
                    [JAXMON, "exporter", "--port", "0", *arguments],
                    env=clean_environ(run_dir, **environ),
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            running = Exporter(process)
            stack.callback(running.stop)
            return running

        yield start


def values(text: str) -> dict[str, float]:
    """Return the series of a page."""
    return {
        f"{name}{{{labels}}}" if labels else name: value
        for family in parse(text)
        for name, labels, value in family.samples
    }
