"""
A training loop whose figures go to four trackers at once.

Prints, as JSON, what the page said at each step and what the function got.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mlflow
import wandb
from tensorboard.summary import Writer

import jaxmon
from tests.helpers.agents import SILENT, samples


DIRECTORY = Path(sys.argv[1])
AGENT = jaxmon.instrument(**SILENT)
STEPS, EVERY, START = 12, 3, 1000

waited: list[float] = [0.0]
pages: dict[int, dict[str, float]] = {}
rows: list[tuple[int, dict[str, Any]]] = []


def batches() -> Iterator[int]:
    """Yield the number of each step, and keep books of the waiting."""
    for number in range(STEPS + 1):
        began = time.perf_counter()
        time.sleep(0.005)
        waited.append(waited[-1] + time.perf_counter() - began)
        yield number


def main() -> None:
    step = jax.jit(lambda x: jnp.tanh(x).sum())
    run = wandb.init(mode="offline", dir=DIRECTORY, project="test")
    # The small MLflow has no other store that needs no server.
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow.set_tracking_uri(f"file://{DIRECTORY}/mlflow")
    mlflow.set_experiment("test")
    active = mlflow.start_run()
    writer = Writer(str(DIRECTORY / "tensorboard"))
    for target in (run, mlflow, writer, lambda values, n: rows.append((n, values))):
        jaxmon.log_to(target, every=EVERY, start=START, step_flops=3e9, peak_flops=1e12)
    for number in jaxmon.steps(batches()):
        if number and number % EVERY == 0:
            pages[START + number] = samples(AGENT)
            # What the program logs itself, by steps of its own.
            run.log({"loss": 1.0 / number}, step=number)
        time.sleep(0.01)
        step(jnp.ones(8 + number // 6)).block_until_ready()
    jaxmon.uninstrument()
    run.finish()
    mlflow.end_run()
    writer.close()
    found = {"pages": pages, "rows": rows, "waited": waited}
    print(json.dumps({**found, "run": active.info.run_id, "wandb": run.dir}))


main()
