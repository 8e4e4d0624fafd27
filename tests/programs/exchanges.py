"""
Programs whose arguments are divided otherwise than they need, the same with the advice
applied, and programs that exchange arrays since they must.

``python -m tests.programs.exchanges`` prints as JSON the findings on all, and for each
the bytes that a device gets by its collectives, as a plain reading of the HLO counts
them, and its HLO.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from math import prod
from types import FunctionType
from typing import Any

import numpy as np

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.compiles.programs import Programs
from jaxmon.agent.scheduler import WorkBudget
from jaxmon.facts.record import encoded
from jaxmon.limits.shared import current
from jaxmon.symptoms.findings import as_fact, find


AGENT = jaxmon.instrument(port=None, socket=False, report=False)

import jax  # noqa: E402 - the agent comes first, as in `jaxmon run`
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


try:
    from jax import shard_map
except ImportError:  # before 0.6
    from jax.experimental.shard_map import shard_map


_KINDS = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
_COLLECTIVE = rf"^ +(?:ROOT )?\S+ = (.*?) (?:{_KINDS})\("
MESH = Mesh(np.array(jax.devices()), ("d",))
ROWS, COLUMNS, WHOLE = ("d", None), (None, "d"), ()
LARGE = (32, 65536)  # few rows: their running sums take long


def sharding(spec: Sequence[Any]) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(*spec))


def array(spec: Sequence[Any], shape: tuple[int, ...] = LARGE) -> Any:
    values = np.linspace(0, 1, prod(shape), dtype=np.float32).reshape(shape)
    return jax.device_put(values, sharding(spec))


# --- What is divided otherwise than its line needs ---------------------------------


def mixed(first: Any, second: Any) -> Any:
    error = first - second  # mixed
    return (error**2).mean()


def averaged(mean: Any, params: Any) -> Any:
    return 0.99 * mean + 0.01 * params  # averaged


def ordered(scores: Any) -> Any:
    levels = jnp.sort(scores, axis=0)  # ordered
    return levels.mean(axis=1)


def summed(weights: Any) -> Any:
    total = jnp.cumsum(2 * weights, axis=0)  # summed
    return jnp.max(total, axis=0)


FAULTS: dict[str, tuple[Callable[..., Any], list[Any], list[Any], list[Any]]] = {
    "mixed": (mixed, [ROWS, COLUMNS], [ROWS, ROWS], []),
    "averaged": (averaged, [COLUMNS, ROWS], [ROWS, ROWS], [COLUMNS, ROWS]),
    "ordered": (ordered, [ROWS], [COLUMNS], []),
    "summed": (summed, [ROWS], [COLUMNS], []),
}
"""By name: the function, what its arguments are divided by, with the advice, and the
results before and after, if that is asked for."""

# --- What must be exchanged --------------------------------------------------------


def loss(params: Any, batch: Any, wanted: Any) -> Any:
    hidden = jax.nn.relu(batch @ params[0])
    return jnp.mean((hidden @ params[1] - wanted) ** 2)


def step(params: Any, batch: Any, wanted: Any) -> Any:
    gradients = jax.grad(loss)(params, batch, wanted)
    return [
        param - 0.1 * gradient
        for param, gradient in zip(params, gradients, strict=True)
    ]


def layers(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    return [array(first, (512, 1024)), array(second, (1024, 512))]


def trained(
    name: str, first: Sequence[Any], second: Sequence[Any], batch: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """Return a step with layers that are divided so, and its arguments."""

    def named(params: Any, batch: Any, wanted: Any) -> Any:
        return step(params, batch, wanted)

    named.__name__ = named.__qualname__ = name
    jitted = jax.jit(named, out_shardings=[sharding(first), sharding(second)])
    batches = [array(batch, (1024, 512)) for _ in "ab"]
    return jitted, [layers(first, second), *batches]


def sharded_optimizer(params: Any, moment: Any) -> Any:
    return params - 0.1 * moment, 0.9 * moment


def embedded(table: Any, tokens: Any) -> Any:
    return jnp.tanh(jnp.take(table, tokens, axis=0)).sum(axis=0)


def recast(weights: Any) -> Any:
    return weights.astype(jnp.bfloat16)


def asked_for(heads: Any) -> Any:
    moved = jax.lax.with_sharding_constraint(heads, sharding(COLUMNS))
    return jnp.sort(moved, axis=0).mean(axis=1)


def by_hand(part: Any) -> Any:
    moved = jax.lax.all_to_all(part, "d", 1, 0, tiled=True)
    gathered = jax.lax.all_gather(part, "d", tiled=True)
    return jax.lax.psum(moved.sum(axis=0).max() + gathered.max(), "d")


def shuffled(batch: Any, order: Any) -> Any:
    return (batch[order] * batch).mean()


def joined(real: Any, made: Any) -> Any:
    return jnp.tanh(jnp.concatenate([real, made])).mean()


def standardized(batch: Any, scale: Any) -> Any:
    return ((batch - batch.mean(axis=0)) / batch.std(axis=0) * scale).max()


def rearranged(scores: Any) -> Any:
    return jnp.sort(scores, axis=0) @ scores[: LARGE[0]].T


def spectrum(signal: Any) -> Any:
    return jnp.abs(jnp.fft.fft(signal, axis=1)).max(axis=0)


def by_number(whole: Any) -> Any:
    return whole * jax.lax.axis_index("d")


def result_divided(scores: Any) -> Any:
    return scores @ scores.T


def unchecked() -> dict[str, bool]:
    """Return the option of `shard_map` that lets it return what it cannot infer."""
    names = inspect.signature(shard_map).parameters
    return {"check_vma" if "check_vma" in names else "check_rep": False}


def duplicated() -> dict[str, tuple[Any, list[Any]]]:
    """Return what all devices compute, since its batch is whole on each."""

    def alike_by_hand(x: Any) -> Any:
        return jnp.tanh(x @ x.T)

    spec = PartitionSpec()
    manual = shard_map(
        alike_by_hand, mesh=MESH, in_specs=spec, out_specs=spec, **unchecked()
    )
    forgotten, (params, batch, wanted) = trained("forgotten", WHOLE, WHOLE, WHOLE)

    def with_key(params: Any, key: Any, unused: Any) -> Any:
        del unused
        return params * jax.random.bernoulli(key, 0.5, params.shape) @ params.T

    return {
        "whole_batch": trained("whole_batch", WHOLE, WHOLE, WHOLE),
        "forgotten": (forgotten, [params, *map(np.asarray, (batch, wanted))]),
        "with_key": (jax.jit(with_key), [array(WHOLE), jax.random.key(0), 1.0]),
        "alike_by_hand": (jax.jit(manual), [array(WHOLE)]),
    }


def healthy() -> dict[str, tuple[Any, list[Any]]]:
    tokens = jax.device_put(np.arange(LARGE[0]), sharding(("d",)))
    spec = PartitionSpec(*ROWS)
    manual = shard_map(
        by_hand, mesh=MESH, in_specs=spec, out_specs=PartitionSpec(), **unchecked()
    )
    both = (sharding(WHOLE), sharding(ROWS))
    numbered = shard_map(
        by_number,
        mesh=MESH,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec("d"),
    )
    return {
        "data_parallel": trained("data_parallel", WHOLE, WHOLE, ROWS),
        "fully_sharded": trained("fully_sharded", ROWS, ROWS, ROWS),
        "fully_sharded_columns": trained("fully_sharded_columns", COLUMNS, ROWS, ROWS),
        "tensor_parallel": trained("tensor_parallel", COLUMNS, ROWS, WHOLE),
        "sharded_optimizer": (
            jax.jit(sharded_optimizer, out_shardings=both),
            [array(WHOLE), array(ROWS)],
        ),
        "embedded": (jax.jit(embedded), [array(COLUMNS), tokens]),
        "recast": (
            jax.jit(recast, out_shardings=sharding(COLUMNS)),
            [array(ROWS)],
        ),
        "asked_for": (jax.jit(asked_for), [array(ROWS)]),
        "by_hand": (jax.jit(manual), [array(ROWS)]),
        "shuffled": (jax.jit(shuffled), [array(ROWS), tokens]),
        "joined": (jax.jit(joined), [array(ROWS), array(ROWS)]),
        "standardized": (jax.jit(standardized), [array(ROWS), array(ROWS)]),
        "rearranged": (jax.jit(rearranged), [array(ROWS)]),
        "by_number": (jax.jit(numbered), [array(WHOLE)]),
        "result_divided": (
            jax.jit(result_divided, out_shardings=sharding(ROWS)),
            [array(WHOLE)],
        ),
        # Some releases of XLA do this on whole arrays, however they are divided.
        "spectrum": (jax.jit(spectrum), [array(COLUMNS)]),
    }


def programs() -> dict[str, tuple[Any, list[Any]]]:
    """Return jitted functions, and their arguments, by name."""
    found = healthy() | duplicated()
    for name, (function, taken, mended, returned) in FAULTS.items():
        for twin, specs, result in (
            (name, taken, returned[:1]),
            (f"{name}_mended", mended, returned[1:]),
        ):
            # As another function, whose line is the same.
            again = FunctionType(function.__code__, globals(), twin)
            again.__qualname__ = twin
            options = {"out_shardings": sharding(*result)} if result else {}
            found[twin] = jax.jit(again, **options), [array(spec) for spec in specs]
    return found


def received(text: str) -> int:
    """Return the bytes of the results of the collectives in *text*."""
    kinds = re.findall(_COLLECTIVE, text, re.MULTILINE)
    sizes = re.findall(r"([a-z]+)(\d*)\[([\d,]*)\]", " ".join(kinds))
    return sum(
        prod(int(length) for length in lengths.split(",") if length)
        * int(bits or 8)
        // 8
        for _, bits, lengths in sizes
    )


def main() -> None:
    # Read all programs, however little the process has done so far.
    WorkBudget.covers = lambda self: self is not None  # type: ignore[method-assign]
    made = programs()
    compiled = [jitted.lower(*given).compile() for jitted, given in made.values()]
    for name in FAULTS:
        jitted, given = made[name]
        for _ in range(2):
            jax.block_until_ready(jitted(*given))
    runtime = runtime_of(AGENT)
    assert runtime is not None
    found = runtime.part(Programs)
    assert found is not None
    found.finish(60)
    runtime.refresh()
    snapshot = runtime.overview.judged_by(current())
    findings = find(snapshot)
    texts = {
        name: program.as_text() for name, program in zip(made, compiled, strict=True)
    }
    facts = {of.name.rpartition(".")[2]: of.program for of in snapshot.users}
    document = {
        "devices": {name: of.devices for name, of in facts.items()},
        "duplicated": [name for name, of in facts.items() if of.duplicated],
        "divided_anew": [name for name, of in facts.items() if of.resharded],
        "findings": [encoded(as_fact(of)) for of in findings],
        "received": {name: received(text) for name, text in texts.items()},
        "texts": texts,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
