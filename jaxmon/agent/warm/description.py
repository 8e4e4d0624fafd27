"""
Describes a call so that another process can compile for it: JSON, whose format is in
docs/warm-starts.md.

Built from what JAX has already computed for the call: no user code runs, and no user
object is kept. The text is built directly, and leaves of equal type share it. It is
decoded only if the signatures are exported.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator
from itertools import chain, islice, repeat
from typing import Any

from jaxmon.agent.inspection import (
    found_in,
    is_instance,
    is_subclass,
    name_of,
    package_of,
)
from jaxmon.agent.jaxlink.arguments import JitCall
from jaxmon.agent.jaxlink.arrays import Leaf, type_of
from jaxmon.agent.jaxlink.jit import is_class
from jaxmon.agent.jaxlink.shardings import kind_of
from jaxmon.agent.warm.statics import NotExportableError, described, path_of


_DEEP = 32
_LONGEST = 200
_KNOWN_LEAVES = 10_000
_KNOWN_TREES = 100
_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex"}


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
        self._array, self._numpy, self._scalar = jax.Array, np.ndarray, np.generic
        self._values = values
        # Texts of leaves, by their class, which is none of the program's, and type.
        self._texts: dict[tuple[int, Leaf], str] = {}
        # Texts around the leaves of an argument, by its tree.
        self._outlines: dict[int, tuple[object, list[str]]] = {}

    def of(self, call: JitCall) -> str:
        """
        Return the list of positional arguments of *call* and the object of keyword
        arguments, as JSON: a list of both.

        Raises:
            NotExportableError: they cannot be described.
        """
        if call.given.maker != "jax.jit":
            msg = "functions of jax.pmap cannot be compiled ahead"
            raise NotExportableError(msg)
        if call.kinds is None or call.tree is None:
            msg = "JAX does not keep what this call was compiled for"
            raise NotExportableError(msg)
        leaves = call.kinds.each(self._of_kind)
        positional, named = call.tree.children()
        count = len(call.args)
        numbers: Collection[int] = ()
        if call.static_argnums:
            numbers = {n + count if n < 0 else n for n in call.static_argnums}
        nodes = chain(call.nodes, repeat(None))
        traced = iter(positional.children())
        args = [
            self._argument(one)
            if number in numbers
            else self._traced(next(traced), next(nodes), leaves)
            for number, one in enumerate(call.args)
        ]
        data = named.node_data()
        names = data[1] if data else ()
        kwargs = {}
        for name, child in zip(names, named.children(), strict=True):
            kwargs[str(name)] = self._traced(child, next(nodes), leaves)
        for name in sorted(set(call.static_argnames) & set(call.kwargs) - set(kwargs)):
            kwargs[name] = self._argument(call.kwargs[name])
        pairs = [f"{_quoted(name)}:{text}" for name, text in kwargs.items()]
        return f"[[{','.join(args)}],{{{','.join(pairs)}}}]"

    def _device(self, sharding: Any) -> int:
        """Return the number of the only device of *sharding*, -1 for another one."""
        if kind_of(type(sharding)) != "sharding" or len(sharding.device_set) > 1:
            return -1
        devices = self._jax.local_devices()
        (device,) = sharding.device_set
        usual = sharding.memory_kind in (None, device.default_memory().kind)
        return devices.index(device) if usual and device in devices else -1

    def _of_kind(self, leaf: Any, aval: Any, sharding: Any) -> str:
        """Return the text of a leaf."""
        device = None if sharding is None else self._device(sharding)
        key = id(type(leaf)), type_of(aval, device)
        text = self._texts.get(key)
        if text is None:
            text = _leaf(self._kind(leaf), key[1])
            if len(self._texts) < _KNOWN_LEAVES:
                self._texts[key] = text
        return text

    def _kind(self, leaf: Any) -> str:
        kind = _NUMBERS.get(type(leaf))
        if kind is None and (
            type(leaf) is self._numpy
            or (package_of(type(leaf)) and is_instance(leaf, self._scalar))
        ):
            kind = "numpy"
        if kind is None and is_class(type(leaf)) and isinstance(leaf, self._array):
            kind = "jax"
        if kind is None:
            msg = f"an argument contains a {name_of(type(leaf))}"
            raise NotExportableError(msg)
        return kind

    def _argument(self, value: Any) -> str:
        return f'{{"static":{self._static(value, "a static argument")}}}'

    def _static(self, value: Any, what: str) -> str:
        if not self._values:
            msg = "static values are not recorded with event_values=False"
            raise NotExportableError(msg)
        return _text(described(value, what))

    def _traced(self, tree: Any, node: object, leaves: Iterator[str]) -> str:
        """
        Return an argument with these *leaves* as JSON; *node* is the same object for
        trees that are equal but for what classes keep beside their leaves.
        """
        if tree.node_data() is None:
            return next(leaves)
        known, texts = self._outlines.get(id(node), (None, [""]))
        if node is None or known is not node:
            texts = [""]
            if self._write(tree, 0, texts):
                if len(self._outlines) >= _KNOWN_TREES:
                    self._outlines.clear()
                self._outlines[id(node)] = node, texts
        # One more text than leaves.
        pairs = zip(texts, chain(islice(leaves, len(texts) - 1), ("",)), strict=True)
        return "".join(chain.from_iterable(pairs))

    def _write(self, tree: Any, depth: int, out: list[str]) -> bool:
        """
        Add the JSON of a container to *out*, in which a leaf begins another item.
        Return whether no class keeps anything beside its leaves.
        """
        data = tree.node_data()
        if data is None:
            out.append("")
            return True
        kind, static = data
        if kind is type(None):
            out[-1] += "null"
            return True
        if depth > _DEEP:
            msg = f"an argument is nested more than {_DEEP} deep"
            raise NotExportableError(msg)
        children, comma = tree.children(), ""
        plain = True
        if kind is dict:
            out[-1] += '{"dict":['
            for key, child in zip(static, children, strict=True):
                out[-1] += f"{comma}[{_key(key)},"
                plain &= self._write(child, depth + 1, out)
                out[-1] += "]"
                comma = ","
        else:
            opening = self._opening(kind, static, len(children))
            plain = not opening.endswith('"node":[')
            out[-1] += opening
            for child in children:
                out[-1] += comma
                plain &= self._write(child, depth + 1, out)
                comma = ","
        out[-1] += "]}"
        return plain

    def _opening(self, kind: Any, static: Any, size: int) -> str:
        """Return the beginning of a container of *kind* with *size* members."""
        if kind is list or kind is tuple:
            return f'{{"{kind.__name__}":['
        name = name_of(kind)
        path = path_of(kind)
        if not path:
            msg = f"an argument contains a {name}, which only its program can make"
            raise NotExportableError(msg)
        fields = found_in(kind, "_fields")
        if type(fields) is tuple and len(fields) == size and is_subclass(kind, tuple):
            return f'{{"class":{_quoted(path)},"namedtuple":['
        beside = self._static(static, f"an argument contains a {name}, part of which")
        return f'{{"class":{_quoted(path)},"static":{beside},"node":['


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
