"""Errors of jitted functions, and warnings of JAX."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.events import Event
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import times
from jaxmon.symptoms.alert import TICKET
from jaxmon.symptoms.finding import MOST_OF_A_MESSAGE, Finding, quoted
from jaxmon.symptoms.symptom import FAILURE, HINT, TOO_LITTLE, Mode, Symptom


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
_WARNINGS: tuple[tuple[str, Mode, str], ...] = (
    ("donation", "F2", "Donated buffers were not used."),
    ("dtype_unavailable", "F7", "A type was narrowed."),
    ("backend", "F7", "JAX found no accelerator."),
)
# In JAX's own words: jax/_src/array.py, `_check_if_deleted`.
_DELETED = "Array has been deleted"


def errors(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect errors other than out of memory."""
    for function in snapshot.functions:
        kinds = {kind: n for kind, n in function.errors.items() if n and kind != "oom"}
        if not kinds:
            continue
        most = max(kinds, key=lambda kind: kinds[kind])
        listed = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
        listed = most if len(kinds) == 1 else listed
        name = function.name if function.name != "unknown" else "A jitted function"
        latest = _latest(snapshot.of_kind("error"), function.name, most)
        often = times(sum(kinds.values()))
        verdict = f"{name} failed {often}: {listed}."
        if function.name == "unknown" and latest and _DELETED in latest.message:
            verdict = f"Arrays that had been deleted or donated were read {often}."
        yield Finding(
            "error",
            function.name,
            verdict,
            (quoted(latest, snapshot.process.now),) if latest else (),
            error_advice(most, latest.details.get("type") if latest else None),
            where=str(latest.details.get("where") or "") if latest else "",
        )


def _latest(events: list[Event], function: str, kind: str) -> Event | None:
    fitting = (
        one
        for one in reversed(events)
        if one.function == function and one.details.get("error_kind", kind) == kind
    )
    return next(fitting, None)


def error_advice(kind: str, exception: object) -> str:
    """
    Return the advice on errors of *kind*, the latest of which was an *exception* of
    that name.
    """
    return ERROR_TYPES.get(str(exception)) or ERRORS.get(kind, "")


def warned(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect warnings of JAX about memory, precision and the backend."""
    for one in snapshot.warnings:
        if one.kind in WARNINGS:
            by = f" in {one.function}" if one.function else ""
            often = f", {times(one.count)}" if one.count > 1 else ""
            yield Finding(
                f"warning_{one.kind}",
                one.function,
                f"JAX warned{by}{often}: {_ended(one.text[:MOST_OF_A_MESSAGE])}",
                (f"at {one.where}",) if one.where else (),
                WARNINGS[one.kind],
                where=one.where,
            )


def _ended(text: str) -> str:
    return text if text.endswith((".", "!")) else f"{text}."


SYMPTOMS = (
    Symptom(
        *("error", "F4", "A jitted function raises.", FAILURE),
        *(errors, catalog.ERRORS, "Debug: Errors by function and kind"),
        severity=TICKET,
        missing=(
            "the program may expect it; requests that fail for it have an objective"
        ),
    ),
    *(
        Symptom(
            *(f"warning_{kind}", mode, sentence, HINT),
            *(warned, catalog.JAX_WARNINGS, "Debug: Warnings of JAX"),
            missing=TOO_LITTLE,
        )
        for kind, mode, sentence in _WARNINGS
    ),
)
