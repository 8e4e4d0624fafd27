"""
No code of the user's runs for what is said of a recompile.

Every method of the classes here notes who calls it. JAX calls some, as it does without
jaxmon; jaxmon must call none.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from tests.helpers import inside
from tests.helpers.agents import value as exported
from tests.helpers.processes import some


pytestmark = pytest.mark.ground_truth

OURS = str(Path(jaxmon.__file__).parent) + os.sep
STANDARD = str(Path(os.__file__).parent) + os.sep

ran: list[str] = []


def note(what: str) -> None:
    """Note *what* if jaxmon made it run, through the standard library or not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        between = file.startswith(STANDARD) and "site-packages" not in file
        if file not in (__file__, "<string>") and not between:
            break
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename.startswith(OURS):
        ran.append(f"{what} by {frame.f_code.co_name}")
        raise SystemExit(what)


def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> Any:
        note(name)
        return method(self, *args)

    return run


class Meta(type):
    """A class of classes that notes what is asked of them."""

    def __getattribute__(cls, name: str) -> Any:
        note(f"type.{name}")
        return super().__getattribute__(name)

    def __eq__(cls, other: object) -> bool:
        note("type.__eq__")
        return cls is other

    def __hash__(cls) -> int:
        note("type.__hash__")
        return id(cls)

    def __instancecheck__(cls, instance: object) -> bool:
        note("type.__instancecheck__")
        return super().__instancecheck__(instance)

    def __repr__(cls) -> str:
        note("type.__repr__")
        return "class"


def equals(self: Any, other: object) -> bool:
    note("__eq__")
    return type(other) is type(self) and number(self) == number(other)


def hashes(self: Any) -> int:
    note("__hash__")
    return hash(number(self))


def number(value: Any) -> int:
    return int(object.__getattribute__(value, "number"))


def read(self: Any, name: str) -> Any:
    note(f".{name}")
    return object.__getattribute__(self, name)


def prop(name: str) -> Any:
    def look(self: Any) -> Any:
        note(f"property {name}")
        raise AttributeError(name)

    return property(look)


SPIES: dict[str, Any] = {
    "__eq__": equals,
    "__hash__": hashes,
    "__getattribute__": read,
    "__repr__": noting("__repr__", object.__repr__),
    "__str__": noting("__str__", object.__repr__),
    "__format__": noting("__format__", object.__format__),
    "__bool__": noting("__bool__", lambda _: True),
    "__iter__": noting("__iter__", lambda _: iter(())),
    "__len__": noting("__len__", lambda _: 0),
    "shape": prop("shape"),
    "dtype": prop("dtype"),
    "_fields": prop("_fields"),
    "__wrapped__": prop("__wrapped__"),
    "__signature__": prop("__signature__"),
}


def spy(
    name: str, *, bases: tuple[type, ...] = (), metaclass: type = Meta, **more: Any
) -> Any:
    return metaclass(name, bases, {"__module__": __name__, **SPIES, **more})


def keep(self: Any, value: int) -> None:
    object.__setattr__(self, "number", value)


def like(base: type, *names: str) -> Any:
    """Return a class that is a *base* and notes whenever one of these methods runs."""
    methods: Any = {name: noting(name, getattr(base, name)) for name in names}
    return spy(f"Noted_{base.__name__}", bases=(base,), **methods)


Plain = spy("Plain", __init__=keep)
Slotted = spy("Slotted", __slots__=("number",), __init__=keep)
Liar = spy("Liar", __module__="numpy", __slots__=("number",), __init__=keep)
Dict = spy("Dict", __init__=keep, __dict__=prop("__dict__"), __slots__=("number",))
Pretender = spy(
    "Pretender",
    __init__=keep,
    __class__=property(noting("__class__", lambda _: np.ndarray)),
)
Number = like(int, "__eq__", "__hash__", "__repr__", "__getattribute__")
Text = like(str, "__eq__", "__hash__", "__len__", "__iter__")
Items = like(tuple, "__eq__", "__hash__", "__len__", "__iter__")
Partial = like(functools.partial, "__eq__", "__hash__")


@dataclasses.dataclass(frozen=True)
class Holder:
    """A class of the ordinary kind around one that is not."""

    inside: Any


def with_odd_fields(value: int) -> Any:
    made = Plain(value)
    object.__getattribute__(made, "__dict__").update({3: "three", Text("x"): 1})
    return made


VALUES: dict[str, Callable[[int], Any]] = {
    "object": Plain,
    "with slots": Slotted,
    "claims to be numpy's": Liar,
    "property in place of __dict__": Dict,
    "claims to be an array": Pretender,
    "number": Number,
    "text": Text,
    "tuple below": lambda n: Items((n,)),
    "partial below": lambda n: Partial(max, n),
    "odd fields": with_odd_fields,
    "class": lambda n: Meta(f"Made{n}", (), {}),
    "in a tuple": lambda n: (1, (Plain(n),)),
    "in a frozenset": lambda n: frozenset([Plain(n)]),
    "in a dataclass": lambda n: Holder(Slotted(n)),
    "in a partial": lambda n: functools.partial(max, Plain(n)),
    "bound method": lambda n: functools.partial(Holder.__repr__, Holder(Liar(n))),
    "with a range": lambda n: Holder(range(n)),
}


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    ran.clear()


def causes(agent: Agent) -> list[str]:
    found = inside.events(agent).since(kind="recompile")
    return [e.details["cause"] for e in found if "test_foreign" in str(e.function)]


@pytest.mark.parametrize("name", some(VALUES, 2))
def test_static_values_run_no_code(agent: Agent, name: str) -> None:
    """Whatever a class of values does, its code never runs; the cause is right."""
    make = VALUES[name]

    @functools.partial(jax.jit, static_argnums=0)
    def f(static: Any, x: Any) -> Any:
        return x + 1

    for value in (2, 3):
        assert f(make(value), np.float32(1)) == 2

    assert ran == []
    assert causes(agent) == ["static_argument"]


@pytest.mark.parametrize("name", some(VALUES))
def test_static_values_of_a_pmap_run_no_code(agent: Agent, name: str) -> None:
    """The same of values that `jax.pmap` does not spread."""
    make = VALUES[name]

    @functools.partial(jax.pmap, static_broadcasted_argnums=0)
    def f(static: Any, x: Any) -> Any:
        return x + 1

    for value in (2, 3):
        assert f(make(value), np.ones(1, np.float32)) == 2

    assert ran == []
    assert causes(agent) == ["static_argument"]


def test_a_budget_runs_no_code_of_what_it_looks_through(agent: Agent) -> None:
    """Its look for functions that compiled unseen is at every object that there is."""
    kept = [VALUES[name](1) for name in VALUES]
    with jaxmon.budget(recompiles=0):
        pass
    assert ran == []
    assert len(kept) == len(VALUES)


class Module:
    """A node of a tree, with a static part."""

    def __init__(self, weight: Any, static: Any) -> None:
        self.weight, self.static = weight, static


def flatten(module: Module) -> Any:
    note("flatten")
    return (module.weight,), module.static


jax.tree_util.register_pytree_node(
    Module, flatten, lambda static, children: Module(children[0], static)
)


@pytest.mark.parametrize("make", [jax.jit, jax.pmap])
@pytest.mark.parametrize("name", some(VALUES, 6))
def test_static_parts_of_trees_run_no_code(agent: Agent, make: Any, name: str) -> None:
    """Nor does the function that takes such a node apart run again."""

    def f(module: Any) -> Any:
        return module.weight + 1

    mapped = make(f)
    for value in (2, 3):
        static = VALUES[name](value)
        assert mapped(Module(np.ones(1, np.float32), static)) == 2

    assert ran == []
    assert causes(agent) == ["tree_structure"]


Node = spy("Node", __init__=keep)
Callee = spy("Callee", __init__=keep, __call__=lambda _, x: x + 1)


def test_a_class_of_nodes_runs_no_code(agent: Agent) -> None:
    """Classes of nodes may have a class of their own."""
    jax.tree_util.register_pytree_node(
        Node, lambda node: ((np.ones(number(node)),), None), lambda _, __: Node(1)
    )

    f = jax.jit(lambda _: 2.0)

    for size in (2, 3):
        assert f(Node(size)) == 2

    assert ran == []
    assert causes(agent) == ["shape"]


@pytest.mark.parametrize("wrap", [lambda fun: fun, functools.partial])
def test_objects_that_can_be_called_run_no_code(agent: Agent, wrap: Any) -> None:
    """They are labelled and distinguished by their class."""
    for value in (2, 2):
        f = jax.jit(wrap(Callee(value)))
        assert f(np.float32(1)) == 2
        assert f(np.ones(2, np.float32)).tolist() == [2, 2]

    assert ran == []
    assert "shape" in causes(agent)


def test_keys_that_miss_run_no_code(agent: Agent) -> None:
    """A call that leaves the fast path for a NumPy array is reported with its key."""
    made = spy("Key", __init__=keep, __lt__=lambda a, b: number(a) < number(b))
    f = jax.jit(lambda tree: [leaf + 1 for leaf in jax.tree_util.tree_leaves(tree)])

    for leaf in (np.float32(1), jax.device_put(np.float32(1)), np.float32(1)):
        f({made(1): leaf})

    assert ran == []


def test_a_setting_of_the_users_runs_no_code(agent: Agent) -> None:
    """What compiled code depends on may be an object of the user's."""
    make = getattr(jax, "make_user_context", None)
    if make is None:
        pytest.skip("this JAX has no contexts of users")
    context = make()
    f = jax.jit(lambda x: x + 1)
    f(np.float32(1))

    for value in (2, 3):
        with context(Plain(value)):
            f(np.float32(1))

    assert ran == []
    assert causes(agent) == ["context", "context"]


class Array(np.ndarray):
    """An array of NumPy's that notes what is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        note(f".{name}")
        return super().__getattribute__(name)


@pytest.mark.parametrize("put", [jax.device_put, jax.numpy.asarray, jax.numpy.array])
def test_arrays_that_are_sent_run_no_code(agent: Agent, put: Any) -> None:
    """Their bytes are those of the array that they are."""
    sent = np.ones(1000, np.float32).view(Array)

    for _ in range(2):
        put(sent).block_until_ready()

    assert ran == []
    moved = exported(agent, "jaxmon_transfer_bytes_total", direction="host_to_device")
    assert moved in (0, 8000)  # what is sent in C++ is not seen
