"""
Programs with a planted fault, each at the line that ends with its name, and the same
programs without it.

``python -m tests.programs.planted`` prints as JSON what the agent knows of the program
of each, by the name of the fault and ``fixed`` or ``faulty``, and what its command says
of it.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from click.testing import CliRunner
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmon
from jaxmon.agent.scheduler import WorkBudget
from jaxmon.cli.main import main as command
from jaxmon.facts.record import encoded
from tests.helpers import inside


RANDOM = np.random.default_rng(0)
DEVICES = np.array(jax.devices())


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def placed(x: Any, *spec: Any) -> Any:
    sharding = NamedSharding(Mesh(DEVICES, ("d",)), PartitionSpec(*spec))
    return jax.device_put(x, sharding)


def unrolled(x: Any, w: Any, *, is_fixed: bool) -> Any:
    if is_fixed:
        return jax.lax.fori_loop(0, 200, lambda _, y: jnp.tanh(y @ w), x)
    for _ in range(200):
        x = jnp.tanh(x @ w)  # unrolled
    return x


def captured(x: Any, table: Any, *, is_fixed: bool) -> Any:
    return ((table if is_fixed else TABLE) * x).sum(-1)  # captured


def selected(x: Any, *, is_fixed: bool) -> Any:
    def costly(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda _, y: jnp.sin(y), x)

    def cheap(x: Any) -> Any:
        return x

    if is_fixed:
        is_needed = (x[:, 0] > 0).any()
        return jax.lax.cond(is_needed, jax.vmap(costly), cheap, x)
    return jax.vmap(lambda x: jax.lax.cond(x[0] > 0, costly, cheap, x))(x)  # selected


def gathered(table: Any, ids: Any, *, is_fixed: bool) -> Any:
    del is_fixed  # where the table is whole, nothing is exchanged
    return jnp.take(table, ids, axis=0)  # gathered


def resharded(x: Any, *, is_fixed: bool) -> Any:
    return jnp.cumsum(x, axis=1 if is_fixed else 0)  # resharded


def replicated(w: Any, m: Any, x: Any, *, is_fixed: bool) -> Any:
    del is_fixed  # it is how m is given
    m = 0.9 * m + x.T @ (x @ w)
    return w - m, m


def undonated(cache: Any, x: Any, *, is_fixed: bool) -> Any:
    del is_fixed  # it is donated
    return jax.lax.dynamic_update_slice(cache, x, (0, 0))


def unusable(state: Any, *, is_fixed: bool) -> Any:
    return state * 2 if is_fixed else (state * 2).astype(jnp.bfloat16)


def promoted(x: Any, *, is_fixed: bool) -> Any:
    scale = np.linspace(0, 1, 8, dtype=np.float32 if is_fixed else np.float64)
    y = jnp.tanh(x)
    return (y * scale).astype(jnp.float32)  # promoted


def transposed(x: Any, *, is_fixed: bool) -> Any:
    for _ in range(3):
        y = x if is_fixed else jnp.transpose(x, (2, 0, 1))
        x = jnp.sort(y, axis=0)  # transposed
    return x


def dominated(x: Any, w: Any, *, is_fixed: bool) -> Any:
    y = x @ w
    return y if is_fixed else y @ w @ w @ w @ w @ w @ w @ w @ w @ w  # dominated


def kept(ws: Any, x: Any, *, is_fixed: bool) -> Any:
    def layer(x: Any, w: Any) -> Any:
        return jnp.sin(jnp.tanh(x @ w)) + x, None  # kept

    def loss(ws: Any) -> Any:
        body = jax.checkpoint(layer) if is_fixed else layer
        return jax.lax.scan(body, x, ws)[0].sum()

    return jax.grad(loss)(ws)


def folded(x: Any, table: Any, *, is_fixed: bool) -> Any:
    return x + jnp.cumsum(table if is_fixed else SQUARE, axis=0)  # folded


def layered(w: Any, x: Any, *, is_fixed: bool) -> Any:
    del is_fixed  # there is one function, or one for each layer
    return jnp.tanh(x @ w)


TABLE, SQUARE = normal(1 << 16, 8), normal(64, 64)
ROWS = ("d",)
Given = Callable[[bool], tuple[Any, ...]]
FAULTS: dict[Callable[..., Any], Given] = {
    unrolled: lambda _: (normal(4, 4), normal(4, 4)),
    captured: lambda _: (normal(8), TABLE),
    selected: lambda _: (normal(16, 16),),
    gathered: lambda is_fixed: (
        placed(normal(512, 8), *(() if is_fixed else ROWS)),
        placed(np.arange(16)),
    ),
    resharded: lambda _: (placed(normal(1024, 1024), *ROWS),),
    replicated: lambda is_fixed: (
        placed(normal(1024, 1024), *ROWS),
        placed(normal(1024, 1024), *(ROWS if is_fixed else ())),
        placed(normal(8, 1024)),
    ),
    undonated: lambda _: (jnp.asarray(normal(1024, 512)), normal(1, 512)),
    unusable: lambda _: (jnp.asarray(normal(512, 512)),),
    promoted: lambda _: (normal(8),),
    transposed: lambda _: (normal(16, 16, 16),),
    dominated: lambda _: (normal(8, 8), normal(8, 8)),
    kept: lambda _: (normal(8, 16, 16), normal(512, 16)),
    folded: lambda _: (normal(64, 64), SQUARE),
    layered: lambda _: (normal(4, 4), normal(4, 4)),
}


def jitted(function: Callable[..., Any], name: str, *, is_fixed: bool) -> Any:
    def call(*given: Any) -> Any:
        return function(*given, is_fixed=is_fixed)

    call.__name__ = call.__qualname__ = name
    is_donated = function is unusable or (function is undonated and is_fixed)
    options: dict[str, Any] = {"donate_argnums": 0} if is_donated else {}
    if function is replicated:
        made = FAULTS[function](is_fixed)
        options["out_shardings"] = tuple(array.sharding for array in made[:2])
    return jax.jit(call, **options)


def main() -> None:
    # Read all programs, however little the process has done so far.
    WorkBudget.covers = lambda self: self is not None  # type: ignore[method-assign]
    agent = jaxmon.instrument(port=None, report=False)
    programs, alive, found = inside.programs(agent), [], {}
    for function, given in FAULTS.items():
        for is_fixed in (False, True):
            name = f"{'fixed' if is_fixed else 'faulty'}_{function.__name__}"
            times = 12 if function is layered and not is_fixed else 1
            jax.config.update("jax_enable_x64", function is promoted)
            for _ in range(times):
                alive.append(jitted(function, name, is_fixed=is_fixed))
                jax.block_until_ready(alive[-1](*given(is_fixed)))
            programs.finish(60)
            page = Path(os.environ["JAXMON_RUN_DIR"]) / "page.html"
            options = "--json", "--function", name, "--page", str(page)
            shown = CliRunner().invoke(command, ["compiles", *options])
            if shown.exit_code:
                raise SystemExit(shown.output)
            about = next(
                of for key, of in programs.snapshot().items() if key.endswith(name)
            )
            said = json.loads(shown.output)["latest"]
            known, text = encoded(about), page.read_text()
            found[name] = {"known": known, "said": said, "page": text}
    print(json.dumps(found, default=functools.partial(str)))


if __name__ == "__main__":
    main()
