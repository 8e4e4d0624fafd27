"""Makes `jax.eval_shape` work with counted functions."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.jit import TYPE_NAME
from jaxmon.agent.jaxlink.patch_targets import Target
from jaxmon.agent.jaxlink.probe import Probe


def stand_in(
    jax: Any,
    unwrap: Callable[[object], Callable[..., Any] | None],
    *,
    guard: Guard,
    site: str,
) -> tuple[Target, Probe] | None:
    """
    Return an attribute of *jax* and its replacement, with which `jax.eval_shape` sees
    JAX's own object; `None` if this JAX needs none.

    Since 0.9 it checks ``type(fun) is PjitFunction`` to honour static arguments, which
    a counted function cannot satisfy, and otherwise calls ``jit(fun)``.

    Args:
        jax: the module.
        unwrap: called with the argument of `jax.eval_shape`; returns a function that
            unwraps it, `None` if it is not a counted function.
        guard: contains failures.
        site: name under which failures are counted.

    Raises:
        AttributeError: this JAX lacks one of the attributes.
    """
    api: Any = jax._src.api  # noqa: SLF001 - looked up there at each use
    code = getattr(api.eval_shape, "__wrapped__", api.eval_shape).__code__
    if TYPE_NAME not in code.co_names:
        return None

    def observe(frame: FrameType, _: Callable[..., Any]) -> Callable[..., Any] | None:
        return unwrap(frame.f_locals.get("fun")) if frame.f_code is code else None

    probe = Probe(api.jit, observe, guard=guard, site=site)
    return Target(api, "jit"), probe
