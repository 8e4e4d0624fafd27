"""Device memory: allocator statistics, running out of it, and transfers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from jaxmon import catalog
from tests.helpers.agents import instrumented
from tools.silicon.findings import (
    Finding,
    ImpossibleError,
    Measured,
    between,
    near,
    same,
)
from tools.silicon.series import collected, marked, total


GIB = 1 << 30
MOVED = 64 << 20
TO_DEVICE, TO_HOST = 3, 2


def measure_memory(_place: Path) -> Measured:
    """Allocate 2 GiB, and read the agent, JAX and the driver before and after."""
    import jax
    import jax.numpy as jnp

    from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus

    device = jax.local_devices()[0]
    gpus = NvidiaGpus(interval=60)
    jnp.ones((1024,)).block_until_ready()
    driver = [total(collected(gpus), catalog.ACCELERATOR_MEMORY_USED_BYTES)]
    with instrumented() as agent:
        kept = jnp.ones((2 * GIB // 4,), jnp.float32).block_until_ready()
        agent.refresh()
        page = agent.collect()
        truth = device.memory_stats() or {}
    driver.append(total(collected(gpus), catalog.ACCELERATOR_MEMORY_USED_BYTES))
    gpus.close()
    size = kept.nbytes
    return {
        "in use": total(page, catalog.DEVICE_MEMORY_BYTES, kind="in_use", device=0),
        "in use, JAX": truth.get("bytes_in_use"),
        "peak": total(page, catalog.DEVICE_MEMORY_BYTES, kind="peak", device=0),
        "peak, JAX": truth.get("peak_bytes_in_use"),
        "limit": total(page, catalog.DEVICE_MEMORY_BYTES, kind="limit", device=0),
        "limit, JAX": truth.get("bytes_limit"),
        "allocations": total(page, catalog.DEVICE_ALLOCATIONS, device=0),
        "allocations, JAX": truth.get("num_allocs"),
        "live": total(page, catalog.LIVE_ARRAY_BYTES, device=0),
        "array": size,
        "driver": None if None in driver else driver[1] - driver[0],  # type: ignore[operator]
    }


def judge_memory(measured: Measured) -> Iterator[Finding]:
    """Expect JAX's own statistics, and the driver's growth by what was allocated."""
    for name in ("in use", "peak", "limit", "allocations"):
        yield near(name, measured[name], measured[f"{name}, JAX"], 0.001)
    yield near("live arrays", measured["live"], measured["array"], 0.01)
    size = measured["array"]
    yield between("growth of used memory, NVML", measured["driver"], size, 1.6 * size)


def measure_oom(place: Path) -> Measured:
    """Fill three fifths of the memory that JAX may use, and ask for as much again."""
    import jax
    import jax.numpy as jnp

    with instrumented(report_dir=str(place / "oom")) as agent:
        limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
        if not limit:
            msg = "JAX reports no limit of this device's memory"
            raise ImpossibleError(msg)
        count = int(limit * 0.6) // 4
        kept = jnp.ones((count,), jnp.float32)  # holds most
        little = jnp.ones((1024,), jnp.float32)

        def asks(x: jax.Array) -> jax.Array:
            return jnp.broadcast_to(x, (count,)) + 1

        error = ""
        try:
            jax.jit(asks)(little[0]).block_until_ready()
        except jax.errors.JaxRuntimeError as raised:
            error = str(raised)
        counted = total(agent.collect(), catalog.ERRORS, kind="oom")
    del kept
    reports = [json.loads(one.read_text()) for one in (place / "oom").glob("*.json")]
    lines = reports[0]["lines"].get("lines", []) if reports else []
    return {
        "error": error[:300],
        "counted": counted,
        "reports": len(reports),
        "holder": f"{Path(lines[0]['file']).name}:{lines[0]['line']}" if lines else "",
        "truth": marked(Path(__file__), "holds most"),
        "advice": reports[0]["advice"] if reports else [],
    }


def judge_oom(measured: Measured) -> Iterator[Finding]:
    """Expect a real failure, one report, and in it the line of the largest holder."""
    yield same("a real failure", "RESOURCE_EXHAUSTED" in measured["error"], truth=True)
    yield same("failures counted", measured["counted"], 1)
    yield same("reports written", measured["reports"], 1)
    yield same("largest holder", measured["holder"], measured["truth"])
    named = any(measured["truth"] in one for one in measured["advice"])
    yield Finding("named in the advice", str(named), "True", named)


def measure_transfers(_place: Path) -> Measured:
    """Move known arrays in both directions."""
    import jax
    import numpy as np

    add = jax.jit(lambda x: x + 1)
    with instrumented() as agent:
        hosts = [np.full((MOVED // 4,), i, np.float32) for i in range(TO_DEVICE)]
        there = [jax.device_put(one) for one in hosts]
        results = [add(one) for one in there[:TO_HOST]]
        back = [np.asarray(one) for one in results]
        right = all(one[0] == i + 1 for i, one in enumerate(back))
        page = agent.collect()
    moved, counts = catalog.HOST_TRANSFER_BYTES, catalog.HOST_TRANSFERS
    return {
        "right": right,
        **{
            f"{direction}, {name}": total(page, metric, direction=direction)
            for direction in catalog.TRANSFER_DIRECTIONS
            for name, metric in (("bytes", moved), ("count", counts))
        },
    }


def judge_transfers(measured: Measured) -> Iterator[Finding]:
    """Expect exactly the bytes that were moved."""
    yield same("results", measured["right"], truth=True)
    for direction, count in (
        ("host_to_device", TO_DEVICE),
        ("device_to_host", TO_HOST),
    ):
        yield same(direction, measured[f"{direction}, count"], count)
        ours = measured[f"{direction}, bytes"]
        yield near(f"{direction}, bytes", ours, count * MOVED, 0.0001)
