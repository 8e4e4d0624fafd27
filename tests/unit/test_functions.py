"""What is known of each function, by label."""

import functools
import types

import jax.numpy as jnp

from jaxmon.agent.counted import CountedFunction
from jaxmon.agent.functions import Function, FunctionTable, label
from jaxmon.agent.jaxlink.source_lines import ProgramLine


class Callable:
    def __call__(self) -> None:
        pass

    def method(self) -> None:
        pass


def plain() -> None:
    pass


def test_labels_name_the_users_function() -> None:
    """Partials and methods have the name inside, objects their class's."""
    partial = functools.partial(functools.partial(plain))
    nameless = plain_named(3)

    assert label(plain) == (f"{__name__}.plain", False)
    assert label(partial) == (f"{__name__}.plain", False)
    assert label(Callable().method) == (f"{__name__}.Callable.method", False)
    assert label(Callable()) == (f"{__name__}.Callable", False)
    assert label(len) == ("builtins.len", False)
    assert label(nameless)[0].startswith(f"{__name__}.")


def plain_named(name: object) -> Callable:
    found = Callable()
    found.__dict__["__qualname__"] = name
    return found


def function_of(module: str) -> types.FunctionType:
    """Return a function defined in *module*."""
    return types.FunctionType(plain.__code__, {"__name__": module})


def test_functions_of_jax_are_known_by_their_package() -> None:
    """A package whose name only begins alike is the user's."""
    modules = ("jax", "jax.numpy", "jaxlib.mlir", "jaxtyping", "my.jax")

    assert {module: label(function_of(module))[1] for module in modules} == {
        "jax": True,
        "jax.numpy": True,
        "jaxlib.mlir": True,
        "jaxtyping": False,
        "my.jax": False,
    }


def test_who_jits_decides_whose_function_it_is() -> None:
    """
    A function of JAX is named as if it were defined where the program jits it, and
    after the program's function that it calls, if there is one.
    """
    there = ProgramLine("train.py", 3, "train", "fit")
    top = ProgramLine("train.py", 9, "train", "<module>")
    theirs = function_of("jax.numpy")

    def around(fun: object) -> types.FunctionType:
        def checked() -> object:
            return fun

        checked.__module__ = "jax._src.checkify"
        return types.FunctionType(
            checked.__code__,
            {"__name__": "jax._src.checkify"},
            closure=checked.__closure__,
        )

    assert label(theirs, there) == ("train.fit.<locals>.plain", False)
    assert label(functools.partial(theirs), top) == ("train.plain", False)
    assert label(around(plain), there) == (f"{__name__}.plain", False)
    assert label(around(theirs), there) == ("train.fit.<locals>.checked", False)
    assert label(around(plain))[1]


def test_a_name_taken_over_from_jax_does_not_make_a_function_jaxs() -> None:
    """`functools.wraps` copies the module too; the code says whose it is."""

    @functools.wraps(jnp.cos)
    def cosine() -> None:
        pass

    own = test_a_name_taken_over_from_jax_does_not_make_a_function_jaxs.__name__
    assert label(cosine) == (f"{__name__}.{own}.<locals>.cosine", False)


def test_a_full_table_shares_one_entry() -> None:
    """The limit counts neither ``other`` nor ``unknown``; overflow is counted."""
    table = FunctionTable(2)
    table.named("unknown")
    first, second = table.named("a.f"), table.named("a.g")
    third, fourth = table.named("a.h"), table.named("a.i")

    assert third is fourth is table.named("other")
    assert first is table.named("a.f") is not second
    assert table.overflow.value == 2
    assert {function.name for function in table} == {
        "a.f",
        "a.g",
        "other",
        "unknown",
    }


def test_a_short_name_finds_the_only_function_called_so() -> None:
    """
    Where two share it, or none has it, whose it is stays unknown: a label that no
    function has would be an invention.
    """
    table = FunctionTable(10)
    table.named("a.f")
    table.named("a.g")
    table.named("b.g")

    assert table.by_short_name("f").name == "a.f"
    assert table.by_short_name("g").name == "unknown"
    assert table.by_short_name("h").name == "unknown"


def test_calls_and_hits_never_fall() -> None:
    """A call that is known to be a miss only later does not take a hit back."""
    function = Function("f", internal=False)
    enter = CountedFunction(functools.partial(int), lambda jitted: jitted)
    function.objects.add(enter)
    enter()
    assert function.calls_and_hits() == (1, 1)
    function.entered_missed.add()
    assert function.calls_and_hits() == (1, 1)
    for _ in range(3):
        enter()

    assert function.calls_and_hits() == (4, 3)
