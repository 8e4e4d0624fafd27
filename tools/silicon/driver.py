"""Figures of the driver: against nvidia-smi, against a known load, by device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxmon import catalog
from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus
from jaxmon_exporter.collectors.nvidia.gpm import Gpm
from tests.helpers.agents import instrumented
from tools.silicon.findings import (
    Finding,
    ImpossibleError,
    Measured,
    between,
    figure,
    near,
    same,
)
from tools.silicon.series import collected, label, repeated, samples, total


SECONDS = 4.0
SIZE = 8192
SMI = "nvidia-smi"

_ACTIVITY = {
    "SM active": catalog.GPU_SM_ACTIVE_RATIO,
    "tensor active": catalog.GPU_TENSOR_ACTIVE_RATIO,
    "DRAM active": catalog.GPU_DRAM_ACTIVE_RATIO,
    "FP64 active": catalog.GPU_FP64_ACTIVE_RATIO,
}


def measure_smi(place: Path) -> Measured:
    """Run the comparison of all figures with nvidia-smi."""
    _require_smi()
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "tools/compare_smi.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (place / "compare_smi.md").write_text(done.stdout + done.stderr)
    table, _, complaints = done.stdout.partition("\n\n")
    compared = [row for row in table.splitlines() if row.count("/") and "GPU-" in row]
    return {
        "code": done.returncode,
        "compared": len(compared),
        "complaints": complaints.strip() or done.stderr.strip()[-500:],
    }


def judge_smi(measured: Measured) -> Iterator[Finding]:
    """Expect that each figure agreed at least once."""
    yield same("exit code of compare_smi", measured["code"], 0)
    yield between("figures compared", measured["compared"], 10, float("inf"))
    yield figure("complaints", measured["complaints"])


def measure_load(_place: Path) -> Measured:
    """Read activity, load and energy of a GPU that multiplies, and of an idle one."""
    import jax
    import jax.numpy as jnp

    gpus, gpm = NvidiaGpus(interval=60), Gpm()
    uuid = _uuid(gpus)
    factor = jnp.full((SIZE, SIZE), 1 / SIZE, jnp.bfloat16)
    multiply = jax.jit(lambda x: x @ factor)
    multiply(factor).block_until_ready()
    time.sleep(2)
    measured: dict[str, Any] = {}
    collected(gpm)
    time.sleep(SECONDS)
    idle = collected(gpm)
    with repeated(lambda: multiply(factor).block_until_ready()):
        time.sleep(1)
        collected(gpm)
        before, started = collected(gpus), time.monotonic()
        watts = []
        while time.monotonic() - started < SECONDS:
            now = collected(gpus)
            watts.append(total(now, catalog.GPU_POWER_INSTANT_WATTS, uuid=uuid))
            time.sleep(0.1)
        after, lasted = collected(gpus), time.monotonic() - started
        busy = collected(gpm)
    for name, metric in _ACTIVITY.items():
        measured[name] = total(busy, metric, uuid=uuid)
    measured["SM active, idle"] = total(idle, catalog.GPU_SM_ACTIVE_RATIO, uuid=uuid)
    measured["utilization"] = total(
        after, catalog.ACCELERATOR_UTILIZATION_RATIO, uuid=uuid
    )
    energy = [
        total(page, catalog.ACCELERATOR_ENERGY_JOULES, uuid=uuid)
        for page in (before, after)
    ]
    known = [one for one in watts if one is not None]
    measured["watts"] = sum(known) / len(known) if known else None
    measured["joules per second"] = (
        None if None in energy else (energy[1] - energy[0]) / lasted  # type: ignore[operator]
    )
    throttled = samples(after, catalog.GPU_CLOCK_EVENT_ACTIVE, uuid=uuid)
    measured["clock events"] = [
        label(series, catalog.GPU_CLOCK_EVENT_ACTIVE.labels[-1])
        for series, value in throttled.items()
        if value
    ]
    gpus.close()
    gpm.close()
    return measured


def judge_load(measured: Measured) -> Iterator[Finding]:
    """Expect what products in bfloat16 must show, and power times time as energy."""
    yield between("SM active under load", measured["SM active"], 0.6, 1)
    yield between("tensor cores active", measured["tensor active"], 0.2, 1)
    yield between("DRAM active", measured["DRAM active"], 0.01, 1)
    yield between("FP64 active, without any", measured["FP64 active"], 0, 0.05)
    yield between("SM active, idle", measured["SM active, idle"], 0, 0.1)
    yield between("utilization under load", measured["utilization"], 0.6, 1)
    yield near(
        "energy per second, mean power",
        measured["joules per second"],
        measured["watts"],
        0.2,
    )
    yield figure("clock events under load", measured["clock events"])


def measure_join(_place: Path) -> Measured:
    """Read the devices of this process, those of the sidecar, and who uses them."""
    import jax.numpy as jnp

    _require_smi()
    kept = jnp.ones((1 << 28,), jnp.float32).block_until_ready()
    with instrumented() as agent:
        agent.refresh()
        ours = samples(agent.collect(), catalog.DEVICE_INFO)
    gpus = NvidiaGpus(interval=60, processes=16)
    page = collected(gpus)
    gpus.close()
    rows = [
        [cell.strip() for cell in line.split(",")]
        for line in _smi("--query-compute-apps=pid,used_memory").splitlines()
    ]
    pid = str(os.getpid())
    listed = [row for row in rows if row[0] == pid and row[-1].isdecimal()]
    del kept
    return {
        "agent": sorted(label(one, "uuid") for one in ours),
        "sidecar": sorted(
            label(one, "uuid") for one in samples(page, catalog.ACCELERATOR_INFO)
        ),
        "nvidia-smi": sorted(_smi("--query-gpu=uuid").split()),
        "process memory": total(page, catalog.GPU_PROCESS_MEMORY_BYTES, pid=pid),
        "process memory, nvidia-smi": int(listed[0][1]) * 2**20 if listed else None,
        "pids": [row[0] for row in rows],
    }


def judge_join(measured: Measured) -> Iterator[Finding]:
    """Expect the same UUIDs everywhere, and the process where the driver lists it."""
    yield same("GPUs of the sidecar", measured["sidecar"], measured["nvidia-smi"])
    known = [one for one in measured["agent"] if one in measured["sidecar"]]
    yield same("devices of the process, joined", known, measured["agent"])
    yield between("devices of the process", len(known), 1, float("inf"))
    truth = measured["process memory, nvidia-smi"]
    if truth is None:
        yield figure("processes that nvidia-smi lists, not this one", measured["pids"])
        yield figure("memory of this process", measured["process memory"])
    else:
        yield near("memory of this process", measured["process memory"], truth, 0.01)


def _uuid(gpus: NvidiaGpus) -> str:
    with instrumented() as agent:
        agent.refresh()
        found = samples(agent.collect(), catalog.DEVICE_INFO)
    uuid = label(min(found), "uuid") if found else ""
    there = [
        label(one, "uuid") for one in samples(collected(gpus), catalog.ACCELERATOR_INFO)
    ]
    if len(there) == 1:
        return there[0]
    if uuid not in there:
        msg = f"NVML does not show the process's device {uuid!r}"
        raise ImpossibleError(msg)
    return uuid


def _require_smi() -> None:
    if shutil.which(SMI) is None:
        msg = "nvidia-smi is not installed"
        raise ImpossibleError(msg)


def _smi(query: str) -> str:
    command = [SMI, query, "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
