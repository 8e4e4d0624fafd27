"""
Programs of the shapes that public models have, what `jaxmon compiles` says of each, and
counts of the same by other means: walks over jaxprs, and plain readings of HLO.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from click.testing import CliRunner
from jax.interpreters.partial_eval import dce_jaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmon
from jaxmon.agent.scheduler import WorkBudget
from jaxmon.cli.main import main as command
from tests.helpers import inside


B, T, D, HEADS, LAYERS = 4, 8, 16, 2, 3
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


# --- a decoder, as those of large language models -------------------------------------


def rms_norm(x: Any, scale: Any) -> Any:
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def rotate(x: Any) -> Any:
    angles = jnp.arange(T)[:, None] * 10000.0 ** (-jnp.arange(x.shape[-1] // 2) / 4)
    low, high = jnp.split(x, 2, axis=-1)
    turned = [low * jnp.cos(angles) - high * jnp.sin(angles)]
    turned += [high * jnp.cos(angles) + low * jnp.sin(angles)]
    return jnp.concatenate(turned, axis=-1)


def attend(x: Any, weights: Any) -> Any:
    q, k, v = jnp.split(x @ weights["qkv"], 3, axis=-1)
    q, k, v = (
        of.reshape(B, T, HEADS, D // HEADS).transpose(0, 2, 1, 3) for of in (q, k, v)
    )
    scores = jnp.einsum("bhqd,bhkd->bhqk", rotate(q), rotate(k)) / math.sqrt(D)
    scores = jnp.where(jnp.tril(jnp.ones((T, T), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)
    return mixed.transpose(0, 2, 1, 3).reshape(B, T, D) @ weights["out"]


def decoder_layer(x: Any, weights: Any) -> Any:
    x = x + attend(rms_norm(x, weights["scale"]), weights)
    gate, up = jnp.split(rms_norm(x, weights["scale"]) @ weights["up"], 2, axis=-1)
    return x + (jax.nn.silu(gate) * up) @ weights["down"]


def layer_weights(*lead: int) -> dict[str, Any]:
    shapes: dict[str, tuple[int, ...]] = {"scale": (D,)}
    shapes |= {"qkv": (D, 3 * D), "out": (D, D), "up": (D, 4 * D), "down": (2 * D, D)}
    return {name: normal(*lead, *shape) for name, shape in shapes.items()}


def loss_of(x: Any, table: Any, tokens: Any) -> Any:
    logits = jax.nn.log_softmax(x @ table.T)
    return -jnp.take_along_axis(logits, tokens[..., None], axis=-1).mean()


def decoder_unrolled(weights: Any, table: Any, tokens: Any) -> Any:
    def loss(weights: Any, table: Any) -> Any:
        x = table[tokens]
        for layer in weights:
            x = decoder_layer(x, layer)
        return loss_of(x, table, tokens)

    return jax.grad(loss, argnums=(0, 1))(weights, table)


def decoder_scanned(weights: Any, table: Any, tokens: Any) -> Any:
    def body(x: Any, layer: Any) -> Any:
        return decoder_layer(x, layer), None

    def loss(weights: Any, table: Any) -> Any:
        x, _ = jax.lax.scan(jax.checkpoint(body), table[tokens], weights)
        return loss_of(x, table, tokens)

    return jax.grad(loss, argnums=(0, 1))(weights, table)


TOKENS = RANDOM.integers(0, 32, (B, T))


# --- diffusion, sampling, recurrence --------------------------------------------------


def convolve(x: Any, kernel: Any, stride: int = 1) -> Any:
    kinds = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=kinds
    )


def group_norm(x: Any) -> Any:
    grouped = x.reshape(*x.shape[:-1], 2, -1)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    spread = grouped.var((1, 2, 4), keepdims=True)
    return ((grouped - mean) * jax.lax.rsqrt(spread + 1e-5)).reshape(x.shape)


def unet_block(weights: Any, image: Any, time: Any) -> Any:
    phases = time[:, None] * jnp.exp(-jnp.arange(4.0))
    embedded = jnp.concatenate([jnp.sin(phases), jnp.cos(phases)], -1) @ weights["time"]
    x = convolve(jax.nn.silu(group_norm(image)), weights["first"], 2)
    x = x + embedded[:, None, None]
    x = convolve(jax.nn.silu(group_norm(x)), weights["second"])
    flat = x.reshape(x.shape[0], -1, x.shape[-1])
    scores = jax.nn.softmax(jnp.einsum("bqc,bkc->bqk", flat, flat))
    x = x + jnp.einsum("bqk,bkc->bqc", scores, flat).reshape(x.shape)
    x = jax.image.resize(x, (x.shape[0], 8, 8, x.shape[-1]), "nearest")
    return image + convolve(x, weights["last"])


UNET = {
    "time": normal(8, 8),
    "first": normal(3, 3, 8, 8),
    "second": normal(3, 3, 8, 8),
    "last": normal(3, 3, 8, 8),
}
# The data of the model, which programs often take from around them.
OBSERVED = normal(1 << 16, 5)


def hmc(keys: Any, start: Any) -> Any:
    def density(w: Any) -> Any:
        return -(jax.nn.softplus(OBSERVED @ w)).mean() - (w**2).sum()

    def leap(state: Any, _: None) -> Any:
        w, momentum = state
        momentum = momentum + 0.05 * jax.grad(density)(w)
        w = w + 0.1 * momentum
        return (w, momentum + 0.05 * jax.grad(density)(w)), None

    def chain(key: Any, w: Any) -> Any:
        momentum = jax.random.normal(key, w.shape)
        (new, last), _ = jax.lax.scan(leap, (w, momentum), None, length=4)
        gain = density(new) - density(w) + ((momentum**2).sum() - (last**2).sum()) / 2
        accept = jnp.log(jax.random.uniform(key)) < gain
        return jax.lax.cond(accept, lambda: new, lambda: w)

    return jax.vmap(chain)(keys, start)


def rnn(weights: Any, inputs: Any) -> Any:
    def loss(weights: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            both = jnp.concatenate([state, x], -1)
            reset, update = jnp.split(jax.nn.sigmoid(both @ weights["gates"]), 2, -1)
            new = jnp.tanh(jnp.concatenate([reset * state, x], -1) @ weights["new"])
            state = update * state + (1 - update) * new
            return state, state @ weights["out"]

        _, found = jax.lax.scan(step, jnp.zeros((B, D)), inputs)
        return (found**2).mean()

    return jax.grad(loss)(weights)


RNN = {"gates": normal(2 * D, 2 * D), "new": normal(2 * D, D), "out": normal(D, 3)}


def trained(weights: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        hidden = jnp.tanh(x @ weights[0])
        return ((hidden @ weights[1] - y) ** 2).mean()

    slopes = jax.grad(loss)(weights)
    return [w - 0.1 * s for w, s in zip(weights, slopes, strict=True)]


def ensemble(weights: Any, x: Any, y: Any) -> Any:
    return jax.vmap(trained, in_axes=(0, None, None))(weights, x, y)


def sharded(weights: Any, x: Any, y: Any) -> Any:
    return trained(weights, x, y)


def placed(x: Any, *spec: Any) -> Any:
    mesh = Mesh(np.array(jax.devices()), ("d",))
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))


Model = tuple[Callable[..., Any], tuple[Any, ...]]


def models() -> Iterator[Model]:
    table = normal(32, D)
    layers = [layer_weights() for _ in range(LAYERS)]
    yield decoder_unrolled, (layers, table, TOKENS)
    yield decoder_scanned, (layer_weights(LAYERS), table, TOKENS)
    yield unet_block, (UNET, normal(2, 8, 8, 8), normal(2))
    yield hmc, (jax.random.split(jax.random.PRNGKey(0), 3), normal(3, 5))
    yield rnn, (RNN, normal(T, B, D))
    yield ensemble, ([normal(5, D, D), normal(5, D, 3)], normal(B, D), normal(B, 3))
    rows = placed(normal(D, 64), "d"), placed(normal(64, 4), "d")
    yield sharded, (list(rows), placed(normal(8, D), "d"), placed(normal(8, 4), "d"))


# --- libraries ------------------------------------------------------------------------


def with_linen() -> Model:
    from flax import linen

    class Model(linen.Module):  # type: ignore[misc]  # Flax has no types
        @linen.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Conv(8, (3, 3))(x))
            x = linen.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1, 8)
            x = linen.LayerNorm()(x + linen.MultiHeadDotProductAttention(2)(x))
            return linen.Dense(3)(x.mean(1))

    model, image = Model(), normal(2, 8, 8, 3)

    def linen_step(weights: Any, image: Any) -> Any:
        return jax.grad(lambda w: (model.apply(w, image) ** 2).mean())(weights)

    return linen_step, (model.init(jax.random.PRNGKey(0), image), image)


def with_nnx() -> Model:
    from flax import nnx

    class Model(nnx.Module):  # type: ignore[misc]  # Flax has no types
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.first = nnx.Linear(D, D, rngs=rngs)
            self.second = nnx.Linear(D, 3, rngs=rngs)
            self.norm = nnx.LayerNorm(D, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(nnx.gelu(self.norm(self.first(x))))

    graph, state = nnx.split(Model())

    def nnx_step(state: Any, x: Any) -> Any:
        return jax.grad(lambda s: (nnx.merge(graph, s)(x) ** 2).mean())(state)

    return nnx_step, (state, normal(B, D))


def with_equinox() -> Model:
    import equinox as eqx

    mlp = eqx.nn.MLP(D, 3, 24, 2, key=jax.random.PRNGKey(0))
    arrays, rest = eqx.partition(mlp, eqx.is_array)

    def equinox_step(arrays: Any, x: Any) -> Any:
        def loss(arrays: Any) -> Any:
            return (jax.vmap(eqx.combine(arrays, rest))(x) ** 2).mean()

        return jax.grad(loss)(arrays)

    return equinox_step, (arrays, normal(B, D))


LIBRARIES = {
    "equinox_step": with_equinox,
    "linen_step": with_linen,
    "nnx_step": with_nnx,
}


# --- other counts of the same ---------------------------------------------------------


def jaxprs_of(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


def equations(jaxpr: Any, call: int = 0, times: int = 1) -> Iterator[tuple[Any, ...]]:
    """Yield line of this file, primitive and FLOPs of a product of each equation."""
    for equation in jaxpr.eqns:
        frames = getattr(equation.source_info.traceback, "frames", ())
        here = (of.line_num for of in frames if of.file_name == __file__)
        line = call or next(here, 0)
        name = equation.primitive.name
        yield line, name, times * products(name, equation)
        # What a library has jitted is traced once, wherever it was first called.
        inner_call = line if name in ("jit", "pjit") else call
        trips = equation.params["length"] if name == "scan" else 1
        for inner in jaxprs_of(equation):
            yield from equations(inner, inner_call, times * trips)


def products(name: str, equation: Any) -> int:
    if name not in ("dot_general", "conv_general_dilated"):
        return 0
    left, right = (of.aval.shape for of in equation.invars)
    out = math.prod(equation.outvars[0].aval.shape)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * int(out) * math.prod(int(left[at]) for at in contracted)
    kernel = equation.params["dimension_numbers"].rhs_spec
    return 2 * int(out * math.prod(right)) // int(right[kernel[0]])


def lines_of(text: str) -> Callable[[str], int]:
    """Return what returns the innermost line of this file, of a number of a frame."""
    tables: dict[str, dict[str, str]] = {}
    for head in text.partition("\n\n%")[0].splitlines():
        if re.fullmatch(r"[A-Za-z]+", head):
            tables[head] = {}
        elif (row := re.match(r"(\d+) (.*)", head)) and tables:
            list(tables.values())[-1][row[1]] = row[2]

    def line_of(frame: str) -> int:
        while above := tables["StackFrames"].get(frame, ""):
            place, parent = re.findall(r"=(\d+)", above)
            file, _, line = re.findall(r"=(\d+)", tables["FileLocations"][place])[:3]
            if tables["FileNames"][file] == json.dumps(__file__):
                return int(line)
            frame = str(int(parent) - 1)
        return 0

    return line_of


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, if it is stated, opcode and type of each instruction of *text*."""
    line_of = lines_of(text)
    for row in text.splitlines():
        if found := re.match(
            r"  (?:ROOT )?%?\S+ = (\(.*?\)|\S+) ([a-z][\w\-]*)\(", row
        ):
            frame = re.search(r"stack_frame_id=(\d+)", row)
            yield line_of(frame[1]) if frame else 0, found[2], found[1]


KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute")


def size(kind: str) -> int:
    found = re.findall(r"([a-z]+)(\d*)\[([\d,]*)\]", kind)
    return sum(
        math.prod(int(of) for of in lengths.split(",") if of) * int(bits or 8) // 8
        for _, bits, lengths in found
    )


def counted(function: Callable[..., Any], given: tuple[Any, ...], compiled: Any) -> Any:
    closed = jax.make_jaxpr(function)(*given)
    # JAX lowers what its results need.
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    found: dict[str, Any] = {"equations": 0, "constants": 0}
    lines: Any = defaultdict(lambda: {"equations": Counter(), "flops": 0})
    for line, name, flops in equations(jaxpr):
        found["equations"] += 1
        lines[line]["equations"][name] += 1
        lines[line]["flops"] += flops
    found["lines"] = lines
    found["constants"] = sum(np.asarray(of).nbytes for of in closed.consts)
    stated: Any = defaultdict(Counter)
    found["opcodes"], found["collectives"] = Counter(), Counter()
    for line, opcode, kind in instructions(compiled.as_text()):
        found["opcodes"][opcode] += 1
        if opcode not in ("fusion", "call"):
            stated[line][opcode] += 1
        if opcode in KINDS:
            found["collectives"][opcode] += size(kind)
    found["instructions"] = stated
    cost = compiled.cost_analysis()
    found["flops"] = (cost[0] if isinstance(cost, list) else cost)["flops"]
    found["temporary_bytes"] = compiled.memory_analysis().temp_size_in_bytes
    return found


def said(name: str) -> Any:
    """Return what the command prints of the function *name*."""
    shown = CliRunner().invoke(command, ["compiles", "--json", "--function", name])
    if shown.exit_code:
        raise SystemExit(shown.output)
    document = json.loads(shown.output)
    latest = document["latest"]
    by_name = {of["function"]: of for of in document["programs"]}
    return {**latest, "program": by_name[latest["function"]]}


def run(names: list[str]) -> None:
    # Read all programs, however little the process has done so far.
    WorkBudget.covers = lambda self: self is not None  # type: ignore[method-assign]
    agent = jaxmon.instrument(port=None, report=False)
    made = {function.__name__: (function, given) for function, given in models()}
    kept, found = [], {}
    for name in names:
        function, given = made[name] if name in made else LIBRARIES[name]()
        compiled = jax.jit(function).lower(*given).compile()
        kept.append(compiled)
        inside.programs(agent).finish(60)
        found[name] = {
            "said": said(name),
            "counted": counted(function, given, compiled),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    run(sys.argv[1:])
