"""
The reply in JSON, of NCCL 2.28.7 and later.

It is a dump of what RAS collected; what it means is decided here as RAS does for its
summary in text (NCCL 2.28.7 to 2.30.7, ``src/ras/client_support.cc``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxmon.formats import json_text
from jaxmon_exporter.collectors.nccl.report import (
    Behind,
    BrokenReplyError,
    Missing,
    Report,
    Uneven,
    cuda_version,
)


# Of ncclResult_t.
_SUCCESS, _IN_PROGRESS = 0, 7
_STATES = ("unknown", "init", "running", "finalize", "abort")

# NCCL 2.28 forgets a comma, if a rank is missing.
_FORGOTTEN = rb'("nvml_dev": -?\d{1,9})(\s*"status")'

_Process = tuple[object, ...]


def parse(body: bytes) -> Report:
    """
    Return what *body* says; 30 ms for a MiB.

    Raises:
        BrokenReplyError: it is not a reply of RAS.
    """
    try:
        return _report(json_text.parse(re.sub(_FORGOTTEN, rb"\1,\2", body)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"not a status in JSON: {type(error).__name__}: {error}"
        raise BrokenReplyError(msg[:200]) from error


def _report(reply: Mapping[str, Any]) -> Report:
    job = _Job()
    found: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    uneven = []
    communicators = reply["communicators"]
    for one in communicators:
        ranks, missing = one["ranks"], one["missing_ranks"]
        lost = job.add(ranks, missing)
        state, several = _state(ranks, unlisted=len(missing) > lost)
        found[state] += 1
        counted = _uneven(one, ranks)
        if counted is not None:
            uneven.append(counted)
        faults["mismatch"] += several or counted is not None
        faults["error"] += any(map(_failed, ranks))
        faults["incomplete"] += lost > 0
    return Report(
        version=_text(reply["nccl_version"]),
        cuda=cuda_version(_number(reply["cuda_runtime_version"])),
        driver=cuda_version(_number(reply["cuda_driver_version"])),
        processes=job.processes(),
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


class _Job:
    """The processes of all communicators, each once."""

    def __init__(self) -> None:
        self.states: dict[_Process, str] = {}
        self.gpus: set[_Process] = set()

    def add(self, ranks: Iterable[Any], missing: Iterable[Any]) -> int:
        """
        Add the ranks of a communicator; return how many do not respond or are dead.
        """
        for one in ranks:
            process = self._seen(one)
            self.states.setdefault(process, "responding")
        lost = 0
        for one in missing:
            process = self._seen(one)
            status = one["status"]
            # Otherwise it responds, and is no member any more, or not yet.
            state = "responding"
            if status["considered_dead"]:
                state = "dead"
            elif status["unresponsive"]:
                state = "unresponsive"
            lost += state != "responding"
            self.states[process] = state
        return lost

    def _seen(self, one: Mapping[str, Any]) -> _Process:
        host, pid, device = _text(one["host"]), _number(one["pid"]), one["nvml_dev"]
        # Of a process that RAS does not know, all ranks would be one.
        process = (host, pid) if pid >= 0 else (host, pid, _number(one["rank"]))
        self.gpus.add((*process, _number(device)))
        return process

    def processes(self) -> Counter[str]:
        return Counter(self.states.values())

    def missing(self) -> tuple[Missing, ...]:
        return tuple(
            Missing(_text(process[0]), _number(process[1]), state)
            for process, state in self.states.items()
            if state != "responding"
        )


def _state(ranks: Iterable[Any], *, unlisted: bool) -> tuple[str, bool]:
    """Return the state of the furthest rank, and whether they differ."""
    states = {_rank_state(one["status"]) for one in ranks}
    if unlisted or not states:
        states.add(0)
    return _STATES[max(states)], len(states) > 1


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


def _uneven(communicator: Mapping[str, Any], ranks: Sequence[Any]) -> Uneven | None:
    """Return how unevenly the ranks have launched collectives; `None` if evenly."""
    counts = [one["collective_counts"] for one in ranks]
    if all(one == counts[0] for one in counts):
        return None
    most: dict[str, int] = defaultdict(int)
    for one in counts:
        for kind, number in one.items():
            most[kind] = max(most[kind], _number(number))
    behind = []
    for one in ranks:
        own = one["collective_counts"]
        if lag := max(number - own.get(kind, 0) for kind, number in most.items()):
            place = _text(one["host"]), _number(one["rank"])
            behind.append(Behind(*place, lag, _number(one["pid"])))
    every = tuple(
        (one["rank"], tuple(one["collective_counts"].values())) for one in ranks
    )
    # The hash of other communicators may be the same.
    key = f"{communicator['hash']}:{communicator['secondary_hash']}"
    return Uneven(key, every, len(behind), tuple(behind))


def _first_host(communicators: Iterable[Any]) -> str:
    """Return the host of the first rank of the largest communicator."""
    largest = max(communicators, key=lambda one: _number(one["size"]), default=None)
    if largest is None or not largest["ranks"]:
        return ""
    return _text(min(largest["ranks"], key=lambda one: _number(one["rank"]))["host"])


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
