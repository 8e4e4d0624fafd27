"""
Sampling by hand, programs of known duration, and times that a test takes itself.

The programs sleep, so that their time is the same on a busy machine: XLA runs them, and
they read the clock that `time.perf_counter` reads. What else there is in such a program
takes some 20 µs.
"""

import ctypes
import gc
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmon.agent import Agent
from jaxmon.agent.sampling.part import Sampling
from jaxmon.facts.record import encoded
from tests.helpers.agents import samples
from tests.helpers.processes import ROOT, require_program, until


SOURCE = ROOT / "tests" / "programs" / "nap.cc"
_TARGET = "jaxmon_test_nap"
_built: list[Path] = []

# Before 0.5 it was an extension.
_ffi: Any = getattr(jax, "ffi", None) or import_module("jax.extend.ffi")


def build(directory: Path) -> None:
    """
    Compile the program's body in *directory*, if it is not there, and make it known to
    XLA, once for all tests of this process.
    """
    if _built:
        return
    library = directory / "nap.so"
    if not library.exists():
        subprocess.run(
            [
                require_program("g++"),
                *("-std=c++17", "-O1", "-w", "-shared", "-fPIC"),
                *("-isystem", _ffi.include_dir()),
                *("-o", str(library), str(SOURCE)),
            ],
            check=True,
        )
    body = _ffi.pycapsule(ctypes.CDLL(str(library)).nap)
    _ffi.register_ffi_target(_TARGET, body, platform="cpu")
    _built.append(directory)


def nap(x: Any) -> Any:
    """
    Return what a nap records; to be traced, with what `duration` or another nap
    returns.
    """
    # XLA runs what is cheap within the call; a product is not.
    square = jnp.ones((16, 16)) * x[0]
    x = x + (jnp.sum(square @ square) * 0).astype(jnp.uint32)
    return _ffi.ffi_call(_TARGET, jax.ShapeDtypeStruct((5,), jnp.uint32))(x)


def napping(name: str) -> Any:
    def work(x: Any) -> Any:
        return nap(x)

    work.__qualname__ = work.__name__ = name
    return jax.jit(work)


def clocked(name: str, length: int) -> Any:
    """
    Return a jitted chain of *length* products that all cores work on, called *name*: it
    returns two naps of no time, one before the chain and one after it.
    """

    def work(x: Any, nothing: Any) -> tuple[Any, Any]:
        began = nap(nothing)
        x = x + (began[0] * 0).astype(x.dtype)
        x = jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y) / len(x), x)
        return began, nap(nothing + (x[0, 0] * 0).astype(jnp.uint32))

    work.__qualname__ = work.__name__ = name
    return jax.jit(work)


def duration(seconds: float) -> Any:
    """Return the argument that makes a nap so long."""
    return jnp.array([round(seconds * 1e6), 0, 0, 0, 0], jnp.uint32)


def told(result: Any) -> tuple[float, float]:
    """
    Return when the nap that made *result* began and ended, as `time.perf_counter`.
    """
    _, *halves = np.asarray(result).astype(np.uint64).tolist()
    begun, ended = (high << 32 | low for high, low in (halves[:2], halves[2:]))
    return begun / 1e9, ended / 1e9


# Small enough that one thread multiplies: the machine's other load matters less.
SIZE = 32

# The timer of such an agent does not come round within a test: the test arms.
BY_HAND = {"sample_rate": 0.001, "transfers": False}


def chain(name: str, length: int, **options: Any) -> Any:
    """Return a jitted chain of *length* matrix products, called *name*."""

    def work(x: Any) -> Any:
        return jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y) / SIZE, x)

    work.__qualname__ = work.__name__ = name
    return jax.jit(work, **options)


def operand() -> Any:
    return jnp.ones((SIZE, SIZE))


def timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - started


def arm(sampling: Sampling) -> None:
    """Do what the timer does, whatever was spent."""
    sampling._saved, sampling._spent_before = 10.0, sampling.spent
    gc.collect(0)  # if it were due, whether a debugger runs would not be known
    sampling.arm()


def idle(sampling: Sampling) -> None:
    watcher = sampling._watcher
    until(lambda: not watcher._held, "the watcher to see the end of everything")


def calibrated(seconds: float) -> int:
    """Return the length of a chain that takes about *seconds*."""
    length, x = 400, operand()
    probe = chain("probe", length)
    timed(lambda: probe(x))
    # Other load makes some longer, and none shorter.
    shortest = min(timed(lambda: probe(x)) for _ in range(9))
    return max(int(seconds * length / shortest), 1)


def figures(sampling: Sampling, name: str) -> dict[str, Any]:
    """Return what is known of the function called *name*, in whichever module."""
    found = encoded(sampling.snapshot()).items()
    return next((own for label, own in found if label.endswith(f".{name}")), {})


def execution_times(sampling: Sampling, name: str) -> list[float]:
    """Return the last execution times of the function called *name*, oldest first."""
    return next(
        (
            list(found.executions._values)
            for function, found in sampling._figures.items()
            if function.name.endswith(f".{name}")
        ),
        [],
    )


def executions(agent: Agent, name: str) -> float:
    """Return how many execution times of *name* are exported."""
    return sum(
        number
        for series, number in samples(agent).items()
        if series.startswith("jaxmon_execution_seconds_count{")
        and f'.{name}"' in series
    )


# For a measurement that agrees: where there is much other work most are not exported.
SECONDS = 300.0


def sometime(attempt: Callable[[], bool], seen: object = "") -> None:
    """Fail with what was *seen* unless an *attempt* succeeds in time."""
    deadline = time.monotonic() + SECONDS
    while not attempt():
        assert time.monotonic() < deadline, seen


def looking(sampling: Sampling) -> float:
    """Return the processor seconds that the thread that polls has used."""
    thread = sampling._watcher._scheduler._ticker
    if thread is None:
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def nearest(seconds: float, truth: list[float]) -> float:
    """
    Return *seconds* over the time in *truth* that is nearest. The calls there are
    alike, but for what else the machine has to do.
    """
    return seconds / min(truth, key=lambda one: abs(one - seconds))


def fifth(values: list[float]) -> float:
    """Return what a fifth of *values* are below."""
    return sorted(values)[len(values) // 5]


class Naps:
    """Napping programs, called and sampled, next to what they record."""

    def __init__(self, sampling: Sampling, milliseconds: int, *, waits: bool) -> None:
        self._sampling, self._waits = sampling, waits
        self._name = f"nap{milliseconds}"
        self._step = napping(self._name)
        self._argument = duration(milliseconds / 1000)
        jax.block_until_ready(self._step(self._step(self._argument)))

    def ratios(self, rounds: int, calls: int = 6) -> list[float]:
        found = []
        for _ in range(rounds):
            seen = len(execution_times(self._sampling, self._name))
            arm(self._sampling)
            begun, results = [], [self._argument]
            for _ in range(calls):
                begun.append(time.perf_counter())
                results.append(self._step(results[-1]))
                if self._waits:
                    jax.block_until_ready(results[-1])
            jax.block_until_ready(results)
            idle(self._sampling)
            # The second call is timed: it is the first whose predecessor is known.
            ends = [told(result)[1] for result in results[1:3]]
            truth = ends[1] - max(ends[0], begun[1])
            own = execution_times(self._sampling, self._name)[seen:]
            found += [seconds / truth for seconds in own]
        return found
