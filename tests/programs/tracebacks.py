"""
A program that fails in many ways and notes what it sees, for comparison.

It runs twice, with jaxmon and without, and prints as JSON: the traceback of every
failure with its whole chain, the stacks that user code sees, and the texts in which
JAX records source lines. It knows nothing of jaxmon; it runs on every supported JAX.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np


MODES = ("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames")

cases: dict[str, Callable[[], None]] = {}
stacks: dict[str, list[Any]] = {}


def case(function):
    cases[function.__name__] = function
    return function


class RefusedError(Exception):
    """
    What the user's functions raise.
    """


def refuse(x):
    error = RefusedError("from the user's function")
    error.add_note("with a note")
    raise error


@jax.jit
def inner(x):
    return refuse(x)


@jax.jit
def outer(x):
    return inner(x) + 1


@jax.jit
def good(x):
    return jnp.sin(x) * 2


@jax.jit
def two(x, y):
    return x + y


class Model:
    @jax.jit
    def method(self, x):
        return refuse(x)


jax.tree_util.register_pytree_node(Model, lambda _: ((), None), lambda *_: Model())


@case
def traced():
    inner(1.0)


@case
def traced_nested():
    outer(1.0)


@case
def traced_through_vmap():
    jax.vmap(inner)(np.ones(3))


@case
def traced_through_grad():
    jax.grad(outer)(1.0)


@case
def traced_through_jit_of_vmap_of_grad():
    jax.jit(jax.vmap(jax.grad(outer)))(np.ones(3))


@case
def traced_through_scan():
    jax.lax.scan(lambda c, x: (inner(c), x), 1.0, np.ones(3))


@case
def traced_through_checkpoint():
    jax.grad(jax.checkpoint(inner))(1.0)


@case
def traced_through_pmap():
    jax.pmap(inner)(np.ones((2, 1)))


@case
def traced_method():
    Model().method(1.0)


@case
def traced_lambda_made_here():
    jax.jit(lambda x: refuse(x) + 1)(1.0)


@case
def traced_with_cause():
    def wraps(x):
        try:
            inner(x)
        except RefusedError as error:
            raise ValueError(error) from error

    jax.jit(wraps)(1.0)


@case
def traced_while_handling_another():
    try:
        os.environ["NO_SUCH_VARIABLE"]
    except KeyError:
        inner(1.0)


@case
def concretized():
    jax.jit(lambda x: 1 if x > 0 else 2)(1.0)


@case
def leaked_tracer():
    seen: list[Any] = []
    jax.jit(seen.append)(1.0)
    good(seen[0])


@case
def wrong_shapes():
    two(np.ones(2), np.ones(3))


@case
def missing_argument():
    two(1.0)


@case
def wrong_type():
    good("text")


@case
def wrong_type_cached():
    good(1.0)
    good(object())


@case
def unhashable_static():
    jax.jit(lambda x, _: x, static_argnums=1)(1.0, [])


@case
def deleted_on_cached_call():
    array = jnp.ones(3)
    good(array)
    array.delete()
    good(array)


@case
def donated_on_cached_call():
    take = jax.jit(lambda x: x + 1, donate_argnums=0)
    array = jnp.ones(5)
    take(array)
    array.delete()
    take(array)


@case
def nan_on_cached_call():
    with jax.debug_nans(True):  # noqa: FBT003 - its signature
        good(1.0)
        good(np.nan)


@case
def callback_on_cached_call():
    def broken(x):
        raise RefusedError(x)

    shape = jax.ShapeDtypeStruct((), np.float32)
    called = jax.jit(lambda x: jax.pure_callback(broken, shape, x))
    jax.block_until_ready(called(np.float32(1)))


@case
def compile_refused():
    compiled = jax.jit(good).lower(1.0)
    compiled.compile(compiler_options={"xla_no_such_option": True})


@case
def compile_refused_in_call():
    if "compiler_options" not in inspect.signature(jax.jit).parameters:
        compile_refused()
    jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": True})(1.0)


@case
def ahead_of_time_mismatch():
    good.lower(np.ones(3)).compile()(np.ones(4))


@case
def lowered():
    outer.lower(1.0)


@case
def shape_evaluated():
    jax.eval_shape(outer, 1.0)


@case
def jaxpr_made():
    jax.make_jaxpr(outer)(1.0)


@case
def interrupted():
    def interrupt(_):
        raise KeyboardInterrupt

    jax.jit(interrupt)(1.0)


@case
def exited():
    jax.jit(lambda _: sys.exit(3))(1.0)


def chain(error):
    """
    Return the traceback as printed, and every link by itself, notes included.
    """
    lines = without_addresses("".join(traceback.format_exception(error)))
    links: list[Any] = []
    while error is not None and len(links) < 20:
        frames = traceback.extract_tb(error.__traceback__)
        links.append(
            [
                type(error).__qualname__,
                without_addresses(str(error)),
                [[f.filename, f.lineno, f.name, f.line] for f in frames],
                list(getattr(error, "__notes__", ())),
                error.__suppress_context__,
                type(error.__context__).__qualname__,
            ]
        )
        error = error.__cause__ or error.__context__
    return [lines.splitlines(), links]


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text)


def failures():
    """
    Return the chain of each case.
    """
    found = {}
    for name, run in cases.items():
        try:
            run()
        except BaseException as error:
            found[name] = chain(error)
        else:
            found[name] = "no error"
    return found


def stack(where):
    stacks.setdefault(where, []).append(
        [[f.filename, f.lineno, f.name, f.line] for f in traceback.extract_stack()]
    )


def seen_from_inside():
    """
    Note the stack in traced bodies, in callbacks, and in threads.
    """

    def nested(x):
        stack("traced, nested")
        return x + 1

    nested_jit = jax.jit(nested)

    @jax.jit
    def body(x):
        stack("traced")
        jax.debug.callback(lambda _: stack("callback"), x)
        return nested_jit(x)

    body(1.0)
    jax.effects_barrier()
    body(1.0)
    jax.effects_barrier()
    jax.vmap(jax.jit(lambda x: stack("vmap") or x))(np.ones(2))
    jax.grad(jax.jit(lambda x: stack("grad") or x))(1.0)
    jax.lax.scan(jax.jit(lambda c, x: stack("scan") or (c, x)), 1.0, np.ones(2))
    jax.jit(lambda x: stack("lower") or x).lower(1.0)
    jax.make_jaxpr(jax.jit(lambda x: stack("jaxpr") or x))(1.0)
    jax.eval_shape(jax.jit(lambda x: stack("eval_shape") or x), 1.0)
    thread = threading.Thread(
        target=lambda: jax.jit(lambda x: stack("thread") or x)(1.0)
    )
    thread.start()
    thread.join()


def texts():
    """
    Return what JAX writes down about the source of programs.
    """

    @jax.jit
    def step(x):
        return two(good(x), 1.0)

    def loss(x):
        return step(x).sum()

    found = {}
    argument = np.ones(3, np.float32)
    jitted = {"step": step, "grad": jax.jit(jax.grad(loss)), "vmap": jax.vmap(step)}
    for full in (True, False):
        jax.config.update("jax_include_full_tracebacks_in_locations", full)
        jax.clear_caches()
        for name, function in jitted.items():
            key = f"{name}, full tracebacks {full}"
            jaxpr = jax.make_jaxpr(function)(argument)
            found[f"{key}: jaxpr"] = jaxpr.pretty_print(source_info=True)
            if name == "vmap":
                continue
            lowered = function.lower(argument)
            module = lowered.compiler_ir("stablehlo")
            found[f"{key}: stablehlo"] = module.operation.get_asm(
                enable_debug_info=True, large_elements_limit=10
            )
            compiled = lowered.compile()
            found[f"{key}: hlo"] = compiled.as_text()
    return {name: without_addresses(text) for name, text in found.items()}


def cached(directory):
    """
    Return the names of the entries in the persistent cache.
    """
    jax.clear_caches()

    @jax.jit
    def stored(x):
        return good(x) + 1

    stored(np.ones(3))
    stored(np.ones(4))
    jax.pmap(stored)(np.ones((2, 3)))
    jax.jit(jax.grad(lambda x: stored(x).sum())).lower(np.ones(3)).compile()
    return sorted(path.name for path in Path(directory).glob("*-cache"))


def main():
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    noted = {}
    for mode in MODES:
        jax.config.update("jax_traceback_filtering", mode)
        noted[mode] = failures()
    seen_from_inside()
    print(
        json.dumps(
            {
                "failures": noted,
                "stacks": stacks,
                "texts": texts(),
                "cached": cached(sys.argv[1]),
                "agent": "jaxmon.agent" in sys.modules,
                "counted": type(good).__module__,
            }
        )
    )


main()
