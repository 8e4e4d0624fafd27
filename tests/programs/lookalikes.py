"""
What type checkers, picklers and mocks make of `jax.jit` and `jax.pmap`.

    python lookalikes.py late|- DIRECTORY

Prints one line for each thing tried, the same with and without jaxmon; with "late" it
instruments itself, after the names have been imported. It leaves its pickles in
DIRECTORY, and uses those that other runs have left there.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import io
import operator
import os
import pickle
import re
import sys
import tempfile
import threading
import typing
import unittest.mock
from pathlib import Path

import beartype
import cloudpickle
import jax
import numpy as np
from beartype.claw import beartype_package
from jax import jit, pmap
from jax._src.array import ArrayImpl
from jaxtyping import install_import_hook
from joblib.externals.loky.backend.reduction import get_loky_pickler


CHECKED = """
import functools
import jax
from jax import jit

@jax.jit
def jitted(x: int) -> object:
    return x

@functools.partial(jit, static_argnums=0)
def static(n: int, x: object) -> object:
    return x

@jax.pmap
def mapped(x: object) -> int:
    return x
"""


def show(what, do):
    """Print what *do* returns or raises."""
    try:
        found = do()
        text = f"{type(found).__name__} {found!r}"
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    # Of this text, the decision on hooks says that it differs.
    text = re.sub(r"(partial|P\w+Function)\.__call__", "PjitFunction.__call__", text)
    print(what, re.sub(r"0x[0-9a-f]+|id='\d+'", "0x", text)[:400])


@jit
def scaled(x):
    return x * 3


@jax.pmap
def shifted(x):
    return x + 1


def uses_jit(x):
    return jit(lambda y: y + 1)(x)


def uses_pmap(x):
    return pmap(lambda y: y + 1)(x[None])[0]


def mapped_call(x):
    return jax.vmap(scaled)(x)


def type_checkers():
    """Decorate by hand and by import hooks; call with and without an error."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("clawed", "hooked"):
            Path(directory, f"{name}.py").write_text(CHECKED)
        sys.path.insert(0, directory)
        beartype_package("clawed")
        clawed = importlib.import_module("clawed")
        with install_import_hook("hooked", "beartype.beartype"):
            hooked = importlib.import_module("hooked")
    one, many = np.ones(1, np.float32), np.ones((1, 2), np.float32)
    for module in (clawed, hooked):
        show(module.__name__, lambda module=module: module.jitted(3))
        show(module.__name__, lambda module=module: module.jitted("three"))
        show(module.__name__, lambda module=module: module.static("three", one))
        show(module.__name__, lambda module=module: module.mapped(many))

    def body(x: int) -> object:
        return x

    for make in (jax.jit, jax.pmap, functools.partial(jit, inline=True)):
        checked = beartype.beartype(make(body))
        show("beartype", lambda checked=checked: checked("three"))
        show("beartype", lambda checked=checked: type(checked))
    show("beartype", lambda: beartype.beartype(scaled)(2))


def picklers():
    """Pickle what is public, and functions that use it; return the pickles."""
    array = jax.numpy.ones(2)
    values = {
        "jit": jit,
        "jax.jit": jax.jit,
        "pmap": pmap,
        "jax.pmap": jax.pmap,
        "eval_shape": jax.eval_shape,
        "partial": functools.partial(jax.jit, static_argnums=0),
        "partial pmap": functools.partial(jax.pmap, axis_name="i"),
        "scaled": scaled,
        "shifted": shifted,
        "uses_jit": uses_jit,
        "uses_pmap": uses_pmap,
        "mapped_call": mapped_call,
        "vmap": jax.vmap(uses_jit),
        "grad": jax.grad(uses_jit),
        "excepthook": sys.excepthook,
        "exit": sys.exit,
        "method": array.block_until_ready,
        "class": ArrayImpl,
        "stage": jax.lax.stage if hasattr(jax.lax, "stage") else None,
    }
    found = {}
    for name, one in values.items():
        for dumps in (pickle.dumps, cloudpickle.dumps, loky_dumps):
            kind = f"{dumps.__module__} {dumps.__name__} {name}"
            # To 0.7, a pmap holds a function of JAX, which we replace once it is made.
            is_longer = name == "shifted" and jax.__version_info__ < (0, 8)
            size = bool if is_longer else len
            show(kind, lambda dumps=dumps, one=one, size=size: size(dumps(one)))
            with contextlib.suppress(Exception):
                found[kind] = dumps(one)
    return found


def loky_dumps(value):
    """Return what joblib sends to its processes."""
    file = io.BytesIO()
    get_loky_pickler()(file).dump(value)
    return file.getvalue()


def arrived(pickles):
    """Use each of *pickles*, made where jaxmon was."""
    x = np.ones(2, np.float32)
    for name, data in pickles.items():
        assert b"jaxmon" not in data, name
        one = pickle.loads(data)  # noqa: S301 - our own
        if name.endswith(("uses_jit", "uses_pmap", "scaled", "vmap", "mapped_call")):
            assert one(x).shape == x.shape, name


def introspection():
    """Inspect, copy and mock the public names, and what they return."""
    for name, one in {"jit": jax.jit, "pmap": jax.pmap, "eval": jax.eval_shape}.items():
        show(name, lambda one=one: copy.copy(one) is one)
        show(name, lambda one=one: copy.deepcopy(one) is one)
        show(name, lambda one=one: inspect.signature(one))
        show(name, lambda one=one: inspect.unwrap(one))
        show(name, lambda one=one: typing.get_type_hints(one))
        show(name, lambda one=one: type(one))
        show(name, lambda one=one: inspect.getsource(one)[:80])
    for name in ("jit", "pmap"):
        for path in (f"jax.{name}", f"{getattr(jax, name).__module__}.{name}"):
            with unittest.mock.patch(path, autospec=True) as mock:
                show(path, lambda mock=mock: inspect.signature(mock))
                show(path, lambda mock=mock: mock())
    show("exit", lambda: inspect.signature(sys.exit))
    show("exit", lambda: copy.deepcopy(sys.exit) is sys.exit)
    show("hooks", lambda: typing.get_type_hints(sys.excepthook))
    show("hooks", lambda: inspect.signature(threading.excepthook))
    with unittest.mock.patch("sys.exit", autospec=True) as mock:
        show("sys.exit", lambda: sys.exit(3) is mock.return_value)
    show("identity", lambda: jax.jit is jit is jax._src.api.jit)
    show("identity", lambda: jax._src.pallas.core.jit is jit)
    show(
        "identity",
        lambda: (
            operator.attrgetter(pmap.__qualname__)(sys.modules[pmap.__module__]) is pmap
        ),
    )
    show("eval_shape", lambda: jax.eval_shape(shifted, np.ones((1, 2))))
    show("eval_shape", lambda: jax.eval_shape(scaled, 2.0))


def main(when, directory):
    """Try everything."""
    if when == "late":
        import jaxmon

        jaxmon.instrument(port=0)
    importlib.import_module("jax._src.pallas.core")  # imports what may be replaced
    type_checkers()
    pickles = picklers()
    introspection()
    for path in Path(directory).iterdir():
        arrived(pickle.loads(path.read_bytes()))  # noqa: S301 - our own
    Path(directory, str(os.getpid())).write_bytes(pickle.dumps(pickles))


if __name__ == "__main__":
    main(*sys.argv[1:])
