"""Makes `jax.eval_shape` work with counted functions."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.jit import TYPE_NAME
from jaxmon.agent.jaxlink.probe import Probe


_JIT = "_jit_of_eval_shape"
"""A name in the module of `jax.eval_shape` that only this function looks up."""


def attach(
    jax: Any,
    unwrap: Callable[[object], Callable[..., Any] | None],
    *,
    guard: Guard,
    site: str,
) -> None:
    """
    Have `jax.eval_shape` see JAX's own object, as long as the process lives, since
    counted functions outlive an agent. Does nothing if this JAX needs nothing, or if it
    has been done.

    Since 0.7.2 it checks ``type(fun) is PjitFunction`` to honour static arguments,
    which a counted function cannot satisfy, and otherwise calls ``jit(fun)``. JAX and
    programs import this ``jit`` elsewhere, and it is pickled by its name: so it stays,
    and the code of `jax.eval_shape` looks up another.

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
    function = getattr(api.eval_shape, "__wrapped__", api.eval_shape)
    code = function.__code__
    if TYPE_NAME not in code.co_names or _JIT in code.co_names:
        return

    def observe(frame: FrameType, _: Callable[..., Any]) -> Callable[..., Any] | None:
        return unwrap(frame.f_locals.get("fun"))

    setattr(api, _JIT, Probe(api.jit, observe, guard=guard, site=site))
    names = tuple([_JIT if name == "jit" else name for name in code.co_names])
    function.__code__ = code.replace(co_names=names)
