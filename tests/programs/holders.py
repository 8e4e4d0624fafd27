"""
A program that knows what each of its lines holds: twenty that are innocent, and one
that leaks.

Started with the path of a file to write, it makes a module of such functions, one on
each line, and calls them again and again. Each keeps the newest of what it made, except
one, which keeps all. What the program holds, counted from the objects themselves, is
printed beside what the agent says.
"""

import json
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmon


ROUNDS = 10
INNOCENT = 20
LEAK = "leak"

# How a line may come by an array of a size; `jax`, `jnp`, `np` are there.
WAYS = (
    "jnp.ones(({n}, 64))",
    "jnp.zeros({n} * 64, jnp.bfloat16)",
    "jnp.asarray(np.ones(({n}, 64), np.float32))",
    "jax.device_put(np.ones(({n}, 64), np.int8))",
    "double(BASE[: {n} * 64])",
    "jax.random.normal(KEY, ({n}, 64))",
    "jax.random.split(KEY, {n})",
    "jax.device_put(np.ones((8, {n}), np.float32), ROWS)",
    "jax.device_put(np.ones((8, {n}), np.float32), EVERYWHERE)",
    "double(jax.device_put(np.ones((8, {n}), np.float32), ROWS))",
)
HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
MESH = Mesh(np.array(jax.devices()), ("x",))
ROWS = NamedSharding(MESH, PartitionSpec("x"))
EVERYWHERE = NamedSharding(MESH, PartitionSpec())
KEY = jax.random.key(1)
BASE = jnp.ones(64 * 200)
double = jax.jit(lambda x: x * 2)
"""


def main() -> None:
    path = Path(sys.argv[1])
    lines = HEAD.splitlines()
    for at in range(INNOCENT):
        way = WAYS[at % len(WAYS)].format(n=10 + at)
        lines.append(f"def innocent_{at}(): return {way}")
        if at == INNOCENT // 2:
            lines.append(f"def {LEAK}(): return double(BASE)")
    path.write_text("\n".join(lines) + "\n")
    agent = jaxmon.instrument(port=0, socket=False)
    spec = spec_from_file_location("holding", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    held: dict[str, list[Any]] = {}
    halfway: Any = None
    for number in range(ROUNDS):
        for name, function in vars(module).items():
            if name == LEAK:
                held.setdefault(name, []).append(function())
            elif name.startswith("innocent_"):
                held[name] = [function()]
        if number + 1 == ROUNDS // 2:
            halfway = agent.memory()
    jax.block_until_ready(held)
    told = agent.memory()
    print(
        json.dumps(
            {
                "file": str(path),
                "leak": lines.index(f"def {LEAK}(): return double(BASE)") + 1,
                "held": {
                    first_line(vars(module)[name]): [
                        sum(map(nbytes, arrays)),
                        sum(map(devices, arrays)),
                    ]
                    for name, arrays in held.items()
                },
                "told": told.rows(),
                "growth": [
                    [line.line, line.bytes, line.arrays]
                    for line in told.growth_since(halfway)
                ],
                "devices": by_device(told),
            }
        )
    )
    jaxmon.uninstrument()


def nbytes(array: Any) -> int:
    """
    Return the bytes of *array* on all devices; its shards are not touched, for JAX
    would make arrays of them.
    """
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    shape = array.sharding.shard_shape(array.shape)
    return int(np.prod(shape) * array.dtype.itemsize) * devices(array)


def devices(array: Any) -> int:
    """Return on how many devices *array* is."""
    return len(array.sharding.device_set)


def first_line(function: Callable[[], Any]) -> int:
    """Return the line of a function of one line."""
    return function.__code__.co_firstlineno


def by_device(profile: Any) -> dict[str, int]:
    """Return the bytes of buffers by device."""
    found: dict[str, int] = {}
    for line in profile.lines:
        if line.kind == "buffer":
            found[line.device] = found.get(line.device, 0) + line.bytes
    return found


if __name__ == "__main__":
    main()
