"""Metrics of the synthetic job from its NCCL: all is well."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon_exporter.collectors.synthetic.gpus import Figure


_COMMUNICATORS = 3
_EVERY = 15.0


def figures(elapsed: float, processes: int, gpus: int) -> Iterator[Figure]:
    """Return what RAS says *elapsed* seconds after the start of the fleet."""
    yield catalog.NCCL_INFO, 1, ("2.28.9", "13.0", "13.0")
    for state in catalog.NCCL_PROCESS_STATES:
        yield catalog.NCCL_PROCESSES, processes * (state == "responding"), (state,)
    yield catalog.NCCL_GPUS, gpus, ()
    yield catalog.NCCL_NODES, 1, ()
    for state in catalog.NCCL_COMMUNICATOR_STATES:
        running = _COMMUNICATORS * (state == "running")
        yield catalog.NCCL_COMMUNICATORS, running, (state,)
    # Now and then the ranks are read between two collectives.
    between = elapsed // _EVERY % 4 == 0
    for kind in catalog.NCCL_FAULTS:
        uneven = int(between and kind == "mismatch")
        yield catalog.NCCL_FAULTY_COMMUNICATORS, uneven, (kind,)
    yield catalog.NCCL_LAGGING_RANKS, 0, ()
    yield catalog.NCCL_REPLY_AGE_SECONDS, elapsed % _EVERY, ()
    yield catalog.NCCL_COLLECTION_SECONDS, 0.002, ()
    yield catalog.NCCL_COLLECTION_TIMEOUTS, 0, ()
