"""What scraping a whole fleet costs a Prometheus: memory, CPU, samples, disk."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.fleet import history, layout
from tools.fleet.costs import bytes_per_sample, version
from tools.fleet.series import Fleet
from tools.fleet.server import Server
from tools.fleet.targets import Targets
from tools.fleet.templates import Templates


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
    lines = ["| | |", "|---|---:|"]
    for name, value in asdict(found).items():
        lines.append(
            f"| {name} | {value:,.3f} |"
            if isinstance(value, float)
            else f"| {name} | {value} |"
        )
    lines.append(f"| bytes_per_day | {found.bytes_per_day:,.0f} |")
    return "\n".join(lines) + "\n"


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
