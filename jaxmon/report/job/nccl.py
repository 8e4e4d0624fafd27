"""What NCCL's RAS knows of a job, about the ranks that we know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxmon.report.job.ras import Behind, Missing, Ras
from jaxmon.report.job.records import Host, Rank


_MOST = 16


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What RAS knows.

    Attributes:
        target: the sidecar that asked it last.
        ras: the reply.
        behind: ranks that are behind, with our rank if it is known.
        missing: processes that RAS does not reach, with our rank if it is known.
    """

    target: str
    ras: Ras
    behind: tuple[tuple[Behind, Rank | None], ...] = ()
    missing: tuple[tuple[Missing, Rank | None], ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether all processes respond, and no rank is behind."""
        known = self.ras.processes
        return not (self.ras.lagging or known.unresponsive or known.dead)


def seen(ranks: Sequence[Rank], hosts: Sequence[Host]) -> Seen | None:
    """
    Return what the RAS of the job of *ranks* knows, `None` if no sidecar does.

    Args:
        ranks: of the job.
        hosts: all that answered.
    """
    indices = {id(one) for one in ranks}
    own = [
        one
        for one in hosts
        if one.nccl is not None and any(id(rank) in indices for rank in one.ranks)
    ]
    if not own:
        return None
    latest = min(own, key=lambda one: one.nccl.age_seconds if one.nccl else 0.0)
    ras = latest.nccl
    if ras is None:
        return None
    places = _places(ranks, hosts)
    return Seen(
        latest.target,
        ras,
        tuple((one, _rank(places, one.host, one.pid)) for one in ras.behind[:_MOST]),
        tuple((one, _rank(places, one.host, one.pid)) for one in ras.missing[:_MOST]),
    )


Places = dict[int, list[tuple[Rank, Host]]]


def _places(ranks: Sequence[Rank], hosts: Sequence[Host]) -> Places:
    """Return the ranks with their hosts, by process."""
    where = {id(rank): host for host in hosts for rank in host.ranks}
    found: Places = {}
    for one in ranks:
        if one.pid is not None and id(one) in where:
            found.setdefault(one.pid, []).append((one, where[id(one)]))
    return found


def _rank(places: Places, address: str, pid: int) -> Rank | None:
    """Return the rank with this process on the host with this address, if it is one."""
    some = places.get(pid, [])
    # Sidecars beside which RAS is not read report no addresses.
    there = [rank for rank, host in some if address in host.addresses]
    unknown = [rank for rank, host in some if not host.addresses]
    found = there or unknown
    return found[0] if len(found) == 1 else None
