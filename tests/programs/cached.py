"""
A program that uses the persistent cache as a test directs it, and records its use.

It takes JSON: configuration, code to run, whether jaxmon observes. It prints what
JAX's events, the warnings and the files say, and beside it what jaxmon says. It runs on
every supported JAX.
"""

import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring

import jaxmon
from jaxmon.agent.guard import Guard
from jaxmon.facts.record import encoded
from tests.helpers import inside


options = json.loads(sys.argv[1])
Guard.strict = True
events: Counter[str] = Counter()
saved: list[float] = []
compiling: list[float] = []


def note_event(event: str, **_: object) -> None:
    """Count an event of the cache."""
    if event.startswith("/jax/compilation_cache/"):
        events[event.rpartition("/")[2]] += 1


def note_duration(event: str, seconds: float, **_: object) -> None:
    """Note what JAX says that it saved, and how long it compiled."""
    if event.endswith("/compile_time_saved_sec"):
        saved.append(seconds)
    if event.endswith("/backend_compile_duration"):
        compiling.append(seconds)


def configure(**settings: object) -> None:
    """Set those settings that this JAX has."""
    for name, value in settings.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)


@jax.jit
def cached(x):
    return x + 1


@jax.jit
def other(x):
    return x - 1


@jax.jit
def deep(x):
    """Take a while to compile."""
    for _ in range(40):
        x = jnp.tanh(x @ x.T) @ x
    return x


@jax.jit
def calling_back(x):
    """Call Python from within the program."""
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float32), x)


def ones(*shape: int) -> np.ndarray:
    """Return an argument that needs no program of its own."""
    return np.ones(shape, np.float32)


def compile_for(seconds: float) -> None:
    """Recompile `deep` until it took *seconds* altogether."""
    size = 4
    while sum(compiling) < seconds:
        deep(ones(size, size))
        size += 1


monitoring.register_event_listener(note_event)
monitoring.register_event_duration_secs_listener(note_duration)
configure(**options.get("config", {}))
agent = None
if options.get("observed", True):
    agent = jaxmon.instrument(port=None, socket=False, memory_interval=0)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    for statement in options["run"]:
        exec(statement)  # noqa: S102 - the test's own words
books = {
    "jax": jax.__version__,
    "events": events,
    "saved": saved,
    "compiling": sum(compiling),
    "warned": [
        [w.category.__name__, str(w.message), Path(w.filename).name, w.lineno]
        for w in warned
    ],
}
if agent is not None:
    cache = inside.cache(agent)
    cache.scan()
    books["snapshot"] = encoded(cache.snapshot())
    books["samples"] = {
        name: value for family in cache.collect() for name, value in family.samples
    }
    log = inside.events(agent).since(kind="cache")
    books["log"] = [[event.message, event.details] for event in log]
    jaxmon.uninstrument()
print(json.dumps(books))
