"""
A program whose counts are known, for the ground-truth tests.

It keeps its own books: calls as it makes them, misses as JAX's rules say, traces in the
Python bodies, compiles and traces from JAX's own log. At the end it prints those and
the agent's page as JSON. It runs on every supported JAX.
"""

import functools
import json
import logging
import math
import os
import re
import sys
import urllib.request
from collections import Counter, defaultdict


os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from jaxmon.agent.guard import Guard


calls: Counter[str] = Counter()
misses: Counter[str] = Counter()
traces: Counter[str] = Counter()
errors: Counter[str] = Counter()
recompiles: Counter[str] = Counter()
compiled: Counter[str] = Counter()
compile_seconds: defaultdict[str, float] = defaultdict(float)
lowered: Counter[str] = Counter()
failed: Counter[str] = Counter()
tracing_outer = False


class JaxLog(logging.Handler):
    """Counts what JAX itself logs."""

    FINISHED = re.compile(r"Finished (.*) (?:of|conversion) (.*) in (\S+) sec")
    WRAPPED = re.compile(r"(?:jit|pmap)\((.*)\)")
    # What pmap calls the program since it is made of shard_map.
    PMAPPED = ("_fun", "call_wrapped")

    def emit(self, record: logging.LogRecord) -> None:
        found = self.FINISHED.match(record.getMessage())
        if found is None:
            return
        what, name, seconds = found.groups()
        if wrapped := self.WRAPPED.fullmatch(name):
            name = wrapped[1]
        name = "pmapped" if name in self.PMAPPED else name
        if what == "XLA compilation":
            compiled[name] += 1
            compile_seconds[name] += float(seconds)
        elif what == "jaxpr to MLIR module":
            lowered[name] += 1


def call(name, fn, *args, miss=False, recompile=None, error=None, **kwargs):
    """Call *fn* and enter in the books what should have happened."""
    calls[name] += 1
    misses[name] += miss
    if recompile:
        recompiles[f"{name} {recompile}"] += 1
    if error is None:
        return fn(*args, **kwargs)
    errors[name] += 1
    try:
        fn(*args, **kwargs)
    except error:
        return None
    msg = f"{name} should have raised {error}"
    raise AssertionError(msg)


def early_body(x):
    traces["early_body"] += 1
    return x - 1


early = jax.jit(early_body)
from jax import jit as bound_before  # noqa: E402 - bound before instrument()


Guard.strict = True
agent = jaxmon.instrument(port=0, memory_interval=0)
jax.config.update("jax_log_compiles", val=True)
for logger in ("jax._src.dispatch", "jax._src.interpreters.pxla"):
    logging.getLogger(logger).addHandler(JaxLog())
    logging.getLogger(logger).propagate = False

ARRAYS = {n: jax.device_put(np.ones(n, np.float32)) for n in (2, 3, 4, 5, 6)}
x3, x4 = ARRAYS[3], ARRAYS[4]


# Functions jitted, or jit bound, before instrument(): compile metrics and misses.
for x, miss in ((x3, True), (x3, False), (x4, True)):
    misses["early_body"] += miss
    early(x)
recompiles["early_body shape"] += 1


@bound_before
def bound(x):
    traces["bound"] += 1
    return x + 2


call("bound", bound, x3, miss=True)
call("bound", bound, x3)


# Shapes, dtypes, weak types.
@jax.jit
def shapes(x):
    traces["shapes"] += 1
    return x * 2


call("shapes", shapes, x3, miss=True)
for _ in range(10):
    call("shapes", shapes, x3)
call("shapes", shapes, x4, miss=True, recompile="shape")
call("shapes", shapes, ARRAYS[5], miss=True, recompile="shape")
call("shapes", shapes, x3)
call("shapes", shapes, x3.astype(jnp.int32), miss=True, recompile="dtype")


# Static arguments, by position and by name.
@functools.partial(jax.jit, static_argnums=1, static_argnames="k")
def static(x, n, *, k):
    traces["static"] += 1
    return x * n + k


call("static", static, x3, 2, miss=True, k=1)
call("static", static, x3, 2, k=1)
call("static", static, x3, 3, miss=True, recompile="static_argument", k=1)
call("static", static, x3, 3, miss=True, recompile="static_argument", k=2)
call("static", static, x3, 2, k=1)


# Methods, through the class and bound.
class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def method(self, x):
        traces["Model.method"] += 1
        return x + 1

    def plain(self, x):
        traces["Model.plain"] += 1
        return x + 3


model = Model()
call("Model.method", model.method, x3, miss=True)
call("Model.method", model.method, x3)
call("Model.method", Model.method, model, x3)
plain = jax.jit(model.plain)
call("Model.plain", plain, x3, miss=True)
call("Model.plain", plain, x3)


# Nested: the inner call is not a call of the program while the outer is traced.
@jax.jit
def inner(x):
    traces["inner"] += not tracing_outer
    return x * 3


@jax.jit
def outer(x):
    global tracing_outer
    traces["outer"] += 1
    tracing_outer = True
    result = inner(x) + inner(x)
    tracing_outer = False
    return result


call("outer", outer, x3, miss=True)
call("outer", outer, x3)
call("inner", inner, x4, miss=True)
call("inner", inner, x4)


# Donated arguments.
@functools.partial(jax.jit, donate_argnums=0)
def donating(x):
    traces["donating"] += 1
    return x + 1


state = jax.device_put(np.zeros(7, np.float32))
state = call("donating", donating, state, miss=True)
for _ in range(4):
    state = call("donating", donating, state)


# Failing: while tracing, and on a deleted array.
@jax.jit
def failing(x):
    traces["failing"] += 1
    raise ZeroDivisionError


for _ in range(2):
    call("failing", failing, x3, miss=True, error=ZeroDivisionError)


@jax.jit
def fragile(x):
    traces["fragile"] += 1
    return x + 5


gone = jax.device_put(np.ones(3, np.float32))
call("fragile", fragile, gone, miss=True)
gone.delete()
call("fragile", fragile, gone, miss=True, error=RuntimeError)


# Ahead of time: no call, but a trace, a lowering and a compile.
@jax.jit
def ahead(x):
    traces["ahead"] += 1
    return x * 5


executable = ahead.lower(x3).compile()
executable(x3)
ahead.trace(x4).lower().compile()
try:
    ahead.lower(x3).compile(compiler_options={"xla_no_such_option": "1"})
except Exception as error:  # the class differs between versions
    assert "xla_no_such_option" in str(error), error
    failed["ahead"] += 1
else:
    raise AssertionError


# Transformations of jitted functions: calls that JAX makes are not the program's.
@jax.jit
def transformed(x):
    traces["transformed"] += 1
    return (x * x).sum()


jax.vmap(transformed)(jax.device_put(np.ones((2, 3), np.float32)))
jax.grad(transformed)(x3)
jax.value_and_grad(transformed)(x3)
call("transformed", transformed, x3, miss=True)
jax.lax.scan(lambda c, x: (c + transformed(x), None), 0.0, jnp.ones((4, 3)))


# A new function at the same place each time.
def loop(x):
    for n in range(5):
        # One lambda each time: JAX compiles each anew.
        call(
            "loop.<locals>.<lambda>",
            jax.jit(lambda x: (traces.update(["loop.<locals>.<lambda>"]), x + 7)[1]),
            x,
            miss=True,
            recompile="new_function" if n else None,
        )


loop(x3)


# The same function jitted again: the C++ cache is shared.
def again(x):
    traces["again"] += 1
    return x - 7


call("again", jax.jit(again), x3, miss=True)
for _ in range(4):
    call("again", jax.jit(again), x3)


# Effects: every call takes the miss path, none compiles again.
@jax.jit
def effectful(x):
    traces["effectful"] += 1
    jax.debug.callback(lambda: None, ordered=True)
    return x + 11


for _ in range(3):
    call("effectful", effectful, x3, miss=True)
jax.effects_barrier()


# On several devices.
def pmapped(x):
    traces["pmapped"] += 1
    return x * 13


parallel = jax.pmap(pmapped)
sharded = np.ones((8, 2), np.float32)
call("pmapped", parallel, sharded, miss=True)
for _ in range(3):
    call("pmapped", parallel, sharded)

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
spec = jax.sharding.PartitionSpec("d")
try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map


def per_shard(x):
    traces["per_shard"] += 1
    return x + 17


mapped = jax.jit(shard_map(per_shard, mesh=mesh, in_specs=spec, out_specs=spec))
spread = jax.device_put(np.ones(16, np.float32), jax.sharding.NamedSharding(mesh, spec))
call("per_shard", mapped, spread, miss=True)
call("per_shard", mapped, spread)


def held():
    """Return arrays and bytes on each device, of JAX's own list."""
    live = jax.live_arrays()
    return {
        str(d.id): [
            sum(d in a.sharding.device_set for a in live),
            # Not from the shards: their data would be arrays of their own.
            sum(
                math.prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize
                for a in live
                if d in a.sharding.device_set
            ),
        ]
        for d in jax.devices()
    }


# The figures on the page are those of the last refresh. The agent holds the results of
# sampled calls until they are ready, so arrays may end before or after it.
now = None
while now != (now := held()):
    agent.refresh()
print("ready", flush=True, file=sys.stderr)
assert agent.url is not None
page = urllib.request.urlopen(agent.url, timeout=60).read().decode()
print(
    json.dumps(
        {
            "jax": jax.__version__,
            "calls": calls,
            "misses": misses,
            "traces": traces,
            "errors": errors,
            "failed": failed,
            "recompiles": recompiles,
            "compiled": compiled,
            "compile_seconds": compile_seconds,
            "lowered": lowered,
            "live": now,
            "page": page,
        }
    )
)
jaxmon.uninstrument()
