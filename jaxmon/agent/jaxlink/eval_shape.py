"""`jax.eval_shape`, which asks for the very type of a jitted function."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.jit import TYPE_NAME
from jaxmon.agent.jaxlink.places import Place
from jaxmon.agent.jaxlink.probe import Probe


def stand_in(
    jax: Any,
    unwrap: Callable[[object], Callable[..., Any] | None],
    *,
    guard: Guard,
    site: str,
) -> tuple[Place, Probe] | None:
    """
    Return a place in *jax*, and what lets `jax.eval_shape` see JAX's own object if it
    stands there; `None` where this JAX needs none.

    Since 0.9 it asks ``type(fun) is PjitFunction`` to honour static arguments, which
    nothing of ours can satisfy, and else calls ``jit(fun)``.

    Args:
        jax: the module.
        unwrap: given what `jax.eval_shape` was, returns what makes JAX's object of it,
            `None` if it is no object of ours.
        guard: contains failures.
        site: the name of these failures.

    Raises:
        AttributeError: this JAX lacks one of the places.
    """
    api: Any = jax._src.api  # noqa: SLF001 - looked up there at each use
    code = getattr(api.eval_shape, "__wrapped__", api.eval_shape).__code__
    if TYPE_NAME not in code.co_names:
        return None

    def observe(frame: FrameType, _: Callable[..., Any]) -> Callable[..., Any] | None:
        return unwrap(frame.f_locals.get("fun")) if frame.f_code is code else None

    probe = Probe(api.jit, observe, guard=guard, site=site)
    return Place(api, "jit"), probe
