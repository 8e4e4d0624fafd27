"""
Moves known amounts of data between host and device, and notes what it did.

Each case runs on its own; the agent's figures are read between cases. On the last line
stands, for each case, what the program did and what the agent saw of it.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmon
from jaxmon.facts.record import encoded
from tests.helpers import inside


DEVICES = 4

Figures = dict[str, list[float]]

agent = jaxmon.instrument(port=None, socket=False, memory_interval=0)
cases: dict[str, dict[str, Any]] = {}


@jax.jit
def vector(x):
    return x * 2 + jnp.arange(1000, dtype=jnp.float32)


@jax.jit
def scalar(x):
    return jnp.float32(2) * x


@jax.jit
def whole(x):
    return x.astype(jnp.int32)


def figures() -> Figures:
    """Return count and bytes by direction, as the agent's page has them."""
    page = {s: v for family in agent.collect() for s, v in family.samples}
    stem = "jaxmon_host_transfer"
    return {
        direction: [
            page[f'{stem}s_total{{direction="{direction}"}}'],
            page[f'{stem}_bytes_total{{direction="{direction}"}}'],
        ]
        for direction in ("device_to_host", "host_to_device")
    } | {"sync": [page["jaxmon_host_syncs_total"], 0]}


def case(
    name: str,
    action: Callable[[Any], object],
    given: Any = None,
    *,
    out: tuple[int, int] = (0, 0),
    into: tuple[int, int] = (0, 0),
    sync: int | None = 0,
) -> None:
    """
    Run ``action(given)``, which makes so many transfers of so many bytes; note both.
    Waits are left out where *sync* is `None`.
    """
    before = figures()
    action(given)
    after = figures()
    cases[name] = {
        "made": {
            "device_to_host": list(out),
            "host_to_device": list(into),
            "sync": [sync, 0],
        },
        "seen": {
            direction: [now - then for now, then in zip(found, start, strict=True)]
            for (direction, found), start in zip(
                after.items(), before.values(), strict=True
            )
        },
    }
    if sync is None:
        for figures_of_case in cases[name].values():
            del figures_of_case["sync"]


one = jnp.float32(1)
for warm in (vector, scalar, whole):
    warm(one)


def fresh() -> Any:
    """Return a scalar that has not been read."""
    return scalar(one)


def text(array: Any) -> str:
    return f"{array:.1f}"


def tolist(array: Any) -> Any:
    return array.tolist()


def copied_ahead(array: Any) -> Any:
    """Return the same after asking for the copy."""
    array.copy_to_host_async()
    return array.tolist()


reads: dict[str, Callable[[Any], object]] = {
    "float": float,
    "int": int,
    "bool": bool,
    "complex": complex,
    "repr": repr,
    "str": str,
    "format": text,
    "tolist of a number": tolist,
}
for name, read in reads.items():
    case(name, read, fresh(), out=(1, 4))
case("index", lambda array: [1, 2, 3][array], whole(one), out=(1, 4))
reads = {
    "tolist": tolist,
    "repr of a vector": repr,
    "tobytes": lambda array: array.tobytes(),
    "__array__": lambda array: array.__array__(),
    "device_get": jax.device_get,
    "copied ahead": copied_ahead,
}
for name, read in reads.items():
    case(name, read, vector(one), out=(1, 4000))
tree = (vector(one), {"a": vector(one), "b": fresh()})
case("device_get of a tree", jax.device_get, tree, out=(3, 8004))
case("a loop", lambda _: [float(fresh()) for _ in range(250)], out=(250, 1000))

mesh = Mesh(np.array(jax.devices()), ("x",))
split = NamedSharding(mesh, PartitionSpec("x"))
everywhere = NamedSharding(mesh, PartitionSpec())
host = np.arange(512, dtype=np.float32)
sharded = jax.jit(lambda x: x + 1)(jax.device_put(host, split))
case("shards", np.asarray, sharded, out=(1, 2048))
case("shards again", np.asarray, sharded)

SECOND = jax.devices()[1]
case("device_put", jax.device_put, host, into=(1, 2048))
case("device_put of a tree", jax.device_put, [host, host], into=(2, 4096))
case("device_put to a device", lambda _: jax.device_put(host, SECOND), into=(1, 2048))
case("device_put of an array", jax.device_put, vector(one))
case("device_put in shards", lambda _: jax.device_put(host, split), into=(1, 2048))
case("device_put of copies", lambda _: jax.device_put(host, everywhere), into=(1, 8192))
case("asarray", lambda _: [jnp.asarray(host) for _ in range(3)], into=(3, 6144))
case("array", lambda _: [jnp.array(host) for _ in range(3)], into=(3, 6144))
case("array of float64", jnp.array, host.astype(np.float64), into=(1, 2048))
case("array of a list", lambda _: [jnp.array([1.0, 2]) for _ in range(3)], into=(3, 24))
case("asarray of a number", lambda _: [jnp.asarray(2.5) for _ in "abc"], into=(3, 12))
case("array of an array", jnp.array, vector(one))
case(
    "from a callback",
    lambda _: jax.make_array_from_callback((512,), split, lambda index: host[index]),
    into=(1, 2048),
)
argument = jax.jit(lambda x: x - 1)
case("an argument, first call", argument, host, into=(1, 2048))
case("an argument, cached call", argument, host)
case("operators", lambda array: (array + 1, array[3], jnp.zeros(7)), vector(one))

case("block_until_ready", lambda array: array.block_until_ready(), vector(one), sync=1)
case("jax.block_until_ready", jax.block_until_ready, vector(one), sync=1)
pair = [vector(one), vector(one)]
case("jax.block_until_ready of a tree", jax.block_until_ready, pair, sync=1)
case("only looked up", lambda array: hasattr(array, "block_until_ready"), fresh())

# Operands of callbacks, which XLA brings to the host, and what comes back.
ONE = jax.ShapeDtypeStruct((1,), np.float32)


def first(operand: Any) -> Any:
    """Return the first number of an operand."""
    return np.asarray(operand)[:1]


def sends(operand: Any) -> Any:
    """Return the same, and send an array in passing."""
    jax.device_put(host)
    return first(operand)


def called_back(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that runs *call* in a program, three times."""
    program = jax.jit(call)

    def run(operand: Any) -> None:
        for _ in range(3):
            program(operand)
            jax.effects_barrier()

    return run


callbacks: dict[str, Callable[[Any], Any]] = {
    "pure_callback": lambda x: jax.pure_callback(first, ONE, x),
    "io_callback": lambda x: io_callback(first, ONE, x),
    "ordered io_callback": lambda x: io_callback(first, ONE, x, ordered=True),
    "debug.callback": lambda x: (jax.debug.callback(first, x), x + 1)[1],
    "debug.print": lambda x: (jax.debug.print("{}", x[0]), x + 1)[1],
    "ordered debug.print": lambda x: (
        jax.debug.print("{}", x[0], ordered=True),
        x + 1,
    )[1],
}
with contextlib.redirect_stdout(sys.stderr):
    for name, call in callbacks.items():
        # Waiting for its effects is not what is looked at.
        case(name, called_back(call), vector(one), sync=None)
    eager = [call for name, call in callbacks.items() if "ordered" not in name]
    case(
        "callbacks at once",
        lambda x: [call(x) for call in eager],
        vector(one),
        sync=None,
    )
    case(
        "an array sent by a callback",
        called_back(lambda x: jax.pure_callback(sends, ONE, x)),
        vector(one),
        into=(3, 6144),
        sync=None,
    )

constant = vector(one)
case("a constant of a program", jax.jit(lambda x: x + constant), constant)


def in_threads(_: object) -> None:
    """Read in eight threads at once."""

    def read() -> None:
        for _ in range(100):
            float(fresh())

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


case("threads", in_threads, out=(800, 3200))
lines = encoded(inside.transfers(agent).snapshot().lines)
events = [
    [event.message, dict(event.details)]
    for event in inside.events(agent).since(kind="transfer")
]
jaxmon.uninstrument()
jax.device_put(host)
float(fresh())
print(json.dumps({"cases": cases, "lines": lines, "events": events}))
