"""
Metrics of jobs that use NCCL: from the RAS thread in each of their processes, and from
the files of NCCL Inspector.
"""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Sheet
from jaxmon.catalog.values import (
    NCCL_COLLECTIVES,
    NCCL_COMMUNICATOR_STATES,
    NCCL_FAULTS,
    NCCL_MESSAGE_SIZES,
    NCCL_PROCESS_STATES,
)


_nccl = Sheet("NCCL", SIDECAR)

_MANY = (0, 1e7)

NCCL_INFO = _nccl.info(
    "jaxmon_nccl_info",
    "NCCL of a job on this host, its CUDA runtime, and the CUDA of the driver.",
    "version",
    "cuda",
    "driver",
)
NCCL_PROCESSES = _nccl.gauge(
    "jaxmon_nccl_processes",
    "Processes of the job, on all hosts, by what NCCL knows of them.",
    ("state", NCCL_PROCESS_STATES),
    limits=_MANY,
)
NCCL_GPUS = _nccl.gauge(
    "jaxmon_nccl_gpus", "GPUs of the job, on all hosts.", limits=_MANY
)
NCCL_NODES = _nccl.gauge(
    "jaxmon_nccl_nodes", "Hosts of the job, by their addresses.", limits=_MANY
)
NCCL_COMMUNICATORS = _nccl.gauge(
    "jaxmon_nccl_communicators",
    "Communicators of the job, by state.",
    ("state", NCCL_COMMUNICATOR_STATES),
    limits=_MANY,
)
NCCL_FAULTY_COMMUNICATORS = _nccl.gauge(
    "jaxmon_nccl_faulty_communicators",
    "Communicators in disorder; a mismatch is normal while it moves, stuck is one "
    "that does not.",
    ("kind", NCCL_FAULTS),
    limits=_MANY,
)
NCCL_LAGGING_RANKS = _nccl.gauge(
    "jaxmon_nccl_lagging_ranks",
    "Ranks behind others of a stuck communicator, of the one with the most of them.",
    limits=_MANY,
)
NCCL_RANK_LAG = _nccl.gauge(
    "jaxmon_nccl_rank_lag",
    "Collectives that a rank of a stuck communicator is behind, of the 8 furthest.",
    "host",
    "rank",
    limits=(0, 2**53),
)
NCCL_MISSING_PROCESSES = _nccl.gauge(
    "jaxmon_nccl_missing_processes",
    "Processes that do not respond or are dead, of the 8 hosts with the most.",
    "host",
    limits=_MANY,
)
NCCL_REPLY_AGE_SECONDS = _nccl.gauge(
    "jaxmon_nccl_reply_age_seconds",
    "Age of the reply that these metrics are from.",
)
NCCL_COLLECTION_SECONDS = _nccl.gauge(
    "jaxmon_nccl_collection_seconds",
    "Time that NCCL took to collect it from the processes of the job.",
)
NCCL_COLLECTION_TIMEOUTS = _nccl.gauge(
    "jaxmon_nccl_collection_timeouts",
    "Connections between processes that NCCL gave up on meanwhile.",
    limits=_MANY,
)

# --- Inspector -------------------------------------------------------------------

_inspector = Sheet("NCCL Inspector", SIDECAR)

_KIND = ("collective", NCCL_COLLECTIVES)
_SIZE = ("size", NCCL_MESSAGE_SIZES)

NCCL_COLLECTIVES_RECORDED = _inspector.counter(
    "jaxmon_nccl_collectives_total",
    "Collectives that NCCL Inspector recorded, by kind and size of the message.",
    "worker",
    _KIND,
    _SIZE,
)
NCCL_MESSAGE_BYTES = _inspector.counter(
    "jaxmon_nccl_message_bytes_total",
    "Size of their messages, as NCCL counts it: of each rank.",
    "worker",
    _KIND,
    _SIZE,
)
NCCL_BUS_BYTES = _inspector.counter(
    "jaxmon_nccl_bus_bytes_total",
    "Bus bandwidth times kernel time of each; divided by the seconds, bus bandwidth.",
    "worker",
    _KIND,
    _SIZE,
)
NCCL_COLLECTIVE_SECONDS = _inspector.counter(
    "jaxmon_nccl_collective_seconds_total",
    "Time of their kernels on the GPU, including the wait for other ranks.",
    "worker",
    _KIND,
    _SIZE,
)
NCCL_UNRECORDED_COLLECTIVES = _inspector.counter(
    "jaxmon_nccl_unrecorded_collectives_total",
    "Collectives launched between those recorded: too small, overwritten, or not read.",
    "worker",
    _KIND,
)
