"""
Describes a call so that another process can compile for it: JSON, whose format is in
docs/warm-starts.md.

Built from what JAX has already computed for the call: no user code runs, and no user
object is kept. The text is built directly, and equal trees and leaves of equal type
share it: half a microsecond per leaf. It is decoded if the signatures are exported.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any

from jaxmon.agent.inspection import found_in, module_of, name_of
from jaxmon.agent.jaxlink.arguments import Call
from jaxmon.agent.jaxlink.leaf_types import Leaf, LeafTypes
from jaxmon.agent.jaxlink.ownership import is_class
from jaxmon.agent.jaxlink.shardings import kind_of


_DEEP = 32
_LONGEST = 200
_LARGEST = 1 << 63
_KNOWN_LEAVES = 10_000
_KNOWN_TREES = 100
_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex"}


class NotExportableError(Exception):
    """The call cannot be described; the message says why."""


class Descriptions:
    """
    Describes calls.

    Args:
        jax: the module.
        values: whether values of static arguments may be written to a file.
    """

    def __init__(self, jax: Any, *, values: bool) -> None:
        import numpy as np  # noqa: PLC0415 - as JAX

        self._jax = jax
        self._array, self._numpy = jax.Array, np.ndarray
        self._values = values
        self._types = LeafTypes(jax, self._device)
        # Texts of leaves, by their kind and type.
        self._texts: dict[tuple[str, Leaf], str] = {}
        # Texts around the leaves of an argument, by its tree.
        self._outlines: dict[int, tuple[object, tuple[str, ...]]] = {}

    def of(self, call: Call) -> str:
        """
        Return the list of positional arguments of *call* and the object of keyword
        arguments, as JSON: a list of both.

        Raises:
            NotExportableError: they cannot be described.
        """
        if call.given.maker != "jax.jit":
            msg = "functions of jax.pmap cannot be compiled ahead"
            raise NotExportableError(msg)
        if call.leaves is None or call.tree is None:
            msg = "JAX does not keep what this call was compiled for"
            raise NotExportableError(msg)
        leaves = self._leaves(call.leaves, self._types.of(call.leaves, call.avals))
        positional, named = call.tree.children()
        count = len(call.args)
        numbers = {n + count if n < 0 else n for n in call.static_argnums}
        nodes = chain(call.nodes, repeat(None))
        traced = iter(positional.children())
        args = [
            self._static(one)
            if number in numbers
            else self._traced(next(traced), next(nodes), leaves)
            for number, one in enumerate(call.args)
        ]
        data = named.node_data()
        names = data[1] if data else ()
        kwargs = {
            str(name): self._traced(child, next(nodes), leaves)
            for name, child in zip(names, named.children(), strict=True)
        }
        for name in sorted(set(call.static_argnames) & set(call.kwargs) - set(kwargs)):
            kwargs[name] = self._static(call.kwargs[name])
        pairs = [f"{_quoted(name)}:{text}" for name, text in kwargs.items()]
        return f"[[{','.join(args)}],{{{','.join(pairs)}}}]"

    def _traced(self, tree: Any, node: object, leaves: Iterator[str]) -> str:
        """
        Return an argument with these *leaves* as JSON; *node* is the same object for
        equal trees.
        """
        known, texts = self._outlines.get(id(node), (None, ()))
        if node is None or known is not node:
            texts = _outline(tree)
            if len(self._outlines) >= _KNOWN_TREES:
                self._outlines.clear()
            self._outlines[id(node)] = node, texts
        # One more text than leaves.
        pairs = zip(texts, chain(islice(leaves, len(texts) - 1), ("",)), strict=True)
        return "".join(chain.from_iterable(pairs))

    def _device(self, sharding: Any) -> int:
        """Return the number of the only device of *sharding*, -1 for another one."""
        if kind_of(type(sharding)) != "sharding" or len(sharding.device_set) > 1:
            return -1
        devices = self._jax.local_devices()
        (device,) = sharding.device_set
        usual = sharding.memory_kind in (None, device.default_memory().kind)
        return devices.index(device) if usual and device in devices else -1

    def _leaves(self, leaves: Sequence[Any], types: Sequence[Leaf]) -> Iterator[str]:
        """Yield the text of each leaf, those of unlike ones as they are reached."""
        alike: dict[tuple[int, int], str] = {}
        for leaf, of in zip(leaves, types, strict=True):
            key = id(type(leaf)), id(of)
            text = alike.get(key)
            if text is None:
                text = alike[key] = self._text(self._kind(leaf), of)
            yield text

    def _text(self, kind: str, of: Leaf) -> str:
        text = self._texts.get((kind, of))
        if text is None:
            text = _leaf(kind, of)
            if len(self._texts) < _KNOWN_LEAVES:
                self._texts[kind, of] = text
        return text

    def _kind(self, leaf: Any) -> str:
        kind = _NUMBERS.get(type(leaf))
        if kind is None and type(leaf) is self._numpy:
            kind = "numpy"
        if kind is None and is_class(type(leaf)) and isinstance(leaf, self._array):
            kind = "jax"
        if kind is None:
            msg = f"an argument contains a {name_of(type(leaf))}"
            raise NotExportableError(msg)
        return kind

    def _static(self, value: Any) -> str:
        if not self._values:
            msg = "static arguments are not recorded with event_values=False"
            raise NotExportableError(msg)
        return _text({"static": _static(value, 0)})


def _leaf(kind: str, of: Leaf) -> str:
    """Return an array or number of *kind* as JSON."""
    if of.placement == -1:
        msg = "an argument is sharded, or is not in a device's default memory"
        raise NotExportableError(msg)
    if not all([type(one) is int for one in of.shape]):
        msg = "an argument has a symbolic shape"
        raise NotExportableError(msg)
    found: dict[str, Any] = {
        "kind": kind,
        "dtype": str(of.dtype),
        "shape": list(of.shape),
    }
    if of.weak:
        found["weak"] = True
    if of.placement is not None:
        found["device"] = of.placement
    return _text(found)


def _outline(tree: Any) -> tuple[str, ...]:
    """Return the JSON of an argument before, between and after its leaves."""
    out = [""]
    _write(tree, 0, out)
    return tuple(out)


def _write(tree: Any, depth: int, out: list[str]) -> None:
    """Add the JSON of a container to *out*, in which a leaf begins another item."""
    data = tree.node_data()
    if data is None:
        out.append("")
        return
    kind, static = data
    if kind is type(None):
        out[-1] += "null"
        return
    if depth > _DEEP:
        msg = f"an argument is nested more than {_DEEP} deep"
        raise NotExportableError(msg)
    children, comma = tree.children(), ""
    if kind is dict:
        out[-1] += '{"dict":['
        for key, child in zip(static, children, strict=True):
            out[-1] += f"{comma}[{_key(key)},"
            _write(child, depth + 1, out)
            out[-1] += "]"
            comma = ","
    else:
        out[-1] += _opening(kind, len(children))
        for child in children:
            out[-1] += comma
            _write(child, depth + 1, out)
            comma = ","
    out[-1] += "]}"


def _opening(kind: Any, size: int) -> str:
    """Return the beginning of a container of *kind* with *size* members."""
    if kind is list or kind is tuple:
        return f'{{"{kind.__name__}":['
    fields, name = found_in(kind, "_fields"), name_of(kind)
    if type(fields) is tuple and len(fields) == size and "<" not in name:
        path = _quoted(f"{module_of(kind)}:{name}")
        return f'{{"class":{path},"namedtuple":['
    msg = f"an argument contains a {name}, which only its program can make"
    raise NotExportableError(msg)


def _key(key: Any) -> str:
    """Return a key of a dictionary as JSON."""
    kind = type(key)
    if kind is str and len(key) <= _LONGEST:
        return _quoted(key)
    if kind is int and len(str(key)) <= _LONGEST:
        return str(key)
    msg = "an argument is a dict with keys other than short strings or integers"
    raise NotExportableError(msg)


# Names recur from compile to compile.
@functools.lru_cache(maxsize=1000)
def _quoted(name: str) -> str:
    return json.dumps(name)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _static(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is tuple and depth < _DEEP and len(value) <= _LONGEST:
        return [_static(one, depth + 1) for one in value]
    plain = (
        value is None
        or kind is bool
        or (kind is int and abs(value) < _LARGEST)
        or (kind is float and math.isfinite(value))
        or (kind is str and len(value) <= _LONGEST)
    )
    if not plain:
        msg = f"a static argument is a {name_of(kind)}, or too long for a file"
        raise NotExportableError(msg)
    return value
