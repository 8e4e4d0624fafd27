"""
The call layer: counts calls of jitted functions without a frame of ours.

`jax.jit` and `jax.pmap` return a `CountedFunction` in place of JAX's object. It is
an `itertools.compress` over an endless supply of JAX's object and the ticks of its
function's tally: taking the next item advances the tally and yields the object,
all in C, and the interpreter then calls that object itself. A cached call pays 40 to
55 ns; no traceback, profile or source location shows us.

Two C calls within one bytecode cannot be torn apart under the GIL, so the count is
exact from any number of threads.

For one call an object may become a `SampledFunction`, whose look-up of ``__call__``
passes through Python; between such calls it pays nothing for the possibility.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from itertools import compress, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol, Self

from jaxmon.agent.functions import Function, FunctionTable, label


if TYPE_CHECKING:
    from jaxmon.agent.guard import Guard
    from jaxmon.agent.patches import Patches


SITE = "calls"

_ENDLESS = 1 << 62


class Arm(Protocol):
    """
    Waits for the next call of one `CountedFunction`.
    """

    def begin(
        self,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: types.FrameType,
        /,
    ) -> None:
        """
        Take note that a call from *frame* begins: on the calling thread, before it.
        Raises nothing.
        """
        ...


class CountedFunction(compress):  # type: ignore[type-arg]
    """
    A jitted function that counts its calls; otherwise JAX's own object.

    It shares the ``__dict__`` of a `jax.jit` object, so attributes set on either are
    seen on both, and hands everything else on to it.
    """

    __slots__ = ("__dict__", "__weakref__", "_arm", "_jitted", "_supply")

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
    _supply: repeat[Callable[..., Any]]
    _arm: Arm | None

    def __new__(cls, jitted: Callable[..., Any], ticks: repeat[int]) -> Self:
        """
        Return *jitted*, each call of which takes one of *ticks*.
        """
        supply = repeat(jitted, _ENDLESS)
        self = super().__new__(cls, supply, ticks)
        variables = jitted.__dict__
        if isinstance(jitted, types.FunctionType):
            # pmap's result since 0.8: its name and doc are not in its __dict__.
            names = functools.WRAPPER_ASSIGNMENTS
            variables = {name: getattr(jitted, name) for name in names} | variables
        object.__setattr__(self, "_jitted", jitted)
        object.__setattr__(self, "_supply", supply)
        object.__setattr__(self, "_arm", None)
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


def _first_arm(counted: CountedFunction) -> Callable[..., Any]:
    """
    Let a sampled call begin, and be like any other from here on.
    """
    arm = counted._arm  # noqa: SLF001 - this is a method of it
    disarm(counted)
    jitted: Callable[..., Any] = next(counted)
    if arm is not None:
        arm.begin(counted, jitted, sys._getframe(1))  # noqa: SLF001 - as in a probe
    return jitted


class SampledFunction(CountedFunction):
    """
    A `CountedFunction` whose next call is to be sampled.

    No frame of ours stands below that call either: the look-up has ended by then.
    """

    __slots__ = ()

    __call__ = property(_first_arm)


def arm(counted: CountedFunction, waiting: Arm) -> None:
    """
    Have *waiting* told of the next call of *counted*. Any thread.
    """
    object.__setattr__(counted, "_arm", waiting)
    # One C call: the interpreter finds either class, and both are complete.
    object.__setattr__(counted, "__class__", SampledFunction)


def disarm(counted: CountedFunction) -> None:
    """
    Take that back.
    """
    object.__setattr__(counted, "__class__", CountedFunction)
    object.__setattr__(counted, "_arm", None)


def armed(counted: CountedFunction) -> bool:
    """
    Tell whether the next call of *counted* is to be sampled.
    """
    return type(counted) is SampledFunction


def taken(counted: CountedFunction) -> int:
    """
    Return how often *counted* was called; its function's tally counts all its objects.
    """
    return _ENDLESS - length_hint(counted._supply)  # noqa: SLF001 - our own


class CallLayer:
    """
    Counts what `jax.jit` and `jax.pmap` make, and knows which functions these are.

    `jax.jit` itself stays JAX's: what is replaced is the function that makes its
    objects, looked up by JAX at each use. So jit bound by ``from jax import jit``
    before us counts too, and nothing of the user's runs below our frame. Functions of
    JAX itself are not counted.

    Args:
        table: where the figures go.
        guard: contains failures.
        made: told of each object that counts.

    Attributes:
        codes_tell: whether `by_code` knows each function that is counted.
    """

    def __init__(
        self,
        table: FunctionTable,
        guard: Guard,
        made: Callable[[Function, CountedFunction], None],
    ) -> None:
        self._table = table
        self._guard = guard
        self._made = made
        self._entries: dict[int, tuple[Function, weakref.ref[Any]]] = {}
        self._codes: dict[int, tuple[Function, types.CodeType]] = {}
        self._makers: dict[Function, Callable[..., Any]] = {}
        self.codes_tell = True
        self.active = True

    def install(self, patches: Patches, jax: types.ModuleType) -> None:
        """
        Patch *jax*. Functions made earlier are seen by the miss path only.
        """
        pjit, api = jax._src.pjit, jax._src.api  # noqa: SLF001 - see above
        original = pjit._cpp_pjit  # noqa: SLF001
        patches.replace(pjit, "_cpp_pjit", self._counting_jit(original))
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

    def by_code(self, code: types.CodeType) -> Function | None:
        """
        Return the function whose counted calls run *code* when they miss, if any do.

        Each function has a copy of that code, equal to JAX's. So a frame tells whose
        call it serves without a look into its variables, which costs a microsecond or
        two, thousands of times while a large program is traced. A pmap has no copy.
        """
        found = self._codes.get(id(code))
        return found[0] if found else None

    def _counting_jit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        self.codes_tell = _missing(original) is not None

        @functools.wraps(original)
        def make(fun: Callable[..., Any], jit_info: Any) -> Any:
            function = self._counted(fun)
            if function is None:
                return original(fun, jit_info)
            jitted = self._maker(original, function)(fun, jit_info)
            return self._count(jitted, function, jit_info)

        return make

    def _counting_pmap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def pmap(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.codes_tell = False
            jitted, function = original(fun, *args, **kwargs), self._counted(fun)
            return jitted if function is None else self._count(jitted, function, fun)

        return pmap

    def _maker(
        self, original: Callable[..., Any], function: Function
    ) -> Callable[..., Any]:
        """
        Return *original*, JAX's ``_cpp_pjit``, or what does the same with code that
        only *function* has.
        """
        missing = _missing(original)
        try:
            if missing is None:
                return original
            if function not in self._makers:
                code = missing.replace()
                self._codes[id(code)] = (function, code)
                self._makers[function] = _with(original, missing, code)
            return self._makers[function]
        except Exception:  # noqa: BLE001 - contained: the user gets JAX's object
            self._guard.failed(SITE)
            return original

    def _counted(self, fun: Callable[..., Any]) -> Function | None:
        """
        Return the function that calls of what is made of *fun* count for, if they do.
        """
        try:
            if self.active and self._guard.on(SITE) and not label(fun)[1]:
                return self._table.of(fun)
        except Exception:  # noqa: BLE001 - contained: the user gets JAX's object
            self._guard.failed(SITE)
        return None

    def _count(
        self, jitted: Callable[..., Any], function: Function, key: object
    ) -> Callable[..., Any]:
        """
        Return *jitted* so that it counts for *function*; *key* as in `entry`.
        """
        try:
            counted = CountedFunction(jitted, function.entered.ticks)
            # The reference's callback is C and drops the entry with the function,
            # before the key's id can belong to anything else.
            forget = functools.partial(self._entries.pop, id(key))
            self._entries[id(key)] = (function, _reference(key, jitted, forget))
            function.counted = True
            self._made(function, counted)
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


def _missing(original: Any) -> types.CodeType | None:
    """
    Return the code that *original*, JAX's ``_cpp_pjit``, has a miss run.
    """
    code = getattr(original, "__code__", None)
    for one in getattr(code, "co_consts", ()):
        if isinstance(one, types.CodeType) and one.co_name == "cache_miss":
            return one
    return None


def _with(
    original: Any, before: types.CodeType, after: types.CodeType
) -> Callable[..., Any]:
    """
    Return a copy of the function *original* that has *after* in place of *before*.
    """
    code = original.__code__
    constants = tuple([after if one is before else one for one in code.co_consts])
    copy = types.FunctionType(
        code.replace(co_consts=constants),
        original.__globals__,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    copy.__kwdefaults__ = original.__kwdefaults__
    return copy


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
