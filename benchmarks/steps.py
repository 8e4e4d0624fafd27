"""
What jaxmon costs a whole program: wall and processor time of its steps, and memory.

Programs with and without jaxmon take turns of half a second, so that what slows the
machine slows both. A step is one cached call, whose loss is read. As two processes of
one program already differ by some percent, there are several pairs, and the processor
time of the agent's threads is measured apart.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from operator import sub
from pathlib import Path
from socket import create_server
from time import perf_counter, process_time
from typing import Any, NamedTuple, Self

from benchmarks.background import WARM_UP, used
from benchmarks.rows import Row
from jaxmon.host.resources.process import resident_bytes


TURN_SECONDS = 0.5
PAIRS, TURNS = 3, 12
SIZE = 64
# Milliseconds of a step, and how many processes take it together.
CASES = ((1, 1), (20, 1), (20, 2))
_BARE, _WATCHED = "bare", "watched"
_CALIBRATION, _CALLS = 500, 100
# One thread computes: a known piece of work, and a processor left for the agent's.
_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_MEGABYTE = 1e6
_TOOK = "took"


class Turn(NamedTuple):
    """Seconds of a step, those of the agent's threads apart; a mean of processes."""

    wall: float
    processor: float
    threads: float


def measure() -> list[Row]:
    """Return what is added to steps of each length, and to the size of a process."""
    with Group(_BARE, _CALIBRATION, 1) as probe:
        # The shortest is what it takes without other load.
        each = min(probe.take(1).processor for _ in range(_CALLS)) / _CALIBRATION
    rows = list[Row]()
    for milliseconds, processes in CASES:
        iterations = max(round(milliseconds / 1e3 / each), 1)
        rows += _compared(milliseconds, processes, iterations)
    return rows


def _compared(milliseconds: int, processes: int, iterations: int) -> Iterable[Row]:
    steps = max(round(TURN_SECONDS * 1e3 / milliseconds), 1)
    turns: dict[Group, list[Turn]] = {}
    with ExitStack() as stack:
        groups = [
            stack.enter_context(Group(kind, iterations, processes))
            for kind in (_BARE, _WATCHED) * PAIRS
        ]
        began = perf_counter()
        while perf_counter() - began < WARM_UP:
            for group in groups:
                group.take(steps)
        for turn in range(TURNS):
            for group in groups if turn % 2 else reversed(groups):
                turns.setdefault(group, []).append(group.take(steps))
        sizes = [group.resident() for group in groups]
    of = f"step of {milliseconds} ms" + (f", {processes} processes" * (processes > 1))
    means = [
        Turn(*map(statistics.median, zip(*turns[group], strict=True)))
        for group in groups
    ]
    pairs = list(zip(means[::2], means[1::2], strict=True))
    for name in ("wall", "processor"):
        usual = statistics.median(getattr(bare, name) for bare, _ in pairs)
        more = [getattr(ours, name) - getattr(bare, name) for bare, ours in pairs]
        yield Row(
            f"added to a {of}: {name} time",
            statistics.median(more) * 1e6,
            "µs",
            note=f"{statistics.median(more) / usual:.2%} of {usual * 1e3:.3f} ms; "
            f"pairs {min(more) / usual:.2%} to {max(more) / usual:.2%}",
        )
    wall = statistics.median(ours.wall for _, ours in pairs)
    threads = statistics.median(ours.threads for _, ours in pairs)
    yield Row(
        "  processor time of the agent's threads",
        threads * 1e6,
        "µs",
        note=f"{threads / wall:.2%} of a core",
    )
    yield Row(
        "  resident memory",
        statistics.median(map(sub, sizes[1::2], sizes[::2])) / _MEGABYTE,
        "MB",
        note=f"added to {statistics.median(sizes[::2]) / _MEGABYTE:.0f} MB",
    )


class Group:
    """
    Processes that take steps together when they are asked to.

    Args:
        kind: whether they are watched.
        iterations: how much work a step is.
        processes: how many they are.
    """

    def __init__(self, kind: str, iterations: int, processes: int) -> None:
        self._stack = ExitStack()
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        environ = {**os.environ, "JAXMON_RUN_DIR": directory, "XLA_FLAGS": _FLAGS}
        command = [sys.executable, "-m", __spec__.name, kind, str(iterations)]
        command += [_address(), str(processes)]
        self._members = [_Member([*command, str(n)], environ) for n in range(processes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # They end together: the last to leave a job is waited for.
        for one in self._members:
            one.dismiss()
        for one in self._members:
            one.wait()
        self._stack.close()

    def take(self, steps: int) -> Turn:
        """Take so many *steps*, and return how long each took."""
        for one in self._members:
            one.ask(steps)
        found = [[seconds / steps for seconds in one.reply()] for one in self._members]
        return Turn(*map(statistics.fmean, zip(*found, strict=True)))

    def resident(self) -> float:
        """Return the mean size of the processes, in bytes."""
        return statistics.fmean(
            [resident_bytes(Path(f"/proc/{one.pid}")) or 0 for one in self._members]
        )


class _Member:
    """A process that takes steps."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        theirs, self._asked = os.pipe()
        said, ours = os.pipe()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=ours, env=environ
        )
        os.close(theirs)
        os.close(ours)
        self._said = os.fdopen(said)
        self.pid = self._process.pid

    def ask(self, steps: int) -> None:
        os.write(self._asked, f"{steps}\n".encode())

    def reply(self) -> list[float]:
        """Return the seconds of the steps, as in a `Turn`."""
        # Libraries print, too.
        for line in self._said:
            if line.startswith(_TOOK):
                return [float(word) for word in line.split()[1:]]
        msg = f"a process ended with {self._process.wait()}"
        raise RuntimeError(msg)

    def dismiss(self) -> None:
        os.close(self._asked)
        self._said.close()

    def wait(self) -> None:
        self._process.wait()


def _address() -> str:
    with create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def main(kind: str, iterations: str, address: str, processes: str, rank: str) -> None:
    """Take as many steps as each line of the input says, and print how long it took."""
    marked: Callable[[Iterable[int]], Iterable[int]] = iter
    if kind == _WATCHED:
        import jaxmon

        jaxmon.instrument(port=None)
        marked = jaxmon.steps
    step = _step(int(iterations), address, int(processes), int(rank))
    step()
    for line in sys.stdin:
        before = perf_counter(), process_time(), sum(used().values())
        for _ in marked(range(int(line))):
            step()
        after = perf_counter(), process_time(), sum(used().values())
        print(_TOOK, *map(sub, after, before), flush=True)


def _step(
    iterations: int, address: str, processes: int, rank: int
) -> Callable[[], float]:
    """Return what takes a step, with the other processes, and returns its loss."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, processes, rank)

    @jax.jit  # type: ignore[untyped-decorator]
    def train_step(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.lax.fori_loop(
            0, iterations, lambda _, y: jnp.tanh(y @ y) / SIZE, state
        )
        return state, state.mean()

    mesh = Mesh(jax.devices(), ("data",))
    shape, spread = (processes, SIZE, SIZE), NamedSharding(mesh, PartitionSpec("data"))
    whole: Any = jax.numpy.ones(shape)
    state = jax.make_array_from_callback(shape, spread, lambda part: whole[part])

    def step() -> float:
        nonlocal state
        state, loss = train_step(state)
        return float(loss)

    return step


if __name__ == "__main__":
    main(*sys.argv[1:])
