"""
A training that saves checkpoints, dies, and continues from the latest.

Arguments: a directory, the number of steps of the whole run, the number of this
process, how many there are, the address of their coordinator, ``orbax`` or ``numpy``,
and at which step it raises an exception, 0 for none; with a minus, it handles that and
exits with an error. In the directory are checkpoints, the record of the run, and the
file ``truth``: what process 0 does, one line of JSON for each event, with the time by
the clock that cannot be set.

On SIGTERM it saves, and exits in order.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmon


directory, total = Path(sys.argv[1]), int(sys.argv[2])
rank, count, coordinator, library = int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:7]
raises_at = int(sys.argv[7])

EVERY = 8
PAUSE, LOADING, SAVING, RESTORING = 0.03, 0.01, 0.05, 0.1
asked: list[int] = []


def note(what: str, **more: Any) -> None:
    if rank == 0:
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        line = json.dumps({"what": what, "at": at, **more}) + "\n"
        os.write(truth, line.encode())


@contextmanager
def noted(what: str) -> Iterator[None]:
    note(f"{what} begins")
    yield
    note(f"{what} ends")


def on_duration(event: str, seconds: float, **_: Any) -> None:
    if event.startswith("/jax/core/compile/"):
        note("compile", seconds=seconds, traced="backend" not in event)


def batches(done: int) -> Iterator[int]:
    for number in range(done + 1, total + 1):
        note("step", number=number)
        with noted("data"):
            time.sleep(LOADING)
        yield number
    note("step", number=total + 1)


class NumpyCheckpoints:
    """Files of our own, which are marked."""

    def __init__(self) -> None:
        self.path = directory / "checkpoint.npz"

    def restore(self) -> tuple[Any, int]:
        if not self.path.exists():
            return np.zeros(8, np.float32), 0
        with noted("restore"), jaxmon.activity("restore"):
            time.sleep(RESTORING)
            found = np.load(self.path)
            return found["x"], int(found["step"])

    def save(self, x: Any, step: int) -> None:
        if rank:
            return
        with noted("checkpoint"), jaxmon.activity("checkpoint"):
            time.sleep(SAVING)
            part = self.path.with_name("part.npz")
            np.savez(part, x=np.asarray(x), step=step)
            part.replace(self.path)


class OrbaxCheckpoints:
    """Orbax's, which are not marked."""

    def __init__(self) -> None:
        import orbax.checkpoint as ocp

        options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
        self.args = ocp.args
        self.manager = ocp.CheckpointManager(directory / "orbax", options=options)

    def restore(self) -> tuple[Any, int]:
        step = self.manager.latest_step()
        if step is None:
            return np.zeros(8, np.float32), 0
        with noted("restore"):
            shape = np.zeros(8, np.float32)
            found = self.manager.restore(step, args=self.args.StandardRestore(shape))
            return found, step

    def save(self, x: Any, step: int) -> None:
        with noted("checkpoint"):
            self.manager.save(step, args=self.args.StandardSave(np.asarray(x)))


train_step: Any = jax.jit(lambda x: x * 0.999 + 1.0)


def main() -> None:
    if count > 1:
        jax.distributed.initialize(coordinator, count, rank)
    # In a job of several, JAX takes it for itself before.
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    jax.devices()
    jax.monitoring.register_event_duration_secs_listener(on_duration)
    saver = OrbaxCheckpoints() if library == "orbax" else NumpyCheckpoints()
    x, done = saver.restore()
    for number in jaxmon.steps(batches(done), start=done):
        x = train_step(x).block_until_ready()
        time.sleep(PAUSE)
        if number == abs(raises_at):
            note("leaves")
            msg = "the loss is not finite"
            raise RuntimeError(msg)
        if number % EVERY == 0 or asked:
            saver.save(x, number)
        if asked:
            note("leaves")
            sys.exit(0)


if __name__ == "__main__":
    truth = os.open(directory / "truth", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    agent = jaxmon.instrument(
        run="train",
        run_state=directory / "state",
        run_interval=0.1,
        port=None,
        socket=False,
    )
    note("main")
    try:
        main()
    except RuntimeError:
        if raises_at >= 0:
            raise
        sys.exit(1)
    note("end")
    if rank == 0:
        from tests.helpers.agents import samples

        page = samples(agent)
        (directory / "page").write_text(json.dumps(page))
