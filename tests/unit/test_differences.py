"""What is different between two signatures, in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmon.agent.jaxlink.arrays import Leaf
from jaxmon.agent.recompiles.argument_trees import LEAF, NONE, Argument, Node
from jaxmon.agent.recompiles.differences import differences
from jaxmon.agent.recompiles.signatures import Options, Placement, Signature, Static
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


def test_equal_signatures_have_no_difference() -> None:
    """Nothing is reported for two equal calls."""
    assert texts(of(static={"n": 1}), of(static={"n": 1})) == []
    assert of().digest == of().digest


def test_everything_that_differs_is_told_at_once() -> None:
    """One difference does not hide another."""
    before = of(static={"n": 1}, context=(False,))
    after = of(
        leaves=[FLOAT._replace(shape=(4,), placement=Placement("cpu:1", 1, 0, 0))],
        static={"n": 2},
        options=(("donated arguments", "x", None),),
        context=(True,),
    )

    assert texts(before, after) == [
        "jax_a: False → True",
        "jit option donated arguments: none → x",
        "static argument n: 1 → 2",
        "argument x: float32[3] → float32[4]",
        "argument x: uncommitted → committed to cpu:1",
    ]


def test_static_values_can_be_kept_out() -> None:
    """With event_values off only their types are reported."""
    before, after = of(static={"n": "secret"}), of(static={"n": "other"})

    assert texts(before, after, values=False) == [
        "static argument n: str → another str"
    ]
    assert texts(before, of(static={"n": 1}), values=False) == [
        "static argument n: str → int"
    ]


def test_secrets_are_in_no_value() -> None:
    """
    What announces one or looks like one is hidden, wherever a value is shown; numbers,
    and the names of models and files, are not.
    """
    key = "sk-" + "AbCdEf1234567890GhIjKlMn"
    header, harmless = "Bearer xyzzyfish", "Llama-3-8B of runs/r50.yaml"
    found = texts(
        of(
            Node("Model", (1, 1), repr(key), None, (), 0),
            (),
            static={"token": "xyzzyfish", "max_tokens": 64, "model": harmless},
            options=(("compiler options", header, None),),
            context=(value_of({"api_key": "xyzzyfish"}),),
        ),
        of(
            Node("Model", (1, 2), repr(header), None, (), 0),
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


def test_leaves_behind_a_new_key_are_still_compared() -> None:
    """Leaves are found by their path, not by their number."""

    def tree(*keys: str) -> Node:
        paths = tuple(f"[{key!r}]" for key in keys)
        return Node("dict", (), "", paths, (LEAF,) * len(keys), len(keys))

    small = FLOAT._replace(shape=(1,))
    before = of(tree("b", "c"), [FLOAT, FLOAT])
    after = of(tree("a", "b", "c"), [small, FLOAT, small])

    assert texts(before, after) == [
        "argument x: key 'a' added",
        "argument x['c']: float32[3] → float32[1]",
    ]


def test_names_of_jax_are_used_where_the_tree_has_none() -> None:
    """Unless they do not fit, as to 0.4 with names in another order."""
    model = Node("Model", (1,), "", None, (LEAF,), 1)
    changed = [FLOAT._replace(shape=(1,))]

    named = of(model, changed, names=("x.weight",))
    misplaced = of(model, changed, names=("y.weight",))

    assert texts(of(model), named) == ["argument x.weight: float32[3] → float32[1]"]
    assert texts(of(model), misplaced) == ["argument x[0]: float32[3] → float32[1]"]


def test_a_static_part_that_jax_finds_different_is_told() -> None:
    """Even where it reads the same."""
    first, second, longer = (Plain(),), (Plain(),), ("a" * 100, "b")

    def model(static: object) -> Signature:
        value = value_of(static)
        return of(Node("Model", (1, value.key), value.text, None, (LEAF,), 1))

    (text,) = texts(model(first), model(second))
    assert text.endswith(
        "static part (Plain(),) (looks equal, but JAX treats it as different)"
    )
    (text,) = texts(model(longer), model((*longer, "c")))
    assert text.endswith("… (differs beyond the part shown)")


def test_static_values_that_differ_at_their_ends_are_no_twins() -> None:
    """What is cut off may be all that differs; that is nothing to hash by value for."""
    first, second = Plain(), Plain()
    long = "a" * 100

    def text(before: object, after: object) -> str:
        (found,) = texts(of(static={"n": before}), of(static={"n": after}))
        return found

    assert text((long, first), (long, second, 1)).endswith("beyond the part shown)")
    assert text((1, first), (1, second)).endswith("__hash__ by value)")
    assert text((long, first), (long, second)).endswith("__hash__ by value)")


def test_none_against_a_leaf_is_told_with_its_type() -> None:
    """The type of the leaf that is there shows on its side of the arrow."""
    assert texts(of(NONE, []), of()) == ["argument x: None → float32[3]"]
    assert texts(of(), of(NONE, [])) == ["argument x: float32[3] → None"]


def test_meshes_alike_in_words_are_told_apart() -> None:
    """The same spec over other devices is another sharding."""
    spread = [
        FLOAT._replace(placement=Placement("P('d') on mesh d=8", 8, n, n))
        for n in (1, 2)
    ]

    (text,) = texts(of(leaves=spread[:1]), of(leaves=spread[1:]))

    assert text.endswith("P('d') on mesh d=8 (different devices, or a different order)")
