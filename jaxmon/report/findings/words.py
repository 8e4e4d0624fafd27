"""What causes of recompiles and kinds of errors mean, and what to do about them."""

from __future__ import annotations


WHY = {
    "shape": "an argument's shape changed",
    "dtype": "an argument's dtype changed",
    "weak_type": "a Python number and an array alternated",
    "static_argument": "a static argument changed",
    "tree_structure": "an argument's pytree structure changed",
    "sharding": "an argument's sharding changed",
    "committed": "an argument was committed to a device in some calls only",
    "context": "a JAX setting changed",
    "options": "the function was jitted with different options",
    "new_function": "the function object was recreated",
    "evicted": "the program had been evicted from JAX's cache",
}
WHAT_TO_DO = {
    "shape": "Pad to a few fixed sizes (buckets), or drop the smaller last batch.",
    "dtype": "Convert the argument before the call: jnp.asarray(x, dtype).",
    "weak_type": "Always pass an array: jnp.asarray(x, dtype) before the call.",
    "static_argument": (
        "Make it an ordinary argument, or limit it to a few values; objects need "
        "value-based __eq__ and __hash__."
    ),
    "tree_structure": "Always pass the same keys, lengths and Nones; fill any gaps.",
    "sharding": "Place the argument the same way each time, with jax.device_put.",
    "committed": "Place the argument with jax.device_put in every call, or in none.",
    "context": "Set it once before the first call, or always call within the same "
    "`with` block.",
    "options": "Jit the function once, with one set of options, and keep the result.",
    "new_function": "Create the jitted function, lambda or partial once, outside the "
    "loop or method that calls it.",
    "evicted": (
        "Do not call jax.clear_caches() while the program runs; keep a reference to "
        "the jitted function to keep its programs."
    ),
}
GROWS = (
    "Pad to a few fixed sizes (buckets). It grows from call to call: if it is a cache, "
    "as of keys and values, allocate it in full once, and write into it with "
    "x.at[i].set or jax.lax.dynamic_update_slice."
)
EQUINOX = (
    "For Equinox, whatever is no array is static: pass numbers that change as arrays, "
    "jnp.asarray(step), and the same function objects each time."
)
_UNKNOWN = (
    "Run briefly with JAX_EXPLAIN_CACHE_MISSES=1 to see JAX's own explanation in "
    "the log."
)
ERRORS = {
    "invalid_argument": "The message names the argument; a donated array must not be "
    "used again.",
    "nan": "Run a few steps with JAX_DEBUG_NANS=1, which names the operation.",
    "key_reuse": "Use each PRNG key once: jax.random.split it first.",
    "trace_error": (
        "It failed during tracing: the message names the incompatible argument or "
        "operation."
    ),
    "unavailable": "A device or another process is gone: check that host first.",
    "deadline": "Another process did not respond in time: look for one that is hung.",
}
_VALUE_NEEDED = (
    "Python needed a value that is not known while tracing: use jnp.where or "
    "jax.lax.cond, or make the argument static."
)
ERROR_TYPES = {
    "ConcretizationTypeError": _VALUE_NEEDED,
    "NonConcreteBooleanIndexError": (
        "The result's size depends on values: use jnp.where(mask, x, other) instead "
        "of x[mask]."
    ),
    "TracerArrayConversionError": "NumPy got a traced value: use jax.numpy there, or "
    "make the argument static.",
    "TracerBoolConversionError": _VALUE_NEEDED,
    "TracerIntegerConversionError": _VALUE_NEEDED,
    "UnexpectedTracerError": "A traced value outlived its function: return it instead "
    "of keeping it in a global, an attribute or a list.",
}
"""Advice by exception type, where it is more specific than the kind of error."""

FETCH = (
    "Each read waits for all preceding device work. If the value is not needed "
    "immediately, read it one step later, or every hundredth step."
)
COPY = "Transfer constant data once with jax.device_put, and prefetch the rest."
COPY_OF_NUMBERS = (
    "These are numbers or small arrays: pass them to a jitted function as NumPy values "
    "and compute with them there."
)
REQUESTS = (
    "The program's log has the messages. A request without an exception set its "
    "outcome to error itself."
)
WARNINGS = {
    "donation": (
        "No output has the same shape and dtype, so both are held in memory: donate "
        "only what is returned in the same form, or return it so."
    ),
    "dtype_unavailable": (
        "The value has 32 bits: ask for float32 or int32, or set jax_enable_x64 if 64 "
        "bits are needed."
    ),
    "backend": "Install the JAX for that accelerator, or set JAX_PLATFORMS=cpu.",
}
"""Advice on the warnings of JAX that are findings, by kind."""

NONFINITE = (
    "Go back to a checkpoint from before that: later ones hold NaN as well. "
    f"{ERRORS['nan']} Often the learning rate is too high, or a logarithm, division or "
    "square root meets 0."
)
INFINITE = (
    "A value may have overflowed, as in float16, or a logarithm or division met 0."
)
ALWAYS_NAN = (
    f"Unless it is a placeholder: {ERRORS['nan'][0].lower()}{ERRORS['nan'][1:]}"
)
SPIKE = (
    "Look at the batch of that step, and at the norm of the gradients: clip them, "
    "lower the learning rate, or warm it up for longer."
)
DIVERGING = (
    "Go back to a checkpoint near the best value, with a lower learning rate; check "
    "what changed at that step: schedule, data, precision."
)
FLOAT64 = (
    "Look for NumPy values, Python floats converted to arrays, and missing dtypes."
)
DEVIATION = (
    "Look for numbers that are drawn without a key, as by `jax.lax.rng_uniform`, and, "
    "on GPUs, for non-deterministic reductions (try --xla_gpu_deterministic_ops=true). "
    "If there is neither, suspect the device."
)
BAD_DEVICE = (
    "Suspect that device: take its host out of service and test it. Results since the "
    "first failure are suspect too; restart from a checkpoint before it."
)
GRADIENTS = (
    "Check its custom derivative, if any; rounding and comparisons have no gradient."
)


def error_advice(kind: str, exception: object) -> str:
    """
    Return the advice on errors of *kind*, the latest of which was an *exception* of
    that name.
    """
    return ERROR_TYPES.get(str(exception)) or ERRORS.get(kind, "")


def recompile_advice(cause: str) -> str:
    """Return the advice on recompiles of *cause*."""
    return WHAT_TO_DO.get(cause, _UNKNOWN)
