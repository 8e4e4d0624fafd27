"""What causes of recompiles and kinds of errors mean, and what to do about them."""

from __future__ import annotations


WHY = {
    "shape": "the shape of an argument changed",
    "dtype": "the dtype of an argument changed",
    "weak_type": "a Python number and an array took turns",
    "static_argument": "a static argument changed",
    "tree_structure": "the structure of an argument changed",
    "sharding": "the sharding of an argument changed",
    "committed": "an argument was bound to a device in some calls only",
    "context": "a setting of JAX changed",
    "options": "the function was jitted with other options",
    "new_function": "the function itself was made anew",
    "evicted": "JAX had dropped the program",
}
WHAT_TO_DO = {
    "shape": "Pad to a few fixed sizes (buckets), or drop the last, smaller batch.",
    "dtype": "Convert the argument before the call: jnp.asarray(x, dtype).",
    "weak_type": "Pass an array each time: jnp.asarray(x, dtype) before the call.",
    "static_argument": "Make it an ordinary argument, or let it take few values; an "
    "object needs __eq__ and __hash__ that compare values.",
    "tree_structure": "Pass the same keys, lengths and Nones each time; fill up what "
    "is missing.",
    "sharding": "Place the argument the same way each time, with jax.device_put.",
    "committed": "Place the argument with jax.device_put in every call, or in none.",
    "context": "Set it once before the first call, or always call within the same "
    "`with` block.",
    "options": "Jit the function once, with one set of options, and keep the result.",
    "new_function": "Create the jitted function, lambda or partial once, outside the "
    "loop or method that calls it.",
    "evicted": "Do not call jax.clear_caches() while the program works; a jitted "
    "function that is kept keeps its programs.",
}
_UNKNOWN = (
    "Run it for a moment with JAX_EXPLAIN_CACHE_MISSES=1, and JAX logs what it knows."
)
ERRORS = {
    "invalid_argument": "The message names the argument; a donated array must not be "
    "used again.",
    "nan": "Run a few steps with JAX_DEBUG_NANS=1, which names the operation.",
    "key_reuse": "Use each PRNG key once: jax.random.split it first.",
    "trace_error": "It failed while JAX traced it: the message names the argument or "
    "the operation that does not fit.",
    "unavailable": "A device or another process is gone: look at that host first.",
    "deadline": "Another process did not answer in time: look for one that hangs.",
}
_VALUE_NEEDED = (
    "Python needed a value that is not known while tracing: use jnp.where or "
    "jax.lax.cond, or make the argument static."
)
ERROR_TYPES = {
    "ConcretizationTypeError": _VALUE_NEEDED,
    "NonConcreteBooleanIndexError": "The size of the result depends on values: use "
    "jnp.where(mask, x, other) instead of x[mask].",
    "TracerArrayConversionError": "NumPy got a traced value: use jax.numpy there, or "
    "make the argument static.",
    "TracerBoolConversionError": _VALUE_NEEDED,
    "TracerIntegerConversionError": _VALUE_NEEDED,
    "UnexpectedTracerError": "A traced value outlived its function: return it instead "
    "of keeping it in a global, an attribute or a list.",
}
"""Where the type of an exception tells more than the kind of error."""

FETCH = (
    "Each fetch waits for all work before it. Where the value is not needed at once, "
    "fetch it a step later, or every hundredth step."
)
COPY = (
    "Put constant data on the device once, with jax.device_put, and prefetch the rest."
)
COPY_OF_NUMBERS = (
    "These are single numbers: give them to a jitted function as arguments, and "
    "compute with them there."
)
FLOAT64 = "Look for NumPy values, Python floats made into arrays, and dtypes left out."
DEVIATION = (
    "Look for PRNG keys used twice and, on a GPU, for reductions that "
    "--xla_gpu_deterministic_ops=true makes repeatable."
)
GRADIENTS = (
    "Compare its custom derivative, if it has one, with the function; what it rounds "
    "or compares has no gradient."
)


def after_error(kind: str, exception: object) -> str:
    """
    Return the advice on errors of *kind*, the latest of which was an *exception* of
    that name.
    """
    return ERROR_TYPES.get(str(exception)) or ERRORS.get(kind, "")


def what_to_do(cause: str) -> str:
    """Return the advice on recompiles of *cause*."""
    return WHAT_TO_DO.get(cause, _UNKNOWN)
