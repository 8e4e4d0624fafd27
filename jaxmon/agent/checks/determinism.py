"""Determinism checks: whether a program gives the same output for the same input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.context import Context, CountedError
from jaxmon.agent.functions import Function, label
from jaxmon.agent.inspection import module_of
from jaxmon.agent.jaxlink.jit import donates
from jaxmon.agent.part import Explanation, Part
from jaxmon.catalog import CHECK_OUTCOMES
from jaxmon.exposition.families import Family, Tally, family_of
from jaxmon.facts import functions as facts
from jaxmon.indicators.recorder import recorder


if TYPE_CHECKING:
    from jaxmon.agent.checks.results import DeterminismCheck, Deviation, HostResult
    from jaxmon.agent.checks.shadow import ShadowRunner


class _Checks:
    """Checks of one function: by outcome, and those that failed on some devices."""

    def __init__(self, devices: Iterable[int]) -> None:
        self.determinism: dict[str, Tally] = {}
        # From zero, so that the first failure is an increase.
        self.devices = {device: Tally() for device in devices}
        self.gradients: dict[str, Tally] = {}
        self.deviation: float | None = None


class DeterminismPart(Part):
    """
    Records the results of checks, and re-runs sampled calls if enabled.

    Gradient checks and PRNG key reuse are counted here too.
    """

    name = "determinism"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._checks: dict[Function, _Checks] = {}
        self._reused: dict[Function, Tally] = {}
        self._shadow: ShadowRunner | None = None
        if context.settings.shadow_interval:
            from jaxmon.agent.checks.shadow import ShadowRunner  # noqa: PLC0415

            self._shadow = ShadowRunner(context, self.checked)
            context.observers.sample.append(self._shadow.take)
            context.observers.timer.append(self._shadow.expire)
        context.observers.error.append(self._on_error)

    def stop(self) -> None:
        """Stop re-running calls."""
        if self._shadow is not None:
            self._shadow.stop()

    # --- recording ---------------------------------------------------------------

    def record_for(
        self, fn: object, take: Callable[[DeterminismPart, Function], None]
    ) -> None:
        """Call *take* with the function entry of *fn*. Raises nothing."""
        # The check itself was made.
        with self._context.guard.contained("determinism", stays_on=True):
            take(self, self._context.table.of(fn))

    def checked(self, function: Function, check: DeterminismCheck) -> None:
        """Record the result of a check."""
        checks = self._of(function)
        _count(checks.determinism, passed=check.identical)
        checks.deviation = check.max_relative
        for device in check.devices:
            checks.devices[device].add()
        if not check.identical:
            self._context.events.add(
                "determinism",
                function.name,
                str(check),
                runs=check.runs,
                devices=list(check.devices),
                deviations=[_plain(deviation) for deviation in check.deviations[:10]],
            )

    def record_gradient_check(
        self, function: Function, explanation: str, *, passed: bool
    ) -> None:
        """Record the result of a gradient check."""
        _count(self._of(function).gradients, passed=passed)
        if not passed:
            self._context.events.add(
                "determinism", function.name, f"wrong gradients: {explanation}"
            )

    def _on_error(self, seen: CountedError) -> None:
        if seen.kind == "key_reuse":
            self._reused.setdefault(seen.function, Tally()).add()
            text = f"a PRNG key was used twice: {seen.error}"
            self._context.events.add("determinism", seen.function.name, text)

    def _of(self, function: Function) -> _Checks:
        found = self._checks.get(function)
        if found is None:
            local = self._context.jax.local_devices()
            ids = [device.id for device in local] if len(local) > 1 else ()
            found = self._checks.setdefault(function, _Checks(ids))
        return found

    # --- reading -----------------------------------------------------------------

    def explain(self) -> Explanation:
        """Return the results of checks."""
        return Explanation(functions={"determinism": self.snapshot})

    def snapshot(self) -> dict[str, facts.Determinism]:
        """Return the results of checks, by function."""
        found: dict[str, facts.Determinism] = {}
        for function, checks in self._checks.copy().items():
            found[function.name] = fact = facts.Determinism(
                checks=facts.Checks(**_values(checks.determinism)),
                deviation=_json(checks.deviation),
                gradient_checks=facts.Checks(**_values(checks.gradients)),
            )
            counts = {str(d): tally.value for d, tally in checks.devices.items()}
            if any(counts.values()):
                devices = {device: n for device, n in counts.items() if n}
                found[function.name] = fact.replace(devices=devices)
        skipped = () if self._shadow is None else self._shadow.skipped_functions()
        reused = self._reused.copy().items()
        changes: list[tuple[Function, str, Any]] = [
            *((function, "key_reuse", tally.value) for function, tally in reused),
            *((function, "not_repeated", reason) for function, reason in skipped),
        ]
        for function, name, value in changes:
            fact = found.get(function.name, facts.Determinism())
            found[function.name] = fact.replace(**{name: value})
        return found

    def collect(self) -> list[Family]:
        """Return the metrics of checks."""
        checks = [(f.name, found) for f, found in self._checks.copy().items()]
        reused = [(f.name, tally.value) for f, tally in self._reused.copy().items()]
        largest = [(name, found.deviation) for name, found in checks]
        devices = [(n, d, t.value) for n, of in checks for d, t in of.devices.items()]
        return [
            family_of(
                catalog.OUTPUT_DEVIATION, [(n, v) for n, v in largest if v is not None]
            ),
            _by_outcome(
                catalog.DETERMINISM_CHECKS, [(n, of.determinism) for n, of in checks]
            ),
            family_of(catalog.DEVICE_DEVIATIONS, devices),
            _by_outcome(
                catalog.GRADIENT_CHECKS, [(n, of.gradients) for n, of in checks]
            ),
            family_of(catalog.KEY_REUSE, reused),
        ]


def check_determinism(
    fn: Callable[..., Any], /, *args: Any, runs: int = 2, **kwargs: Any
) -> DeterminismCheck:
    """
    Run *fn* several times on the same input and compare all outputs bit by bit.

    Works without an agent; if one is running, it exports and records the result. Arrays
    are copied for each run, unless *fn* is known not to donate any, and outputs are
    copied to the host. Exceptions from *fn* propagate.

    Example:
        >>> import jax, jax.numpy as jnp, jaxmon
        >>> bool(jaxmon.check_determinism(jax.jit(jnp.sum), jnp.ones(3)))
        True

    Args:
        fn: the function, jitted or not.
        args: its positional arguments.
        runs: how often to run it, at least twice.
        kwargs: its keyword arguments.

    Returns:
        The differences from the first run; truthy if there are none.

    Raises:
        ValueError: fewer than two runs.
    """
    from jaxmon.agent.checks.results import (  # noqa: PLC0415
        DeterminismCheck,
        HostResult,
        merge_deviations,
    )

    if runs < 2:  # noqa: PLR2004 - one run compares with nothing
        msg = f"runs={runs!r} is too few to compare; use 2 or more"
        raise ValueError(msg)
    jax = import_module("jax")
    copies = donates(fn)
    first: HostResult | None = None
    deviations: list[Deviation] = []
    for _ in range(runs):
        given = _copied(jax, (args, kwargs), arrays=copies)
        result = HostResult(jax, fn(*given[0], **given[1]))
        del given
        if first is None:
            first = result
        else:
            deviations = merge_deviations(deviations, first.deviations(result))
    leaves = len(first) if first is not None else 0
    check = DeterminismCheck(label(fn)[0], runs, leaves, tuple(deviations))
    report_to_agent(fn, lambda part, function: part.checked(function, check))
    return check


def report_to_agent(
    fn: Callable[..., Any], take: Callable[[DeterminismPart, Function], None]
) -> None:
    """Pass a check of *fn* to this process's agent, if one is running."""
    figures = recorder()
    part: DeterminismPart | None = None if figures is None else figures.checks()
    if part is not None:
        part.record_for(fn, take)


def _copied(jax: Any, tree: Any, *, arrays: bool) -> Any:
    """Return *tree* with NumPy arrays copied, and JAX arrays too if *arrays*."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer):
            return leaf
        if isinstance(leaf, jax.Array):
            return leaf.copy() if arrays else leaf
        # NumPy's, without importing it.
        if module_of(type(leaf)) == "numpy" and hasattr(leaf, "copy"):
            return leaf.copy()
        return leaf

    return jax.tree_util.tree_map(copy, tree)


def _count(tallies: dict[str, Tally], *, passed: bool) -> None:
    for outcome in CHECK_OUTCOMES:
        tallies.setdefault(outcome, Tally())
    tallies["passed" if passed else "failed"].add()


def _by_outcome(
    metric: catalog.Metric, found: list[tuple[str, dict[str, Tally]]]
) -> Family:
    counts = [(name, *count) for name, of in found for count in _values(of).items()]
    return family_of(metric, counts)


def _values(tallies: dict[str, Tally]) -> dict[str, int]:
    return {outcome: tally.value for outcome, tally in tallies.copy().items()}


def _plain(deviation: Deviation) -> dict[str, Any]:
    return {
        **dataclasses.asdict(deviation),
        "shape": list(deviation.shape),
        "max_abs": _json(deviation.max_abs),
        "max_relative": _json(deviation.max_relative),
        "devices": list(deviation.devices),
    }


def _json(number: float | None) -> float | str | None:
    """Return *number* as valid JSON, which has no infinity."""
    return number if number is None or math.isfinite(number) else "inf"
