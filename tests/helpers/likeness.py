"""
What programs do with `jax.jit`, and what expressions give for an object and for what
stands for it: results to be compared.
"""

import copy
import functools
import inspect
import pickle
import re
import traceback
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers.processes import ROOT


THEIR_NAME = f"{type(jax.jit(len)).__module__}.PjitFunction"
# Part of messages since Python 3.14, as THEIR_NAME is of others.
OUR_NAME = "jaxmon.agent.counted.PjitFunction"
PAGE = ROOT / "docs" / "decisions" / "0002-hooks-without-a-frame.md"

MODULES = [
    "collections",
    "copy",
    "functools",
    "gc",
    "inspect",
    "numpy",
    "operator",
    "pickle",
    "pydoc",
    "sys",
    "types",
    "unittest.mock",
    "weakref",
]


def text_of(found: Any) -> str:
    return f"{type(found).__name__} {without_addresses(repr(found))}"


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def outcome(expression: str, names: dict[str, Any]) -> tuple[str, ...]:
    """
    Return the kind and text of what *expression* gives, or of what it raises and the
    functions that its traceback passes.
    """
    try:
        return "value", text_of(eval(expression, names))  # noqa: S307 - ours
    except Exception as error:  # noqa: BLE001 - compared
        # The interpreter's messages name our type without a module; the page says so.
        text = without_addresses(str(error))
        for name in (THEIR_NAME, OUR_NAME):
            text = text.replace(name, "PjitFunction")
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.name} in {frame.filename}" for frame in frames]
        return "error", type(error).__name__, text, *where


def body(x: Any, n: int = 2) -> Any:
    return x * n


body_itself = body


class Model:
    def __init__(self, jit: Callable[..., Any]) -> None:
        self.bound = jit(self.plus)

    def plus(self, x: Any) -> Any:
        return x + 1


def method_of(jit: Callable[..., Any]) -> Any:
    class Owner:
        scale = 3

        @functools.partial(jit, static_argnums=0)
        def times(self, x: Any) -> Any:
            return x * self.scale

        @classmethod
        @functools.partial(jit, static_argnums=0)
        def kind(cls, x: Any) -> Any:
            return x * cls.scale

        @staticmethod
        @jit
        def free(x: Any) -> Any:
            return x * 5

    owner = Owner()
    return (
        owner.times(2.0),
        Owner.times(owner, 2.0),
        Owner.kind(2.0),
        owner.free(2.0),
        inspect.ismethod(owner.times),
        owner.times.__self__ is owner,
        owner.times == owner.times,
        str(inspect.signature(owner.times)),
        owner.times.__name__,
    )


def attributes_of(jitted: Any) -> dict[str, Any]:
    names = (
        "__module__",
        "__name__",
        "__qualname__",
        "__doc__",
        "__annotations__",
        "__wrapped__",
    )
    return {name: getattr(jitted, name, "none") for name in names}


def custom_rules(jit: Callable[..., Any]) -> Any:
    @jax.custom_vjp  # type: ignore[untyped-decorator]
    @jit
    def doubled(x: Any) -> Any:
        return x * 2

    doubled.defvjp(jit(lambda x: (x * 2, None)), jit(lambda _, g: (g * 7,)))

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    @jit
    def tripled(x: Any) -> Any:
        return x * 3

    tripled.defjvp(jit(lambda primals, tangents: (primals[0] * 3, tangents[0] * 9)))
    return jax.grad(doubled)(1.0), jax.grad(jit(tripled))(1.0)


def sharded(jit: Callable[..., Any]) -> Any:
    shard_map: Any = getattr(jax, "shard_map", None)
    if shard_map is None:
        shard_map = import_module("jax.experimental.shard_map").shard_map
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    inner = shard_map(jit(body), mesh=mesh, in_specs=(spec,), out_specs=spec)
    return inner(np.ones(4)), jit(inner)(np.ones(4))


def exported(jit: Callable[..., Any]) -> Any:
    pytest.importorskip("absl")  # jax.export of 0.4.35 needs it
    from jax import export

    return export.export(jit(body, static_argnums=1))(np.ones(3), 2).mlir_module()


def ahead_of_time(jit: Callable[..., Any]) -> Any:
    jitted = jit(body, static_argnums=1)
    lowered = jitted.lower(np.ones(3), 2)
    traced = jitted.trace(np.ones(3), 2)
    return (
        lowered.as_text(),
        lowered.compile()(np.ones(3)),
        str(traced.jaxpr),
        traced.lower().compile()(np.ones(3)),
        jitted.eval_shape(np.ones(3), 2),
    )


def caches(jit: Callable[..., Any]) -> Any:
    jitted = jit(lambda x: x + 1)
    sizes = [jitted._cache_size()]
    for shape in (1, 2, 2, 3):
        jitted(np.ones(shape))
        sizes.append(jitted._cache_size())
    jitted.clear_cache()
    return [*sizes, jitted._cache_size(), jitted(np.ones(1)), jitted._cache_size()]


def failure(run: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared, whatever it is
        run()
    return caught.type.__name__, str(caught.value)


def disabled(jit: Callable[..., Any]) -> Any:
    jitted = jit(lambda x: type(x).__name__ == "ArrayImpl" or float(x))
    with jax.disable_jit():
        return jitted(np.float32(2))


def attribute_set(jitted: Any) -> tuple[Any, ...]:
    jitted.note = "mine"
    jitted.__name__ = "renamed"
    return jitted.note, jitted.__name__, vars(jitted)["note"]


def weakref_works(jitted: Any) -> tuple[bool, bool]:
    reference = weakref.ref(jitted)
    alive = reference() is jitted
    del jitted
    return alive, reference() is None


def caches_cleared(jit: Callable[..., Any]) -> Any:
    jitted = jit(body)
    results = [jitted(3.0)]
    jax.clear_caches()
    return [*results, jitted(3.0), jitted._cache_size()]


def leaks_checked(jit: Callable[..., Any]) -> Any:
    with jax.checking_leaks():
        return jit(lambda x: jit(body)(x) + 1)(3.0)


def pickled(jit: Callable[..., Any]) -> Any:
    # As with @jax.jit at the top of a module: the name is the jitted function.
    jitted = globals()["body"] = jit(body_itself)
    try:
        return pickle.loads(pickle.dumps(jitted))(3.0)  # noqa: S301 - our own
    except Exception as error:  # noqa: BLE001 - compared
        return type(error).__name__
    finally:
        globals()["body"] = body_itself


def comparable(result: Any) -> Any:
    return jax.tree_util.tree_map(
        lambda leaf: leaf.tolist() if hasattr(leaf, "tolist") else leaf, result
    )


PARTIAL = functools.partial(body, n=3)
EVALUATES_STATIC = "PjitFunction" in jax.eval_shape.__code__.co_names

CASES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "call": lambda jit: jit(body)(3.0),
    "keywords": lambda jit: jit(body, static_argnames="n")(x=3.0, n=4),
    "dunder call": lambda jit: jit(body).__call__(3.0),
    "partial": lambda jit: functools.partial(jit(body), 3.0)(),
    "jit of partial": lambda jit: jit(functools.partial(body, n=4))(3.0),
    "map": lambda jit: list(map(jit(body), [1.0, 2.0])),
    "vmap": lambda jit: jax.vmap(jit(body))(np.ones(3)),
    "grad": lambda jit: jax.grad(jit(body))(3.0),
    "value and grad": lambda jit: jax.value_and_grad(jit(lambda x: x**3))(3.0),
    "jvp": lambda jit: jax.jvp(jit(body), (3.0,), (1.0,)),
    "linearize": lambda jit: jax.linearize(jit(jnp.sin), 1.0)[1](1.0),
    "hessian": lambda jit: jax.hessian(jit(lambda x: x**3))(3.0),
    "nested": lambda jit: jit(lambda x: jit(body)(x) + 1)(3.0),
    "jit of jitted": lambda jit: jit(jit(body))(3.0),
    "scan": lambda jit: jax.lax.scan(jit(lambda c, x: (c + x, c)), 0.0, np.arange(4.0)),
    "while": lambda jit: jax.lax.while_loop(
        jit(lambda c: c < 5), jit(lambda c: c + 1), 0
    ),
    "cond": lambda jit: jax.lax.cond(np.True_, jit(jnp.sin), jit(jnp.cos), 1.0),
    "map over rows": lambda jit: jax.lax.map(jit(body), np.ones(3)),
    "checkpoint": lambda jit: jax.grad(jax.checkpoint(jit(jnp.sin)))(1.0),
    "jit of checkpoint": lambda jit: jax.grad(jit(jax.checkpoint(jnp.sin)))(1.0),
    "custom rules": custom_rules,
    "shard_map": sharded,
    "export": exported,
    "ahead of time": ahead_of_time,
    "eval_shape": lambda jit: jax.eval_shape(jit(body), np.ones(3)),
    "eval_shape static": lambda jit: (
        jax.eval_shape(
            jit(lambda n, x: x.reshape(n, -1), static_argnums=0), 2, np.ones(4)
        )
        if EVALUATES_STATIC
        else None
    ),
    "eval_shape of plain": lambda _: jax.eval_shape(body, np.ones(3)),
    "make_jaxpr": lambda jit: str(jax.make_jaxpr(jit(body))(np.ones(3))),
    "make_jaxpr static": lambda jit: str(
        jax.make_jaxpr(jit(body, static_argnums=1), static_argnums=1)(np.ones(3), 2)
    ),
    "closure_convert": lambda jit: jax.closure_convert(jit(jnp.sin), 1.0)[0](1.0),
    "donated": lambda jit: jit(body, donate_argnums=0)(jnp.ones(3)),
    "pure_callback": lambda jit: jit(
        lambda x: jax.pure_callback(
            lambda y: np.asarray(y) + 1, jax.ShapeDtypeStruct((), np.float32), x
        )
    )(np.float32(1)),
    "disabled": disabled,
    "methods": method_of,
    "bound": lambda jit: Model(jit).bound(1.0),
    "caches": caches,
    "caches cleared": caches_cleared,
    "leaks checked": leaks_checked,
    "attributes": lambda jit: attributes_of(jit(body)),
    "attributes of partial": lambda jit: attributes_of(jit(PARTIAL)),
    "attributes set": lambda jit: attribute_set(jit(body)),
    "signature": lambda jit: str(inspect.signature(jit(body))),
    "unwrap": lambda jit: inspect.unwrap(jit(body)) is body,
    "wrapped": lambda jit: isinstance(jit(body), jax.stages.Wrapped),
    "callable": lambda jit: callable(jit(body)),
    "iterable": lambda jit: np.iterable(jit(body)),
    "coroutine": lambda jit: inspect.iscoroutinefunction(jit(body)),
    "type": lambda jit: "PjitFunction" in str(type(jit(body))),
    "repr": lambda jit: without_addresses(repr(jit(body))),
    "str": lambda jit: without_addresses(str(jit(body))),
    "equality": lambda jit: len(dict.fromkeys([jit(body)] * 2, 1)),
    "weakref": lambda jit: weakref_works(jit(body)),
    "leaf": lambda jit: jax.tree_util.tree_structure(jit(body)),
    "copy": lambda jit: copy.copy(jit(body))(3.0),
    "deepcopy": lambda jit: copy.deepcopy(jit(body))(3.0),
    "pickle": pickled,
    "state": lambda jit: jit(body).__getstate__()["function_name"],
    "dir": lambda jit: dir(jit(body)),
    "not callable": lambda jit: failure(lambda: jit(3)),
    "wrong arguments": lambda jit: failure(jit(body)),
    "wrong type": lambda jit: failure(lambda: jit(body)("text")),
    "unhashable": lambda jit: failure(lambda: jit(body, static_argnums=1)(1.0, [])),
    "missing attribute": lambda jit: failure(lambda: jit(body).no_such)[0],
    "not an iterator": lambda jit: failure(lambda: iter(jit(body)))[0],
}
