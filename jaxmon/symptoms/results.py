"""Results: checks that fail, devices that fail them, keys used twice, float64."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import counted, times
from jaxmon.limits import Limits
from jaxmon.promql import eq, events
from jaxmon.symptoms.alert import COUNT, PAGE, PROCESS, TICKET, Alert
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.symptom import FAILURE, HINT, NO_SCREEN, NOTE, TOO_LITTLE, Symptom


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
_SAME_SAMPLES = 5


def determinism(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect failed checks."""
    events = snapshot.of_kind("determinism")
    for function in snapshot.functions:
        found, name = function.determinism, function.name
        listed = [one for one in events if one.function == name]
        if failed := found.checks.failed:
            finding = (
                f"{name} returned different outputs for the same inputs "
                f"{times(failed)}."
            )
            evidence = [e.message for e in listed if "deviations" in e.details][-1:]
            advice = DEVIATION
            if len(found.devices) == 1:
                [(device, count)] = found.devices.items()
                finding = (
                    f"Outputs of {name} differed {times(count)} on device {device}, "
                    "and on no other."
                )
                advice = BAD_DEVICE
            yield Finding("determinism", name, finding, (*evidence,), advice)
        if failed := found.gradient_checks.failed:
            finding = f"Gradient checks of {name} failed {times(failed)}."
            evidence = [e.message for e in listed if "gradients" in e.message][-1:]
            yield Finding("gradients", name, finding, (*evidence,), GRADIENTS)


def check_failed(limits: Limits) -> Alert:
    """Alert on results that differ between runs, or from what they should be."""
    window = limits.check_window
    failed = eq("outcome", "failed")
    determinism, gradients = (
        one.within(window, failed).sum("job", "function") > 0
        for one in (events.DETERMINISM_CHECKS, events.GRADIENT_CHECKS)
    )
    return Alert(
        expr=determinism.or_(gradients),
        severity=TICKET,
        description=(
            "A determinism or gradient check failed: results differ between two runs "
            "on the same input, or gradients from finite differences."
        ),
        summary=(
            "{{ $value | humanize }} checks of function {{ $labels.function }} of job "
            f"{{{{ $labels.job }}}} failed in {window}."
        ),
    )


def silent_corruption(limits: Limits) -> Alert:
    """
    Alert on a device that computes wrongly: what depends on chance in a program differs
    on other devices as well.
    """
    window = limits.deviation_window
    deviations = events.DEVICE_DEVIATIONS.within(window)
    by_device = deviations.sum(*PROCESS, "device")
    alone = (by_device > 0).count(*PROCESS).equals(1)
    return Alert(
        expr=(by_device >= limits.deviations).and_(alone, *PROCESS),
        severity=PAGE,
        description=(
            "One device computes something else than the others, again and again, "
            "without an error: silent data corruption."
        ),
        summary=(
            "Device {{ $labels.device }} of {{ $labels.instance }} (worker "
            "{{ $labels.worker }}), job {{ $labels.job }}, alone computed wrong values "
            f"in {COUNT} checks within {window}."
        ),
    )


def same_keys(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect functions that draw the same random numbers on every call."""
    least = snapshot.limits.same_key_calls
    for function in snapshot.functions:
        keys = function.keys
        if keys.samples >= _SAME_SAMPLES and keys.calls >= least:
            yield Finding(
                "same_key",
                function.name,
                f"{function.name} got the same PRNG key in {keys.calls:,} calls, as "
                f"far as {keys.samples:,} samples show, and draws from it: the same "
                "random numbers each time.",
                (),
                "Pass a new key to each call: key, subkey = jax.random.split(key); or "
                "fold the number of the step in: jax.random.fold_in(key, step).",
                where=snapshot.time.period.calls(function.name),
            )


def key_reuse(limits: Limits) -> Alert:
    """Alert on a PRNG key that is used twice."""
    window = limits.key_window
    reuses = events.KEY_REUSE.within(window)
    return Alert(
        expr=reuses.sum("job", "function") > 0,
        severity=TICKET,
        description="A PRNG key is used twice, so its random numbers repeat.",
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} reused a PRNG "
            f"key {COUNT} times in {window}."
        ),
    )


def float64(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect accidental float64."""
    for function in snapshot.functions:
        if programs := function.numerics.float64_programs:
            finding = (
                f"{function.name} computes in float64 in "
                f"{counted(programs, 'program')}, although no argument is float64."
            )
            yield Finding("float64", function.name, finding, (), FLOAT64)


def double(snapshot: Snapshot) -> Iterator[Finding]:
    """Say that the program computes in float64, because its arguments are."""
    functions = [one for one in snapshot.functions if one.program.double]
    meant = [one for one in functions if not one.numerics.float64_programs]
    if meant:
        first = max(meant, key=lambda one: one.calls or 0)
        more = f", as do {len(meant) - 1} more functions" if len(meant) > 1 else ""
        yield Finding(
            "double",
            first.name,
            f"{first.name} multiplies matrices in float64{more}: jax_enable_x64 is on.",
            (),
            "If that is not meant, look for who switches it on, which may be a "
            "library, and convert the data: float32 takes half the memory, and on "
            "most accelerators a small part of the time.",
        )


SYMPTOMS = (
    Symptom(
        *("determinism", "F4", "A function returned two results.", FAILURE),
        *(determinism, catalog.DETERMINISM_CHECKS, "Debug: Determinism checks"),
        rule=("JaxmonCheckFailed", check_failed),
        severity=TICKET,
    ),
    Symptom(
        *("gradients", "F4", "Gradients differ from finite differences.", FAILURE),
        *(determinism, catalog.GRADIENT_CHECKS, "Debug: Gradient checks"),
        rule=("JaxmonCheckFailed", check_failed),
        severity=TICKET,
    ),
    Symptom(
        *("silent_corruption", "F4", "A device computes wrongly."),
        rule=("JaxmonSilentCorruption", silent_corruption),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("same_key", "F4", "Each call draws the same random numbers.", HINT),
        finding=same_keys,
        missing="JaxmonKeyReuse is about keys that JAX rejects",
    ),
    Symptom(
        *("key_reuse", "F4", "A PRNG key is used twice."),
        rule=("JaxmonKeyReuse", key_reuse),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("float64", "F7", "A function computes in float64 by accident.", HINT),
        *(float64, catalog.FLOAT64_PROMOTIONS, "Debug: Promotions to float64"),
        missing=TOO_LITTLE,
    ),
    Symptom(
        *("double", "F7", "Matrices of float64 are multiplied.", NOTE),
        *(
            double,
            catalog.PROGRAM_MATRIX_FLOPS,
            "Debug: Latest program of each function",
        ),
        missing="a program may need it",
    ),
)
