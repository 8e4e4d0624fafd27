"""
JAX's jitted objects: what they are, their options, copies of the code behind them.

Extracts the user's function and the options of `jax.pmap` from its frames. Up to 0.7 a
pmap has its own cache, and so its own ``cache_miss``; since 0.8 it is a Python function
that calls a function jitted by JAX.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import chain
from operator import attrgetter, is_
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, Literal, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.inspection import AnyCall, name_of, package_of
from jaxmon.tuples import NamedTuple


_PACKAGES = ("jax", "jaxlib")
INSIDE = os.path.join("jax", "_src", "")  # noqa: PTH118 - part of a path
"""Part of the path of each file of JAX's private code."""

SHAPES = "eval_shape"
"""Functions of JAX, public and private, that trace a program for its shapes."""

_BINDINGS = os.path.join("jaxlib", "")  # noqa: PTH118 - part of a path


def stack_from(frame: FrameType | None, most: int = 300) -> list[FrameType]:
    """Return *frame* and those above it, *most* at most. Must not be kept."""
    found: list[FrameType] = []
    while frame is not None and most:
        # Without a call for each frame.
        found += [frame]
        frame, most = frame.f_back, most - 1
    return found


def nearest(frame: FrameType | None, names: Container[str], most: int) -> Any:
    """Return *frame* or the nearest of *most* above it that runs one of *names*."""
    # The interpreter makes an object of each frame that is looked at.
    while frame is not None and most:
        if frame.f_code.co_name in names:
            return frame
        frame, most = frame.f_back, most - 1
    return None


def is_inside(frame: FrameType) -> bool:
    """Return whether *frame* runs private code of JAX, whose variables may be read."""
    return INSIDE in frame.f_code.co_filename


def is_binding(frame: FrameType) -> bool:
    """Return whether *frame* runs Python code of jaxlib, which wraps the runtime."""
    return _BINDINGS in frame.f_code.co_filename


def is_class(kind: type) -> bool:
    """Return whether *kind* is a class of JAX, whose code can be trusted."""
    return package_of(kind) in _PACKAGES


def is_code(fun: FunctionType) -> bool:
    """Return whether *fun* runs code of JAX, whatever it says of itself."""
    module = dict.get(fun.__globals__, "__name__")
    return type(module) is str and is_module(module)


def is_module(name: str) -> bool:
    """Return whether a module called *name* would be JAX's; the name proves nothing."""
    return name.partition(".")[0] in _PACKAGES


def directories(jax: ModuleType) -> tuple[str, ...]:
    """Return the path prefixes of JAX's files."""
    found = [*jax.__path__, *getattr(sys.modules.get("jaxlib"), "__path__", ())]
    return tuple([f"{Path(path)}{os.sep}" for path in found])


TYPE_NAME = "PjitFunction"
"""Name of the class of jitted objects, by which libraries recognise them."""

_MAX_SEARCHED = 50

_LEAVES = (
    ("in_shardings", "in_shardings_leaves"),
    ("out_shardings", "out_shardings_leaves"),
    ("in_layouts", "in_layouts_leaves"),
    ("out_layouts", "out_layouts_leaves"),
)

# JAX's variables, and our names for them.
_SAME = ("axis_name", "in_axes", "out_axes", "devices", "backend", "axis_size")
_PMAP = {**{name: name for name in _SAME}, "donate_tuple": "donated arguments"}


def is_jitted(fun: object) -> bool:
    """Return whether *fun* is a jitted object, of JAX or ours."""
    return name_of(type(fun)).endswith(TYPE_NAME)


def existing() -> list[Any]:
    """Return JAX's compiled jitted objects, of all objects, in 50 ms: for budgets."""
    return [
        candidate
        for candidate in gc.get_objects()
        if name_of(type(candidate)) == TYPE_NAME and is_compiled(candidate)
    ]


def is_compiled(jitted: Any) -> bool:
    """Return whether JAX has programs for *jitted*, its own object or `None`."""
    return jitted is not None and jitted._cache_size() > 0  # noqa: SLF001 - no public way


def forget_fast_path(jitted: Any) -> None:
    """Let JAX's *jitted* look up each program again: milliseconds, no compile."""
    getattr(jitted, "_clear_cache", bool)()


def source_of(info: object) -> str | None:
    """Return ``"name at file:line"`` from a ``PjitInfo``, `None` if it is none."""
    source = getattr(info, "fun_sourceinfo", None)
    return source if type(source) is str else None


def function_of(jitted: object) -> Any:
    """Return the user's function in *jitted*, JAX's object or ours; `None` if gone."""
    return getattr(jitted, "__wrapped__", None)


def donates(fun: object) -> bool:
    """Return whether *fun* may donate arguments; JAX knows it since 0.5."""
    info = getattr(fun, "_jit_info", None)
    donated = [
        getattr(info, name, None) for name in ("donate_argnums", "donate_argnames")
    ]
    return info is None or donated != [(), ()]


def exported(fun: object) -> Any:
    """Return the `jax.export.Exported` whose ``call`` is *fun*, if there is one."""
    if type(fun) is not types.MethodType:
        return None
    kind = type(fun.__self__)
    is_one = name_of(kind) == "Exported" and is_class(kind)
    return fun.__self__ if is_one else None


def missing(original: Any) -> types.CodeType | None:
    """Return the code that a miss runs, from *original*, JAX's ``_cpp_pjit``."""
    code = getattr(original, "__code__", None)
    for constant in getattr(code, "co_consts", ()):
        if isinstance(constant, types.CodeType) and constant.co_name == "cache_miss":
            return constant
    return None


def with_code(original: Any, before: types.CodeType, after: types.CodeType) -> AnyCall:
    """Return a copy of *original* with the code *before* replaced by *after*."""
    code = original.__code__
    constants = tuple(
        [after if constant is before else constant for constant in code.co_consts]
    )
    return copied(original, code.replace(co_consts=constants))


def copied(
    function: types.FunctionType, code: types.CodeType | None = None
) -> types.FunctionType:
    """Return a copy of *function*, with *code* if given."""
    copy = types.FunctionType(
        code or function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def closure(function: Any) -> dict[str, Any]:
    """Return the free variables of *function*, without decorators, by name."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    cells = function.__closure__ or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
    }


def inside_shim(fun: object) -> Any:
    """Return the partial in JAX's ``Partial``, as of `jax.linearize`, if it is one."""
    kind = type(fun)
    if name_of(kind) != "_HashableCallableShim" or not is_class(kind):
        return None
    return getattr(fun, "fun", None)


def name_in_program(fun: object, *, search: bool) -> str | None:
    """
    Return ``module.qualname`` of the code that *fun* really runs, whatever `wraps`
    says, or with *search* that at most 50 functions of JAX call; `None` if that is
    JAX's too.
    """
    seen: set[int] = set()
    left = [fun]
    while left and len(seen) < _MAX_SEARCHED:
        candidate = left.pop(0)
        if id(candidate) in seen or type(candidate) is not types.FunctionType:
            continue
        seen.add(id(candidate))
        module = dict.get(candidate.__globals__, "__name__")
        if type(module) is str and not is_code(candidate):
            return f"{module}.{candidate.__code__.co_qualname}"
        if search:
            left += contents(candidate)
    return None


def contents(fun: types.FunctionType) -> list[Any]:
    """Return the values of the free variables of *fun* that are set."""
    found = []
    for cell in fun.__closure__ or ():
        with interrupts.expected(ValueError):  # not set
            found.append(cell.cell_contents)
    return found


How: TypeAlias = Literal["names", "pairs", "shardings", "value"]
"""Type of an option: several names, names with values, shardings, or anything else."""


class Option(NamedTuple):
    """An option that is not the default. Not to be kept, for the user's *value*."""

    name: str
    how: How
    value: Any


class JitOptions(NamedTuple):
    """Options passed to *maker*, ``jax.jit`` or ``jax.pmap``."""

    maker: str
    options: tuple[Option, ...]


_DEFAULT = JitOptions("jax.jit", ())
# The class of JAX's placeholder of a sharding.
_UNSPECIFIED = "UnspecifiedValue"


def static_arguments(info: Any) -> tuple[int | str, ...] | None:
    """Return positions and names of static arguments, `None` for the key of a pmap."""
    positions = getattr(info, "static_argnums", None)
    names = getattr(info, "static_argnames", None)
    if type(positions) is not tuple or type(names) is not tuple:
        return None
    return (*positions, *names)


_VALUES = (
    *("donate_argnames", "donate_argnums", "static_argnames", "static_argnums"),
    *("compiler_options_kvs", "device", "backend", "keep_unused", "inline"),
)
_Reader: TypeAlias = Callable[[Any], tuple[Any, ...]]
# How options are read, which depends on the release, and those of the latest without
# any: JAX's own objects.
_readers: list[tuple[_Reader, _Reader]] = []
_latest: list[tuple[Any, ...]] = []


def options_of_jit(info: Any) -> JitOptions:
    """Return the options of a `jax.jit` with this ``PjitInfo``."""
    if not _readers:
        leaves = [name for _, name in _LEAVES]
        _readers.append((_reader(info, _VALUES), _reader(info, leaves)))
    values, leaves_of = _readers[0]
    given = (*values(info), *chain.from_iterable(leaves_of(info)[2:]))
    if _latest and len(given) == len(_latest[0]) and all(map(is_, given, _latest[0])):
        return _DEFAULT
    found = _options_of_jit(info)
    if found is _DEFAULT:
        _latest[:] = [given]
    return found


def _reader(info: Any, names: Iterable[str]) -> _Reader:
    # Of two or more, a tuple.
    found = [name for name in names if hasattr(info, name)]
    return attrgetter("__class__", "__class__", *found)


def _options_of_jit(info: Any) -> JitOptions:
    found: list[Option] = []
    # JAX derives the names from the positions, if there are names.
    if given := info.donate_argnames or info.donate_argnums:
        found.append(Option("donated arguments", "names", given))
    if given := info.static_argnames or info.static_argnums:
        found.append(Option("static arguments", "names", given))
    if given := getattr(info, "compiler_options_kvs", ()):  # since 0.5
        found.append(Option("compiler_options", "pairs", given))
    for name, attribute in _LEAVES:
        given = [_or_none(leaf) for leaf in getattr(info, attribute, ())]
        if any([leaf is not None for leaf in given]):
            found.append(Option(name, "shardings", given))
    for name in ("device", "backend", "keep_unused", "inline"):
        given = getattr(info, name, None)
        if given is not None and given is not False and not _is_auto(given):
            found.append(Option(name, "value", given))
    return JitOptions("jax.jit", tuple(found)) if found else _DEFAULT


def options_of_pmap(variables: Mapping[str, Any]) -> JitOptions:
    """Return the options of a `jax.pmap` in *variables*, by the names of JAX's."""
    given = dict(variables)
    if "out_axes" not in given and "out_axes_flat" in given:  # since 0.9
        axes = given["out_axes_flat"]
        given["out_axes"] = axes[0] if len(axes) == 1 else axes
    found = [
        Option(shown, "value", value)
        for name, shown in _PMAP.items()
        if not _is_default(value := given.get(name)) and not _is_made_up(value)
    ]
    return JitOptions("jax.pmap", tuple(found))


def _or_none(leaf: Any) -> Any:
    return None if name_of(type(leaf)) == _UNSPECIFIED else leaf


def _is_auto(given: object) -> bool:
    """Return whether *given* is the default that has replaced `False` since 0.12."""
    return is_class(type(given)) and getattr(given, "name", "") == "AUTO"


def _is_default(value: object) -> bool:
    kind = type(value)
    return (
        value is None or (kind is int and value == 0) or (kind is tuple and not value)
    )


def _is_made_up(value: object) -> bool:
    """Return whether *value* is a name that JAX generated for an unnamed axis."""
    return name_of(type(value)) == "_TempAxisName" or (
        type(value) is str and value.startswith(("<axis 0x", "_internal_"))
    )


# Module of the function that pmap has jitted since 0.8, by version.
_MODULES = ("jax._src.pmap", "jax._src.linear_util")

# The arguments that JAX binds to ``_prepare_pmap`` from 0.4.36 to 0.7.
_PREPARED = (
    *("fun", "in_axes", "out_axes", "static_broadcasted_tuple", "donate_tuple"),
    *("devices", "backend", "axis_size"),
)


def is_pmap(fun: object) -> bool:
    """Return whether the jitted *fun* may be a shard_map created by pmap."""
    if type(fun) is not FunctionType:
        return False
    # A subclass of `str` may have a user-defined `__eq__`.
    return type(fun.__module__) is str and fun.__module__ in _MODULES


def enclosing_pmap(above: FrameType | None) -> FrameType | None:
    """Return the frame of the pmap whose ``cache_miss`` is called by *above*."""
    for frame in stack_from(above, 3):  # helper, boundary, pmap
        if frame.f_code.co_name == "wrapped" and "infer_params" in frame.f_locals:
            return frame
    return None


def function_of_shard_map(frame: FrameType) -> object:
    """Return the user's function of a pmap that *frame* runs; `None` if unknown."""
    given = options_of_shard_map(frame)
    wrapped = given.get("wrapped_fun")
    return given.get("f") if wrapped is None else wrapped.f


def function_of_cache_miss(variables: Mapping[str, Any]) -> object:
    """Return the user's function of the pmap whose ``cache_miss`` has *variables*."""
    return options_of_cache_miss(variables).get("fun")


def options_of_cache_miss(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of `jax.pmap`, by the same names as `options_of_shard_map`."""
    prepare = variables.get("prepare_pmap_fn")
    if prepare is None:
        return variables
    bound = dict(zip(_PREPARED, prepare.args, strict=False))
    return {**bound, "axis_name": variables.get("axis_name")}


def options_of_shard_map(frame: FrameType) -> Mapping[str, Any]:
    """Return the options of `jax.pmap`, by the names of JAX's variables."""
    return closure(frame.f_locals["infer_params"])


def leaves_and_tree(variables: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return leaves and tree from a pmap's *variables*; `None` if not kept."""
    params = variables.get("p")
    if params is not None:  # up to 0.9
        return params.flat_args, params.in_tree
    mapped = getattr(variables.get("cached"), "pmapped", None)
    inside = closure(mapped) if mapped is not None else {}
    return variables.get("dyn_args_flat"), inside.get("in_tree")
