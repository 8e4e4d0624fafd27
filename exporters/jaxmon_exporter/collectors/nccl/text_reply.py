"""
The reply as text, of all NCCL from 2.24 on: a summary that names only outliers.

Lines are as in ``src/ras/client_support.cc`` of NCCL 2.24.3, 2.26.2, 2.28.3 and 2.30.7.
The counts of 2.24 and 2.25 are not divided by kind of collective.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from jaxmon_exporter.collectors.nccl.report import (
    Behind,
    BrokenReplyError,
    Missing,
    Report,
    Uneven,
    cuda_version,
)


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


class _Named(NamedTuple):
    """A rank with its host and process, ``""`` and -1 if unknown."""

    host: str
    rank: int
    pid: int


class _Group(NamedTuple):
    """Ranks of a communicator at the same collective; those that have names."""

    launched: int
    ranks: int
    named: list[_Named]


def parse(body: bytes) -> Report:
    """
    Return what *body* says.

    Raises:
        BrokenReplyError: it is not a reply of RAS, or is not complete.
    """
    lines = body.decode(errors="replace").splitlines()
    version = re.fullmatch(_VERSION, lines[0]) if lines else None
    # Its last part, with or without contents.
    if version is None or "Warnings" not in lines:
        msg = "not a status of NCCL's RAS, or not complete"
        raise BrokenReplyError(msg)
    nodes, processes, gpus = _size(lines)
    runtime, driver = (int(one) for one in _first(_CUDA, lines, "-1", "-1"))
    unheard = sum(int(one[1]) for one in _all(_UNHEARD, lines))
    dead = sum(int(one[1]) for one in _all(_DEAD, lines))
    communicators: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for group in _all(_GROUP, lines):
        number = int(group[1])
        communicators[_STATES.get(group[2], group[2].lower())] += number
        for fault in group[3].lower().split(","):
            if fault != "ok":
                faults[fault] += number
    return Report(
        version=version[1],
        cuda=cuda_version(runtime),
        driver=cuda_version(driver),
        processes=Counter(
            responding=max(0, processes - unheard - dead),
            unresponsive=unheard,
            dead=dead,
        ),
        gpus=gpus,
        nodes=nodes,
        absent=tuple(_missing(lines)),
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


def _missing(lines: list[str]) -> Iterator[Missing]:
    """Yield the processes that are named below a number of those that are missing."""
    state = "unresponsive"
    for line in lines:
        if re.fullmatch(_UNHEARD, line):
            state = "unresponsive"
        elif re.fullmatch(_DEAD, line):
            state = "dead"
        elif found := re.fullmatch(_PROCESS, line):
            yield Missing(found[2], int(found[1]), state)


def _size(lines: list[str]) -> tuple[int, int, int]:
    """
    Return nodes, processes and GPUs of the job: in a table of five columns if all nodes
    are alike, else in the last one of three.
    """
    for title, row in pairwise(lines):
        if title.startswith("(total)"):
            found = re.findall(r"\d{1,9}", row)
            if len(found) == title.count("(total)") == 3:  # noqa: PLR2004 - see above
                return int(found[0]), int(found[1]), int(found[2])
            if len(found) == 5:  # noqa: PLR2004 - see above
                return int(found[0]), int(found[3]), int(found[4])
    msg = "a status of NCCL's RAS without a summary of the job"
    raise BrokenReplyError(msg)


def _uneven(lines: list[str]) -> Iterator[Uneven]:
    """Return the communicators whose ranks have launched different numbers."""
    for key, block in _blocks(lines):
        kinds = [_groups(part) for part in _parts(block)]
        kinds = [one for one in kinds if one]
        if not kinds:  # different states only
            continue
        behind: dict[_Named, int] = {}
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
            Behind(rank.host, rank.rank, lag, rank.pid) for rank, lag in behind.items()
        )
        counts = tuple(
            tuple((group.launched, group.ranks) for group in groups) for groups in kinds
        )
        yield Uneven(key, counts, lagging, named)


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Return the lines about each communicator with a mismatch."""
    key, block = "", list[str]()
    for line in [*lines, "#0-0 (0) ERROR"]:
        if found := re.fullmatch(_BLOCK, line):
            if key:
                yield key, block
            key, block = found[1] if found[2] == "MISMATCH" else "", []
        else:
            block.append(line)


def _parts(block: list[str]) -> Iterator[list[str]]:
    """Return the lines about each kind of collective."""
    part: list[str] | None = None
    for line in block:
        if re.fullmatch(_KIND, line):
            if part is not None:
                yield part
            part = []
        elif part is not None:
            part.append(line)
    if part is not None:
        yield part


def _groups(part: list[str]) -> list[_Group]:
    groups: list[_Group] = []
    for line in part:
        if found := re.fullmatch(_RANKS, line):
            groups.append(_Group(int(found[2] or 0), int(found[1]), []))
        elif found := re.fullmatch(_RANK, line):
            named = _Named(found[4] or "", int(found[1]), int(found[3] or -1))
            groups.append(_Group(int(found[2] or 0), 1, [named]))
        elif groups and (found := re.fullmatch(_MEMBER, line)):
            named = _Named(found[3] or "", int(found[1]), int(found[2] or -1))
            groups[-1].named.append(named)
    return groups
