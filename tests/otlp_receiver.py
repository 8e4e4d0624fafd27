"""A receiver of traces in a process of its own, and the spans that it received."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any, Self

from tests.support import ROOT, until


Span = dict[str, Any]


class Receiver:
    """Receives traces while the block runs; see `tests.fakes.otlp_traces`."""

    def __init__(self, *, wait: float = 0) -> None:
        self.spans: list[Span] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.otlp_traces", str(wait)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.http, self.grpc = map(int, self._process.stdout.readline().split())
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.spans.append(json.loads(line))

    @property
    def environ(self) -> dict[str, str]:
        """What makes a program send its traces here."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.http}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }

    def of(self, trace: str) -> list[Span]:
        """Return the spans of *trace*, in the order of their beginning."""
        found = [one for one in self.spans if one["trace"] == trace]
        return sorted(found, key=lambda one: (one["began"], -one["ended"]))

    def wait_for(self, number: int) -> None:
        """Wait until there are *number* spans."""
        until(lambda: len(self.spans) >= number, f"{number} spans")
