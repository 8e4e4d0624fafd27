"""Values of series, from the agent or from a collector."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family
from jaxmon_exporter.polling import CollectorUnavailable
from tools.silicon.findings import ImpossibleError


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxmon_exporter.polling import Collector


def samples(
    families: Iterable[Family], metric: Metric, suffix: str = "", **labels: object
) -> dict[str, float]:
    """Return the series of *metric* whose labels include *labels*."""
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return {
        series: value
        for family in families
        if family.metric is metric
        for series, value in family.samples
        if series.partition("{")[0] == metric.name + suffix
        and all(one in series for one in wanted)
    }


def total(
    families: Iterable[Family], metric: Metric, suffix: str = "", **labels: object
) -> float | None:
    """Return the sum of these series, `None` if there are none."""
    found = samples(families, metric, suffix, **labels)
    return sum(found.values()) if found else None


def label(series: str, name: str) -> str:
    """Return the value of the label *name* of *series*, ``""`` without one."""
    return series.partition(f'{name}="')[2].partition('"')[0]


def collected(collector: Collector) -> list[Family]:
    """
    Return what *collector* exports.

    Raises:
        ImpossibleError: it is unavailable on this machine.
    """
    try:
        return list(collector.collect())
    except CollectorUnavailable as error:
        msg = f"collector {collector.name}: {error}"
        raise ImpossibleError(msg) from error


def marked(path: Path, text: str) -> str:
    """Return ``file:line`` of the line of *path* that ends with the comment *text*."""
    lines = path.read_text().splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"{path.name}:{number}"


@contextmanager
def repeated(work: Callable[[], Any]) -> Iterator[None]:
    """Repeat *work* on a thread while the block runs."""
    ended = Event()

    def loop() -> None:
        while not ended.is_set():
            work()

    thread = Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
