"""
Checks that a program asks for: whether a function gives the same output for the same
input, and, with JAX's own checker, whether its gradients agree with finite differences.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.context import Context, CountedError
from jaxmon.agent.functions import Function, label
from jaxmon.agent.inspection import module_of
from jaxmon.agent.jaxlink.failures import is_gradient_mismatch
from jaxmon.agent.jaxlink.jit import donates
from jaxmon.agent.part import Explanation, Part
from jaxmon.catalog import CHECK_OUTCOMES, Metric
from jaxmon.exposition.families import Family, Tally, family_of
from jaxmon.facts import functions as facts
from jaxmon.indicators.recorder import recorder


if TYPE_CHECKING:
    from jaxmon.agent.checks.results import DeterminismCheck, Deviation, HostResult
    from jaxmon.agent.checks.shadow import ShadowRunner


_HINT = (
    "Finite differences in 32-bit precision are only accurate to a few digits. "
    "Before suspecting the gradient, check again with "
    'jax.config.update("jax_enable_x64", True) and float64 arguments, or with '
    "larger atol and rtol."
)
_MATMUL_HINT = (
    "On accelerators, matrix products are computed with reduced precision: try "
    '`with jax.default_matmul_precision("highest")`.'
)


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

    def record_gradient_check(self, function: Function, check: GradientCheck) -> None:
        """Record the result of a gradient check."""
        _count(self._of(function).gradients, passed=check.passed)
        if not check.passed:
            text = f"wrong gradients: {check.explanation}"
            self._context.events.add("determinism", function.name, text)

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
        skipped = {} if self._shadow is None else self._shadow.skipped()
        reused = {function: n.value for function, n in self._reused.copy().items()}
        for field, values in (("key_reuse", reused), ("not_repeated", skipped)):
            for function, value in values.items():
                fact = found.get(function.name, facts.Determinism())
                found[function.name] = fact.replace(**{field: value})
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


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """
    Result of a gradient check; truthy if the gradients agree.

    Attributes:
        order: gradients up to this order were compared.
        modes: the kinds of differentiation that were compared.
        passed: whether they agree.
        explanation: JAX's error message; empty if they agree.
        hints: other possible explanations.
    """

    function: str
    order: int
    modes: tuple[str, ...]
    passed: bool
    explanation: str = ""
    hints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        what = f"gradients of {self.function} to order {self.order}"
        if self.passed:
            return f"{what} agree with finite differences"
        first = f"{what} do not agree with finite differences:"
        return "\n".join([first, self.explanation, *self.hints])


def check_gradients(  # noqa: PLR0913 - those of JAX's checker
    fn: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    *,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> GradientCheck:
    """
    Compare the gradients of *fn* at *args* with finite differences.

    Wraps `jax.test_util.check_grads`, returning a result instead of raising; if an
    agent is running, it exports and records the result. One random direction is
    compared, so a check costs a few runs of *fn*. Exceptions from *fn* propagate.

    Example:
        >>> import jax.numpy as jnp, jaxmon
        >>> bool(jaxmon.check_gradients(jnp.sin, (1.0,)))
        True

    Args:
        fn: the function to differentiate.
        args: floating-point arguments, or trees of them.
        order: highest order of the gradients compared.
        modes: ``fwd``, ``rev`` or both.
        atol: absolute tolerance; by default JAX's own for the dtype.
        rtol: relative tolerance, likewise.
        eps: step of the finite differences, likewise.
    """
    jax, test_util = import_module("jax"), import_module("jax.test_util")
    # JAX's checker fails on plain numbers.
    args = jax.tree_util.tree_map(
        lambda leaf: jax.numpy.asarray(leaf) if isinstance(leaf, float) else leaf,
        tuple(args),
    )
    explanation = ""
    try:
        test_util.check_grads(
            fn, args, order, modes=modes, atol=atol, rtol=rtol, eps=eps
        )
    except AssertionError as error:
        # An assertion failure in *fn* itself says nothing about its gradients.
        if not is_gradient_mismatch(error):
            raise
        explanation = str(error).strip() or "gradients do not match"
    name, hints = label(fn)[0], _hints(args) if explanation else ()
    given = tuple(modes), not explanation, explanation, hints
    check = GradientCheck(name, order, *given)
    report_to_agent(fn, lambda part, of: part.record_gradient_check(of, check))
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


def _by_outcome(metric: Metric, found: list[tuple[str, dict[str, Tally]]]) -> Family:
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


def _hints(args: Sequence[Any]) -> tuple[str, ...]:
    jax = import_module("jax")
    leaves = jax.tree_util.tree_leaves(tuple(args))
    wide = all(
        str(jax.numpy.result_type(leaf)).endswith(("64", "128")) for leaf in leaves
    )
    found = [] if wide and jax.config.jax_enable_x64 else [_HINT]
    if jax.default_backend() != "cpu":
        found.append(_MATMUL_HINT)
    return tuple(found)
