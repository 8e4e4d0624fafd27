"""
Jobs that use NCCL: what their RAS threads know of all their processes.

Each query is one round of messages through all processes of the job, so those sidecars
of a job that do not run beside its first rank query rarely.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.exposition.families import Family, by_label, gauge
from jaxmon.facts.host import LaggingRank, Ras, RasProcesses
from jaxmon.host.http.fetch import BROKEN, TIMEOUT, TOO_LARGE, FetchError
from jaxmon.host.http.stream import Bounds, Stream, TooLargeError, connected
from jaxmon_exporter.polling import NO_JOB, Clock, Collector, CollectorUnavailable


if TYPE_CHECKING:
    from jaxmon_exporter.collectors.ras_replies import RasReport, UnevenCommunicator


GONE = "gone"
NOT_RAS = "not_ras"

_PROTOCOL = b"CLIENT PROTOCOL 2\n"
_GREETING = b"SERVER PROTOCOL "
# Never 0: RAS frees the data of a query in JSON only when this has passed.
_LEG_SECONDS = 3
_TIMEOUT = b"TIMEOUT %d\n" % _LEG_SECONDS
_JSON = b"SET FORMAT json\n"
_STATUS = b"STATUS\n"
_LINE = 1024
# All processes of a host listen at one port, and the kernel picks one. It may be the
# one that hangs, while the others know.
_GREETINGS = 4
_GREETING_SECONDS = 1.0


Place: TypeAlias = tuple[str, int]
"""A host and a port."""


def place_of(address: str) -> Place:
    """Return host and port of *address*, as in ``NCCL_RAS_ADDR``, or `ValueError`."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdecimal() or len(port) > 5:  # noqa: PLR2004 - digits
        msg = f"{address!r} is not an address; give HOST:PORT"
        raise ValueError(msg)
    if not 0 < int(port) < 1 << 16:
        msg = f"{address!r} has no valid port; give one from 1 to 65535"
        raise ValueError(msg)
    return host, int(port)


def found(place: Place) -> Place | None:
    """Return the address of *place* at which a process listens; costs a job nothing."""
    host, port = place
    # NCCL listens at one of these; no resolver, and no thread for it, is needed.
    hosts = ("127.0.0.1", "::1") if host == "localhost" else (host,)
    for address in hosts:
        try:
            with connected((address, port), Bounds(_GREETING_SECONDS, 0)):
                return address, port
        except TimeoutError:  # as a process that is stopped, with a full queue
            return address, port
        except OSError:
            continue
    return None


def query(
    place: Place, *, seconds: float, max_bytes: int, json: bool = True
) -> tuple[bytes, bool]:
    """
    Return the status of the job, and whether it is JSON, in *seconds* and *max_bytes*;
    or raise a `FetchError`.
    """
    try:
        with _greeted(place, max_bytes) as (stream, bounds):
            bounds.extend(seconds)
            return _status(stream, json=json)
    except TimeoutError as error:
        raise FetchError(TIMEOUT, str(error)) from error
    except TooLargeError as error:
        raise FetchError(TOO_LARGE, str(error)) from error
    except ConnectionRefusedError as error:
        raise FetchError(GONE, "no process listens there") from error
    except OSError as error:
        raise FetchError(BROKEN, f"connection failed: {error}") from error


@contextmanager
def _greeted(place: Place, max_bytes: int) -> Iterator[tuple[Stream, Bounds]]:
    for left in reversed(range(_GREETINGS)):
        bounds = Bounds(_GREETING_SECONDS, max_bytes)
        with connected(place, bounds) as stream:
            try:
                stream.sendall(_PROTOCOL)
                line = _line(stream)
            except TimeoutError:
                if left:
                    continue
                raise
            if not line.upper().startswith(_GREETING):
                _reject(line)
            yield stream, bounds
            return


def _status(stream: Stream, *, json: bool) -> tuple[bytes, bool]:
    stream.sendall(_TIMEOUT)
    if (line := _line(stream)) != b"OK\n":
        _reject(line)
    if json:
        stream.sendall(_JSON)
        # NCCL before 2.28.7 does not know the command.
        if (line := _line(stream)) != b"OK\n":
            json = False
            if not line.startswith(b"ERROR: "):
                _reject(line)
    stream.sendall(_STATUS)
    return stream.makefile("rb").read(), json


def _line(stream: Stream) -> bytes:
    return stream.makefile("rb").readline(_LINE)


def _reject(line: bytes) -> None:
    if not line:
        raise FetchError(BROKEN, "it closed the connection")
    shown = line[:40].decode(errors="replace")
    raise FetchError(NOT_RAS, f"it does not respond as NCCL's RAS does, but {shown!r}")


def is_here(host: str) -> bool | None:
    """Return whether the address *host* is of this host; `None` if unknown."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.is_link_local and address.version == 6:  # noqa: PLR2004 - lacks its interface
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


_NAMED = 8
# Polls without a query: before the first, at most; later, about as many as there are
# hosts, within these limits. Chance keeps those apart that start together.
_AT_FIRST = 3
_UNPLACED, _ELSEWHERE, _MOST = 3, 6, 20

Chance = Callable[[int, int], int]


class _Stuck(NamedTuple):
    """How many communicators do not move, and the ranks of them that are behind."""

    communicators: int
    lagging: int
    behind: tuple[LaggingRank, ...]


class _LatestReply(NamedTuple):
    report: RasReport
    stuck: _Stuck
    taken: float
    here: bool | None


class Nccl(Collector):
    """
    Reads NCCL's RAS at *address*, ``HOST:PORT``.

    The sidecar beside the first rank queries in each poll; others rarely, as *chance*
    has it, and so do all if the reply does not say where it is. A reply takes
    *seconds*; a job with more than *max_bytes* in JSON is read as text.
    """

    name = "nccl"

    def __init__(  # noqa: PLR0913 - the last are for tests
        self,
        address: str,
        *,
        interval: float = 15.0,
        seconds: float = 12.0,
        max_bytes: int = 16 << 20,
        clock: Clock = time.monotonic,
        chance: Chance | None = None,
    ) -> None:
        self.interval = interval
        # Four of it may not respond.
        self.deadline = seconds + 6.0
        self._place = place_of(address)
        self._address = address
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._chance = chance or _chance
        self._json = True
        # Of uneven communicators in the latest reply, by their key.
        self._counts: dict[str, Hashable] = {}
        self._latest: _LatestReply | None = None
        self._pause: int | None = None

    def collect(self) -> Iterable[Family]:
        """Query RAS, or return what it returned last."""
        if (place := found(self._place)) is None:
            raise self._no_job()
        if self._pause is None:
            self._pause = self._chance(0, _AT_FIRST)
        if self._pause:
            self._pause -= 1
        else:
            self._query(place)
        return [] if self._latest is None else list(self._families(self._latest))

    def found(self) -> Ras | None:
        """Return what the last query returned, if any; called from other threads."""
        if (latest := self._latest) is None:
            return None
        report, stuck = latest.report, latest.stuck
        behind = sorted(
            stuck.behind, key=lambda rank: (-rank.lag, rank.host, rank.rank)
        )
        return Ras(
            report.version,
            max(self._clock() - latest.taken, 0.0),
            RasProcesses(**report.processes),
            stuck.communicators,
            stuck.lagging,
            tuple(behind[:_NAMED]),
            report.absent[:_NAMED],
        )

    def _query(self, place: Place) -> None:
        # Whatever it is, what was known before is out of date.
        self._latest = None
        try:
            report = self._report(place)
        except FetchError as error:
            if error.reason == GONE:
                raise self._no_job() from error
            if error.reason == TOO_LARGE:
                self._json = False
            message = f"NCCL's RAS at {self._address}: {error}"
            raise CollectorUnavailable(error.reason, message) from error
        here = is_here(report.first_host)
        stuck = self._stuck(report.uneven)
        self._latest = _LatestReply(report, stuck, self._clock(), here)
        if not here:
            least = _UNPLACED if here is None else _ELSEWHERE
            about = min(max(least, report.nodes), _MOST)
            if stuck.communicators or report.lost:
                # It may be over in a moment; an alert must not wait for this host.
                about //= 3
            self._pause = self._chance(about - about // 3, about + about // 3)

    def _stuck(self, uneven: Iterable[UnevenCommunicator]) -> _Stuck:
        """Return what is as *uneven* as in the last reply, else normal."""
        before = self._counts
        self._counts = {of.key: of.counts for of in uneven}
        stuck = [of for of in uneven if before.get(of.key) == of.counts]
        return _Stuck(
            communicators=len(stuck),
            lagging=max((of.lagging for of in stuck), default=0),
            behind=tuple(rank for of in stuck for rank in of.behind),
        )

    def _report(self, place: Place) -> RasReport:
        body, is_json = query(
            place, seconds=self._seconds, max_bytes=self._max_bytes, json=self._json
        )
        # Few hosts have such a job.
        from jaxmon_exporter.collectors import ras_replies as replies  # noqa: PLC0415 - see above

        try:
            return (replies.parse_json if is_json else replies.parse_text)(body)
        except replies.BrokenReplyError as error:
            advice = "set NCCL_RAS_ADDR to where RAS listens"
            message = f"{self._address}: {error}; {advice}"
            raise CollectorUnavailable(NOT_RAS, message) from error

    def _no_job(self) -> CollectorUnavailable:
        """Forget what was known of a job, and return what to raise."""
        self._latest = self._pause = None
        self._json = True
        self._counts = {}
        message = (
            f"no process listens at {self._address}: no job on this host uses NCCL "
            "2.24 or later, or its NCCL_RAS_ADDR is another, or NCCL_RAS_ENABLE is 0"
        )
        return CollectorUnavailable(NO_JOB, message, costly=False)

    def _families(self, latest: _LatestReply) -> Iterator[Family]:
        report, stuck = latest.report, latest.stuck
        yield gauge(catalog.NCCL_INFO, 1, report.version, report.cuda, report.driver)
        yield _by_value(catalog.NCCL_PROCESSES, report.processes)
        yield gauge(catalog.NCCL_GPUS, report.gpus)
        yield gauge(catalog.NCCL_NODES, report.nodes)
        yield _by_value(catalog.NCCL_COMMUNICATORS, report.communicators)
        faults = report.faults + Counter(stuck=stuck.communicators)
        yield _by_value(catalog.NCCL_FAULTY_COMMUNICATORS, faults)
        yield gauge(catalog.NCCL_LAGGING_RANKS, stuck.lagging)
        # One sidecar of a job names who is behind.
        if latest.here is not False:
            yield from _named(report, stuck)
        yield gauge(catalog.NCCL_REPLY_AGE_SECONDS, self._clock() - latest.taken)
        yield gauge(catalog.NCCL_COLLECTION_SECONDS, report.seconds)
        yield gauge(catalog.NCCL_COLLECTION_TIMEOUTS, report.timeouts)


def _chance(least: int, most: int) -> int:
    from random import randint  # noqa: PLC0415 - few hosts have such a job

    return randint(least, most)  # noqa: S311 - no secret


def _by_value(metric: catalog.Metric, counts: Counter[str]) -> Family:
    ((_, values),) = metric.values
    return by_label(metric, {value: float(counts[value]) for value in values})


def _named(report: RasReport, stuck: _Stuck) -> Iterator[Family]:
    """Return the ranks furthest behind, and the hosts with most processes missing."""
    lags: dict[tuple[str, int], int] = {}
    for lagging in stuck.behind:
        rank = (lagging.host, lagging.rank)
        lags[rank] = max(lagging.lag, lags.get(rank, 0))
    missing = Counter(process.host for process in report.absent)
    for metric, counts in (
        (catalog.NCCL_RANK_LAG, lags),
        (catalog.NCCL_MISSING_PROCESSES, missing),
    ):
        if worst := sorted(counts.items(), key=lambda row: (-row[1], row[0])):
            yield by_label(metric, dict(worst[:_NAMED]))
