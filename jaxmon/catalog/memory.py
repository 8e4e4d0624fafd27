"""Memory, transfers, and what the numbers are like."""

from __future__ import annotations

from jaxmon.catalog.model import Metric
from jaxmon.catalog.values import (
    CHECK_OUTCOMES,
    MEMORY_KINDS,
    TRANSFER_DIRECTIONS,
)


# --- Memory ----------------------------------------------------------------------

DEVICE_MEMORY_BYTES = Metric(
    "jaxmon_device_memory_bytes",
    "gauge",
    "Allocator figures of a local device; absent where JAX has none (CPU).",
    unit="bytes",
    labels=("device", "kind"),
    group="Memory",
    values=(("kind", MEMORY_KINDS),),
)
DEVICE_ALLOCATIONS = Metric(
    "jaxmon_device_allocations_total",
    "counter",
    "Allocations made by the allocator of a local device.",
    labels=("device",),
    group="Memory",
)
LIVE_ARRAYS = Metric(
    "jaxmon_live_arrays",
    "gauge",
    "Arrays that the program holds with a shard in the memory of a local device.",
    labels=("device", "dtype"),
    group="Memory",
)
LIVE_ARRAY_BYTES = Metric(
    "jaxmon_live_array_bytes",
    "gauge",
    "Bytes of the shards of live arrays in the memory of a local device.",
    unit="bytes",
    labels=("device", "dtype"),
    group="Memory",
)
OFFLOADED_ARRAY_BYTES = Metric(
    "jaxmon_offloaded_array_bytes",
    "gauge",
    "Bytes of live arrays of a local device that are in the host's memory instead.",
    unit="bytes",
    labels=("device",),
    group="Memory",
)
LEAK_GROWTH_BYTES = Metric(
    "jaxmon_leak_growth_bytes",
    "gauge",
    "Growth of live bytes over a window in which they only grew; 0 otherwise.",
    unit="bytes",
    labels=("device",),
    group="Memory",
)
OOM_REPORTS = Metric(
    "jaxmon_oom_reports_total",
    "counter",
    "Reports written after an out-of-memory error.",
    group="Memory",
)
HOST_TRANSFERS = Metric(
    "jaxmon_host_transfers_total",
    "counter",
    "Transfers between host and device that the program made, explicitly or not.",
    labels=("direction",),
    group="Memory",
    values=(("direction", TRANSFER_DIRECTIONS),),
)
HOST_TRANSFER_BYTES = Metric(
    "jaxmon_host_transfer_bytes_total",
    "counter",
    "Bytes moved by transfers between host and device.",
    unit="bytes",
    labels=("direction",),
    group="Memory",
    values=(("direction", TRANSFER_DIRECTIONS),),
)
HOST_TRANSFER_SECONDS = Metric(
    "jaxmon_host_transfer_seconds_total",
    "counter",
    "Time that the program was blocked in transfers, waiting for results included.",
    unit="seconds",
    labels=("direction",),
    group="Memory",
    values=(("direction", TRANSFER_DIRECTIONS),),
)

HOST_SYNCS = Metric(
    "jaxmon_host_syncs_total",
    "counter",
    "Waits for the device that the program made by block_until_ready.",
    group="Memory",
)
HOST_SYNC_SECONDS = Metric(
    "jaxmon_host_sync_seconds_total",
    "counter",
    "Time that the program was blocked in block_until_ready.",
    unit="seconds",
    group="Memory",
)

# --- Numerics and determinism ----------------------------------------------------

NONFINITE = Metric(
    "jaxmon_nonfinite_total",
    "counter",
    "Non-finite values in sampled floating-point outputs of a function.",
    labels=("name",),
    group="Numerics",
)
FLOAT64_PROMOTIONS = Metric(
    "jaxmon_float64_promotions_total",
    "counter",
    "Programs that compute in float64 although no argument is float64.",
    labels=("function",),
    group="Numerics",
)
OUTPUT_DEVIATION = Metric(
    "jaxmon_output_deviation",
    "gauge",
    "Largest relative deviation between two runs on the same input, 0 if identical.",
    labels=("function",),
    group="Numerics",
)
DETERMINISM_CHECKS = Metric(
    "jaxmon_determinism_checks_total",
    "counter",
    "Second runs on the same input; passed when the outputs were identical.",
    labels=("function", "outcome"),
    group="Numerics",
    values=(("outcome", CHECK_OUTCOMES),),
)
GRADIENT_CHECKS = Metric(
    "jaxmon_gradient_checks_total",
    "counter",
    "Gradients compared with finite differences by jaxmon.check_gradients.",
    labels=("function", "outcome"),
    group="Numerics",
    values=(("outcome", CHECK_OUTCOMES),),
)
KEY_REUSE = Metric(
    "jaxmon_key_reuse_total",
    "counter",
    "Uses of a PRNG key that JAX's key-reuse checking refused.",
    labels=("function",),
    group="Numerics",
)
