"""What is different between two signatures, in words."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxmon.agent.context import Options
from jaxmon.agent.jaxlink.arrays import Leaf
from jaxmon.agent.recompiles.argument_trees import LEAF, Argument, Node, node_of
from jaxmon.agent.recompiles.differences import differences
from jaxmon.agent.recompiles.signatures import (
    Signature,
    Static,
    equinox_arguments,
)
from jaxmon.agent.recompiles.values import value_of


class Plain:
    """An object that is compared by identity."""


FLOAT = Leaf((3,), np.dtype("float32"), weak=False, placement=None)


def of(
    node: Node = LEAF,
    leaves: Sequence[Leaf] = (FLOAT,),
    *,
    static: dict[str, Any] | None = None,
    options: Options = (),
    context: tuple[Any, ...] = (),
    names: tuple[str, ...] | None = None,
) -> Signature:
    values = tuple(
        Static(name, by_name=True, value=value_of(value))
        for name, value in (static or {}).items()
    )
    argument = Argument("x", by_name=False, node=node)
    return Signature((argument,), tuple(leaves), values, options, context, names)


def texts(
    before: Signature,
    after: Signature,
    *,
    names: Sequence[str] = ("jax_a",),
    values: bool = True,
) -> list[str]:
    found = differences(after, before, context=names, values=values)
    return [one.text for one in found]


def test_secrets_are_in_no_value() -> None:
    """
    What announces one or looks like one is hidden, wherever a value is shown; numbers,
    and the names of models and files, are not.
    """
    key = "sk-" + "AbCdEf1234567890GhIjKlMn"
    header, harmless = "Bearer xyzzyfish", "Llama-3-8B of runs/r50.yaml"
    found = texts(
        of(
            Node("Model", (1, 1), value_of(key), None, (), 0),
            (),
            static={"token": "xyzzyfish", "max_tokens": 64, "model": harmless},
            options=(("compiler options", header, None),),
            context=(value_of({"api_key": "xyzzyfish"}),),
        ),
        of(
            Node("Model", (1, 2), value_of(header), None, (), 0),
            (),
            static={"token": "abc", "max_tokens": 128, "model": key},
            context=(value_of(("https://bob:xyzzyfish@h/x", "n")),),
        ),
    )
    assert found == [
        "jax_a: {'api_key': … → ('https://…@h/x', 'n')",
        "jit option compiler options: Bearer … → none",
        "static argument token: … → … (differs beyond the part shown)",
        "static argument max_tokens: 64 → 128",
        f"static argument model: '{harmless}' → '…'",
        "argument x: static part '…' → static part 'Bearer …",
    ]


def test_unnamed_settings_have_a_number() -> None:
    """A JAX that adds to its context costs a name, not the cause."""
    found = texts(of(context=(1, 2)), of(context=(1, 3)))

    assert found == ["context[1]: 2 → 3"]


def test_a_setting_that_is_there_twice_is_told_by_its_name() -> None:
    """What differs as a named one does, of the same type, is left out; once."""
    names = ("jax_a", "jax_b", "", "", "")
    found = texts(
        of(context=(0, 5, 0, False, 5)), of(context=(1, 5, 1, True, 6)), names=names
    )
    assert found == ["jax_a: 0 → 1", "context[3]: False → True", "context[4]: 5 → 6"]

    found = texts(of(context=(0, 5, 0, 0, 5)), of(context=(1, 5, 1, 1, 5)), names=names)
    assert found == ["jax_a: 0 → 1", "context[3]: 0 → 1"]


def test_names_of_jax_are_used_where_the_tree_has_none() -> None:
    """
    Unless they do not fit the argument, as to 0.4 when names are in another order.
    """
    model = Node("Model", (1,), None, None, (LEAF,), 1)
    changed = [FLOAT._replace(shape=(1,))]

    named = of(model, changed, names=("x.weight",))
    misplaced = of(model, changed, names=("y.weight",))

    assert texts(of(model), named) == ["argument x.weight: float32[3] → float32[1]"]
    assert texts(of(model), misplaced) == ["argument x[0]: float32[3] → float32[1]"]


def test_a_static_part_that_jax_finds_different_is_told() -> None:
    """What in it differs, also where it reads the same, or is cut off."""
    first, second, longer = (Plain(),), (Plain(),), ("a" * 100, "b")

    def model(static: object) -> Signature:
        value = value_of(static)
        return of(Node("Model", (1, value.key), value, None, (LEAF,), 1))

    (text,) = texts(model(first), model(second))
    assert text.startswith("static field x[0]: Plain() → Plain() (a different object")
    (text,) = texts(model(longer), model((*longer, "c")))
    assert text == "static field x[2]: not given → 'c'"


def test_static_values_that_differ_at_their_ends_are_no_twins() -> None:
    """What is cut off may be all that differs; that is nothing to hash by value for."""
    first, second = Plain(), Plain()
    long = "a" * 100

    def text(before: object, after: object) -> str:
        (found,) = texts(of(static={"n": before}), of(static={"n": after}))
        return found

    assert text((long, first), (long, second, 1)) == (
        "static argument n[2]: not given → 1"
    )
    assert text((1, first), (1, second)).endswith("__hash__ by value)")
    assert text((long, first), (long, second)).endswith("__hash__ by value)")


def trees(before: object, after: object) -> list[str]:
    """Return what differs between two arguments, except for their arrays."""
    first, second = (
        of(node_of(jax.tree.structure(tree), []), [FLOAT] * len(jax.tree.leaves(tree)))
        for tree in (before, after)
    )
    return texts(first, second)


def test_the_field_of_a_train_state_is_named() -> None:
    """An optimizer that is made in each epoch is the same function, but for JAX."""
    import optax
    from flax.training import train_state

    def state(rate: float) -> Any:
        made = optax.adam(rate)
        return train_state.TrainState.create(apply_fn=len, params={}, tx=made)

    found = trees(state(0.1), state(0.1))

    assert len(found) == 2
    for text, name in zip(found, ("init", "update"), strict=True):
        assert text.startswith(f"static field x.tx.{name}: {name}_fn at ")
        assert text.endswith(" → the same function, made anew")
    same = state(0.1)
    assert trees(same, same.replace(step=3)) == []


def test_the_attribute_of_a_graph_of_flax_is_named() -> None:
    """Attributes of all its objects follow each other; equal ones are no news."""
    from flax import nnx

    class Net(nnx.Module):  # type: ignore[misc]  # Flax has no types
        def __init__(self, rate: float, inner: float) -> None:
            rngs = nnx.Rngs(0)
            self.linear = nnx.Linear(2, 2, rngs=rngs)
            self.rate = rate
            self.layers = nnx.List([nnx.Dropout(inner, rngs=rngs)])

    def graph(*rates: float) -> Node:
        value = value_of(nnx.split(Net(*rates))[0])
        return Node("NodeStates", (1, value.key), value, None, (), 0)

    before = of(graph(0.1, 0.5))
    assert texts(before, of(graph(0.09, 0.5))) == ["static field x.rate: 0.1 → 0.09"]
    assert texts(before, of(graph(0.1, 0.7))) == [
        "static field x.layers[0].rate: 0.5 → 0.7"
    ]
    assert texts(before, of(graph(0.1, 0.5))) == []


def test_the_argument_of_a_function_of_equinox_is_named() -> None:
    """Of what it passes as one static argument: by position, by name, and fields."""
    import equinox
    from equinox._compile_utils import hashable_partition

    class Inner(equinox.Module):  # type: ignore[misc]  # as seen from here
        weight: Any
        rate: float

    class Model(equinox.Module):  # type: ignore[misc]  # likewise
        inner: Inner
        depth: int = equinox.field(static=True)

    def step(x: Any, model: Any, *, scale: float) -> Any:
        return x * model.inner.weight * scale

    def passed(rate: float, depth: int, scale: float) -> Signature:
        model, x = Model(Inner(np.ones(2), rate), depth), np.ones(2)
        static = [
            hashable_partition(tree, equinox.is_array)[1]
            for tree in (step, x, ((model,), {"scale": scale}))
        ]
        value = Static("", by_name=False, value=equinox_arguments(tuple(static)))
        return Signature((), (), (value,), (), ())

    before = passed(0.1, 2, 1.0)
    static = "static argument "
    assert texts(before, passed(0.2, 2, 1.0)) == [
        f"{static}model.inner.rate: 0.1 → 0.2"
    ]
    assert texts(before, passed(0.1, 3, 1.0)) == [f"{static}model.depth: 2 → 3"]
    assert texts(before, passed(0.1, 2, 2.0)) == [f"{static}scale: 1.0 → 2.0"]
    assert texts(before, passed(0.1, 2, 1.0)) == []


def test_a_jitted_argument_shows_the_function_inside() -> None:
    """It has no fields."""

    def scaled(x: Any) -> Any:
        return x

    first, second = jax.jit(scaled), jax.jit(lambda x: x)
    (text,) = texts(of(static={"f": first}), of(static={"f": second}))

    assert text.startswith("static argument f: scaled at test_differences.py:")
    assert " → <lambda> at test_differences.py:" in text
