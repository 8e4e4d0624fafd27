"""
A program that provokes recompiles, for the test of their causes.

Each case prepares a function and returns the call that makes JAX compile again. What
JAX compiles meanwhile is counted by a listener of the program's own. At the end it
prints, for each case, that count beside what jaxmon told, and the counters. It runs on
every supported JAX.
"""

from __future__ import annotations

import collections
import enum
import functools
import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np

import jaxmon
from jaxmon.agent.guard import Guard


NamedSharding = jax.sharding.NamedSharding
P = jax.sharding.PartitionSpec
Again = Callable[[], object]

CASES: dict[str, Callable[[], Again]] = {}
DEVICES = jax.devices()


def case(prepare: Callable[[], Again]) -> Callable[[], Again]:
    """
    Register a case: *prepare* makes the first calls and returns the one to look at.
    """
    CASES[prepare.__name__] = prepare
    return prepare


def array(*shape: int, dtype: Any = np.float32) -> Any:
    """
    Return an array that is committed to no device.
    """
    return jax.device_put(np.zeros(shape, dtype))


def on(device: int, *shape: int) -> Any:
    return jax.device_put(np.zeros(shape, np.float32), DEVICES[device])


def spread(*spec: Any, axes: tuple[str, ...] = ("d",), shape: Any = (8,)) -> Any:
    mesh = jax.sharding.Mesh(np.array(DEVICES).reshape(shape), axes)
    return jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, P(*spec)))


def scaled(factor: int, x: Any) -> Any:
    return x * factor


# --- shapes ------------------------------------------------------------------


@case
def shape() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: f(array(4))


@case
def shape_in_a_dict() -> Again:
    @jax.jit
    def f(batch):
        return batch["x"] + 1

    f({"x": array(32, 128), "y": array(32)})
    return lambda: f({"x": array(33, 128), "y": array(32)})


@case
def shape_deep_inside() -> Again:
    @jax.jit
    def f(params):
        return params["layers"][1]["w"] + 1

    f({"layers": [{"w": array(2)}, {"w": array(2)}]})
    return lambda: f({"layers": [{"w": array(2)}, {"w": array(3)}]})


@case
def shape_of_two_arguments() -> Again:
    @jax.jit
    def f(x, y):
        return x + y

    f(array(3), array(3))
    return lambda: f(array(4), array(4))


@case
def shape_of_another_rank() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array())
    return lambda: f(array(1))


@case
def shape_without_elements() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3, 2))
    return lambda: f(array(0, 2))


@case
def shape_among_star_args() -> Again:
    @jax.jit
    def f(first, *rest):
        return [x + 1 for x in (first, *rest)]

    f(array(1), array(2), array(3))
    return lambda: f(array(1), array(2), array(4))


@case
def shape_of_an_argument_by_name() -> Again:
    @jax.jit
    def f(x, *, scale):
        return x, scale + 1

    f(array(1), scale=array(2))
    return lambda: f(array(1), scale=array(3))


@case
def shape_among_star_kwargs() -> Again:
    @jax.jit
    def f(x, **others):
        return x, others["b"] + 1

    f(array(1), b=array(2), a=array(1))
    return lambda: f(array(1), b=array(3), a=array(1))


class State(NamedTuple):
    step: Any
    params: Any


@case
def shape_in_a_named_tuple() -> Again:
    @jax.jit
    def f(state):
        return state.params + 1

    f(State(array(), array(2)))
    return lambda: f(State(array(), array(3)))


@jax.tree_util.register_pytree_with_keys_class
class Module:
    """
    A class with named children and a static part.
    """

    def __init__(self, weight: Any, activation: str) -> None:
        self.weight, self.activation = weight, activation

    def tree_flatten_with_keys(self) -> Any:
        key = jax.tree_util.GetAttrKey("weight")
        return ((key, self.weight),), self.activation

    @classmethod
    def tree_unflatten(cls, static: str, children: Any) -> Module:
        return cls(children[0], static)


@case
def shape_in_a_class() -> Again:
    @jax.jit
    def f(model):
        return model.weight + 1

    f(Module(array(2), "relu"))
    return lambda: f(Module(array(3), "relu"))


@jax.tree_util.register_pytree_node_class
class Pair:
    """
    A class whose children have no names.
    """

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> Any:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Pair:
        return cls(*children)


@case
def shape_in_a_class_without_names() -> Again:
    @jax.jit
    def f(pair):
        return pair.children[1] + 1

    f(Pair(array(2), array(2)))
    return lambda: f(Pair(array(2), array(3)))


@case
def shape_closest_to_an_older_one() -> Again:
    @jax.jit
    def f(x, y):
        return x + 1, y + 1

    f(array(1), array(1))
    f(array(5), array(5))
    f(array(6), array(6))
    return lambda: f(array(1), array(2))


# --- dtypes ------------------------------------------------------------------


@case
def dtype() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: f(array(3, dtype=np.int32))


@case
def dtype_bfloat16() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    half = array(3, dtype=jax.numpy.bfloat16)
    f(array(3))
    return lambda: f(half)


@case
def dtype_and_shape() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: f(array(4, dtype=np.int32))


@case
def dtype_of_python_numbers() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(1)
    return lambda: f(1.5)


@case
def dtype_of_keys() -> Again:
    @jax.jit
    def f(key):
        return jax.random.uniform(key)

    old, new = jax.random.PRNGKey(0), jax.random.key(0)
    f(old)
    return lambda: f(new)


@case
def dtype_and_weak_type() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(1)
    return lambda: f(np.float32(1))


# --- weak types --------------------------------------------------------------


@case
def weak_type() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(1.0)
    return lambda: f(np.float32(1))


@case
def weak_type_now() -> Again:
    @jax.jit
    def f(x, rate):
        return x * rate

    f(array(3), array(dtype=np.int32))
    return lambda: f(array(3), 2)


# --- static arguments --------------------------------------------------------


@case
def static_number() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, n):
        return x * n

    f(array(3), 3)
    return lambda: f(array(3), 4)


@case
def static_name() -> Again:
    @functools.partial(jax.jit, static_argnames="mode")
    def f(x, *, mode):
        return x, mode == "a"

    f(array(3), mode="train")
    return lambda: f(array(3), mode="eval")


@case
def static_numbers_of_one_hash() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, axis):
        return x.sum(axis)

    f(array(3, 3), -1)
    return lambda: f(array(3, 3), -2)


@case
def static_left_out() -> Again:
    @functools.partial(jax.jit, static_argnames="n")
    def f(x, n=2):
        return x * n

    f(array(3))
    return lambda: f(array(3), n=2)


@case
def static_by_name_now() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, n):
        return x * n

    f(array(3), 3)
    return lambda: f(array(3), n=3)


@case
def static_tuple() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, sizes):
        return x.reshape(sizes)

    f(array(6), (2, 3))
    return lambda: f(array(6), (3, 2))


@case
def static_of_another_type() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, flag):
        return x * flag

    f(array(3), True)  # noqa: FBT003 - a static value
    return lambda: f(array(3), 1)


@case
def static_lambda() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, activation):
        return activation(x)

    def call() -> object:
        return f(array(3), lambda x: x + 1)

    call()
    return call


class Config:
    """
    An object that is hashed by identity, and has a text that cannot be had.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        raise AssertionError


@case
def static_object() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(config, x):
        return x * config.size

    f(Config(2), array(3))
    return lambda: f(Config(2), array(3))


@dataclass(frozen=True)
class Options:
    """
    An object that is hashed by value.
    """

    size: int
    name: str = "net"


@case
def static_dataclass() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(options, x):
        return x * options.size

    f(Options(2), array(3))
    return lambda: f(Options(4), array(3))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@case
def static_enum() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(color, x):
        return x * color.value

    f(Color.RED, array(3))
    return lambda: f(Color.BLUE, array(3))


class Holder:
    """
    A hashable object with an array in it.
    """

    def __init__(self, values: Any) -> None:
        self.values = values


@case
def static_object_with_an_array() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(holder, x):
        return x * holder.values

    f(Holder(np.ones(3)), array(3))
    return lambda: f(Holder(np.ones(3)), array(3))


@case
def static_text_too_long() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(text, x):
        return x * len(text)

    f("a" * 500, array(3))
    return lambda: f("b" * 500, array(3))


@case
def static_partial() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(fun, x):
        return fun(x)

    f(functools.partial(scaled, 3), array(3))
    return lambda: f(functools.partial(scaled, 3), array(3))


class Model:
    """
    A class whose methods are jitted.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @functools.partial(jax.jit, static_argnums=0)
    def method(self, x: Any) -> Any:
        return x * self.size

    def plain(self, x: Any) -> Any:
        return x * self.size

    def jits_inside(self, x: Any) -> Any:
        @jax.jit
        def step(x):
            return x * self.size

        return step(x)


@case
def static_self() -> Again:
    Model(2).method(array(3))
    return lambda: Model(2).method(array(3))


# --- structures --------------------------------------------------------------


def tree_case(before: Any, after: Any) -> Again:
    @jax.jit
    def f(x):
        return [leaf + 1 for leaf in jax.tree_util.tree_leaves(x)]

    f(before)
    return lambda: f(after)


@case
def key_added() -> Again:
    return tree_case({"a": array(1)}, {"a": array(1), "mask": array(2)})


@case
def key_removed() -> Again:
    return tree_case({"a": array(1), "b": array(2), "c": array(3)}, {"b": array(2)})


@case
def key_renamed() -> Again:
    return tree_case({"x": {"a": array(1)}}, {"x": {"b": array(1)}})


@case
def key_added_and_a_shape() -> Again:
    return tree_case(
        {"a": array(1), "z": array(1)}, {"a": array(1), "b": array(2), "z": array(9)}
    )


@case
def leaf_became_none() -> Again:
    return tree_case({"x": array(1), "mask": array(2)}, {"x": array(1), "mask": None})


@case
def none_became_a_leaf() -> Again:
    return tree_case([array(1), None], [array(1), array(2)])


@case
def tuple_longer() -> Again:
    return tree_case((array(1), array(1)), (array(1), array(1), array(1)))


@case
def list_became_tuple() -> Again:
    return tree_case([array(1), array(1)], (array(1), array(1)))


@case
def leaf_became_a_dict() -> Again:
    return tree_case({"w": array(1)}, {"w": {"q": array(1), "scale": array()}})


@case
def ordered_dict_became_a_dict() -> Again:
    return tree_case(collections.OrderedDict(a=array(1)), {"a": array(1)})


@case
def static_part_of_a_class() -> Again:
    return tree_case(Module(array(1), "relu"), Module(array(1), "gelu"))


@case
def class_defined_again() -> Again:
    def point() -> Any:
        class Point(NamedTuple):
            x: Any

        return Point(array(1))

    return tree_case(point(), point())


@case
def argument_given() -> Again:
    @jax.jit
    def f(x, mask=None):
        return x if mask is None else x * mask

    f(array(3))
    return lambda: f(array(3), array(3))


@case
def argument_by_name_now() -> Again:
    @jax.jit
    def f(x, y):
        return x + y

    f(array(3), array(3))
    return lambda: f(array(3), y=array(3))


# --- where arrays are --------------------------------------------------------


@case
def committed() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: f(on(1, 3))


@case
def committed_no_more() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(on(0, 3))
    return lambda: f(array(3))


@case
def device() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(on(0, 3))
    return lambda: f(on(1, 3))


@case
def device_of_one_argument() -> Again:
    @jax.jit
    def f(batch):
        return batch["x"] + 1

    f({"x": on(2, 3)})
    return lambda: f({"x": on(3, 3)})


@case
def sharding() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(spread("d"))
    return lambda: f(spread())


@case
def sharding_of_another_axis() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(spread("d"))
    return lambda: f(spread(None, "d"))


@case
def sharding_on_another_mesh() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(spread("d"))
    return lambda: f(spread("a", "b", axes=("a", "b"), shape=(2, 4)))


@case
def sharding_from_one_device() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(8, 8))
    return lambda: f(spread("d"))


# --- configuration and options -----------------------------------------------


def under(setting: str, call: Again, *, value: object) -> Again:
    def again() -> object:
        before = getattr(jax.config, setting)
        jax.config.update(setting, value)
        try:
            return call()
        finally:
            jax.config.update(setting, before)

    return again


def configured(setting: str, *, value: object) -> Again:
    @jax.jit
    def f(x):
        return x @ x

    x = array(3, 3)
    f(x)
    return under(setting, lambda: f(x), value=value)


@case
def x64() -> Again:
    return configured("jax_enable_x64", value=True)


@case
def x64_and_what_follows() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(1.0)
    return under("jax_enable_x64", lambda: f(1.0), value=True)


@case
def matmul_precision() -> Again:
    return configured("jax_default_matmul_precision", value="highest")


@case
def rank_promotion() -> Again:
    return configured("jax_numpy_rank_promotion", value="raise")


@case
def dtype_promotion() -> Again:
    @jax.jit
    def f(x):
        return x + x

    f(array(3))

    def again() -> object:
        with jax.numpy_dtype_promotion("strict"):
            return f(array(3))

    return again


@case
def default_device() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    x = np.ones(3, np.float32)
    f(x)

    def again() -> object:
        with jax.default_device(DEVICES[2]):
            return f(x)

    return again


@case
def donated() -> Again:
    def f(x):
        return x + 1

    jax.jit(f)(array(3))
    return lambda: jax.jit(f, donate_argnums=0)(array(3))


@case
def output_sharding() -> Again:
    def f(x):
        return x + 1

    out = spread("d").sharding
    jax.jit(f)(spread("d"))
    return lambda: jax.jit(f, out_shardings=out)(spread("d"))


# --- functions made again ----------------------------------------------------


@case
def new_lambda() -> Again:
    def call() -> object:
        return jax.jit(lambda x: x * 2)(array(3))

    call()
    return call


@case
def new_lambda_and_a_shape() -> Again:
    def call(size: int) -> object:
        return jax.jit(lambda x: x * 2)(array(size))

    call(3)
    return lambda: call(4)


@case
def new_partial() -> Again:
    def call() -> object:
        return jax.jit(functools.partial(scaled, 2))(array(3))

    call()
    return call


@case
def new_closure() -> Again:
    def make(factor: int) -> Any:
        @jax.jit
        def step(x):
            return x * factor

        return step

    make(2)(array(3))
    return lambda: make(2)(array(3))


@case
def jit_inside_a_method() -> Again:
    model = Model(2)
    model.jits_inside(array(3))
    return lambda: model.jits_inside(array(3))


@case
def new_bound_method() -> Again:
    jax.jit(Model(2).plain)(array(3))
    return lambda: jax.jit(Model(3).plain)(array(3))


@case
def new_pmapped_lambda() -> Again:
    def call() -> object:
        return jax.pmap(lambda x: x * 2)(np.ones((8, 3), np.float32))

    call()
    return call


# --- programs dropped --------------------------------------------------------


@case
def caches_cleared() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    x = array(3)
    f(x)

    def again() -> object:
        jax.clear_caches()
        return f(x)

    return again


@case
def function_cleared() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    x = array(3)
    f(x)

    def again() -> object:
        f.clear_cache()
        return f(x)

    return again


# --- pmap --------------------------------------------------------------------


@case
def pmap_shape() -> Again:
    @jax.pmap
    def f(x, batch):
        return x + batch["y"]

    f(np.ones((8, 1), np.float32), {"y": np.ones((8, 2), np.float32)})
    return lambda: f(np.ones((8, 1), np.float32), {"y": np.ones((8, 3), np.float32)})


@case
def pmap_static() -> Again:
    @functools.partial(jax.pmap, static_broadcasted_argnums=1)
    def f(x, n):
        return x * n

    f(np.ones((8, 1), np.float32), 2)
    return lambda: f(np.ones((8, 1), np.float32), 3)


# --- no recompiles -----------------------------------------------------------


@case
def numpy_in_place_of_jax() -> Again:
    @jax.jit
    def f(batch):
        return batch["x"] + 1

    f({"x": array(3)})

    def again() -> object:
        for _ in range(3):
            f({"x": np.zeros(3, np.float32)})
        return None

    return again


@case
def effects() -> Again:
    @jax.jit
    def f(x):
        jax.debug.callback(lambda: None, ordered=True)
        return x

    x = array(3)
    f(x)

    def again() -> object:
        for _ in range(100):
            f(x)
        return jax.effects_barrier()

    return again


@case
def ahead_of_time() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: f.lower(array(4)).compile()


@case
def transformed() -> Again:
    @jax.jit
    def f(x):
        return x.sum()

    f(array(3))
    x = array(5)
    return lambda: jax.grad(f)(x)


@case
def first_call() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    return lambda: f(array(3))


compiles = 0


def listen(event: str, _: float, **__: object) -> None:
    global compiles
    compiles += event == "/jax/core/compile/backend_compile_duration"


Guard.strict = True
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0)
jax.monitoring.register_event_duration_secs_listener(listen)
events = agent._context.events
found = {}
for name, prepare in CASES.items():
    again = prepare()
    before, known = compiles, max((e.number for e in events.since()), default=0)
    again()
    told = [e for e in events.since(known) if e.kind in ("recompile", "miss")]
    told = [e for e in told if str(e.function).startswith("__main__.")]
    found[name] = {
        "compiles": compiles - before,
        "events": [
            {"kind": e.kind, "function": e.function, "message": e.message, **e.details}
            for e in told
        ],
    }

assert agent.url is not None
page = urllib.request.urlopen(agent.url, timeout=10).read().decode()
every = [(e.function, e.details["cause"]) for e in events.since(kind="recompile")]
print(json.dumps({"cases": found, "told": every, "page": page}))
jaxmon.uninstrument()
