"""Information from JAX and XLA about a program: HLO, statistics, effects."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from jaxmon import interrupts


Effect: TypeAlias = Literal["ordered", "unordered", "callback"]

# Statistic: attribute of XLA's memory statistics, and whether 0 means "unknown". Every
# program needs some memory and code, but possibly no arguments.
_MEMORY = {
    "argument_bytes": ("argument_size_in_bytes", False),
    "output_bytes": ("output_size_in_bytes", False),
    "temporary_bytes": ("temp_size_in_bytes", False),
    "peak_bytes": ("peak_memory_in_bytes", True),  # since 0.7
    "code_bytes": ("generated_code_size_in_bytes", True),  # 0 on the CPU since 0.5
}


def loaded(jax: Any) -> list[Any]:
    """
    Return XLA's loaded executables. Takes microseconds; JAX's devices are initialised.

    Each is the object that JAX has, and lives as long as JAX holds it: what this
    returns must not be kept.
    """
    found: list[Any] = jax.local_devices()[0].client.live_executables()
    return found


def printing(jax: Any, *, origins: bool = False, configured: bool = False) -> Any:
    """
    Return options to print HLO without large constants; `None` if this JAX has none,
    which then omits them as well.

    Parts that differ between hosts are omitted: metadata, unless *origins*, and backend
    configuration, which contains autotuning results, unless that or *configured*. The
    class moved within jaxlib: to ``xla_client.hlo`` in 0.9, from ``xla_client._xla``.
    """
    client = jax._src.lib.xla_client  # noqa: SLF001 - no public way to the options
    for home in ("hlo", "_xla"):
        kind = getattr(getattr(client, home, None), "HloPrintOptions", None)
        if kind is not None:
            found = kind()
            found.print_large_constants = False
            found.print_metadata = origins
            found.print_backend_config = origins or configured
            return found
    return None


def texts(executable: Any, options: Any) -> Iterator[str]:
    """
    Yield the HLO of each module of *executable*, usually one.

    Args:
        executable: XLA's executable.
        options: what `printing` returned.

    Raises:
        RuntimeError: it was deleted, or its backend provides no HLO.
    """
    for module in executable.hlo_modules():
        yield module.to_string(*(() if options is None else (options,)))


def facts(executable: Any) -> dict[str, float]:
    """
    Return XLA's statistics of *executable*, as far as known.

    They are per device. FLOPs and accessed bytes count the body of a loop once, however
    often it runs, and almost nothing for custom calls.
    """
    found: dict[str, float] = {}
    try:
        cost = executable.cost_analysis() or {}
    except (RuntimeError, NotImplementedError) as error:
        interrupts.pass_on(error)
        cost = {}
    if isinstance(cost, list):
        cost = cost[0] if cost else {}
    for name, key in (("flops", "flops"), ("accessed_bytes", "bytes accessed")):
        value = cost.get(key, -1)
        if value >= 0 and math.isfinite(value):
            found[name] = value
    try:
        memory = executable.get_compiled_memory_stats()
    except (RuntimeError, NotImplementedError) as error:
        interrupts.pass_on(error)
        return found
    for name, (attribute, zero_is_unknown) in _MEMORY.items():
        value = getattr(memory, attribute, -1)
        if value > 0 or (value == 0 and not zero_is_unknown):
            found[name] = value
    return found


def effect_of(executable: Any, asked: Callable[..., Any]) -> Effect | None:
    """
    Return which effect keeps calls of a program off the fast path, if any.

    Args:
        executable: JAX's, from a missed call.
        asked: JAX's function that decides it.
    """
    call = getattr(executable, "unsafe_call", None)
    if call is None:
        return None
    if getattr(call, "ordered_effects", None):
        return "ordered"
    if getattr(call, "has_unordered_effects", False):
        return "unordered"
    # Callbacks do, in some releases.
    code = getattr(getattr(asked, "__wrapped__", asked), "__code__", None)
    if "has_host_callbacks" not in getattr(code, "co_names", ()):
        return None
    return "callback" if getattr(call, "has_host_callbacks", False) else None


class Rerun(NamedTuple):
    """
    What re-running a call would do.

    Attributes:
        effects: whether anything besides its outputs.
        donated: the leaves of the arguments that it donates, by their number; `None` if
            it donates some, and it is not known which.
        program: returns what JAX traced, as long as that exists.
    """

    effects: bool
    donated: frozenset[int] | None
    program: Callable[[], object]

    @property
    def donates(self) -> bool:
        """Whether it donates any."""
        return self.donated is None or bool(self.donated)


def rerun_of(
    jax: Any, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Rerun:
    """
    Return what re-running a call of *jitted* would do. JAX has cached its trace; the
    arguments may have been donated.
    """
    traced = jitted.trace(*args, **kwargs)
    donated: frozenset[int] | None = frozenset(traced.donate_argnums)
    if donated:
        # Static arguments are missing there, so numbers would be others here.
        tree = jax.tree_util.tree_structure
        if tree(traced.args_info) != tree((args, kwargs)):
            donated = None
    effects = bool(traced.jaxpr.effects) or _calls_back(traced.jaxpr.jaxpr)
    return Rerun(effects, donated, weakref.ref(traced.jaxpr))


def traced_program(
    jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> object:
    """Return what JAX has traced for a call of *jitted*; see `Rerun.program`."""
    program: object = jitted.trace(*args, **kwargs).jaxpr
    return program


def _calls_back(jaxpr: Any) -> bool:
    """Return whether *jaxpr* calls Python, or code declared to have side effects."""
    for equation in jaxpr.eqns:
        if "callback" in equation.primitive.name:
            return True
        if equation.params.get("has_side_effect"):
            return True
        for value in equation.params.values():
            inner = value if isinstance(value, (list, tuple)) else (value,)
            for one in inner:
                # A closed jaxpr contains the open one.
                found = getattr(one, "jaxpr", one)
                if hasattr(found, "eqns") and _calls_back(found):
                    return True
    return False
