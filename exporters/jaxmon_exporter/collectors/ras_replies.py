"""
What a reply of NCCL's RAS says, whichever format it has.

The reply in JSON, of NCCL 2.28.7 and later, is a dump of what RAS collected; what it
means is decided here as RAS does for its summary in text (NCCL 2.28.7 to 2.30.7,
``src/ras/client_support.cc``). The reply as text, of all NCCL from 2.24 on, is a
summary that names only outliers: its lines are as in that file of NCCL 2.24.3, 2.26.2,
2.28.3 and 2.30.7. The counts of 2.24 and 2.25 are not divided by kind of collective.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from jaxmon.facts.host import LaggingRank, MissingProcess
from jaxmon.host.formats import json_text


class BrokenReplyError(ValueError):
    """A reply is not one of RAS, or not complete."""


class UnevenCommunicator(NamedTuple):
    """A communicator whose ranks have launched different numbers."""

    key: str
    counts: Hashable
    lagging: int
    behind: tuple[LaggingRank, ...]


class RasReport(NamedTuple):
    """
    A job at one moment: versions of NCCL, of its CUDA runtime, and of CUDA that the
    driver supports; processes and communicators by state. *absent* processes do not
    respond or are dead; *faults* are without stuck communicators; *uneven* is normal
    for a moment. *first_host* is the address of the first rank that responds, ``""`` if
    unknown.
    """

    version: str
    cuda: str
    driver: str
    processes: Counter[str]
    gpus: int
    nodes: int
    absent: tuple[MissingProcess, ...]
    communicators: Counter[str]
    faults: Counter[str]
    uneven: tuple[UnevenCommunicator, ...]
    first_host: str
    seconds: float
    timeouts: int

    @property
    def lost(self) -> int:
        """Processes that do not respond or are dead."""
        return self.processes["unresponsive"] + self.processes["dead"]


def cuda_version(number: int) -> str:
    """Return ``12.8`` for 12080; ``""`` for -1, which is unknown, and the like."""
    is_version = 0 <= number < 1_000_000  # noqa: PLR2004 - CUDA 1000
    return f"{number // 1000}.{number % 1000 // 10}" if is_version else ""


# Of ncclResult_t.
_SUCCESS, _IN_PROGRESS = 0, 7
_JSON_STATES = ("unknown", "init", "running", "finalize", "abort")

# NCCL 2.28 forgets a comma, if a rank is missing.
_FORGOTTEN = rb'("nvml_dev": -?\d{1,9})(\s*"status")'

_Process: TypeAlias = tuple[object, ...]


def parse_json(body: bytes) -> RasReport:
    """Return what *body* says, in 30 ms for a MiB, or raise a `BrokenReplyError`."""
    try:
        return _json_report(json_text.parse(re.sub(_FORGOTTEN, rb"\1,\2", body)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"not a status in JSON: {type(error).__name__}: {error}"
        raise BrokenReplyError(msg[:200]) from error


def _json_report(reply: Mapping[str, Any]) -> RasReport:
    job = _JobProcesses()
    found: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    uneven = []
    communicators = reply["communicators"]
    for communicator in communicators:
        ranks, missing = communicator["ranks"], communicator["missing_ranks"]
        lost = job.add(ranks, missing)
        state, several = _state(ranks, unlisted=len(missing) > lost)
        found[state] += 1
        counted = _uneven_counts(communicator, ranks)
        if counted is not None:
            uneven.append(counted)
        faults["mismatch"] += several or counted is not None
        faults["error"] += any(map(_failed, ranks))
        faults["incomplete"] += lost > 0
    return RasReport(
        version=_text(reply["nccl_version"]),
        cuda=cuda_version(_number(reply["cuda_runtime_version"])),
        driver=cuda_version(_number(reply["cuda_driver_version"])),
        processes=Counter(job.states.values()),
        gpus=len(job.gpus),
        nodes=len({process[0] for process in job.states}),
        absent=job.missing(),
        communicators=found,
        faults=faults,
        uneven=tuple(uneven),
        first_host=_first_host(communicators),
        seconds=float(reply["ras"]["collection_time_sec"]),
        timeouts=_number(reply["ras"]["timeouts_count"]),
    )


class _JobProcesses:
    def __init__(self) -> None:
        self.states: dict[_Process, str] = {}
        self.gpus: set[_Process] = set()

    def add(self, ranks: Iterable[Any], missing: Iterable[Any]) -> int:
        """Add the ranks of a communicator; return how many are lost."""
        for rank in ranks:
            self.states.setdefault(self._seen(rank), "responding")
        lost = 0
        for rank in missing:
            status = rank["status"]
            # Otherwise it responds, and is no member any more, or not yet.
            state = "responding"
            if status["considered_dead"]:
                state = "dead"
            elif status["unresponsive"]:
                state = "unresponsive"
            lost += state != "responding"
            self.states[self._seen(rank)] = state
        return lost

    def _seen(self, rank: Mapping[str, Any]) -> _Process:
        host, pid, device = _text(rank["host"]), _number(rank["pid"]), rank["nvml_dev"]
        # Of a process that RAS does not know, all ranks would be one.
        process = (host, pid) if pid >= 0 else (host, pid, _number(rank["rank"]))
        self.gpus.add((*process, _number(device)))
        return process

    def missing(self) -> tuple[MissingProcess, ...]:
        return tuple(
            MissingProcess(_text(process[0]), _number(process[1]), state)
            for process, state in self.states.items()
            if state != "responding"
        )


def _state(ranks: Iterable[Any], *, unlisted: bool) -> tuple[str, bool]:
    """Return the state of the furthest rank, and whether they differ."""
    states = {_rank_state(rank["status"]) for rank in ranks}
    if unlisted or not states:
        states.add(0)
    return _JSON_STATES[max(states)], len(states) > 1


def _rank_state(status: Mapping[str, Any]) -> int:
    if status["abort_flag"]:
        return 4
    if status["finalize_called"] or status["destroy_flag"]:
        return 3
    return 2 if status["init_state"] == _SUCCESS else 1


def _failed(rank: Mapping[str, Any]) -> bool:
    status = rank["status"]
    good = (_SUCCESS, _IN_PROGRESS)
    return status["init_state"] not in good or status["async_error"] not in good


def _uneven_counts(
    communicator: Mapping[str, Any], ranks: Sequence[Any]
) -> UnevenCommunicator | None:
    """Return how unevenly the ranks have launched collectives; `None` if evenly."""
    counts = [rank["collective_counts"] for rank in ranks]
    if all(launched == counts[0] for launched in counts):
        return None
    most: dict[str, int] = defaultdict(int)
    for launched in counts:
        for kind, number in launched.items():
            most[kind] = max(most[kind], _number(number))
    behind = []
    for rank in ranks:
        launched = rank["collective_counts"]
        if lag := max(number - launched.get(kind, 0) for kind, number in most.items()):
            host, pid = _text(rank["host"]), _number(rank["pid"])
            behind.append(LaggingRank(host, pid, _number(rank["rank"]), lag))
    every = tuple(
        (rank["rank"], tuple(rank["collective_counts"].values())) for rank in ranks
    )
    # The hash of other communicators may be the same.
    key = f"{communicator['hash']}:{communicator['secondary_hash']}"
    return UnevenCommunicator(key, every, len(behind), tuple(behind))


def _first_host(communicators: Iterable[Any]) -> str:
    largest = max(communicators, key=lambda of: _number(of["size"]), default=None)
    if largest is None or not largest["ranks"]:
        return ""
    return _text(min(largest["ranks"], key=lambda rank: _number(rank["rank"]))["host"])


def _number(value: Any) -> int:
    if not isinstance(value, int):
        msg = f"{value!r} is not a whole number"
        raise TypeError(msg)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} is not text"
        raise TypeError(msg)
    return value[:64]


_VERSION = r"NCCL version (\S{1,40}) compiled with CUDA \S+"
_CUDA = r"CUDA runtime version (-?\d{1,9}), driver version (-?\d{1,9})"
_TAKEN = r"Communicators\.\.\. \((\d{1,9}\.\d{1,6})s\)"
_GROUP = (
    r" *\d+ +(\d{1,9}) +\d+ +[\d-]+ +\d+ +\d+"
    r" +(UNKNOWN|NOCOMM|INIT|RUNNING|FINALIZE|ABORT)"
    r" +(OK|(?:(?:INCOMPLETE|ERROR|MISMATCH),?)+)"
)
_UNHEARD = r"  Missing communicator data from (\d{1,9}) job process(?:es)?"
_DEAD = r"  (\d{1,9}) job process(?:es are| is) considered dead .*"
_PROCESS = r"  Process (\d{1,9}) on node (\S{1,64}) managing GPUs? .*"
_TIMEOUTS = r"  Encountered (\d{1,9}) communication timeouts? .*"
_BLOCK = r"#\d+-\d+ \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)"
_KIND = r"  Communicator ranks have different (\w+) operation counts"
_LAUNCHED = r"launched up to operation (\d{1,19})"
_NONE = r"not launched any operations"
_RANKS = rf"  (\d{{1,9}}) ranks have (?:{_LAUNCHED}|{_NONE})"
_ON = r"(?: -- (?:GPU .* managed by process (\d{1,9}) on node (\S{1,64})|\[.*\]))"
_RANK = rf"  Rank (\d{{1,9}}) has (?:{_LAUNCHED}|{_NONE}){_ON}"
_MEMBER = rf"  Rank (\d{{1,9}}){_ON}"
_STATES = {"NOCOMM": "unknown"}


# A rank with its host and process, ``""`` and -1 if unknown.
_NamedRank: TypeAlias = tuple[str, int, int]


class _Group(NamedTuple):
    """Ranks of a communicator at the same collective; those that have names."""

    launched: int
    ranks: int
    named: list[_NamedRank]


def parse_text(body: bytes) -> RasReport:
    """Return what *body* says; `BrokenReplyError` if it is another, or cut off."""
    lines = body.decode(errors="replace").splitlines()
    version = re.fullmatch(_VERSION, lines[0]) if lines else None
    # Its last part, with or without contents.
    if version is None or "Warnings" not in lines:
        msg = "not a status of NCCL's RAS, or not complete"
        raise BrokenReplyError(msg)
    nodes, processes, gpus = _size(lines)
    runtime, driver = (int(digits) for digits in _first(_CUDA, lines, "-1", "-1"))
    unheard = sum(int(match[1]) for match in _all(_UNHEARD, lines))
    dead = sum(int(match[1]) for match in _all(_DEAD, lines))
    communicators: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for group in _all(_GROUP, lines):
        number = int(group[1])
        communicators[_STATES.get(group[2], group[2].lower())] += number
        for fault in group[3].lower().split(","):
            if fault != "ok":
                faults[fault] += number
    responding = max(0, processes - unheard - dead)
    return RasReport(
        version=version[1],
        cuda=cuda_version(runtime),
        driver=cuda_version(driver),
        processes=Counter(responding=responding, unresponsive=unheard, dead=dead),
        gpus=gpus,
        nodes=nodes,
        absent=tuple(_missing_processes(lines)),
        communicators=communicators,
        faults=faults,
        uneven=tuple(_uneven(lines)),
        # It names ranks only if they are outliers.
        first_host="",
        seconds=float(_first(_TAKEN, lines, "0")[0]),
        timeouts=int(_first(_TIMEOUTS, lines, "0")[0]),
    )


def _all(pattern: str, lines: list[str]) -> Iterator[re.Match[str]]:
    return (found for line in lines if (found := re.fullmatch(pattern, line)))


def _first(pattern: str, lines: list[str], *default: str) -> tuple[str, ...]:
    found = next(_all(pattern, lines), None)
    return default if found is None else found.groups()


def _missing_processes(lines: list[str]) -> Iterator[MissingProcess]:
    state = "unresponsive"
    for line in lines:
        if re.fullmatch(_UNHEARD, line):
            state = "unresponsive"
        elif re.fullmatch(_DEAD, line):
            state = "dead"
        elif found := re.fullmatch(_PROCESS, line):
            yield MissingProcess(found[2], int(found[1]), state)


def _size(lines: list[str]) -> tuple[int, int, int]:
    """Return nodes, processes and GPUs of the job, from one of two kinds of table."""
    for title, row in pairwise(lines):
        if title.startswith("(total)"):
            found = re.findall(r"\d{1,9}", row)
            if len(found) == title.count("(total)") == 3:  # noqa: PLR2004 - see above
                return int(found[0]), int(found[1]), int(found[2])
            if len(found) == 5:  # noqa: PLR2004 - see above
                return int(found[0]), int(found[3]), int(found[4])
    msg = "a status of NCCL's RAS without a summary of the job"
    raise BrokenReplyError(msg)


def _uneven(lines: list[str]) -> Iterator[UnevenCommunicator]:
    for head, block in _parts(_BLOCK, lines):
        kinds = [kind for _, part in _parts(_KIND, block) if (kind := _groups(part))]
        if head[2] != "MISMATCH" or not kinds:  # different states only
            continue
        behind: dict[_NamedRank, int] = {}
        lagging = 0
        for groups in kinds:
            most = max(group.launched for group in groups)
            late = [group for group in groups if group.launched < most]
            # Which ranks are behind in another kind as well is not known of all.
            lagging = max(lagging, sum(group.ranks for group in late))
            for group in late:
                for rank in group.named:
                    lag = most - group.launched
                    behind[rank] = max(lag, behind.get(rank, 0))
        named = tuple(
            LaggingRank(host, pid, rank, lag)
            for (host, rank, pid), lag in behind.items()
        )
        counts = tuple(
            tuple((group.launched, group.ranks) for group in groups) for groups in kinds
        )
        yield UnevenCommunicator(head[1], counts, lagging, named)


def _parts(pattern: str, lines: list[str]) -> list[tuple[re.Match[str], list[str]]]:
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in lines:
        if head := re.fullmatch(pattern, line):
            found.append((head, []))
        elif found:
            found[-1][1].append(line)
    return found


def _groups(part: list[str]) -> list[_Group]:
    groups: list[_Group] = []
    for line in part:
        if found := re.fullmatch(_RANKS, line):
            groups.append(_Group(int(found[2] or 0), int(found[1]), []))
        elif found := re.fullmatch(_RANK, line):
            named = (found[4] or "", int(found[1]), int(found[3] or -1))
            groups.append(_Group(int(found[2] or 0), 1, [named]))
        elif groups and (found := re.fullmatch(_MEMBER, line)):
            named = (found[3] or "", int(found[1]), int(found[2] or -1))
            groups[-1].named.append(named)
    return groups
