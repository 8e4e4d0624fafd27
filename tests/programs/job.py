"""
A job of several processes on the CPU, which train together until something goes wrong.

Arguments: the coordinator's address, the number of processes, how many steps they do (0
for no end), and a directory with a run directory ``host-N`` for each of the hosts that
they pretend to be on, two. The file ``fault`` in it says what goes wrong: a rank and
words, such as ``3 loader``; if it is empty, or missing, all get on. The file
``setup-N`` sets up rank N in another way. Prints the number of each process.

If the fifth argument is not empty, they train as it says, and one may be slower:
``async`` dispatches and goes on, ``sync`` waits for the loss of each step, and
``bound`` has devices that are always busy. For each step rank N writes a line to the
file ``idles-N``: whether its device had finished everything before. With ``barrier``
they wait for each other after each tenth step.

The processes are forks of this one, which has not used JAX.
"""

import os
import queue
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmon


address, count, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
directory = Path(sys.argv[4])
how = sys.argv[5]

PAUSE = 0.1
LOAD, MORE = (0.01, 0.02) if how == "bound" else (0.12, 0.08)
LOOPS, MORE_LOOPS = 20_000, 700
SIZE = 192


class Rank:
    """One of the processes."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.spread = NamedSharding(mesh, PartitionSpec("data"))
        self.everywhere = NamedSharding(mesh, PartitionSpec())
        whole = np.ones((count, 4), np.float32)
        self.data = jax.make_array_from_callback(
            whole.shape, self.spread, lambda part: whole[part]
        )
        self.lock = threading.Lock()
        self.ends = {
            "raises": self.raises,
            "exits": self.exits,
            "full": self.save,
            "oom": self.allocates,
        }

    def suffers(self, fault):
        """Return whether *fault* is on, and meant for this rank."""
        try:
            said = (directory / "fault").read_text()
        except FileNotFoundError:
            return False
        return said.split(maxsplit=1) == [str(self.rank), fault]

    def load_batches(self):
        while True:
            while self.suffers("loader"):
                time.sleep(0.2)  # here: loader
            if self.suffers("prefetch"):
                self.waits_for_thread()
            time.sleep(PAUSE)
            yield self.data

    def waits_for_thread(self):
        items = queue.Queue[int]()
        threading.Thread(target=self.reads, name="prefetch").start()
        while self.suffers("prefetch"):
            with suppress(queue.Empty):
                items.get(timeout=0.2)  # here: prefetch

    def reads(self):
        msg = "record 7 is corrupt"
        raise ValueError(msg)  # here: reads

    def sleeps(self):
        while self.suffers("asleep"):
            time.sleep(1.0)  # here: asleep

    def waits_for_lock(self):
        held = threading.Event()
        holder = threading.Thread(target=self.hold, args=(held,))
        holder.start()
        held.wait()
        with self.lock:  # here: lock
            pass
        holder.join()

    def hold(self, held):
        with self.lock:
            held.set()
            while self.suffers("lock"):
                time.sleep(PAUSE)

    def compiles(self):
        @jax.jit
        def slow_to_trace(x):
            while self.suffers("compile"):
                time.sleep(0.2)  # here: compile
            return x + 1

        slow_to_trace(np.float32(1))

    def raises(self):
        msg = "loss is not finite"
        raise ValueError(msg)  # here: raises

    def exits(self):
        sys.exit(3)  # here: exits

    def save(self):
        with Path("/dev/full").open("wb", buffering=0) as checkpoint:
            checkpoint.write(b"weights")  # here: full

    def allocates(self):
        jnp.ones((1 << 44,), jnp.float32).block_until_ready()  # here: oom

    def dies(self):
        """Do what ends this process, if it is meant to."""
        for fault, way in self.ends.items():
            if self.suffers(fault):
                way()

    def train(self):
        @jax.jit
        def train_step(weights, batch):
            return weights + 1e-3 * (batch * weights).mean()

        # Gathers what `train_step` reduces: these do not match by chance.
        @partial(jax.jit, out_shardings=self.everywhere)
        def evaluate(weights, batch):
            return batch - weights

        weights = jax.device_put(jnp.float32(1), self.everywhere)
        batches = islice(self.load_batches(), steps or None)
        for number, batch in enumerate(jaxmon.steps(batches)):
            if self.suffers("asleep"):
                self.sleeps()
            if self.suffers("lock"):
                self.waits_for_lock()
            if self.suffers("compile"):
                self.compiles()
            if self.suffers("slow"):
                time.sleep(1.5)  # here: slow
            self.dies()
            if self.suffers("branch"):
                evaluate(weights, batch).block_until_ready()  # here: branch
            weights = train_step(weights, batch)
            if number == 10:
                print("ready", self.rank, flush=True)


class Meeting(Rank):
    """One of the processes of a job in which all wait for each other now and then."""

    def answer(self, x):
        while self.suffers("callback"):
            time.sleep(0.2)  # here: callback
        return x

    def train(self):
        @jax.jit
        def train_step(weights, batch):
            return weights + 1e-3 * (batch * weights).mean()

        @jax.jit
        def look_up(x):
            return jax.pure_callback(self.answer, x, x)

        @jax.jit
        def spin(x):
            return jax.lax.while_loop(lambda x: x < 2, jnp.sin, x)

        weights = jax.device_put(jnp.float32(1), self.everywhere)
        batches = islice(self.load_batches(), steps or None)
        for number, batch in enumerate(jaxmon.steps(batches)):
            weights = train_step(weights, batch)
            if self.suffers("callback"):
                look_up(np.float32(1)).block_until_ready()
            if self.suffers("spins"):
                spin(1.0).block_until_ready()  # here: spins
            if number % 10 == 9:
                while self.suffers("absent"):
                    time.sleep(1.0)  # here: absent
                multihost_utils.sync_global_devices(f"step {number}")  # here: barrier
            if number == 20:
                print("ready", self.rank, flush=True)


class Straggling(Rank):
    """
    One of the processes of a job whose steps take a seventh of a second, and which one
    of them may make longer.

    Each loads a batch, works on it in Python, and on its own device, before all train
    with it.
    """

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.busy: threading.Thread | None = None
        self.local = jnp.ones((SIZE, SIZE)) / SIZE
        self.large = np.ones((1 << 20,), np.float32)
        self.has_begun = False
        self.acts = {
            "more python": self.adds,
            "more compile": self.compiles_anew,
            "more transfer": self.copies,
        }

    def suffers(self, fault):
        """Return whether *fault* is on; write down when it is for the first time."""
        found = super().suffers(fault)
        if found and not self.has_begun:
            self.has_begun = True
            part = directory / "began.part"
            part.write_text(str(time.monotonic()))
            part.rename(directory / "began")
        return found

    def load_batches(self):
        while True:
            time.sleep(LOAD)
            if self.suffers("more loader"):
                time.sleep(MORE)  # here: more loader
            yield self.local

    def works(self):
        """Work in Python for a few milliseconds."""
        total = 0
        for number in range(LOOPS):
            total += number
        if self.suffers("more sleep"):
            time.sleep(MORE)  # here: more sleep
        for fault, act in self.acts.items():
            end = time.monotonic() + MORE
            while self.suffers(fault) and time.monotonic() < end:
                act()
        if self.suffers("more gil") and self.busy is None:
            self.busy = threading.Thread(target=self.holds)
            self.busy.start()

    def adds(self):
        sum([number * number for number in range(20_000)])  # here: more python

    def compiles_anew(self):
        jax.jit(lambda x: x + 1)(np.float32(1))  # here: more compile

    def copies(self):
        jax.device_put(self.large, may_alias=False)  # here: more transfer

    def holds(self):
        while self.suffers("more gil"):
            sum(range(200_000))

    def train(self):
        rounds = 60 if how == "bound" else 2

        @jax.jit
        def preprocess(x, times, after):
            return jax.lax.fori_loop(0, times, lambda _, y: y @ x, x + 0 * after)

        @jax.jit
        def train_step(weights, batch):
            work = jax.lax.fori_loop(
                0, rounds, lambda _, y: (y @ y) / jnp.abs(y).max(), batch[0]
            )
            return weights + 1e-3 * (batch * weights).mean() + 0 * work.sum()

        weights = jax.device_put(jnp.float32(1), self.everywhere)
        batches = islice(self.load_batches(), steps or None)
        shape = (jax.process_count(), SIZE, SIZE)
        spread = partial(jax.make_array_from_single_device_arrays, shape, self.spread)
        idles = (directory / f"idles-{self.rank}").open("w", buffering=1)
        for number, loaded in enumerate(jaxmon.steps(batches)):
            self.works()
            times = np.int32(MORE_LOOPS if self.suffers("more compute") else 2)
            idles.write(f"{weights.is_ready():d}\n")
            # One program after the other, as on an accelerator.
            batch = preprocess(loaded, times, weights.addressable_data(0))
            weights = train_step(weights, spread([batch[None]]))
            if how == "sync":
                float(weights)
            if number == 10:
                print("ready", self.rank, flush=True)


def set_up(rank):
    """Do as the file ``setup-N`` says, if there is one: lines of name and value."""
    try:
        lines = (directory / f"setup-{rank}").read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        name, value = line.split(" ", 1)
        if name.startswith("jax_"):
            number = isinstance(getattr(jax.config, name), float)
            jax.config.update(name, float(value) if number else value)
        else:
            os.environ[name] = value


def main(rank):
    os.environ["JAXMON_RUN_DIR"] = str(directory / f"host-{rank * 2 // count}")
    set_up(rank)
    jaxmon.instrument(port=None)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, count, rank)
    kinds = {"": Rank, "barrier": Meeting}
    kinds.get(how, Straggling)(rank).train()


def fork():
    """Return the number of this process as a rank, `None` in the one that waits."""
    pids = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            return rank
        pids.append(pid)
    print("pids", *pids, flush=True)
    for pid in pids:
        os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    own = fork()
    if own is not None:
        main(own)
