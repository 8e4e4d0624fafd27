"""
A step over a batch on four devices that reads its result seldom: ``whole`` on each of
them, or ``divided`` among them. Prints what is found about it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.limits.shared import current
from jaxmon.symptoms.findings import find, verdict


AGENT = jaxmon.instrument(port=None, socket=False, report=False)

import jax  # noqa: E402 - the agent comes first, as in `jaxmon run`
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


SECONDS = 6.0
READ_EVERY = 20


def update(batch: Any, weights: Any) -> Any:
    # Nothing is exchanged: a few processors could not serve that of many queued calls.
    batch = jnp.tanh(batch @ weights)
    return batch, batch[:, 0]


def main() -> None:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    spec = PartitionSpec("data" if "divided" in sys.argv else None)
    batch = np.ones((8192, 512), np.float32)
    batch = jax.device_put(batch, NamedSharding(mesh, spec))
    same = NamedSharding(mesh, PartitionSpec())
    weights = jax.device_put(np.ones((512, 512), np.float32), same)
    step = jax.jit(update)
    end, turn = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        batch, first = step(batch, weights)
        turn += 1
        if turn % READ_EVERY == 0:
            np.asarray(first)
    runtime = runtime_of(AGENT)
    assert runtime is not None
    runtime.refresh()
    snapshot = runtime.overview.judged_by(current())
    [step] = [of for of in snapshot.users if of.name.endswith("update")]
    findings = find(snapshot)
    document = {
        "verdicts": {of.topic: of.verdict for of in findings},
        "quiet": bool(verdict(findings)),
        "execution": step.samples.execution_mean,
        "each": SECONDS / turn,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
