"""
The call layer: counts calls of jitted functions without a frame of ours.

`jax.jit` and `jax.pmap` return a `CountedFunction` in place of JAX's object. It is
an `itertools.compress` over an endless supply of JAX's object and the ticks of its
function's tally: taking the next item advances the tally and yields the object,
all in C, and the interpreter then calls that object itself. A cached call pays 40 to
55 ns; no traceback, profile or source location shows us.

Two C calls within one bytecode cannot be torn apart under the GIL, so the count is
exact from any number of threads.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Callable
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Self

from jaxmon.agent.functions import Function, FunctionTable, label


if TYPE_CHECKING:
    from jaxmon.agent.guard import Guard
    from jaxmon.agent.patches import Patches


SITE = "calls"


class CountedFunction(compress):  # type: ignore[type-arg]
    """
    A jitted function that counts its calls; otherwise JAX's own object.

    It shares the ``__dict__`` of a `jax.jit` object, so attributes set on either are
    seen on both, and hands everything else on to it.
    """

    __slots__ = ("__dict__", "__weakref__", "_jitted")

    # A jitted function is not iterable; this hides that we inherit from an iterator.
    __iter__ = None  # type: ignore[assignment]
    __call__ = property(next)
    # On the class, because jax.stages.Wrapped is a protocol and Python 3.12 looks
    # for its members there.
    lower = property(operator.attrgetter("_jitted.lower"))
    trace = property(operator.attrgetter("_jitted.trace"))
    # object has one of its own since Python 3.11; JAX's tells the function's name.
    __getstate__ = property(operator.attrgetter("_jitted.__getstate__"))

    _jitted: Callable[..., Any]

    def __new__(cls, jitted: Callable[..., Any], ticks: repeat[int]) -> Self:
        """
        Return *jitted*, each call of which takes one of *ticks*.
        """
        self = super().__new__(cls, repeat(jitted), ticks)
        variables = jitted.__dict__
        if isinstance(jitted, types.FunctionType):
            # pmap's result since 0.8: its name and doc are not in its __dict__.
            names = functools.WRAPPER_ASSIGNMENTS
            variables = {name: getattr(jitted, name) for name in names} | variables
        object.__setattr__(self, "_jitted", jitted)
        object.__setattr__(self, "__dict__", variables)
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __setattr__(self, name: str, value: object) -> None:
        # Past our properties: to 0.4 JAX sets its methods on each object.
        self.__dict__[name] = value

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return repr(self._jitted)

    def __dir__(self) -> list[str]:
        return dir(self._jitted)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # Pickles as the plain jitted function, readable where jaxmon is not
        # installed.
        return (operator.getitem, ([self._jitted], 0))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__reduce_ex__(2)


class CallLayer:
    """
    Counts what `jax.jit` and `jax.pmap` make, and knows which functions these are.

    `jax.jit` itself stays JAX's: what is replaced is the function that makes its
    objects, looked up by JAX at each use. So jit bound by ``from jax import jit``
    before us counts too, and nothing of the user's runs below our frame. Functions of
    JAX itself are not counted.
    """

    def __init__(self, table: FunctionTable, guard: Guard) -> None:
        self._table = table
        self._guard = guard
        self._entries: dict[int, tuple[Function, weakref.ref[Any]]] = {}
        self.active = True

    def install(self, patches: Patches, jax: types.ModuleType) -> None:
        """
        Patch *jax*. Functions made earlier are seen by the miss path only.
        """
        pjit, api = jax._src.pjit, jax._src.api  # noqa: SLF001 - see above
        patches.replace(pjit, "_cpp_pjit", self._counting_jit(pjit._cpp_pjit))  # noqa: SLF001
        if hasattr(jax, "pmap"):  # it may go, and there would still be calls to count
            patches.replace(jax, "pmap", self._counting_pmap(jax.pmap))
        _unwrap_for_eval_shape(patches, api, self._guard)

    def entry(self, key: object) -> Function | None:
        """
        Return the function whose calls are counted under *key*, if they are.

        Args:
            key: JAX's ``PjitInfo`` of a jitted function, the user's function of a
                pmapped one.
        """
        found = self._entries.get(id(key))
        return found[0] if found else None

    def _counting_jit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(fun: Callable[..., Any], jit_info: Any) -> Any:
            return self._count(original(fun, jit_info), fun, jit_info)

        return make

    def _counting_pmap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def pmap(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return self._count(original(fun, *args, **kwargs), fun, fun)

        return pmap

    def _count(
        self, jitted: Callable[..., Any], fun: Callable[..., Any], key: object
    ) -> Callable[..., Any]:
        """
        Return *jitted*, made of *fun*, so that it counts; *key* as in `entry`.
        """
        try:
            if not (self.active and self._guard.on(SITE)) or label(fun)[1]:
                return jitted
            function = self._table.of(fun)
            counted = CountedFunction(jitted, function.entered.ticks)
            # The reference's callback is C and drops the entry with the function,
            # before the key's id can belong to anything else.
            forget = functools.partial(self._entries.pop, id(key))
            self._entries[id(key)] = (function, _reference(key, jitted, forget))
            function.counted = True
        except Exception:  # noqa: BLE001 - contained: the user gets JAX's object
            self._guard.failed(SITE)
            return jitted
        return counted


def _reference(
    key: object, jitted: Callable[..., Any], forget: Callable[..., Any]
) -> weakref.ref[Any]:
    """
    Return what calls *forget* when nothing can be counted under *key* any more.

    Several pmaps of one function share it as their key. A ``PjitInfo`` belongs to one
    *jitted*, and allows no references.
    """
    try:
        return weakref.ref(key, forget)
    except TypeError:
        return weakref.ref(jitted, forget)


def closure(function: Any) -> dict[str, Any]:
    """
    Return the free variables of *function*, decorators taken off, by name.
    """
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    cells = function.__closure__ or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
    }


def _unwrap_for_eval_shape(
    patches: Patches, api: types.ModuleType, guard: Guard
) -> None:
    """
    Let `jax.eval_shape` see the jitted function inside a `CountedFunction`.

    Since JAX 0.9 it asks ``type(fun) is PjitFunction`` to honour static arguments,
    which no stand-in can satisfy, and else calls ``jit(fun)``.
    """
    from jaxmon.agent.probe import Probe  # noqa: PLC0415

    code = getattr(api.eval_shape, "__wrapped__", api.eval_shape).__code__
    if "PjitFunction" not in code.co_names:
        return

    def observe(
        frame: types.FrameType, _: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        if frame.f_code is code and isinstance(
            frame.f_locals.get("fun"), CountedFunction
        ):
            return operator.attrgetter("_jitted")
        return None

    probe = Probe(api.jit, observe, guard=guard, site="eval_shape")
    patches.replace(api, "jit", probe)
