"""
Attributes of JAX that jaxmon replaces, by release, and how that is undone. Each
function raises `AttributeError` if the installed JAX lacks its target.

Methods of JAX's array class are replaced without a stack frame: looking one up runs an
observer, which returns a callable for one call; that has finished when the interpreter
drops it. `jaxlink.listeners` does the same for functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import CellType, CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.guard import Allowance, Guard, log
from jaxmon.agent.inspection import AnyCall, is_instance
from jaxmon.agent.jaxlink.backends import is_calling
from jaxmon.agent.jaxlink.call_sites import TransferSite
from jaxmon.agent.jaxlink.jit import TYPE_NAME
from jaxmon.agent.jaxlink.listeners import Probe
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.otel.traces.spans import Place


Owner: TypeAlias = ModuleType | type | CellType


class Patch(NamedTuple):
    """An attribute, and what was there before ours."""

    owner: Owner
    name: str
    original: object
    ours: object


class Patches:
    """
    Replaced attributes of modules and classes, and contents of cells, restored in
    reverse. One that other code replaced after us is left alone: their wrapper keeps
    calling ours, so ours must keep working when inactive.
    """

    def __init__(self) -> None:
        self._patches: list[Patch] = []

    def replace(self, owner: Owner, name: str, ours: object) -> None:
        """Set ``owner.name`` to *ours* until `undo`."""
        original = _found(owner, name)
        if original is None:
            raise AttributeError(name)
        self._patches.append(Patch(owner, name, original, ours))
        setattr(owner, name, ours)

    @property
    def number(self) -> int:
        """Number of attributes replaced now."""
        return len(self._patches)

    def now(self) -> list[Patch]:
        """Return what is replaced now."""
        return self._patches.copy()

    def undo(self, *, after: int = 0) -> list[Patch]:
        """Restore and return what is still ours, after the first ones. Idempotent."""
        undone = self._patches[after:]
        while len(self._patches) > after:
            # Removed last: if interrupted, it is undone again.
            patch = self._patches[-1]
            if _found(patch.owner, patch.name) is patch.ours:
                setattr(patch.owner, patch.name, patch.original)
            else:
                log.debug(
                    "%s.%s was patched again after jaxmon; leaving it in place",
                    getattr(patch.owner, "__name__", ""),
                    patch.name,
                )
            del self._patches[-1]
        return undone


def restore_copies(patches: Iterable[Patch]) -> None:
    """Restore what modules took of ours by ``from ... import``, in some 10 ms."""
    originals = {id(patch.ours): patch.original for patch in patches}
    for module in list(sys.modules.values()):
        # Not `isinstance`: a library of cffi says that it is a module, and is none.
        if is_instance(module, ModuleType):
            # Without loading a module that waits for its first use.
            variables = object.__getattribute__(module, "__dict__")
            for name, value in variables.copy().items():
                if id(value) in originals:
                    variables[name] = originals[id(value)]


def _found(owner: Owner, name: str) -> Any:
    if isinstance(owner, ModuleType | type):
        return owner.__dict__.get(name)
    return getattr(owner, name)


class ModuleProxy(ModuleType):
    """Stands for a module in one that imports it, with some *attributes* replaced."""

    def __init__(self, original: ModuleType, attributes: dict[str, object]) -> None:
        super().__init__(original.__name__, original.__doc__)
        self._original = original
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name == "_original":
            raise AttributeError(name)
        return getattr(self._original, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Cloudpickle pickles functions of JAX with the modules that they use.
        return import_module, (self.__name__,)


class PatchTarget(NamedTuple):
    """An attribute that JAX looks up in its module, or class, on each use."""

    owner: Any
    name: str


def misses(jax: Any) -> list[PatchTarget]:
    """Return the functions called on every miss, and ahead of time."""
    source: Any = jax._src  # noqa: SLF001 - no public way, here and below
    found = [_place(jax, source.pjit, "_infer_params")]
    # pmap had its own cache up to 0.7; since 0.8 _prepare_pmap only checks arguments.
    if hasattr(source.api, "_cpp_pmap") and hasattr(source.api, "_prepare_pmap"):
        found.append(PatchTarget(source.api, "_prepare_pmap"))
    return found


def completed_misses(jax: Any) -> list[PatchTarget]:
    """Return the function called when a missed call has succeeded, if there is one."""
    return _present(jax._src.pjit, "_get_fastpath_data")  # noqa: SLF001


def compiles(jax: Any) -> PatchTarget:
    """Return the function that compiles a program, or finds it in the cache."""
    return _place(jax, jax._src.compiler, "compile_or_get_cached")  # noqa: SLF001


def builds(jax: Any) -> list[PatchTarget]:
    """Return the functions that call XLA for a program not found there."""
    # The first up to 0.8, the second since 0.6.
    names = ("backend_compile", "backend_compile_and_load")
    return _present(jax._src.compiler, *names)  # noqa: SLF001


def cache_clears(jax: Any) -> list[PatchTarget]:
    """Return the function with which `jax.clear_caches` drops all programs."""
    return _present(jax._src.util, "clear_all_caches")  # noqa: SLF001


def _present(owner: Any, *names: str) -> list[PatchTarget]:
    return [PatchTarget(owner, name) for name in names if hasattr(owner, name)]


def cache_writes(jax: Any) -> PatchTarget:
    """Return the function that writes a program to the persistent cache."""
    return _place(jax, jax._src.compiler, "_cache_write")  # noqa: SLF001


def warners(jax: Any) -> tuple[PatchTarget, PatchTarget]:
    """Return where JAX warns of entries not read or written, and of too large ones."""
    compiler, cache = jax._src.compiler, jax._src.lru_cache  # noqa: SLF001
    return PatchTarget(compiler, "warnings"), PatchTarget(cache, "warnings")


def traceback_filter(jax: Any) -> PatchTarget:
    """Return the function called when an error leaves a function of JAX."""
    return _place(jax, jax._src.traceback_util, "_filtering_mode")  # noqa: SLF001


def deleted_array(jax: Any) -> tuple[PatchTarget, CodeType]:
    """Return what describes an array, and the code that does so of a deleted one."""
    source: Any = jax._src  # noqa: SLF001
    check = source.array.ArrayImpl._check_if_deleted  # noqa: SLF001
    name = "str_short"
    if name not in check.__code__.co_names:
        msg = f"_check_if_deleted does not call {name}"
        raise AttributeError(msg)
    return PatchTarget(source.core.ShapedArray, name), check.__code__


def jit_maker(jax: Any) -> PatchTarget:
    """Return the function that creates jitted objects."""
    return PatchTarget(jax._src.pjit, "_cpp_pjit")  # noqa: SLF001


def pmap_maker(jax: Any) -> PatchTarget | None:
    """
    Return the function that creates pmaps: up to 0.7 ``_cpp_pmap``, since then
    `jax.pmap` inside the wrapper that filters its tracebacks; `None` without a
    `jax.pmap`, which may be removed, with calls still to count.
    """
    if "pmap" not in vars(jax):
        return None
    source: Any = jax._src  # noqa: SLF001
    # JAX's own: the program may have wrapped the public name.
    pmap = source.api.pmap if hasattr(source.api, "pmap") else source.pmap.pmap
    if not hasattr(pmap, "__wrapped__"):
        return PatchTarget(source.api, "_cpp_pmap")
    for cell in pmap.__closure__:
        if cell.cell_contents is pmap.__wrapped__:
            return PatchTarget(cell, "cell_contents")
    msg = "jax.pmap is made in a different way"
    raise AttributeError(msg)


def _place(jax: Any, owner: Any, name: str) -> PatchTarget:
    """Return a target whose observers need `is_calling`."""
    is_calling(jax)
    getattr(owner, name)
    return PatchTarget(owner, name)


SITE = "transfers"

Started: TypeAlias = tuple[TransferSite, int, int, int, int, "Place | None"]
"""
Transfer site, how many transfers it stands for, count (0 for shards after the first),
bytes, start, and where a span of it belongs.
"""

Record: TypeAlias = tuple[Started, int]
"""The same with the end; both in nanoseconds of the performance counter."""


class SyncCall:
    """
    ``array.block_until_ready`` before it is called: a lookup alone is no sync. What
    *start* returns is called instead; it stands for *weight* syncs.
    """

    # Set from outside: an `__init__` would cost each sync a call.
    __slots__ = ("bound", "start", "weight")

    bound: Callable[[], Any]
    start: Callable[..., AnyCall | None]
    weight: int

    @property
    def __call__(self) -> Callable[[], Any]:
        """The method, for one call."""
        frame, bound = sys._getframe(1), self.bound  # noqa: SLF001
        return self.start(frame, bound, self.weight) or bound

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.bound.__reduce_ex__(protocol)


class MethodPatch:
    """Replaces a method of JAX's array class and passes each use to *observe*."""

    __slots__ = ("_allowance", "_bind", "_guard", "_observe", "_off", "active")

    def __init__(
        self,
        original: Any,
        observe: Callable[[FrameType, AnyCall, Any], Any],
        allowance: Allowance,
        guard: Guard,
    ) -> None:
        self._allowance = allowance
        self._bind = original.__get__
        self._observe = observe
        self._guard = guard
        self._off = guard.off
        self.active = True

    def __get__(self, array: Any, owner: type | None = None) -> Any:
        # First, since most pass where they are frequent.
        allowance = self._allowance
        if allowance.passing:
            allowance.passing -= 1
            return self._bind(array, owner)
        bound = self._bind(array, owner)
        if array is None or not self.active or SITE in self._off:
            return bound
        try:
            return self._observe(sys._getframe(1), bound, array) or bound  # noqa: SLF001
        except Exception:  # noqa: BLE001 - contained: the user's call goes on
            self._guard.failed(SITE)
            return bound


def variable(frame: FrameType, name: str) -> Any:
    """Return the variable *name* of the method, in *frame*, that looks another up."""
    return frame.f_locals[name]


ERRORS_SITE = "runtime_errors"


class ErrorConstructionHook:
    """
    Replaces ``__init__`` of the runtime's exception class: passes each error to
    *observe* on construction, then runs the original. Adds no frame to its traceback.
    """

    def __init__(
        self,
        kind: Any,
        observe: Callable[[BaseException, FrameType | None], None],
        guard: Guard,
    ) -> None:
        self._observe = observe
        self._guard = guard
        self._kind, self._original = kind, kind.__init__
        self._defines_init = "__init__" in kind.__dict__  # since 0.10
        self.active = True

    def attach(self) -> None:
        """Start observing."""
        self._kind.__init__ = self

    def detach(self) -> None:
        """Restore the class. Idempotent."""
        self.active = False
        if self._kind.__dict__.get("__init__") is not self:
            return  # never attached, or patched again by code that calls us
        if self._defines_init:
            self._kind.__init__ = self._original
        else:
            del self._kind.__init__

    def __get__(self, error: BaseException | None, kind: type | None = None) -> Any:
        if error is None:
            return self._original
        if self.active and self._guard.on(ERRORS_SITE):
            try:
                self._observe(error, _caller())
            except MemoryError as failed:  # to be expected here
                interrupts.pass_on(failed)
            except Exception:  # noqa: BLE001 - contained: the user's error propagates
                self._guard.failed(ERRORS_SITE)
        return self._original.__get__(error, kind)


LookedUp: TypeAlias = Callable[[Any, FrameType], None]
_When: TypeAlias = Callable[[], object]
Condition: TypeAlias = tuple[_When, _When, _When]
ALWAYS: Condition = (object, bool, bool)


class Lookup:
    """
    Replaces a method, and passes each lookup on an object to *observe*, with the frame
    that looks it up, if one of three functions returns something: *when*, in C, as they
    are called for each item of each queue. Adds no frame.
    """

    def __init__(
        self,
        original: Any,
        observe: LookedUp,
        guard: Guard,
        site: str,
        when: Condition = ALWAYS,
    ) -> None:
        self.active = True
        self._first, self._second, self._third = when
        self._original, self._observe = original, observe
        self._guard, self._off, self._site = guard, guard.off, site

    def detach(self) -> None:
        """Stop observing; what replaced the method again still calls this."""
        self.active = False

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if self._first() or self._second() or self._third():
            try:
                if instance is not None and self.active and self._site not in self._off:
                    self._observe(instance, sys._getframe(1))  # noqa: SLF001 - as in a probe
            except Exception:  # noqa: BLE001 - contained: the user's call goes on
                self._guard.failed(self._site)
        return self._original.__get__(instance, owner)


def _caller() -> FrameType | None:
    try:
        return sys._getframe(2)  # noqa: SLF001 - no other frame is there
    except ValueError as error:  # constructed by C++ on a thread without Python
        interrupts.pass_on(error)
        return None


_JIT = "_jit_of_eval_shape"
"""A name in the module of `jax.eval_shape` that only this function looks up."""


def attach_eval_shape(
    jax: Any, unwrap: Callable[[object], AnyCall | None], guard: Guard
) -> None:
    """
    Have `jax.eval_shape` see JAX's own object, as long as the process lives, since
    counted functions outlive an agent. Does nothing if this JAX needs nothing, or if it
    has been done; raises `AttributeError` if it lacks an attribute.

    Since 0.7.2 it checks ``type(fun) is PjitFunction`` to honour static arguments,
    which a counted function cannot satisfy, and otherwise calls ``jit(fun)``. JAX and
    programs import this ``jit`` elsewhere, and it is pickled by its name: so it stays,
    and the code of `jax.eval_shape` looks up another. What *unwrap* returns for its
    argument, `None` if it is not a counted function, is called there.
    """
    api: Any = jax._src.api  # noqa: SLF001 - looked up there at each use
    function = getattr(api.eval_shape, "__wrapped__", api.eval_shape)
    code = function.__code__
    if TYPE_NAME not in code.co_names or _JIT in code.co_names:
        return

    def observe(frame: FrameType, _: AnyCall) -> AnyCall | None:
        return unwrap(frame.f_locals.get("fun"))

    setattr(api, _JIT, Probe(api.jit, observe, guard=guard, site="eval_shape"))
    names = tuple([_JIT if name == "jit" else name for name in code.co_names])
    function.__code__ = code.replace(co_names=names)
