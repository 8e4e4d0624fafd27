"""Data of runtimes of each TPU generation, in libtpu's shapes."""

from typing import Any, TypeAlias


Told: TypeAlias = dict[str, Any]

# PCI device and board, cores of a chip, chips of a host, bytes that a core may use.
GENERATIONS = {
    "v2": ("0x0027", "0x004e", 2, 4, 8 << 29),
    "v3": ("0x0027", "0x004f", 2, 4, 16 << 29),
    "v4": ("0x005e", "0x005e", 1, 4, 34 << 30),
    "v5e": ("0x0063", "0x0063", 1, 8, 16909336576),
    "v5p": ("0x0062", "0x0062", 1, 4, 102808354816),
    "v6e": ("0x006f", "0x006f", 1, 8, 33550229504),
    "7x": ("0x0076", "0x0076", 2, 4, 101737037824),
}

MEMORY_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
MEMORY_USED = "tpu.runtime.hbm.memory.usage.bytes"
DUTY_CYCLE = "tpu.runtime.tensorcore.dutycycle.percent"
BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
IDLE = "tpu.runtime.tensorcore.idle_duration.seconds"
UPTIME = "tpu.runtime.uptime.seconds.gauge"
QUEUE = "hlo.queue.size.gauge"
EXECUTION = "hlo.execution.timing.distribution.microseconds"
COLLECTIVE = (
    "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution"
)
TRANSFER = "megascale.{}_latencies.microsecond.cumulative.distribution"
TRANSFERS = (
    "dcn_transfer",
    "dcn_inbound_transfer",
    "device_to_host_transfer",
    "host_to_device_transfer",
)
BYTES_SENT = "megascale.grpc_tcp_bytes_sent.cumulative.count"
ERRORS = "megascale.error_count"


def of_device(device: int, **value: float) -> Told:
    return {"of": ["device-id", device], **value}


def of_core(device: int, *, old: bool = False, **value: Any) -> Told:
    """A figure of a core; old releases number it, newer ones spell the number."""
    ordinal = device if old else str(device)
    attributes = {"device_ordinal": ordinal, "core_type": "TENSOR_CORE"}
    return {"of": ["attributes", attributes], **value}


def distribution(counts: list[int], mean: float, *bounds: Any) -> Told:
    return {
        "counts": counts,
        "mean": mean,
        "bounds": bounds or ("exponential", [len(counts) - 2, 2.0, 1.0]),
    }


def executions(device: int) -> Told:
    """As many of 4 to 8 ms as the number of the core, and one of 1 to 2 s."""
    counts = [0] * 30
    counts[13], counts[21] = device, 1
    mean = (device * 5000 + 1_500_000) / (device + 1)
    return distribution(counts, mean, "exponential", [28, 2.0, 1.0])


def host(
    generation: str, *, cores: range | None = None, old: bool = False, first: int = 0
) -> Told:
    """
    Return the data of a runtime that holds *cores*, all of a host by default.

    Args:
        generation: a key of `GENERATIONS`.
        cores: by their place on the host.
        old: an older libtpu.
        first: number of the first core: 0, or more on a later host.
    """
    _, _, per_chip, chips, size = GENERATIONS[generation]
    held = cores or range(chips * per_chip)
    each = [first + core for core in held]
    of_chips = [each[place] // per_chip for place in range(0, len(each), per_chip)]
    metrics = {
        MEMORY_TOTAL: [of_device(core, int=size) for core in each],
        MEMORY_USED: [of_device(core, int=(core - first + 1) << 28) for core in each],
        DUTY_CYCLE: [of_device(chip, double=12.5 * (chip % 8)) for chip in of_chips],
        BANDWIDTH: [of_device(core, double=2.0 * core) for core in each],
        IDLE: [of_device(core, double=0.25 * core) for core in each],
        UPTIME: [of_device(0, int=123)],
        QUEUE: [of_core(core, old=old, int=core) for core in each],
        EXECUTION: [
            of_core(core, old=old, distribution=executions(core)) for core in each
        ],
    }
    states = [
        {
            "id": core,
            "chip": core // per_chip,
            "core": core % per_chip,
            "program": 42,
            "run": 1000 + core,
            "counter": 100 + core,
            "queued": core % 3,
            "location": f"HLO: all-reduce.{core}; HloModule=jit_step",
        }
        for core in each
    ]
    return {"metrics": metrics, "states": states}


def multislice(told: Told) -> Told:
    """Return *told* with what a program on several slices adds."""
    sizes = ("0-8KB", "8MB+")
    latencies = [
        {
            "of": ["attributes", {"buffer-size": size}],
            "distribution": distribution([0, 1, 5, 3, 1, 0], 5.0),
        }
        for size in sizes
    ]
    return {
        **told,
        "metrics": {
            **told["metrics"],
            COLLECTIVE: latencies,
            **{TRANSFER.format(name): latencies for name in TRANSFERS},
            BYTES_SENT: [{"counter": 1 << 40}, {"counter": 2}],
            ERRORS: [{"counter": 3}],
            "tpu.runtime.ici_link_health": [of_device(0, int=0), of_device(1, int=7)],
            "tpu.runtime.tpu_throttle_score": [of_device(0, double=2.0)],
        },
    }
