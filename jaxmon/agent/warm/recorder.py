"""
The signatures of a process, bounded, without user objects.

A call is described so that another process can compile for it: JSON, whose format is in
docs/persistent-cache.md. The text is built from what JAX has already computed for the
call: no user code runs. Leaves of equal type share it. It is decoded only if the
signatures are exported.
"""

from __future__ import annotations

import json
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.context import Context, Options
from jaxmon.agent.functions import Function
from jaxmon.agent.inspection import (
    found_in,
    is_instance,
    is_subclass,
    name_of,
    package_of,
)
from jaxmon.agent.jaxlink.arguments import JitCall
from jaxmon.agent.jaxlink.arrays import Leaf, kind_of, mesh_and_spec
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import is_class
from jaxmon.agent.warm.statics import NotExportableError, described, path_of
from jaxmon.facts.signatures import Document, RecordedFunction, RecordedSignature
from jaxmon.threads import RLock


_DEEP = 32
_LONGEST = 200
_KNOWN_LEAVES = 10_000
_KNOWN_TREES = 100
_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex"}


def _leaf(kind: str, of: Leaf) -> str:
    """Return an array or number of *kind* as JSON."""
    if of.placement == -1:
        msg = (
            "an argument is not in a device's default memory, or is sharded otherwise "
            "than over all devices"
        )
        raise NotExportableError(msg)
    if not all([type(size) is int for size in of.shape]):
        msg = "an argument has a symbolic shape"
        raise NotExportableError(msg)
    found: dict[str, Any] = {"kind": kind, "dtype": str(of.dtype)}
    found["shape"] = list(of.shape)
    if of.weak:
        found["weak"] = True
    if type(of.placement) is str:
        found["sharding"] = json.loads(of.placement)
    elif of.placement is not None:
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
@lru_cache(maxsize=1000)
def _quoted(name: str) -> str:
    return json.dumps(name)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


SITE = "signatures"

_MOST_SIGNATURES = 256
# Together; a signature takes some 80 bytes per leaf.
_MOST_CHARACTERS = 8 << 20
# Compiles until they are added up.
_MANY = 64
_FULL = "too many signatures were recorded"
_NO_CALL = "they were compiled ahead of time, or under a transformation"
# Flags of code that takes ``*args`` or ``**kwargs``.
_VARIABLE = 0x04 | 0x08


@dataclass(slots=True)
class Recorded:
    """The signatures of one label: compiles and seconds, by signature in JSON."""

    module: str = ""
    qualname: str = ""
    parameters: tuple[str, ...] | None = None
    options: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, tuple[int, float]] = field(default_factory=dict)
    omitted: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))


class SignatureRecorder:
    """Records the call of each compile, on the compiling threads."""

    def __init__(self, context: Context) -> None:
        import numpy as np  # noqa: PLC0415 - as JAX

        self._jax, self._guard = context.jax, context.guard
        self._array, self._numpy, self._scalar = self._jax.Array, np.ndarray, np.generic
        # Whether values of static arguments may be written to a file.
        self._values = context.settings.event_values
        # Texts of leaves, by their class, which is none of the program's, and type.
        self._texts: dict[tuple[int, Leaf], str] = {}
        # Texts around the leaves of an argument, by its tree.
        self._outlines: dict[int, tuple[object, list[str]]] = {}
        self._functions: dict[str, Recorded] = {}
        # What is not among their signatures yet.
        self._noted: deque[tuple[Recorded, str, float]] = deque()
        self.characters = 0
        # Reentrant: a signal handler may compile, too.
        self._lock = RLock()

    def on_call(
        self, function: Function, jitted: Jitted, call: JitCall, options: Options
    ) -> Callable[[float], None] | None:
        """Describe a *call* that compiles; return what records it afterwards."""
        if SITE in self._guard.off:
            return None
        try:
            record = self._of(function, jitted, options)
            try:
                text = self._described(call)
            except NotExportableError as reason:
                record.omitted[str(reason)] += 1
                return None
        except Exception:  # noqa: BLE001 - contained: the program compiles on
            self._guard.failed(SITE)
            return None
        return partial(self._note, record, text)

    def _of(self, function: Function, jitted: Jitted, options: Options) -> Recorded:
        record = self._functions.get(function.name)
        if record is None:
            fun: Any = jitted.fun
            named = type(fun) is types.FunctionType
            made = Recorded(
                str(fun.__module__ or "") if named else "",
                str(fun.__qualname__) if named else "",
                parameters_of(fun),
                {name: text[:300] for name, text, _ in options[1:]},
            )
            record = self._functions.setdefault(function.name, made)
        return record

    def _note(self, record: Recorded, text: str, seconds: float) -> None:
        self._noted.append((record, text, seconds))
        if len(self._noted) >= _MANY:
            self._add_up()

    def _add_up(self) -> None:
        with interrupts.expected(IndexError):  # another thread may do so as well
            while self._noted:
                self._record(*self._noted.popleft())

    def _record(self, record: Recorded, text: str, seconds: float) -> None:
        with self._lock:
            found = record.signatures.get(text)
            if found is None:
                many = len(record.signatures) >= _MOST_SIGNATURES
                if many or self.characters + len(text) > _MOST_CHARACTERS:
                    record.omitted[_FULL] += 1
                    return
                self.characters += len(text)
            count, total = found or (0, 0.0)
            record.signatures[text] = count + 1, total + seconds

    def explain(self) -> dict[str, int]:
        """Return how many signatures were recorded, and how many could not be."""
        self._add_up()
        records = list(self._functions.values())
        return {
            "recorded": sum(len(record.signatures) for record in records),
            "omitted": sum(sum(record.omitted.copy().values()) for record in records),
        }

    def document(
        self,
        seen: Callable[[str, RecordedSignature], RecordedSignature],
        built: Mapping[str, int],
    ) -> Document:
        """
        Return all recorded; *seen* adds calls to a signature, *built* has all programs.
        """
        self._add_up()
        functions = []
        records = {name: Recorded() for name in built} | self._functions
        for name, record in sorted(records.items()):
            signatures = []
            for text, (count, seconds) in record.signatures.copy().items():
                args, kwargs = json.loads(text)
                found = RecordedSignature(tuple(args), kwargs, count, seconds)
                signatures.append(seen(name, found))
            where = name, record.module, record.qualname, record.parameters
            omitted = dict(record.omitted.copy())
            recorded = sum(of.compiles for of in signatures) + sum(omitted.values())
            if (others := built.get(name, 0) - recorded) > 0:
                omitted[_NO_CALL] = others
            functions.append(
                RecordedFunction(*where, record.options, tuple(signatures), omitted)
            )
        platform = self._jax.default_backend() if self._functions else ""
        versions = {"jax": str(self._jax.__version__), "platform": str(platform)}
        return Document(versions, _main(), tuple(functions))

    # --- descriptions, on the compiling thread --------------------------------------

    def _described(self, call: JitCall) -> str:
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
        leaves = call.kinds.mapped(self._of_kind)
        positional, named = call.tree.children()
        count = len(call.args)
        numbers: Collection[int] = ()
        if call.static_argnums:
            numbers = {n + count if n < 0 else n for n in call.static_argnums}
        nodes = chain(call.nodes, repeat(None))
        traced = iter(positional.children())
        args = [
            self._argument(argument)
            if number in numbers
            else self._traced(next(traced), next(nodes), leaves)
            for number, argument in enumerate(call.args)
        ]
        if not call.kwargs:
            return f"[[{','.join(args)}],{{}}]"
        data = named.node_data()
        kwargs = {
            str(name): self._traced(child, next(nodes), leaves)
            for name, child in zip(
                data[1] if data else (), named.children(), strict=True
            )
        }
        for name in sorted(set(call.static_argnames) & set(call.kwargs) - set(kwargs)):
            kwargs[name] = self._argument(call.kwargs[name])
        pairs = [f"{_quoted(name)}:{text}" for name, text in kwargs.items()]
        return f"[[{','.join(args)}],{{{','.join(pairs)}}}]"

    def _device(self, sharding: Any) -> int | str:
        """Return device, or mesh and spec over all devices, as JSON; else -1."""
        kind, devices = kind_of(type(sharding)), self._jax.local_devices()
        device = next(iter(sharding.device_set))
        usual = sharding.memory_kind in (None, device.default_memory().kind)
        if not usual or device not in devices:
            return -1
        if kind == "named sharding":
            found = mesh_and_spec(sharding, devices)
            return -1 if found is None else _text(found)
        single = kind == "sharding" and len(sharding.device_set) == 1
        return devices.index(device) if single else -1

    def _of_kind(self, leaf: Any, of: Leaf, sharding: Any) -> str:
        """Return the text of a leaf."""
        key = id(type(leaf)), of
        text = self._texts.get(key)
        if text is None:
            device = None if sharding is None else self._device(sharding)
            text = _leaf(self._kind(leaf), of._replace(placement=device))
            if len(self._texts) < _KNOWN_LEAVES:
                self._texts[key] = text
        return text

    def _kind(self, leaf: Any) -> str:
        kind = type(leaf)
        if (number := _NUMBERS.get(kind)) is not None:
            return number
        is_scalar = package_of(kind) and is_instance(leaf, self._scalar)
        if kind is self._numpy or is_scalar:
            return "numpy"
        if is_class(kind) and isinstance(leaf, self._array):
            return "jax"
        msg = f"an argument contains a {name_of(kind)}"
        raise NotExportableError(msg)

    def _argument(self, value: Any) -> str:
        return f'{{"static":{self._static(value, "a static argument")}}}'

    def _static(self, value: Any, what: str) -> str:
        if not self._values:
            msg = "static values are not recorded with event_values=False"
            raise NotExportableError(msg)
        return _text(described(value, what))

    def _traced(self, tree: Any, node: object, leaves: Iterator[str]) -> str:
        """
        Return an argument as JSON; equal trees have one *node* but for what is static.
        """
        if tree.node_data() is None:
            return next(leaves)
        outline, texts = self._outlines.get(id(node), (None, [""]))
        if node is None or outline is not node:
            texts = [""]
            if self._write(tree, 0, texts):
                if len(self._outlines) >= _KNOWN_TREES:
                    self._outlines.clear()
                self._outlines[id(node)] = node, texts
        # One more text than leaves.
        pairs = zip(texts, chain(islice(leaves, len(texts) - 1), ("",)), strict=True)
        return "".join(chain.from_iterable(pairs))

    def _write(self, tree: Any, depth: int, out: list[str]) -> bool:
        """Add a container to *out*; return whether it is all in its leaves."""
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
        opening = self._opening(kind, static, len(children))
        plain = not opening.endswith('"node":[')
        out[-1] += opening
        for number, child in enumerate(children):
            key = f"[{_key(static[number])}," if kind is dict else ""
            out[-1] += comma + key
            plain &= self._write(child, depth + 1, out)
            out[-1] += "]" if key else ""
            comma = ","
        out[-1] += "]}"
        return plain

    def _opening(self, kind: Any, static: Any, size: int) -> str:
        """Return the beginning of a container of *kind* with *size* members."""
        if kind is list or kind is tuple or kind is dict:
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


def parameters_of(fun: Any) -> tuple[str, ...] | None:
    """Return the names of the parameters of *fun*; `None` if it is no function."""
    if type(fun) is not types.FunctionType:
        return None
    code = fun.__code__
    if fun.__dict__ or code.co_flags & _VARIABLE:  # it may have another signature
        import inspect  # noqa: PLC0415 - few have

        return tuple(inspect.signature(fun).parameters)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _main() -> str:
    """Return the name of the module that runs as ``__main__``, if it has one."""
    name = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")
    return name if type(name) is str else ""
