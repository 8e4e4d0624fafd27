"""
``python -m jaxmon.agent.warm.compiling JOB DESCRIPTOR``: compile functions ahead.

``jaxmon warmup`` runs it, because modules of the program may hang or end their process.
JOB is a file as `jaxmon.preflight.warming` writes it; results are lines of JSON on the
file descriptor. No agent runs.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from jaxmon.agent.counted import uncounted
from jaxmon.agent.jaxlink import arguments, patches
from jaxmon.agent.jaxlink.arrays import sharded
from jaxmon.agent.jaxlink.jit import function_of, is_jitted
from jaxmon.agent.jaxlink.listeners import CACHE_HIT, CACHE_STORED
from jaxmon.agent.warm.recorder import parameters_of
from jaxmon.agent.warm.statics import object_at, rebuilt
from jaxmon.errors import SignaturesError
from jaxmon.facts import signatures
from jaxmon.facts.signatures import RecordedFunction, RecordedSignature
from jaxmon.host import disclosure
from jaxmon.host.formats import json_text


_KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
_NUMBERS: Mapping[str, Any] = {"bool": False, "int": 0, "float": 0.0, "complex": 0j}

_IN_PROCESS = "warm it up in its process, with jaxmon.warmup"


def jitted_functions(function: RecordedFunction, main: str) -> list[Any]:
    """
    Import the module of *function*, or *main* for ``__main__``, and return its jitted
    objects there.

    Raises:
        SignaturesError: it cannot be imported, or has changed; says why.
        BaseException: whatever the module raises.
    """
    if not function.module:
        msg = f"it is no function with a name; {_IN_PROCESS}"
        raise SignaturesError(msg)
    if "<" in function.qualname:
        msg = (
            f"it is made inside another function and cannot be imported; {_IN_PROCESS}"
        )
        raise SignaturesError(msg)
    name = function.module
    if name == "__main__":
        name = main
        if not name:
            msg = "it is in the program's script; name its module with --main"
            raise SignaturesError(msg)
    module = import_module(name)
    found: Any = module
    for part in function.qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            msg = f"there is no {function.qualname} in {name} any more"
            raise SignaturesError(msg) from None
    several = [found] if is_jitted(found) else _made_of(found, vars(module))
    if not several:
        msg = (
            f"{function.qualname} in {name} is not jitted, nor is an object of that "
            f"module made of it; {_IN_PROCESS}"
        )
        raise SignaturesError(msg)
    for jitted in several:
        require_same(function, jitted)
    return several


def require_same(function: RecordedFunction, jitted: Any) -> None:
    """
    Check that *jitted* has the parameters that *function* had.

    Raises:
        SignaturesError: it has others.
    """
    now = parameters_of(function_of(uncounted(jitted)))
    before = function.parameters
    if now != before and None not in (now, before):
        msg = (
            f"its parameters were ({', '.join(before or ())}) and are now "
            f"({', '.join(now or ())}); export the signatures again"
        )
        raise SignaturesError(msg)


def _made_of(fun: Any, names: Mapping[str, Any]) -> list[Any]:
    """Return the jitted objects among *names* that were made of *fun*."""
    return [
        value
        for value in list(names.values())
        if is_jitted(value) and function_of(uncounted(value)) is fun
    ]


class Arguments:
    """Rebuilds arguments, with `abstract` or `zeros` in place of each *leaf*."""

    def __init__(
        self,
        jax: Any,
        leaf: Callable[[Any, Mapping[str, Any]], Any],
        main: str = "__main__",
    ) -> None:
        self._jax, self._leaf, self._main = jax, leaf, main

    def of(self, signature: RecordedSignature) -> tuple[list[Any], dict[str, Any]]:
        """
        Return the arguments of *signature*.

        Raises:
            SignaturesError: they cannot be rebuilt here.
        """
        args = [self._node(node) for node in signature.args]
        return args, {key: self._node(node) for key, node in signature.kwargs.items()}

    def _node(self, node: Any) -> Any:
        if node is None:
            found: Any = None
        elif "shape" in node:
            number = node["kind"] in _NUMBERS
            found = _NUMBERS[node["kind"]] if number else self._leaf(self._jax, node)
        elif "node" in node:
            found = self._custom(node)
        elif "static" in node:
            found = rebuilt(node["static"], self._main)
        elif "dict" in node:
            found = {key: self._node(node) for key, node in node["dict"]}
        elif "list" in node:
            found = [self._node(node) for node in node["list"]]
        elif "tuple" in node:
            found = tuple(self._node(node) for node in node["tuple"])
        else:
            found = self._named(node)
        return found

    def _named(self, node: Mapping[str, Any]) -> Any:
        kind = object_at(node["class"], self._main)
        if not isinstance(getattr(kind, "_fields", None), tuple):
            msg = f"{node['class']} is no named tuple any more"
            raise SignaturesError(msg)
        inner = [self._node(node) for node in node["namedtuple"]]
        if len(kind._fields) != len(inner):
            msg = (
                f"{node['class']} had {len(inner)} fields, and now {len(kind._fields)}"
            )
            raise SignaturesError(msg)
        return kind(*inner)

    def _custom(self, node: Mapping[str, Any]) -> Any:
        kind = object_at(node["class"], self._main)
        static = rebuilt(node["static"], self._main)
        inner = [self._node(node) for node in node["node"]]
        try:
            return arguments.rebuilt(kind, static, inner)
        except KeyError:
            msg = f"{node['class']} is no pytree class in this process"
            raise SignaturesError(msg) from None
        except Exception as error:
            msg = f"{node['class']} cannot be made of its parts any more: {error}"
            raise SignaturesError(msg) from error


def abstract(jax: Any, leaf: Mapping[str, Any]) -> Any:
    """Return what `jit.lower` takes in place of an array."""
    return jax.ShapeDtypeStruct(
        tuple(leaf["shape"]),
        _dtype(jax, leaf["dtype"]),
        weak_type=leaf.get("weak", False),
        sharding=_sharding(jax, leaf),
    )


def zeros(jax: Any, leaf: Mapping[str, Any]) -> Any:
    """Return an array of zeros that JAX treats as it did the recorded one."""
    import numpy as np  # noqa: PLC0415 - as JAX

    shape, name = tuple(leaf["shape"]), leaf["dtype"]
    if name in _KEYS:
        keys = jax.random.split(jax.random.key(0, impl=_KEYS[name]), shape)
        found = keys if shape else keys.reshape(())
    elif leaf.get("weak"):
        number = np.zeros((), name).item()
        found = jax.numpy.broadcast_to(jax.numpy.asarray(number), shape)
        if str(found.dtype) != name:
            msg = f"a weakly typed {name} cannot be made here"
            raise SignaturesError(msg)
    else:
        found = np.zeros(shape, _dtype(jax, name))
        if leaf["kind"] == "numpy":
            return found
    return jax.device_put(found, _sharding(jax, leaf))


def _dtype(jax: Any, name: str) -> Any:
    if name in _KEYS:
        # Making a key would compile, and fill the cache with programs of no one.
        return jax.eval_shape(lambda: jax.random.key(0, impl=_KEYS[name])).dtype
    try:
        return jax.numpy.dtype(name)
    except TypeError:
        msg = f"this JAX has no dtype {name}"
        raise SignaturesError(msg) from None


def _sharding(jax: Any, leaf: Mapping[str, Any]) -> Any:
    """Return where the *leaf* was committed to, `None` if it was not."""
    sharding, number, devices = leaf.get("sharding"), leaf.get("device"), []
    if sharding is not None or number is not None:
        devices = jax.local_devices()
    if sharding is not None:
        count = math.prod(size for _, size in sharding["axes"])
        if count != len(devices):
            msg = f"it needs {count} devices; this process has {len(devices)}"
            raise SignaturesError(msg)
        return sharded(jax, devices, sharding)
    if number is None:
        return None
    if number >= len(devices):
        msg = f"it needs device {number}; this process has {len(devices)}"
        raise SignaturesError(msg)
    return jax.sharding.SingleDeviceSharding(devices[number])


_LONGEST = 300
_NOT_STORED = (
    "compiled, but JAX did not store it: docs/persistent-cache.md says what prevents it"
)


def run(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compile what *job* lists; yield a line before each signature, and its result."""
    main, done = job["main"], {tuple(entry) for entry in job["done"]}
    jax: Any = None
    for number, function in enumerate(signatures.parsed(job["document"]).functions):
        left = [
            place
            for place in range(len(function.signatures))
            if (number, place) not in done
        ]
        if not left:
            continue
        yield {"begins": [number, left[0]]}
        try:
            jitted = jitted_functions(function, main)
            jax = jax or _jax()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a module may even exit
            reason = _text(error)
            for place in left:
                yield _result(number, place, signatures.FAILED, reason)
            continue
        for place in left:
            yield {"begins": [number, place]}
            arguments = Arguments(jax, abstract, main or "__main__")
            signature = function.signatures[place]
            at, checks = (number, place), job["check"]
            yield _compile(arguments, signature, jitted, at, checks=checks)


def _compile(
    arguments: Arguments,
    signature: RecordedSignature,
    jitted: list[Any],
    at: tuple[int, int],
    *,
    checks: bool,
) -> dict[str, Any]:
    began, status = perf_counter(), signatures.CACHED
    try:
        for candidate in jitted:
            args, kwargs = arguments.of(signature)
            if checks:
                _load(candidate, args, kwargs)
                continue
            found = _compiled(candidate, args, kwargs)
            if not found:
                # JAX may have it from an equal signature before.
                import_module("jax").clear_caches()
                found = _compiled(candidate, args, kwargs)
            if not found:
                return _result(*at, signatures.FAILED, _NOT_STORED)
            if found == signatures.COMPILED:
                status = found
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the program's, while tracing
        return _result(*at, signatures.FAILED, _text(error))
    return _result(*at, status, "", perf_counter() - began)


def _compiled(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Compile for these arguments; return what became of it, "" if it isn't stored."""
    lowered = jitted.lower(*args, **kwargs)
    _events.clear()
    lowered.compile()
    if CACHE_STORED in _events:
        return signatures.COMPILED
    return signatures.CACHED if CACHE_HIT in _events else ""


def _load(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Load the program from the cache; `SignaturesError` if XLA would compile it."""
    lowered, jax = jitted.lower(*args, **kwargs), import_module("jax")

    def refuse(*_: object, **__: object) -> None:
        msg = "it is not in the cache: the first call would compile"
        name = getattr(function_of(uncounted(jitted)), "__name__", "")
        cache = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", ""))
        if name.isidentifier() and cache.is_dir():
            others = len(list(cache.glob(f"jit_{name}-*-cache")))
            msg += f"; {others} of that name are, of other code, sizes or flags"
        raise SignaturesError(msg)

    # Tracing may compile constants, as importing the program may.
    places = [(place, getattr(*place)) for place in patches.builds(jax)]
    try:
        for place, _ in places:
            setattr(*place, refuse)
        lowered.compile()
    finally:
        for place, original in places:
            setattr(*place, original)


_events: list[str] = []


def _jax() -> Any:
    jax = import_module("jax")
    jax.monitoring.register_event_listener(lambda event, **_: _events.append(event))
    return jax


def _result(
    number: int, place: int, status: str, reason: str, seconds: float = 0.0
) -> dict[str, Any]:
    at = [number, place]
    return {"at": at, "status": status, "reason": reason, "seconds": seconds}


def _text(error: BaseException) -> str:
    """Return *error* as one line."""
    try:
        reason = " ".join(disclosure.text(str(error)).split())
    except Exception:  # noqa: BLE001 - the program's own class
        reason = ""
    name = type(error).__name__
    text = reason if name == "SignaturesError" else f"{name}: {reason}".rstrip(": ")
    return text[:_LONGEST]


def main(arguments: list[str]) -> None:
    """Do the job in the file named first; results go to the descriptor named next."""
    file, descriptor = arguments
    job = json_text.parse(Path(file).read_bytes())
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as results:
        for line in run(job):
            results.write(json.dumps(line) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
