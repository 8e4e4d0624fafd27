"""
What scraping a whole fleet costs a Prometheus: memory, CPU, samples, disk; its pages
have one path for each target.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np

from tools.fleet import history, layout
from tools.fleet.costs import bytes_per_sample, version
from tools.fleet.layout import Pod
from tools.fleet.series import Fleet, Values, labels
from tools.fleet.server import Server
from tools.fleet.templates import Line, Templates
from tools.markdown import table


_PATH = "/pods/"


class Targets:
    """
    A server on a loopback port, for the length of a ``with`` block.

    Labels of targets come with the configuration, as from a service discovery; pages
    hold what a sidecar exports.
    """

    def __init__(self, fleet: Fleet, pods: list[Pod]) -> None:
        self._fleet, self._pods = fleet, pods
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number = self.path.removeprefix(_PATH)
                body = outer.page(int(number)).encode()
                # Prometheus leaves when its time for a scrape is over.
                with suppress(ConnectionError):
                    self.send_response(HTTPStatus.OK)
                    self.send_header("Content-Type", "text/plain; version=0.0.4")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: there are thousands of requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        # A page is made of the same texts each time.
        self._texts: dict[tuple[int, object], str] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def config(self, interval: float) -> dict[str, Any]:
        """Return the configuration with which Prometheus scrapes all targets."""
        address = f"127.0.0.1:{self._server.server_port}"
        targets = [
            {
                "targets": [address],
                "labels": {**dict(pod.labels), "__metrics_path__": f"{_PATH}{index}"},
            }
            for index, pod in enumerate(self._pods)
        ]
        return {
            "global": {"scrape_interval": f"{interval:g}s"},
            "scrape_configs": [{"job_name": "fleet", "static_configs": targets}],
        }

    def page(self, index: int) -> str:
        """Return what the target exports now, in text format 0.0.4."""
        pod = self._pods[index]
        now = np.array([time.time()])
        families: dict[tuple[str, str], list[str]] = defaultdict(list)
        for line, owner, value in self._samples(pod, now):
            key = (id(line), owner.labels)
            text = self._texts.get(key)
            if text is None:
                text = self._texts[key] = _series(line, owner, pod)
            families[line.family].append(f"{text} {value!r}\n")
        return "".join(
            f"# TYPE {name} {kind}\n{''.join(lines)}"
            for (name, kind), lines in families.items()
        )

    def _samples(self, pod: Pod, now: Any) -> Iterator[tuple[Line, Any, Any]]:
        for lines, owners in self._fleet.groups([pod]):
            if not owners:
                continue
            values = Values(owners, now, self._fleet.faults)
            alive = values.alive[:, 0].tolist()
            success = self._fleet.succeeding(lines)
            for line in lines:
                if line.name == "up":
                    continue
                row = values.of(line, success(line))[:, 0].tolist()
                for owner, value, is_alive in zip(owners, row, alive, strict=True):
                    if is_alive:
                        yield line, owner, value


def _series(line: Line, owner: Any, pod: Pod) -> str:
    target = {name for name, _ in pod.labels}
    own = ",".join(
        f'{name}="{_escaped(value)}"'
        for name, value in labels(line, owner)
        if name not in target and value
    )
    return f"{line.name}{{{own}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


_SCRAPES = 2
_BLOCK_HOURS = 5
_BLOCK_PROCESSES = 80


@dataclass(frozen=True)
class Ingestion:
    """
    A Prometheus that only scrapes.

    Args:
        series: in memory; *per_process* of them, host and accelerators included.
        samples: appended a second.
        core: fraction of a core.
        memory_bytes: resident.
        bytes_per_sample: on disk, after compaction.
    """

    prometheus: str
    processes: int
    interval: float
    series: int
    samples: float
    core: float
    memory_bytes: int
    bytes_per_sample: float

    @property
    def bytes_per_day(self) -> float:
        """Return what a day takes on disk."""
        return self.samples * self.bytes_per_sample * layout.DAY


def ingest(  # noqa: PLR0913 - a measurement has that many conditions
    templates: Templates,
    shape: layout.Shape,
    directory: Path,
    *,
    interval: float = 30.0,
    seconds: float = 180.0,
    program: str = "prometheus",
) -> Ingestion:
    """Scrape the whole fleet of *shape* for *seconds* after two rounds to warm up."""
    now = time.time()
    on_disk = _on_disk(templates, shape, directory / "disk", interval, program)
    pods = [p for p in layout.pods(shape, now, now + 3600) if p.start <= now]
    where = directory / "live"
    where.mkdir()
    with Targets(Fleet(templates, pods), pods) as targets:
        config = targets.config(interval)
        with Server(where, program, config=config) as server:
            time.sleep(_SCRAPES * interval + 5)
            before, begun, cpu = server.own(), time.monotonic(), server.cpu_seconds()
            time.sleep(seconds)
            after, spent = server.own(), time.monotonic() - begun
            name = "prometheus_tsdb_head_samples_appended_total"
            samples = sum(
                value - before.get(key, 0.0)
                for key, value in after.items()
                if key.startswith(name)
            )
            return Ingestion(
                version(program),
                shape.processes,
                interval,
                int(after["prometheus_tsdb_head_series"]),
                samples / spent,
                (server.cpu_seconds() - cpu) / spent,
                server.memory_bytes(),
                on_disk,
            )


def ingestion_table(found: Ingestion) -> str:
    """Return *found* as Markdown, with all its fields."""
    rows = [
        (name, f"{value:,.3f}" if isinstance(value, float) else str(value))
        for name, value in asdict(found).items()
    ]
    rows.append(("bytes_per_day", f"{found.bytes_per_day:,.0f}"))
    return table(("", ""), rows, "lr") + "\n"


def _on_disk(
    templates: Templates,
    shape: layout.Shape,
    directory: Path,
    interval: float,
    program: str,
) -> float:
    """Return the bytes of a sample in blocks, from a smaller fleet with all series."""
    directory.mkdir()
    end = time.time() // interval * interval
    small = layout.Shape(_BLOCK_PROCESSES, 2, 10, shape.seed)
    seconds = _BLOCK_HOURS * 3600.0
    fleet = Fleet(templates, layout.pods(small, end - seconds, end))
    with Server(directory, program) as server:
        history.fill(server, fleet, history.moments(end, seconds, interval))
        history.until_compacted(server)
        found = bytes_per_sample(directory / "data")
    shutil.rmtree(directory)
    return found
