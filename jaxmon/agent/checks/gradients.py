"""Compares gradients with finite differences, using JAX's own checker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from jaxmon.agent.checks.determinism import report_to_agent
from jaxmon.agent.functions import label
from jaxmon.agent.jaxlink.failures import is_gradient_mismatch


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
    passed = not explanation
    check = GradientCheck(
        label(fn)[0],
        order,
        tuple(modes),
        passed,
        explanation,
        () if passed else _hints(args),
    )
    report_to_agent(
        fn,
        lambda part, function: part.record_gradient_check(
            function, explanation, passed=passed
        ),
    )
    return check


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
