"""What the drivers of GPUs say of those of a job's ranks."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmon.report.job.records import Host, Rank


class Gpus:
    """
    What the drivers say of the GPUs of ranks.

    Args:
        hosts: what their sidecars report.
        ranks: all that respond.
    """

    def __init__(self, hosts: Sequence[Host], ranks: Sequence[Rank]) -> None:
        self._reasons: dict[str, tuple[str, ...]] = {}
        self._xids: dict[str, list[str]] = {}
        for host in hosts:
            for gpu in host.gpus:
                self._reasons[gpu.uuid] = gpu.throttled
            for xid in host.xids:
                self._xids.setdefault(xid.uuid, []).append(xid.xid)
        found = [self._of(one) for one in ranks] if self._reasons else []
        reasons = {reason for one in found for reason in one}
        # If it holds for most, it is how they are set up.
        self._usual = {
            reason
            for reason in reasons
            if 2 * sum(reason in one for one in found) >= len(found)
        }

    def throttled(self, rank: Rank) -> tuple[str, ...]:
        """Return why GPUs of *rank* are throttled, if those of most are not."""
        return tuple(sorted(self._of(rank) - self._usual))

    def xids(self, rank: Rank) -> tuple[str, ...]:
        """Return the errors of its GPUs."""
        found = {xid for uuid in rank.gpus for xid in self._xids.get(uuid, ())}
        return tuple(sorted(found))

    def _of(self, rank: Rank) -> set[str]:
        return {one for uuid in rank.gpus for one in self._reasons.get(uuid, ())}
