"""Metrics of the synthetic job from its NCCL: all is well."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon_exporter.collectors.synthetic.gpus import Figure


_COMMUNICATORS = 3
_EVERY = 15.0
# By collective and size of its message: how many a second, bytes of each, bytes on the
# bus by seconds, and by bytes of the message on eight ranks. A training step gathers
# parameters and scatters gradients.
_GATHERED = "under_256MiB"
_COLLECTIVES = (
    ("AllGather", _GATHERED, 576.0, 26 << 20, 310e9, 7 / 8),
    ("ReduceScatter", _GATHERED, 288.0, 52 << 20, 295e9, 7 / 8),
    ("AllReduce", "under_1MiB", 27.0, 65_536, 4e9, 7 / 4),
)


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
    for worker in range(processes):
        yield from _inspected(elapsed, worker)


def _inspected(elapsed: float, worker: int) -> Iterator[Figure]:
    """Return what Inspector has recorded of a process."""
    for collective, size, rate, message, bandwidth, factor in _COLLECTIVES:
        labels = (worker, collective, size)
        number = int(rate * elapsed)
        yield catalog.NCCL_COLLECTIVES_RECORDED, number, labels
        yield catalog.NCCL_MESSAGE_BYTES, number * message, labels
        moved = number * message * factor
        yield catalog.NCCL_BUS_BYTES, moved, labels
        seconds = moved / bandwidth
        yield catalog.NCCL_COLLECTIVE_SECONDS, seconds, labels
        yield catalog.NCCL_UNRECORDED_COLLECTIVES, 0, (worker, collective)
