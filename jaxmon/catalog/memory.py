"""Memory, transfer and numeric-check metrics."""

from __future__ import annotations

from jaxmon.catalog.model import Sheet
from jaxmon.catalog.values import CHECK_OUTCOMES, MEMORY_KINDS, TRANSFER_DIRECTIONS


# --- Memory ----------------------------------------------------------------------

_memory = Sheet("Memory")

DEVICE_MEMORY_BYTES = _memory.gauge(
    "jaxmon_device_memory_bytes",
    "Allocator statistics of a local device; absent where JAX provides none (CPU).",
    "device",
    ("kind", MEMORY_KINDS),
)
DEVICE_ALLOCATIONS = _memory.counter(
    "jaxmon_device_allocations_total",
    "Allocations made by a local device's allocator.",
    "device",
)
LIVE_ARRAYS = _memory.gauge(
    "jaxmon_live_arrays",
    "Live arrays with a shard in a local device's memory.",
    "device",
    "dtype",
)
LIVE_ARRAY_BYTES = _memory.gauge(
    "jaxmon_live_array_bytes",
    "Bytes of live array shards in a local device's memory.",
    "device",
    "dtype",
)
OFFLOADED_ARRAY_BYTES = _memory.gauge(
    "jaxmon_offloaded_array_bytes",
    "Bytes of a local device's live arrays that are offloaded to host memory.",
    "device",
)
LEAK_GROWTH_BYTES = _memory.gauge(
    "jaxmon_leak_growth_bytes",
    "Growth of live bytes over a window of steady growth (suspected leak); 0 "
    "otherwise.",
    "device",
)
OOM_REPORTS = _memory.counter(
    "jaxmon_oom_reports_total", "Reports written after an out-of-memory error."
)
HOST_TRANSFERS = _memory.counter(
    "jaxmon_host_transfers_total",
    "Host-device transfers made by the program, explicit or implicit.",
    ("direction", TRANSFER_DIRECTIONS),
)
HOST_TRANSFER_BYTES = _memory.counter(
    "jaxmon_host_transfer_bytes_total",
    "Bytes moved by host-device transfers.",
    ("direction", TRANSFER_DIRECTIONS),
)
HOST_TRANSFER_SECONDS = _memory.counter(
    "jaxmon_host_transfer_seconds_total",
    "Time the program was blocked in transfers, including waiting for results.",
    ("direction", TRANSFER_DIRECTIONS),
)

HOST_SYNCS = _memory.counter(
    "jaxmon_host_syncs_total",
    "Device synchronizations by block_until_ready.",
)
HOST_SYNC_SECONDS = _memory.counter(
    "jaxmon_host_sync_seconds_total",
    "Time that the program was blocked in block_until_ready.",
)

# --- Numerics and determinism ----------------------------------------------------

_numerics = Sheet("Numerics")

NONFINITE = _numerics.counter(
    "jaxmon_nonfinite_total",
    "Non-finite values in sampled floating-point outputs of a function.",
    "name",
)
NONFINITE_OUTPUTS = _numerics.gauge(
    "jaxmon_nonfinite_outputs",
    "Small outputs of a function that were finite and are NaN in the latest samples.",
    "name",
)
FLOAT64_PROMOTIONS = _numerics.counter(
    "jaxmon_float64_promotions_total",
    "Programs that compute in float64 although no argument is float64.",
    "function",
)
OUTPUT_DEVIATION = _numerics.gauge(
    "jaxmon_output_deviation",
    "Largest relative deviation between two runs on the same input, 0 if identical.",
    "function",
)
DETERMINISM_CHECKS = _numerics.counter(
    "jaxmon_determinism_checks_total",
    "Determinism checks (second runs on the same input), by outcome; passed if "
    "outputs were identical.",
    "function",
    ("outcome", CHECK_OUTCOMES),
)
DEVICE_DEVIATIONS = _numerics.counter(
    "jaxmon_device_deviations_total",
    "Determinism checks in which an output differed on this local device, but not on "
    "all.",
    "function",
    "device",
)
GRADIENT_CHECKS = _numerics.counter(
    "jaxmon_gradient_checks_total",
    "Gradient checks against finite differences by jaxmon.check_gradients, by outcome.",
    "function",
    ("outcome", CHECK_OUTCOMES),
)
KEY_REUSE = _numerics.counter(
    "jaxmon_key_reuse_total",
    "PRNG key reuses rejected by JAX's key-reuse checker.",
    "function",
)
