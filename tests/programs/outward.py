"""
A program that does a little of all that jaxmon reports, always in the same order.

Its arguments are a directory of its own and the address of its coordinator. Prints its
endpoint, and what of jaxmon is loaded and runs on the way, and waits for its stdin to
close.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon


DIRECTORY, ADDRESS = Path(sys.argv[1]), sys.argv[2]
# Other threads find these out: what samples show, what XLA compiled, how large the
# cache is, and what the run's time went to. Each with the least value.
AWAITED = {
    'jaxmon_execution_seconds_count{function="__main__.scale"': 5,
    'jaxmon_nonfinite_outputs{name="__main__.scale_more"': 1,
    'jaxmon_programs_total{function="__main__.scale"': 3,
    "jaxmon_persistent_cache_entries": 0,
    "jaxmon_run_seconds_total{": 0,
}
BATCH = np.ones((4, 4), np.float32)


def modules() -> int:
    """Return how many modules of ours are loaded."""
    return sum(name.partition(".")[0] == "jaxmon" for name in list(sys.modules))


def missing() -> list[str]:
    """Return what is awaited and not there, after two more calls that are sampled."""
    scale(BATCH)
    scale_more(np.nan * BATCH)
    agent.refresh()
    samples = [one for family in agent.collect() for one in family.samples]
    return [
        name
        for name, least in AWAITED.items()
        if not any(one.startswith(name) and value >= least for one, value in samples)
    ]


loaded: dict[str, Any] = {"modules after import": modules()}
agent = jaxmon.instrument(port=0, peak_flops=1e11, sample_rate=100.0, run="golden")
loaded["modules after instrument"] = modules()
from jaxmon import threads  # noqa: E402 - loaded by now


loaded["threads after instrument"] = sorted(one.name for one in threads.running())

# Only now, as the modules have been counted.
import orbax.checkpoint as ocp  # noqa: E402 - see above

from tests.helpers.processes import until  # noqa: E402 - likewise


jax.config.update("jax_compilation_cache_dir", str(DIRECTORY / "cache"))
# All are cached. Else, fast ones bring advice if a busy machine makes them slow.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.distributed.initialize(ADDRESS, num_processes=1, process_id=0)


@jax.jit
def scale(x):
    return (x @ x.T).sum() * 2


@jax.jit
def scale_more(x):
    return x.sum() * 3


@jax.jit
def refuse(x):
    msg = "refused"
    raise ValueError(msg)


scale(BATCH)
loaded["threads after a compile"] = sorted(one.name for one in threads.running())

for size in jaxmon.steps([4, 4, 5], items=int):
    jaxmon.log_values({"loss": scale(np.ones((size, size), np.float32))})
for function, size in ((scale, 4), (scale, 6), (refuse, 4)):
    with suppress(ValueError), jaxmon.request("predict"):
        np.asarray(function(np.ones((size, size), np.float32)))
with jaxmon.activity("save"):
    state = {"weights": jax.device_put(BATCH)}
    ocp.Checkpointer(ocp.StandardCheckpointHandler()).save(DIRECTORY / "state", state)
jaxmon.queue("predict").set(3)
jaxmon.batch("predict", size=5, capacity=8)
scale_more(BATCH)  # finite once
kept = [jnp.ones((64, 64)) for _ in range(3)]
# Not left, so that there is what only a running loop has.
unfinished = iter(jaxmon.steps([1, 2], loop="evaluate"))
next(unfinished)
until(lambda: not missing(), "what other threads find out")
agent.refresh()
print(json.dumps({"url": agent.url, "loaded": loaded}), flush=True)
sys.stdin.read()
