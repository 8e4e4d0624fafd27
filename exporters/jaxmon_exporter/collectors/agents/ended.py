"""What ended processes counted: served for a while, and added to their successors'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jaxmon import ended, life
from jaxmon.catalog import AGENT_ENDED_SECONDS, COUNTING_SECONDS
from jaxmon.clocks import monotonic
from jaxmon.errors import PageError
from jaxmon.exposition.add import added
from jaxmon.exposition.families import Family, series


_KINDS = ("counter", "histogram")


class _Read(NamedTuple):
    """A file as it was read: which one, its head, `None` if unusable, and the rest."""

    file: tuple[int, ...] | None
    counts: ended.Ended | None
    families: list[Family]
    size: int


class EndedCounts:
    """
    Reads the counts that agents leave in *run_dir*, each file once.

    Args:
        run_dir: where they are.
        max_total: maximum size of their text; more files than that count as none.
    """

    def __init__(self, run_dir: Path, max_total: int) -> None:
        self._run_dir = run_dir
        self._max_total = max_total
        self._files: dict[str, _Read] = {}

    def read(self) -> dict[str, PageError]:
        """Read what is new; return what is wrong with files, by worker."""
        try:
            paths = ended.files(self._run_dir)
        except OSError:  # removed meanwhile
            paths = {}
        troubles: dict[str, PageError] = {}
        found: dict[str, _Read] = {}
        total = 0
        for worker, path in paths.items():
            known = self._files.get(worker)
            # Each is a new file: they are replaced, never changed. Identified before it
            # is read: if it is replaced meanwhile, the next poll sees another one.
            file = _identity(path)
            if known is None or known.file != file:
                try:
                    known = _read(worker, path, file)
                except (PageError, ValueError) as error:
                    msg = f"counts of ended processes: {error}"
                    troubles[worker] = PageError(msg)
                    known = _Read(file, None, [], 0)
            total += known.size
            if total <= self._max_total:
                found[worker] = known
        self._files = found
        return troubles

    def merged(
        self, pages: Mapping[str, list[Family]], slots: Mapping[str, life.Slot]
    ) -> Iterator[tuple[str, list[Family]]]:
        """
        Yield the families of each worker: what its process responded, with the counts
        of those before it, or what is left of it.

        Args:
            pages: responses by worker, without samples if there is none.
            slots: what is known of the slots since then.
        """
        for worker in {**pages, **self._files}:
            page, slot = pages.get(worker, []), slots.get(worker)
            known = self._files.get(worker)
            if known is None or known.counts is None or slot is None:
                yield worker, page
            elif known.counts.starts == slot.record.starts:
                # It has ended, and what is left has more than it responded.
                yield worker, _left(worker, known.counts, known.families)
            elif known.counts.starts + 1 == slot.record.starts:
                yield worker, _continued(worker, page, known.counts, known.families)
            else:
                yield worker, page


def _left(worker: str, counts: ended.Ended, families: list[Family]) -> list[Family]:
    if (age := counts.age()) is None:
        return []
    mark = Family(AGENT_ENDED_SECONDS, [(series(AGENT_ENDED_SECONDS, worker), age)])
    return [*families, mark, _counting(worker, counts)]


def _continued(
    worker: str, page: list[Family], counts: ended.Ended, families: list[Family]
) -> list[Family]:
    own = [one for one in page if one.metric.name != COUNTING_SECONDS.name]
    # Agents of earlier releases do not know that there is something to continue.
    if len(own) == len(page):
        return page
    return [*added(own, families), _counting(worker, counts)]


def _identity(path: Path) -> tuple[int, ...] | None:
    """
    Return what identifies the file at *path* among those before it; `None` if there is
    none. Of short jobs, each second file has the inode of the one before the last.
    """
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _read(worker: str, path: Path, file: tuple[int, ...] | None) -> _Read:
    """
    Return what is in the file *path*.

    Raises:
        PageError: its text is not what an agent may export.
        ValueError: it has no text.
    """
    counts = ended.read(path)
    if counts is None:
        return _Read(file, None, [], 0)
    # Loaded only if there is something.
    from jaxmon_exporter.collectors.agents import page  # noqa: PLC0415

    text = counts.text()
    found = [one for one in page.families(worker, text) if one.metric.kind in _KINDS]
    return _Read(file, counts, found, len(text))


def _counting(worker: str, counts: ended.Ended) -> Family:
    metric = COUNTING_SECONDS._replace(labels=("worker",))
    seconds = monotonic() - counts.since
    return Family(COUNTING_SECONDS, [(series(metric, worker), seconds)])


def changed(
    before: Mapping[str, life.Slot], after: Mapping[str, life.Slot], worker: str
) -> bool:
    """Return whether another process started in a slot in between."""
    old, new = before.get(worker), after.get(worker)
    return old is not None and new is not None and old.record[0] != new.record[0]
