"""
Results: outputs that became NaN, and a loss that does, jumps or diverges; checks that
fail, devices that fail them, keys used twice, float64.

What a quantity is follows from the name that the program logs it by. Only a training
loss has to fall; one of two networks that compete, or of a policy, need not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from jaxmon import catalog
from jaxmon.facts.functions import Output
from jaxmon.facts.marked import LoggedValue, Quantity
from jaxmon.facts.process import Snapshot
from jaxmon.facts.reading import in_order
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import Reason
from jaxmon.host.formats.layout import ago, clean, counted, times
from jaxmon.limits import Limits
from jaxmon.promql import events, gauge
from jaxmon.promql.events import Events
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import A_FUNCTION, COUNT, PAGE, PROCESS, TICKET, Alert
from jaxmon.symptoms.errors import ERRORS
from jaxmon.symptoms.reason import reason
from jaxmon.symptoms.symptom import (
    FAILURE,
    HINT,
    NO_SCREEN,
    NOTE,
    TOO_LITTLE,
    Finding,
    Symptom,
)


_LOSS = frozenset(("loss", "losses", "nll", "mse", "perplexity", "ppl", "xent"))
_OF_SOMETHING_ELSE = frozenset(
    (
        *("val", "valid", "validation", "eval", "evaluation", "test", "dev"),
        *("g", "d", "gen", "generator", "disc", "discriminator", "adv", "adversarial"),
        *("actor", "critic", "policy", "value", "pi", "vf", "q", "entropy", "reward"),
        *("kl", "aux", "reg", "l1", "l2", "commit", "commitment", "balance"),
    )
)
_MOST_NAMED = 3
_FIND_NAN = (
    f"{ERRORS['nan']} Often the learning rate is too high, or a logarithm, division or "
    "square root meets 0."
)
NONFINITE = "Go back to a checkpoint from before that: later ones hold NaN as well. "
NONFINITE += _FIND_NAN
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


def outputs(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect outputs that were finite and are NaN now, and doubtful ones."""
    for function in snapshot.functions:
        name, where = function.name, snapshot.time.calls(function.name)
        found: dict[str, list[Output]] = {}
        for output in function.numerics.outputs:
            found.setdefault(output.state, []).append(output)
        if some := found.get("nonfinite"):
            where = some[0].where or where
            verdict, evidence = _became_nan(name, some, snapshot.process.now)
            evidence += (f"called at {where}",) if where else ()
            action = _FIND_NAN if some[0].finite_call == 1 else NONFINITE
            yield Finding("nonfinite", name, verdict, evidence, action, where)
        elif some := found.get("infinite"):
            verdict = (
                f"{name} returns infinity: {_named(some[0])} was finite in call "
                f"{some[0].finite_call:,}, and infinite in call {some[0].call:,}, "
                f"{ago(snapshot.process.now - some[0].time)}, and since."
            )
            yield Finding("infinite", name, verdict, (), INFINITE, where)
        elif some := found.get("always_nan"):
            verdict = (
                f"{name} has returned NaN in all of {some[0].samples:,} sampled "
                f"calls: {', '.join(map(_named, some[:_MOST_NAMED]))}."
            )
            yield Finding("always_nan", name, verdict, (), ALWAYS_NAN, where)


def _became_nan(
    name: str, found: list[Output], now: float
) -> tuple[str, tuple[str, ...]]:
    output = found[0]
    last = "" if output.finite_value is None else f" ({output.finite_value:.4g})"
    lost = f"call {output.call:,}, {ago(now - output.time)}, and since"
    evidence = [f"no finite value in {counted(output.samples, 'sampled call')} since"]
    if not output.call:
        lost, evidence = "the newest result that the program held when it ended", []
    verdict = (
        f"{name} returns NaN: {_named(output)} was finite in call "
        f"{output.finite_call:,}{last}, and NaN in {lost}."
    )
    if others := found[1:]:
        named = ", ".join(map(_named, others[:_MOST_NAMED]))
        more = f" and {len(others) - _MOST_NAMED} more" * (len(others) > _MOST_NAMED)
        evidence.append(f"also NaN: {named}{more}")
    if output.recovered:
        evidence.append(f"it had recovered {times(output.recovered)} before")
    return verdict, tuple(evidence)


def _named(output: Output) -> str:
    return f"output {output.name}" if output.name else "its output"


def _quantities(snapshot: Snapshot) -> Iterator[Finding]:
    for quantity in snapshot.values:
        limits, is_loss = snapshot.limits, _is_training_loss(quantity.name)
        since, spike = quantity.since, quantity.spike
        # One that was never finite may be a placeholder until the first evaluation.
        was_finite = quantity.latest is not None and since and since.kind == "nan"
        is_long = _is_long(quantity.name, quantity.run, limits)
        if since is not None and is_long and (was_finite or is_loss):
            yield _lost(quantity, since, snapshot.process.now)
        elif is_loss and _diverges(quantity, limits):
            yield _diverging(quantity)
        elif is_loss and spike is not None and _is_unusual(quantity, spike, limits):
            yield _spike(quantity, spike)


def _is_training_loss(name: str) -> bool:
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return not words.isdisjoint(_LOSS) and words.isdisjoint(_OF_SOMETHING_ELSE)


def _lost(quantity: Quantity, since: LoggedValue, now: float) -> Finding:
    what = "infinite" if since.kind == "inf" else "NaN"
    verdict = f"The logged {quantity.name} is {what} since step {since.step:,}, "
    verdict += ago(now - since.time)
    if (latest := quantity.latest) is not None:
        verdict += f"; it was {latest.value:.4g} at step {latest.step:,}"
    evidence = f"no finite value among {quantity.run:,} since"
    return Finding(
        *("nonfinite_value", quantity.name, f"{verdict}.", (evidence,), NONFINITE),
        severity=PAGE if _is_training_loss(quantity.name) else TICKET,
    )


def _values_lost(facts: HostFacts) -> Iterator[Reason]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for (worker, name), run in facts.now.of(catalog.VALUE_NONFINITE_RUN).items():
        if _is_long(name, run, facts.limits):
            key = "nonfinite_value", name, f"the logged {clean(name)} is"
            found.setdefault(key, []).append(worker)
    for (worker, name), outputs in facts.now.of(catalog.NONFINITE_OUTPUTS).items():
        if outputs:
            key = "nonfinite", name, f"outputs of {clean(name)} are"
            found.setdefault(key, []).append(worker)
    for (topic, name, what), workers in found.items():
        is_loss = topic == "nonfinite_value" and _is_training_loss(name)
        severity = PAGE if is_loss else TICKET
        text = f"{what} NaN or infinite."
        yield reason(topic, severity, text, in_order(workers), name)


def _is_long(name: str, run: float, limits: Limits) -> bool:
    if _is_training_loss(name):
        return run >= limits.nonfinite_losses
    return run > limits.nonfinite_values


def _non_finite(limits: Limits) -> Iterator[Alert]:
    """
    Yield a page for the loss of a running loop, whose work is lost from there on, and a
    ticket for other values.
    """
    outputs = gauge(catalog.NONFINITE_OUTPUTS).max("job", "name") > 0
    run = gauge(catalog.VALUE_NONFINITE_RUN)
    lost = recorded.lossy_values("(?i).*loss.*") >= limits.nonfinite_losses
    others = outputs.or_(run.max("job", "name") > limits.nonfinite_values)
    for severity, expr in ((PAGE, lost), (TICKET, others.unless(lost))):
        yield Alert(
            expr=expr,
            for_=limits.nonfinite_for,
            severity=severity,
            description="Values became NaN or infinite and stay so.",
            summary=(
                "{{ $labels.name }} of job {{ $labels.job }} was finite, and is NaN or "
                "infinite since."
            ),
        )


def _diverges(quantity: Quantity, limits: Limits) -> bool:
    floor, best, first = quantity.floor, quantity.best, quantity.first
    if floor is None or best is None or first is None:
        return False
    gain = first - best
    # A loss may be negative; then only what it had gained shows what is much.
    much = limits.diverging_rise * (best if best > 0 else gain)
    return floor - best > max(much, limits.diverging_gain * gain, 0.0)


def _diverging(quantity: Quantity) -> Finding:
    at = f" at step {quantity.latest.step:,}" if quantity.latest is not None else ""
    verdict = (
        f"The logged {quantity.name} diverges: it was {quantity.best:.4g} at best and "
        f"stays above {quantity.floor:.4g}{at}."
    )
    evidence = (
        f"it began at {quantity.first:.4g}; nine in ten of the latest 50 values are "
        f"above {quantity.floor:.4g}"
    )
    return Finding("diverging", quantity.name, verdict, (evidence,), DIVERGING)


def _is_unusual(quantity: Quantity, spike: LoggedValue, limits: Limits) -> bool:
    """
    Return whether spikes are rare, and the latest is large by what the loss has gained.

    Small batches make outliers all the time, and so does the noise of a loss that is
    almost 0.
    """
    rare = max(limits.rare_spikes, limits.rare_spikes_share * quantity.count)
    if quantity.spikes > rare:
        return False
    first = spike.usual if quantity.first is None else quantity.first
    return spike.value - spike.usual >= limits.diverging_gain * (first - spike.usual)


def _spike(quantity: Quantity, spike: LoggedValue) -> Finding:
    latest = quantity.latest
    verdict = (
        f"The logged {quantity.name} jumped from {spike.usual:.4g} to "
        f"{spike.value:.4g} at step {spike.step:,}."
    )
    if quantity.spikes > 1:
        verdict = f"{verdict[:-1]}, as it did {times(quantity.spikes)} in all."
    evidence = () if latest is None else (f"now: {latest.value:.4g}",)
    return Finding("spike", quantity.name, verdict, evidence, SPIKE)


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
NEW_KEY = (
    "Pass a new key to each call: key, subkey = jax.random.split(key); or fold the "
    "number of the step in: jax.random.fold_in(key, step)."
)
_SAME_SAMPLES = 5


def determinism(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect failed checks."""
    events = snapshot.of_kind("determinism")
    for function in snapshot.functions:
        found, name = function.determinism, function.name
        listed = [event for event in events if event.function == name]
        if failed := found.checks.failed:
            again = "returned different outputs for the same inputs"
            finding = f"{name} {again} {times(failed)}."
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


def _check_failed(checks: Events, limits: Limits) -> Alert:
    window = limits.check_window
    failed = recorded.failed_checks(checks, window)
    return Alert(
        expr=failed > 0,
        description=(
            "A determinism or gradient check failed: results differ between two runs "
            "on the same input, or gradients from finite differences."
        ),
        summary=(
            "{{ $value | humanize }} checks of function {{ $labels.function }} of job "
            f"{{{{ $labels.job }}}} failed in {window}."
        ),
    )


def _silent_corruption(limits: Limits) -> Alert:
    """
    Alert on a device that computes wrongly: what depends on chance in a program differs
    on other devices as well.
    """
    window = limits.deviation_window
    by_device = recorded.deviations(window)
    alone = (by_device > 0).count(*PROCESS).equals(1)
    return Alert(
        expr=(by_device >= limits.deviations).and_(alone, *PROCESS),
        severity=PAGE,
        description=(
            "One device repeatedly computes other values than the rest, without an "
            "error: silent data corruption."
        ),
        summary=(
            "Device {{ $labels.device }} of {{ $labels.instance }} (worker "
            "{{ $labels.worker }}), job {{ $labels.job }}, alone computed wrong values "
            f"in {COUNT} checks within {window}."
        ),
    )


def _same_keys(snapshot: Snapshot) -> Iterator[Finding]:
    least, found = snapshot.limits.same_key_calls, []
    for function in snapshot.functions:
        name, keys = function.name, function.keys
        if keys.samples >= _SAME_SAMPLES and keys.calls >= least:
            verdict = (
                f"{name} got the same PRNG key in {keys.calls:,} calls, as far as "
                f"{keys.samples:,} samples show, and draws from it"
            )
            where = snapshot.time.calls(name) or keys.where
            found.append((name, verdict, where))
    for line in snapshot.draws:
        if line.samples >= _SAME_SAMPLES and line.same >= least:
            verdict = (
                f"{line.place} drew from the same PRNG key {times(line.same)}, as far "
                f"as {line.samples:,} samples show"
            )
            found.append((line.place, verdict, line.place))
    for subject, verdict, where in found:
        text = f"{verdict}: the same random numbers each time."
        yield Finding("same_key", subject, text, (), NEW_KEY, where=where)


def _key_reuse(limits: Limits) -> Alert:
    window = limits.key_window
    reuses = events.KEY_REUSE.within(window)
    return Alert(
        expr=reuses.sum("job", "function") > 0,
        summary=f"{A_FUNCTION}reused a PRNG key {COUNT} times in {window}.",
    )


def _float64(snapshot: Snapshot) -> Iterator[Finding]:
    for function in snapshot.functions:
        if programs := function.numerics.float64_programs:
            finding = (
                f"{function.name} computes in float64 in "
                f"{counted(programs, 'program')}, although no argument is float64."
            )
            where = function.program.promoted_at
            first = (f"the first array of it is made at {where}",) if where else ()
            named = "float64", function.name
            yield Finding(*named, finding, first, FLOAT64, where=where)
        elif where := function.program.widened_at:
            yield Finding(
                "float64",
                function.name,
                f"{function.name} multiplies arrays of float64 and of another type, at "
                f"{where}: the product, and what follows from it, is in float64.",
                (),
                FLOAT64,
                where=where,
            )


def _double(snapshot: Snapshot) -> Iterator[Finding]:
    functions = [function for function in snapshot.functions if function.program.double]
    meant = [
        of
        for of in functions
        if not of.numerics.float64_programs and not of.program.widened_at
    ]
    if meant:
        first = max(meant, key=lambda function: function.calls or 0)
        more = f", as do {len(meant) - 1} more functions" if len(meant) > 1 else ""
        yield Finding(
            "double",
            first.name,
            f"{first.name} multiplies matrices in float64{more}: jax_enable_x64 is on.",
            (f"set at {first.program.double_at}",) if first.program.double_at else (),
            "If that is not meant, look for the code that enables it, perhaps in a "
            "library, and convert the data. float32 takes half the memory, and on "
            "most accelerators a small part of the time.",
            where=first.program.double_at,
        )


_CHECK_FAILED = "JaxmonCheckFailed"
SYMPTOMS = (
    Symptom(
        *("nonfinite", "F4", "Outputs of a function became NaN.", FAILURE),
        *(outputs, catalog.NONFINITE_OUTPUTS, "On-call: Non-finite values"),
        rule=("JaxmonNonFinite", _non_finite),
        reason=_values_lost,
        severity=TICKET,
        wait="nonfinite_for",
    ),
    Symptom(
        *("nonfinite_value", "F4", "A logged value became NaN or infinite.", FAILURE),
        *(_quantities, catalog.VALUE_NONFINITE_RUN, "On-call: Non-finite values"),
        rule=("JaxmonNonFinite", _non_finite),
        reason=_values_lost,
        severity=TICKET,
        wait="nonfinite_for",
    ),
    Symptom(
        *("diverging", "F4", "A logged loss rises far above its best.", FAILURE),
        *(_quantities, catalog.VALUE, "Training: Logged values"),
        severity=PAGE,
        missing="what a loss may do is the model's; an objective can say it",
    ),
    Symptom(
        *("infinite", "F4", "Outputs of a function became infinite.", HINT),
        *(outputs, catalog.NONFINITE, "Debug: Non-finite outputs"),
        missing="infinity is a value that programs use",
    ),
    Symptom(
        *("always_nan", "F4", "Outputs were never finite.", HINT),
        *(outputs, catalog.NONFINITE, "Debug: Non-finite outputs"),
        missing="they may be placeholders",
    ),
    Symptom(
        *("spike", "F4", "A logged loss jumps.", HINT),
        *(_quantities, catalog.VALUE_SPIKES, "Training: Spikes of logged values"),
        missing=TOO_LITTLE,
    ),
    Symptom(
        *("determinism", "F4", "A function returned two results.", FAILURE),
        *(determinism, catalog.DETERMINISM_CHECKS, "Debug: Determinism checks"),
        rule=(_CHECK_FAILED, partial(_check_failed, events.DETERMINISM_CHECKS)),
        severity=TICKET,
    ),
    Symptom(
        *("gradients", "F4", "Gradients differ from finite differences.", FAILURE),
        *(determinism, catalog.GRADIENT_CHECKS, "Debug: Gradient checks"),
        rule=(_CHECK_FAILED, partial(_check_failed, events.GRADIENT_CHECKS)),
        severity=TICKET,
    ),
    Symptom(
        *("silent_corruption", "F4", "A device computes wrongly."),
        rule=("JaxmonSilentCorruption", _silent_corruption),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("same_key", "F4", "Each call draws the same random numbers.", FAILURE),
        finding=_same_keys,
        severity=TICKET,
        missing="JaxmonCheckFailed is about keys that JAX rejects",
    ),
    Symptom(
        *("key_reuse", "F4", "A PRNG key is used twice, so its random numbers repeat."),
        rule=(_CHECK_FAILED, _key_reuse),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("float64", "F7", "A function computes in float64 by accident.", HINT),
        *(_float64, catalog.FLOAT64_PROMOTIONS, "Debug: Promotions to float64"),
        missing=TOO_LITTLE,
    ),
    Symptom(
        *("double", "F7", "Matrices of float64 are multiplied.", NOTE),
        *(
            _double,
            catalog.PROGRAM_MATRIX_FLOPS,
            "Debug: Latest program of each function",
        ),
        missing="a program may need it",
    ),
)
