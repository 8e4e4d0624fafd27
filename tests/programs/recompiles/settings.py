"""Another configuration, and other options of jit and pmap."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tests.programs.recompiles.cases import (
    CASES,
    DEVICES,
    Again,
    NamedSharding,
    P,
    another_memory,
    array,
    case,
    mesh,
    spread,
)


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
def x64_and_what_follows() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(1.0)
    return under("jax_enable_x64", lambda: f(1.0), value=True)


@case
def default_device() -> Again:
    second = functools.partial(jax.default_device, DEVICES[2])
    return between(contextlib.nullcontext, second, np.ones(3, np.float32))


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


def between(before: Callable[[], Any], after: Callable[[], Any], x: Any) -> Again:
    """Call a function in the context that *before* makes, and again in the other."""

    @jax.jit
    def f(x):
        return x @ x

    def under(manager: Callable[[], Any]) -> object:
        with manager():
            return f(x)

    under(before)
    return lambda: under(after)


def within(manager: Callable[[], Any]) -> Again:
    return between(contextlib.nullcontext, manager, array(3, 3))


@case
def x64_for_a_while() -> Again:
    if hasattr(jax, "enable_x64"):
        return within(lambda: jax.enable_x64(True))  # noqa: FBT003 - JAX's
    from jax.experimental import enable_x64

    return within(enable_x64)


@case
def random_bits() -> Again:
    before, after = (
        functools.partial(jax.threefry_partitionable, new) for new in (False, True)
    )
    return between(before, after, np.ones(3, np.float32))


@case
def mesh_set() -> Again:
    set_mesh = jax.set_mesh
    return within(lambda: set_mesh(mesh()))


@case
def another_mesh_set() -> Again:
    set_mesh = jax.set_mesh
    before, after = (functools.partial(set_mesh, mesh((axis,))) for axis in "ab")
    return between(before, after, np.zeros(8, np.float32))


def jitted_with(before: dict[str, Any], after: dict[str, Any]) -> Again:
    """Call a function that is jitted with *before*, and jitted again with *after*."""

    def f(x, y):
        return x + 1, y + 1

    jax.jit(f, **before)(array(8), array(8))
    return lambda: jax.jit(f, **after)(array(8), array(8))


@case
def input_shardings() -> Again:
    first, second = (NamedSharding(mesh(), P(*spec)) for spec in (("d",), ()))
    return jitted_with({"in_shardings": first}, {"in_shardings": second})


@case
def options_of_the_compiler() -> Again:
    if "compiler_options" not in inspect.signature(jax.jit).parameters:
        raise AttributeError
    option = {"xla_embed_ir_in_executable": True}
    return jitted_with({}, {"compiler_options": option})


def metadata(**given: Any) -> Any:
    """Return the context in which programs carry what is *given*."""
    if importlib.util.find_spec("jax._src.xla_metadata_lib") is None:
        raise AttributeError  # what JAX had before was a tuple
    from jax.experimental.xla_metadata import set_xla_metadata

    return set_xla_metadata(**given)


@case
def metadata_around() -> Again:
    _ = metadata()
    return within(lambda: metadata(a="b"))


@case
def other_metadata_around() -> Again:
    before = functools.partial(metadata, a="b")
    after = functools.partial(metadata, a="c", d="e")
    return between(before, after, np.ones(3, np.float32))


@case
def output_in_another_memory() -> Again:
    if jax.__version_info__ < (0, 10):
        raise AttributeError  # whose XLA cannot do it on a CPU
    first = NamedSharding(mesh(), P("d"))
    return jitted_with(
        {"out_shardings": first},
        {"out_shardings": first.with_memory_kind(another_memory())},
    )


@case
def input_shardings_on_other_devices() -> Again:
    backwards = jax.sharding.Mesh(np.array(DEVICES[::-1]), ("d",))
    first, second = (NamedSharding(over, P("d")) for over in (mesh(), backwards))
    return jitted_with({"in_shardings": first}, {"in_shardings": second})


@case
def mesh_of_other_devices_around() -> Again:
    backwards = jax.sharding.Mesh(np.array(DEVICES[::-1]), ("d",))
    return between(mesh, lambda: backwards, np.zeros(8, np.float32))


@case
def output_layout() -> Again:
    if jax.__version_info__ < (0, 10):
        raise AttributeError  # whose layouts have less to say
    layout = importlib.import_module("jax.experimental.layout")
    spread_out = NamedSharding(mesh(), P("d"))
    first, second = (
        layout.Format(layout.Layout(order), spread_out) for order in ((0, 1), (1, 0))
    )

    def f(x):
        return x + 1

    x = np.ones((8, 8), np.float32)
    jax.jit(f, out_shardings=first)(x)
    return lambda: jax.jit(f, out_shardings=second)(x)


CASES.update(
    x64=lambda: configured("jax_enable_x64", value=True),
    matmul_precision=lambda: configured(
        "jax_default_matmul_precision", value="highest"
    ),
    rank_promotion=lambda: configured("jax_numpy_rank_promotion", value="raise"),
    dtype_promotion=lambda: within(lambda: jax.numpy_dtype_promotion("strict")),
    precision_for_a_while=lambda: within(
        lambda: jax.default_matmul_precision("float32")
    ),
    mesh_around=lambda: within(mesh),
    donated_no_more=lambda: jitted_with({"donate_argnums": 0}, {}),
    donated_another=lambda: jitted_with(
        {"donate_argnums": 0}, {"donate_argnames": "y"}
    ),
    device_of_jit=lambda: jitted_with({}, {"device": DEVICES[1]}),
    backend_of_jit=lambda: jitted_with({}, {"backend": "cpu"}),
)
