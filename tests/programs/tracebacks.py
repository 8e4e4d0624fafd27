"""
A program that fails in many ways and notes what it sees, for comparison.

It runs twice, with jaxmon and without, and prints as JSON: the traceback of every
failure with its whole chain, the stacks that user code sees, and the texts in which
JAX records source lines. It knows nothing of jaxmon; it runs on every supported JAX.
"""

import json
import os
import re
import sys
import threading
import traceback
from pathlib import Path
from typing import Any


os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np

from tests.programs.failures import cases, good, two


MODES = ("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames")

stacks: dict[str, list[Any]] = {}


def chain(error):
    """Return the traceback as printed, and every link by itself, notes included."""
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
    """Return the chain of each case."""
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
    """Note the stack in traced bodies, in callbacks, and in threads."""

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
    """Return what JAX writes down about the source of programs."""

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
    """Return the names of the entries in the persistent cache."""
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
