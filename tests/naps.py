"""
Programs of a known duration: XLA runs them, and they record when they ran.

They sleep, so that their time is the same on a busy machine, and read the clock that
`time.perf_counter` reads. What else there is in such a program takes some 20 µs.
"""

from __future__ import annotations

import ctypes
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.support import ROOT, require_program


SOURCE = ROOT / "tests" / "programs" / "nap.cc"
_TARGET = "jaxmon_test_nap"
_built: list[Path] = []

# Before 0.5 it was an extension.
_ffi: Any = getattr(jax, "ffi", None) or import_module("jax.extend.ffi")


def build(directory: Path) -> None:
    """
    Compile the program's body in *directory* and make it known to XLA, once for all
    tests of this process.
    """
    if _built:
        return
    library = directory / "nap.so"
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
    """Return a jitted nap called *name*."""

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
