"""The words for ranks that come last to their collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jaxmon.formats.layout import INDENT, duration, share, wrapped
from jaxmon.report.job.latecomers import Latecomer


_MOST_SHOWN = 3
_SIZES = {
    "under_1MiB": "under 1 MiB",
    "under_16MiB": "of 1 to 16 MiB",
    "under_256MiB": "of 16 to 256 MiB",
    "larger": "of 256 MiB and more",
}
ADVICE = (
    "The kernels of a collective wait for the last rank: look at what its host does in "
    "between, and whether its GPU is throttled or shared."
)


def lines(found: Sequence[Latecomer], width: int) -> Iterator[str]:
    """Yield who comes last, in lines of at most *width* columns."""
    for one in found[:_MOST_SHOWN]:
        yield from wrapped(says(one), width, first=INDENT, rest=INDENT * 2)
    if (left := len(found) - _MOST_SHOWN) > 0:
        yield f"{INDENT}and {left:,} more"
    if found:
        yield from wrapped(ADVICE, width, first=INDENT * 2, rest=INDENT * 2)


def says(one: Latecomer) -> str:
    """Return who comes last to what, and how long the others wait."""
    of, rank = one.timed, one.rank
    what = f"{of.collective} {_SIZES.get(of.size, '')}".rstrip()
    itself = f", as rank {of.rank} of NCCL" if one.several else ""
    return (
        f"NCCL Inspector: rank {rank.index} ({rank.host}, pid {rank.pid}) comes last "
        f"to {what} among {of.ranks:,} ranks{itself}: its kernels take "
        f"{duration(one.mean)}, those of the median rank {duration(one.median)}, which "
        f"waits for it {share(one.ratio, 1.0)} of the time"
    )


def document(found: Sequence[Latecomer]) -> list[dict[str, Any]]:
    """Return *found* as JSON types."""
    return [
        {
            "rank": one.rank.index,
            "host": one.rank.host,
            "pid": one.rank.pid,
            "verdict": says(one),
            "action": ADVICE,
            "communicator": one.timed.communicator,
            "nccl_rank": one.timed.rank,
            "nccl_ranks": one.timed.ranks,
            "collective": one.timed.collective,
            "size": one.timed.size,
            "seconds": one.mean,
            "median_seconds": one.median,
            "others_wait_ratio": one.ratio,
        }
        for one in found
    ]
