"""
A line of NCCL Inspector's files: one collective of one rank.

The format is that of the plugin's JSON writer in NCCL 2.28.3 to 2.30.7:
``inspectorCommInfoDump`` in ``ext-profiler/inspector/inspector.cc``, since 2.29.7 in
``plugins/profiler/inspector``, and since 2.30.3 in ``inspector_json.cc`` there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from jaxmon.catalog.values import NCCL_COLLECTIVES, NCCL_MESSAGE_SIZES


# Times from the processor are those of launches, or of polls; Inspector itself drops
# such records by default since 2.30.3.
_BY_GPU = "kernel_gpu"
_MICROSECONDS, _GIGABYTES = 1e-6, 1e9
_MOST_RANKS = 1 << 20
_MOST_BYTES = 1 << 60
_MOST_SECONDS = 1e5
# No bus has a petabyte per second.
_MOST_BANDWIDTH = 1e15
_MOST_NUMBER = 1 << 63
_LONGEST = 32
_BOUNDS = (1 << 20, 1 << 24, 1 << 28)


class BrokenRecordError(ValueError):
    """A line is not a record of Inspector."""


class Record(NamedTuple):
    """
    What is known of a collective, or of a send or receive.

    Args:
        communicator: its hash, the same on all ranks.
        rank: in the communicator.
        ranks: how many it has.
        collective: one of `NCCL_COLLECTIVES`.
        number: counts those of its kind that the communicator has launched; `None` of
            sends and receives, which are counted together.
        message: bytes, as NCCL counts them.
        seconds: of its kernel on the GPU, which waits for other ranks.
        bus: bytes on the bus: bus bandwidth times *seconds*.
        sampled: whether it stands for those before it that were not recorded. Since
            NCCL 2.30.3 these are others, under 8 KiB.
    """

    communicator: str
    rank: int
    ranks: int
    collective: str
    number: int | None
    message: int
    seconds: float
    bus: float
    sampled: bool

    @property
    def size(self) -> str:
        """Return the size class of its message, one of `NCCL_MESSAGE_SIZES`."""
        below = sum(self.message >= bound for bound in _BOUNDS)
        return NCCL_MESSAGE_SIZES[below]


def parse(line: bytes) -> Record | None:
    """
    Return the record in *line*, `None` if the GPU did not time it. Takes 10 µs.

    Raises:
        BrokenRecordError: there is none.
    """
    try:
        # No deeper than the caller's limit of a line allows, which Python withstands.
        found = json.loads(line.decode())
        return _record(found)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BrokenRecordError(str(error)) from error


def _record(found: Any) -> Record | None:
    header = found["header"]
    prefix = "coll" if "coll_perf" in found else "p2p"
    of: Mapping[str, Any] = found[f"{prefix}_perf"]
    if of[f"{prefix}_timing_source"] != _BY_GPU:
        return None
    ranks = _whole(header["n_ranks"], 1, _MOST_RANKS)
    kind = of[prefix]
    seconds = _whole(of[f"{prefix}_exec_time_us"], 0, 10**11) * _MICROSECONDS
    bandwidth = _real(of[f"{prefix}_busbw_gbs"]) * _GIGABYTES
    if seconds > _MOST_SECONDS or bandwidth > _MOST_BANDWIDTH:
        msg = "implausible time or bandwidth"
        raise ValueError(msg)
    return Record(
        str(header["id"])[:_LONGEST],
        _whole(header["rank"], 0, ranks - 1),
        ranks,
        kind if kind in NCCL_COLLECTIVES else "other",
        _whole(of["coll_sn"], 0, _MOST_NUMBER) if prefix == "coll" else None,
        _whole(of[f"{prefix}_msg_size_bytes"], 0, _MOST_BYTES),
        seconds,
        bandwidth * seconds,
        # NCCL names the communicator since it records all.
        sampled="comm_name" not in header,
    )


def _whole(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        msg = f"{str(value)[:_LONGEST]} is not a number from {least} to {most}"
        raise ValueError(msg)
    return value


def _real(value: object) -> float:
    if isinstance(value, (int, float)) and isfinite(value) and value >= 0:
        return float(value)
    msg = f"{str(value)[:_LONGEST]} is no bandwidth"
    raise ValueError(msg)
