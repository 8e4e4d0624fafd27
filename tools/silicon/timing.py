"""Times: of executions, of what jaxmon adds to them, by line, and of their FLOPs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxmon import catalog
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
from tools.silicon.series import label, marked, repeated, samples, total


# Enough for a GPU to take milliseconds, and for a CPU not to take minutes.
SIZES = {"gpu": (8192, 10), "cpu": (512, 4)}
CALLS, SAMPLES, MOST_SECONDS = 40, 20, 30
# Dense FLOP/s in bfloat16, from NVIDIA's data sheets.
PEAKS = {"NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H200": 989.4e12}


def multiply(x: Any, factor: Any, repeats: int) -> Any:
    """Multiply *x* by *factor* so often."""
    import jax

    return jax.lax.fori_loop(
        0,
        repeats,
        lambda _, y: y @ factor,  # multiplies
        x,
    )


def measure_execution(_place: Path) -> Measured:
    """Time a loop of known products by its blocked end, beside the agent's samples."""
    import jax
    import jax.numpy as jnp

    device = jax.local_devices()[0]
    size, repeats = SIZES.get(device.platform, SIZES["cpu"])
    x = jnp.full((size, size), 1 / size, jnp.bfloat16)
    truth: list[float] = []
    name = f"{multiply.__module__}.{multiply.__qualname__}"
    count, deadline = None, time.monotonic() + MOST_SECONDS
    with instrumented(sample_rate=50) as agent:
        jitted = jax.jit(multiply, static_argnums=2)
        jitted(x, x, repeats).block_until_ready()
        while (count or 0) < SAMPLES and time.monotonic() < deadline:
            started, y = time.perf_counter(), x
            for _ in range(CALLS):
                y = jitted(y, x, repeats)
            y.block_until_ready()
            truth.append((time.perf_counter() - started) / CALLS)
            page = agent.collect()
            count = total(page, catalog.EXECUTION_SECONDS, "_count", function=name)
        _settle(agent)
        page = agent.collect()
    if count is None and device.platform == "cpu":
        msg = "too few processors: jaxmon exports no execution times (docs/time.md)"
        raise ImpossibleError(msg)
    calls = len(truth) * CALLS + 1
    spent = total(page, catalog.EXECUTION_SECONDS, "_sum", function=name)
    count = total(page, catalog.EXECUTION_SECONDS, "_count", function=name)
    of = {"function": name, "work": "model"}
    return {
        "device": device.device_kind,
        "samples": count,
        "seconds": spent / count if spent and count else None,
        "seconds, blocked": sorted(truth)[len(truth) // 2],
        "calls": total(page, catalog.JIT_CALLS, function=name),
        "calls, made": calls,
        "flops": total(page, catalog.FLOPS, **of),
        "flops, by hand": calls * repeats * 2.0 * size**3,
        "ideal seconds": total(page, catalog.IDEAL_SECONDS, **of),
        "peak": total(page, catalog.DEVICE_PEAK_FLOPS, format="bf16"),
        "peak, data sheet": PEAKS.get(device.device_kind),
    }


def judge_execution(measured: Measured) -> Iterator[Finding]:
    """Expect the blocked time, FLOPs by hand, and an MFU from the data sheet."""
    yield figure("device", measured["device"])
    yield between("samples", measured["samples"], 4, float("inf"))
    truth = measured["seconds, blocked"]
    yield near("seconds per execution", measured["seconds"], truth, 0.15)
    yield same("calls", measured["calls"], measured["calls, made"])
    flops = measured["flops, by hand"]
    yield near("FLOPs", measured["flops"], flops, 1e-6)
    achieved = flops / measured["calls, made"] / truth
    yield figure("achieved TFLOP/s", achieved / 1e12)
    peak = measured["peak, data sheet"]
    if peak is None:
        yield figure("peak FLOP/s of this device", measured["peak"])
        return
    yield near("peak FLOP/s", measured["peak"], peak, 0.001)
    yield near("ideal seconds", measured["ideal seconds"], flops / peak, 0.001)
    yield between("MFU", achieved / peak, 0.2, 1)


def _settle(agent: Any) -> None:
    """Wait until the agent's threads have dealt with the last calls."""
    deadline, before = time.monotonic() + 20, None
    while time.monotonic() < deadline:
        now = {
            family.metric.name: family.samples
            for family in agent.collect()
            if family.metric in (catalog.EXECUTION_SECONDS, catalog.FLOPS)
        }
        if now == before and catalog.FLOPS.name in now:
            return
        before = now
        time.sleep(1)


def measure_overhead(place: Path) -> Measured:
    """Run the benchmarks of calls, sampling and transfers on JAX's default device."""
    import jax

    platform = jax.default_backend()
    path = place / "benchmarks.json"
    command = [sys.executable, "-m", "benchmarks", "calls", "sampling", "transfers"]
    environ = {**os.environ, "JAX_PLATFORMS": {"gpu": "cuda"}.get(platform, platform)}
    command += ["--json", str(path)]
    subprocess.run(command, env=environ, check=True)
    found = json.loads(path.read_text())["benchmarks"]
    return {
        "platform": platform,
        "rows": [row for one in found.values() for row in one],
    }


def judge_overhead(measured: Measured) -> Iterator[Finding]:
    """Expect that the goals of the benchmarks are met."""
    yield figure("platform", measured["platform"])
    for row in measured["rows"]:
        goals = [
            f"{sign} {row[name]:g}"
            for name, sign in (("at_most", "≤"), ("at_least", "≥"))
            if row[name] is not None
        ]
        ours = f"{row['value']:.5g} {row['unit']}"
        yield Finding(row["name"].strip(), ours, " ".join(goals), row["met"])


def measure_profile(place: Path) -> Measured:
    """Profile a process that multiplies without a pause, by its command."""
    import jax
    import jax.numpy as jnp

    size, repeats = SIZES.get(jax.default_backend(), SIZES["cpu"])
    x = jnp.full((size, size), 1 / size, jnp.bfloat16)
    with instrumented(socket=True, profile_gpu=True):
        jitted = jax.jit(multiply, static_argnums=2)
        jitted(x, x, repeats).block_until_ready()
        started = time.perf_counter()
        for _ in range(10):
            jitted(x, x, repeats).block_until_ready()
        blocked = (time.perf_counter() - started) / 10
        command = [sys.executable, "-m", "jaxmon", "profile", str(os.getpid())]
        command += ["--seconds=2", "--json", f"--out={place / 'profile'}"]
        with repeated(lambda: jitted(x, x, repeats).block_until_ready()):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
    (place / "profile.json").write_text(done.stdout)
    if done.returncode:
        return {"code": done.returncode, "error": done.stderr.strip()[-500:]}
    found = json.loads(done.stdout)
    first = found["operations"][0] if found["operations"] else {}
    where = f"{Path(first['file']).name}:{first['line']}" if first.get("file") else ""
    return {
        "code": 0,
        "recorded": found["recorded"],
        "busy": found["busy"],
        "located": found["located"],
        "line": where,
        "truth": marked(Path(__file__), "multiplies"),
        "seconds per product": first["seconds"] / first["count"] if first else None,
        "blocked": blocked / repeats,
        "parallel": jax.default_backend() != "cpu",
    }


def judge_profile(measured: Measured) -> Iterator[Finding]:
    """Expect the line of the products, their blocked time, and a busy device."""
    yield same("exit code of jaxmon profile", measured["code"], 0)
    if measured["code"]:
        yield Finding("what it says", measured["error"], "", right=False)
        return
    yield between("recorded seconds", measured["recorded"], 1.8, 4)
    yield between("busy", measured["busy"], 0.7, 1.01)
    yield between("located", measured["located"], 0.9, 1.001)
    yield same("line with most time", measured["line"], measured["truth"])
    each, truth = measured["seconds per product"], measured["blocked"]
    yield near("seconds per product", each, truth, 0.2)


def measure_replay(_place: Path) -> Measured:
    """Train with a donated state, re-running sampled calls, and once more without."""
    import jax
    import jax.numpy as jnp

    def step(state: Any, batch: Any) -> Any:
        return jax.tree.map(lambda w: w - 0.01 * jnp.tanh(batch @ w), state)

    size = 512
    batch = jnp.full((size, size), 1 / size)
    checks: dict[str, float] = {}
    steps, deadline = 0, time.monotonic() + 60
    with instrumented(shadow_interval=0.1, sample_rate=50) as agent:
        jitted = jax.jit(step, donate_argnums=0)
        state = {"a": jnp.ones((size, size)), "b": jnp.ones((size, 8))}
        while time.monotonic() < deadline and sum(checks.values()) < 3:  # noqa: PLR2004
            for _ in range(50):
                state = jitted(state, batch)
            steps += 50
            jax.block_until_ready(state)
            checks = {
                label(series, "outcome"): value
                for series, value in samples(
                    agent.collect(), catalog.DETERMINISM_CHECKS
                ).items()
            }
    plain = jax.jit(step, donate_argnums=0)
    other = {"a": jnp.ones((size, size)), "b": jnp.ones((size, 8))}
    for _ in range(steps):
        other = plain(other, batch)
    equal = all(bool((state[name] == other[name]).all()) for name in state)
    return {"steps": steps, "checks": checks, "equal": equal}


def judge_replay(measured: Measured) -> Iterator[Finding]:
    """Expect re-runs, none of which deviates, and the results of a run without."""
    checks = measured["checks"]
    yield figure("steps", measured["steps"])
    yield between("re-runs that agree", checks.get("passed", 0), 3, float("inf"))
    yield same("re-runs that deviate", checks.get("failed", 0), 0)
    yield same("results as without re-runs", measured["equal"], truth=True)
