"""A call's arguments: those of the call being compiled, in JAX's frames; shapes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2s
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink import jit
from jaxmon.agent.jaxlink.frames import Jitted, jitted_from_variables
from jaxmon.agent.jaxlink.jit import JitOptions
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.agent.jaxlink.arrays import LeafKinds


Shapes: TypeAlias = tuple[Hashable, ...]
"""What identifies the shapes of a call's arguments."""

# Functions called by jit's ``cache_miss``, whose frames have the arguments as jit sees
# them.
_HELPERS = ("_run_python_pjit", "_python_pjit_helper")


class JitCall:
    """
    A call as found in JAX's frames, with the user's arguments: must not be kept.

    Attributes:
        leaves: the traced leaves, `None` if JAX does not keep them, and their *tree*.
        avals: their abstract values, empty if JAX has none.
        nodes: an object for each traced argument, the same for equal trees; empty if
            they were not compared.
        kinds: *leaves* by kind, `None` if they were not read.
    """

    __slots__ = (
        *("args", "avals", "fun", "given", "kinds", "kwargs", "leaves", "names"),
        *("nodes", "static_argnames", "static_argnums", "tree"),
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a call, in their order
        self,
        fun: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        given: JitOptions,
        leaves: Sequence[Any] | None = None,
        tree: Any = None,
        avals: Sequence[Any] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        self.fun = fun
        self.args = args
        self.kwargs = kwargs
        self.static_argnums = static_argnums
        self.static_argnames = static_argnames
        self.given = given
        self.leaves = leaves
        self.tree = tree
        self.avals = avals
        self.names = names
        self.nodes: Sequence[object] = ()
        self.kinds: LeafKinds | None = None


def call_served_by(
    frame: FrameType, below: FrameType
) -> tuple[Jitted, JitCall | None] | tuple[None, None]:
    """Return function and call, not to be kept, that a ``cache_miss`` serves."""
    variables = frame.f_locals
    jitted = jitted_from_variables(variables, frame.f_back)
    if jitted is None:
        return None, None
    info = variables.get("jit_info")
    if info is None:
        return jitted, _of_pmap(variables)
    kept = below.f_locals if below.f_code.co_name in _HELPERS else {}
    params = kept.get("p")
    if jitted.key is not variables["jit_info"]:
        pmap = jit.enclosing_pmap(frame.f_back)
        if pmap is None:
            return jitted, None
        return jitted, _of_shard_map(jitted.fun, pmap, params)
    leaves, avals = kept.get("args_flat"), getattr(params, "in_avals", ())
    if leaves is not None and len(leaves) > len(avals):
        leaves = leaves[len(leaves) - len(avals) :]  # after constants of the program
    return jitted, JitCall(
        jitted.fun,
        variables["args"],
        variables["kwargs"],
        info.static_argnums,
        info.static_argnames,
        jit.options_of_jit(info),
        leaves,
        getattr(params, "in_tree", None),
        avals,
        getattr(params, "arg_names", None),
    )


def _of_pmap(variables: Mapping[str, Any]) -> JitCall:
    """Return the call of a pmap with its own cache (up to 0.7)."""
    params, found = variables.get("p"), jit.options_of_cache_miss(variables)
    return JitCall(
        found.get("fun"),
        variables["args"],
        variables["kwargs"],
        found["static_broadcasted_tuple"],
        (),
        jit.options_of_pmap(found),
        leaves=getattr(params, "flat_args", None),
        tree=getattr(params, "in_tree", None),
    )


def _of_shard_map(fun: object, frame: FrameType, params: Any) -> JitCall:
    """Return the call of a pmap made of jit and shard_map (since 0.8)."""
    variables, found = frame.f_locals, jit.options_of_shard_map(frame)
    leaves, tree = jit.leaves_and_tree(variables)
    return JitCall(
        fun,
        variables["args"],
        variables["kwargs"],
        found.get("static_broadcasted_tuple", ()),
        (),
        jit.options_of_pmap(found),
        leaves,
        tree,
        getattr(params, "in_avals", ()),
    )


class Missed(NamedTuple):
    """A missed call about to return, with what is static. Must not be kept."""

    fun: object
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    static: frozenset[int | str]
    executable: Any


def missed(frame: FrameType) -> Missed:
    """Return the call that the ``cache_miss`` *frame* of a jit serves."""
    variables = frame.f_locals
    info = variables.get("jit_info")
    numbers = getattr(info, "static_argnums", ())
    return Missed(
        variables.get("fun"),
        variables.get("args", ()),
        variables.get("kwargs", {}),
        frozenset((*numbers, *getattr(info, "static_argnames", ()))),
        variables.get("executable"),
    )


def rebuilt(kind: type, static: Any, children: Sequence[Any]) -> Any:
    """
    Return an object of *kind*, a registered pytree class (else `KeyError`), as JAX
    makes it. Runs code of the class, which may raise anything.
    """
    registry = import_module("jax._src.tree_util")._registry  # noqa: SLF001 - no public way
    return registry[kind].from_iter(static, children)


_LONGEST = 80
# A state comes before the batch, whose shapes are the ones that change.
_LEAVES = 256


def array_classes(jax: Any) -> tuple[Any, ...]:
    """Return the classes of arrays that have a shape: JAX's and NumPy's."""
    import numpy as np  # noqa: PLC0415 - this package loads without it

    return jax.Array, np.ndarray


def shapes_of(leaves: Sequence[Any], arrays: tuple[Any, ...]) -> Shapes:
    """
    Return what identifies the shapes and types of *leaves*, 0.3 µs per leaf; of very
    many, their number and the last. No values: a step number is another one on each
    call.
    """
    # By their types: `isinstance` may run code of the program.
    found = [
        (leaf.dtype, leaf.shape)
        if issubclass(type(leaf), arrays)
        else name_of(type(leaf))
        for leaf in leaves[-_LEAVES:]
    ]
    return (*found, f"{len(leaves)} leaves") if len(leaves) > _LEAVES else (*found,)


def shapes_of_kinds(kinds: LeafKinds, array: type) -> Shapes | None:
    """Return the same as `shapes_of` by kinds; `None` if some are no *array*."""
    words: dict[Hashable, Hashable] = {}
    for key, (leaf, of, _) in kinds.kinds.items():
        if of.dtype is None or not issubclass(type(leaf), array):
            return None
        words[key] = of.dtype, of.shape
    keys = kinds.keys
    found = map(words.__getitem__, keys[-_LEAVES:])
    return (*found, f"{len(keys)} leaves") if len(keys) > _LEAVES else (*found,)


def text_of(shapes: Sequence[Any]) -> str:
    """Return *shapes* as text, ``float32[8,4], int32[]``; if long, with a digest."""
    text = ", ".join(map(_word, shapes))
    if len(text) > _LONGEST:
        digest = blake2s(text.encode(), digest_size=4).hexdigest()
        text = f"{text[: _LONGEST - 13]}... {digest}"
    return text


def _word(shape_or_type: Any) -> str:
    if isinstance(shape_or_type, str):
        return shape_or_type
    dtype, shape = shape_or_type
    return f"{dtype}[{','.join(map(str, shape))}]"
