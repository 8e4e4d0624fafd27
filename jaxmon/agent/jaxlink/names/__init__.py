"""
Every internal name of JAX that jaxmon uses, what is missing without it, and which of
them the installed JAX has.

For people and tools: ``docs/contributors/jax-internals.md``, `jaxmon doctor`, the lint
rule and the tests read it. The agent does not: the other modules of `jaxlink` use the
names directly. What is checked is checked in a process that may compile on its CPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.table import TABLE
from jaxmon.catalog import Metric


RELEASES = ("0.4.35", "0.6.2", "0.8.2", "0.10.2", "0.12")
"""Releases of JAX in which each name was checked, oldest first."""

Costs: TypeAlias = tuple[Metric | str, ...]


class Name(NamedTuple):
    """
    A name of JAX that jaxmon depends on and that JAX may change at any time.

    The form of *path* shows its type:

    | Path | Type |
    |---|---|
    | ``jax._src.pjit._infer_params`` | an attribute, or a field of a class |
    | ``jax._src.pjit:_cpp_pjit.cache_miss`` | a function whose frames are recognised |
    | ``jax._src.pjit:_cpp_pjit.cache_miss(fun)`` | a variable of such a frame |
    | ``<jitted>._cache_size`` | an attribute of an object created by JAX |
    | ``/jax/core/compile/...`` | an event of `jax.monitoring` |
    | ``"Leaked trace"`` | part of a text |

    Attributes:
        path: the name.
        costs: what is missing without it: metric names or a description.
        seen: ``y`` for each of `RELEASES` that has it.
        group: shared by alternatives, of which one suffices.
        hook: the hook that does not attach without it.
        replaced: whether jaxmon replaces it.
    """

    path: str
    costs: Costs
    seen: str
    group: str = ""
    hook: str = ""
    replaced: bool = False

    @property
    def word(self) -> str:
        """The word that appears in code using the name."""
        path = self.path
        if path.startswith('"'):
            return path.strip('"')
        if path.startswith("/"):
            return path
        return path.rstrip(")").replace("(", ".").replace(":", ".").rpartition(".")[2]


def _sections() -> Iterator[tuple[str, list[Name]]]:
    # A line that is indented twice continues the one before.
    for section in re.sub(r"\n {8}", " ", TABLE).split("\n# ")[1:]:
        title, *lines = section.splitlines()
        names: list[Name] = []
        head = Name("", (), "")
        for line in lines:
            if not line.startswith(" "):
                head = _head(line)
                continue
            seen, path = line.strip().split(" ", 1)
            before, _, rest = path.partition("{")
            words, _, after = rest.partition("}")
            names += [
                head._replace(path=f"{before}{word}{after}", seen=seen)
                for word in words.split() or [""]
            ]
        yield title, names


def _head(line: str) -> Name:
    costs, *options = line.split(" | ")
    given = dict(option.split(" ", 1) for option in options if option != "replaced")
    return Name(
        "",
        tuple([getattr(catalog, cost, cost) for cost in costs.split(" + ")]),
        "",
        given.get("group", ""),
        given.get("hook", ""),
        "replaced" in options,
    )


SECTIONS = tuple(_sections())
"""The names by purpose, in the order of the page."""

NAMES = tuple([name for _, names in SECTIONS for name in names])


class Missing(NamedTuple):
    """Alternative names that this JAX lacks, and what is lost without one of them."""

    names: tuple[str, ...]
    costs: tuple[str, ...]
    hook: str


def missing(
    version: str,
    names: Sequence[Name] = NAMES,
    has: Callable[[Name], bool | None] | None = None,
) -> Iterator[Missing]:
    """Yield *names* that JAX of this *version* lacks and adjacent releases have."""
    has = has or present
    groups: dict[str, list[Name]] = {}
    for name in names:
        groups.setdefault(name.group or name.path, []).append(name)
    around = _around(version)
    for group in groups.values():
        expected = all(
            any(spelling.seen[at] == "y" for spelling in group) for at in around
        )
        if expected and not any(has(spelling) is not False for spelling in group):
            first = group[0]
            costs = [getattr(cost, "name", cost) for cost in first.costs]
            yield Missing(
                tuple([spelling.path for spelling in group]),
                tuple(map(str, costs)),
                first.hook,
            )


def present(name: Name) -> bool | None:
    """Return whether the installed JAX has *name*, `None` if unknown."""
    path = name.path
    if path.startswith(("/", '"')):
        return None  # cannot be checked statically
    if path.startswith("<"):
        label, _, attributes = path[1:].partition(">.")
        return _has(_sample(label), attributes.split("."))
    if ":" in path:
        return _has_code(path)
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:count]))
        except ImportError:
            continue
        return _has(module, parts[count:])
    return False


def _around(version: str) -> set[int]:
    """Return the `RELEASES` that *version* equals or lies between."""
    for at, release in enumerate(RELEASES):
        if version == release or version.startswith(f"{release}."):
            return {at}
    before = sum(_numbers(release) < _numbers(version) for release in RELEASES)
    return {max(before - 1, 0), min(before, len(RELEASES) - 1)}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


_NOTHING = object()


def _has(owner: Any, attributes: Sequence[str]) -> bool:
    # Objects from C++ may not outlive their owner.
    owners = [owner]
    for attribute in attributes:
        found = getattr(owners[-1], attribute, _NOTHING)
        if found is _NOTHING:
            return attribute in _words(owners[-1])
        owners.append(found)
    return owner is not _NOTHING


def _words(owner: Any) -> tuple[str, ...]:
    if not isinstance(owner, type):
        return ()
    fields = (*vars(owner).get("__annotations__", ()),)
    return (owner.__name__, owner.__qualname__.rpartition(".")[2], *fields)


def _has_code(path: str) -> bool:
    module, _, inside = path.partition(":")
    function, _, variable = inside.rstrip(")").partition("(")
    try:
        spec = find_spec(module)
    except ImportError:  # belongs to a parent package
        spec = None
    loader: Any = spec.loader if spec else None
    if loader is None:
        return False
    codes = [loader.get_code(module)]
    for name in function.split("."):
        codes = [constant for code in codes for constant in _inside(code, name)]
    return any(
        not variable
        or variable in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        for code in codes
    )


def _inside(code: CodeType, name: str) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            continue
        if constant.co_name == name:
            yield constant
        elif constant.co_name.startswith("<generic parameters of "):
            yield from _inside(constant, name)


def _sample(label: str) -> Any:
    try:
        return _SAMPLES[label]()
    except Exception:  # noqa: BLE001 - a JAX that we do not know
        return _NOTHING


@functools.cache
def _jitted() -> Any:
    return import_module("jax").jit(lambda x: x + 1)


@functools.cache
def _traced() -> Any:
    return _jitted().trace(1.0)


@functools.cache
def _compiled() -> Any:
    return _traced().lower().compile()


def _parameters(fun: Callable[..., Any], *arrays: Any) -> Any:
    jaxpr = import_module("jax").make_jaxpr(fun)(*arrays).jaxpr
    return SimpleNamespace(**jaxpr.eqns[0].params)


def _ragged() -> Any:
    jax = import_module("jax")
    filled, ragged = jax.numpy.ones, jax.lax.ragged_dot
    sizes = filled(1, "int32")
    found = _parameters(ragged, filled((1, 1)), filled((1, 1, 1)), sizes)
    # It may be a jitted function around the operation.
    inside = getattr(found, "jaxpr", None)
    return SimpleNamespace(**inside.eqns[0].params) if inside else found


def _cache() -> Any:
    with TemporaryDirectory() as directory:
        return import_module("jax._src.lru_cache").LRUCache(directory, max_size=-1)


def _shard_map() -> Any:
    jax = import_module("jax")
    try:
        shard_map = jax.shard_map
    except AttributeError:
        shard_map = import_module("jax.experimental.shard_map").shard_map
    mesh, spec = _sharding().mesh, jax.sharding.PartitionSpec("x")
    mapped = shard_map(lambda x: x, mesh=mesh, in_specs=spec, out_specs=spec)
    return _parameters(mapped, jax.numpy.ones(1))


def _product() -> Any:
    lax, filled = import_module("jax.lax"), import_module("jax").numpy.ones
    return _parameters(lax.dot, filled(1), filled(1))


def _sharding() -> Any:
    jax = import_module("jax")
    mesh = jax.sharding.Mesh(jax.devices("cpu")[:1], ("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))


def _xla_client() -> Any:
    return import_module("jax._src.lib").xla_client


def _profile_options() -> Any:
    inside = import_module("jax._src.lib")
    return (
        getattr(inside, "_profiler", None) or _xla_client().profiler
    ).ProfileOptions()


_SAMPLES: dict[str, Callable[[], Any]] = {
    "array": lambda: import_module("jax").numpy.ones(()),
    "compile options": lambda: _xla_client().CompileOptions(),
    "device": lambda: import_module("jax").devices("cpu")[0],
    "equation": lambda: _traced().jaxpr.jaxpr.eqns[0],
    "executable": lambda: _compiled().runtime_executable(),
    "jaxpr": lambda: _traced().jaxpr.jaxpr,
    "jitted": _jitted,
    "jitted inside": lambda: _parameters(_jitted(), 1.0),
    "jitted call": lambda: _compiled()._executable,  # noqa: SLF001 - as misses hold it
    "key": lambda: import_module("jax").random.key(0),
    "literal": lambda: _traced().jaxpr.jaxpr.eqns[0].invars[1],
    "memory": lambda: _compiled().runtime_executable().get_compiled_memory_stats(),
    "mesh": lambda: _sharding().mesh,
    "profile options": _profile_options,
    "persistent cache": _cache,
    "product": _product,
    "ragged product": _ragged,
    "shard_map": _shard_map,
    "sharding": _sharding,
    "spec": lambda: _sharding().spec,
    "traced": _traced,
    "tree": lambda: import_module("jax").tree_util.tree_structure((1, 2)),
}
