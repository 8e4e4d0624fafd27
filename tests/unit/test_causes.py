"""Why a call had to compile a function again."""

import gc
from typing import Any

import numpy as np

from jaxmon.agent.context import Registry
from jaxmon.agent.jaxlink.arrays import Leaf
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.recompiles.argument_trees import LEAF, Argument, Node
from jaxmon.agent.recompiles.causes import SHOWN, Cause, Histories
from jaxmon.agent.recompiles.recreations import created
from jaxmon.agent.recompiles.signatures import PartlyCompared, Signature, Static
from jaxmon.agent.recompiles.values import value_of


def jitted(fun: Any, source: str | None = "f at file.py:1") -> Jitted:
    return Jitted(fun, fun, source, call=True)


def leaf(*shape: int, dtype: str = "float32", weak: bool = False) -> Leaf:
    return Leaf(shape, np.dtype(dtype), weak, None)


def call(*leaves: Leaf, context: tuple[Any, ...] = ()) -> Signature:
    """Return the signature of a call with one argument for each leaf."""
    names = "xyzuvw"
    arguments = tuple(
        Argument(names[n], by_name=False, node=LEAF) for n in range(len(leaves))
    )
    return Signature(arguments, leaves, (), (), context)


def tree(*keys: str, count: int = 3) -> Signature:
    """Return the signature of a call with a dict of arrays."""
    paths = tuple(f"[{key!r}]" for key in keys)
    node = Node("dict", (), None, paths, (LEAF,) * len(keys), len(keys))
    leaves = (leaf(count),) * len(keys)
    return Signature((Argument("x", by_name=False, node=node),), leaves, (), (), ())


def judge(causes: Histories, made: Jitted, signature: Signature | None) -> Cause | None:
    """Return why *made* is compiled, and let it be compiled."""
    history, new = (
        causes.history(made.fun),
        created(made, None, number=Registry().now(), options=()),
    )
    cause = causes.of(history, new, signature)
    causes.remember(history, new, signature, None, -1)
    return cause


def name(cause: Cause | None) -> str | None:
    return cause.name if cause else None


def texts(cause: Cause | None) -> list[str]:
    return [one.text for one in cause.differences] if cause else []


def test_the_first_compile_has_no_cause() -> None:
    """Two functions from two lines are both new, which is no recompile."""
    causes = Histories()

    assert judge(causes, jitted(lambda: 1), call(leaf())) is None
    assert judge(causes, jitted(lambda: 2, "f at file.py:2"), call(leaf())) is None


def test_equal_leaves_need_not_be_one_object() -> None:
    """They are until too many are known; the closest signature is so all the same."""
    causes, fun = Histories(), jitted(lambda: 1)
    for sizes in ((1, 1), (5, 5)):
        judge(causes, fun, call(*map(leaf, sizes)))

    cause = judge(causes, fun, call(leaf(1), leaf(2)))

    assert texts(cause) == ["argument y: float32[1] → float32[2]"]


def test_a_compile_that_could_not_be_told_makes_no_new_function() -> None:
    """The next one of the same object has nothing to be compared with."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, None)

    assert name(judge(causes, fun, call(leaf()))) == "unknown"


def test_another_shape_is_named() -> None:
    """Only a compile that differs in shapes alone from an earlier one says so."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, call(leaf(1), leaf()))

    assert name(judge(causes, fun, call(leaf(2), leaf()))) == "shape"
    assert name(judge(causes, fun, call(leaf(2, dtype="int32"), leaf()))) == "dtype"
    assert name(judge(causes, fun, call(leaf(2)))) == "tree_structure"


def test_the_closest_of_earlier_signatures_is_compared_with() -> None:
    """Two leaves of another shape are closer than a tree with another key."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, tree("a", "b", count=4))
    judge(causes, fun, tree("a", "b", "c", count=3))

    cause = judge(causes, fun, tree("a", "b", count=3))

    assert texts(cause) == [
        "argument x['a']: float32[4] → float32[3]",
        "argument x['b']: float32[4] → float32[3]",
    ]
    assert name(judge(causes, fun, tree("a", "d", count=3))) == "tree_structure"


def test_a_leaf_that_differs_in_one_part_is_closer() -> None:
    """Another type is no other shape because the latest call had one."""
    causes, fun = Histories(), jitted(lambda: 1)
    for size in (8, 16):
        judge(causes, fun, call(leaf(size), leaf()))

    cause = judge(causes, fun, call(leaf(8, weak=True), leaf()))

    assert name(cause) == "weak_type"


def test_configuration_comes_before_what_follows_from_it() -> None:
    """Under jax_enable_x64 every dtype changes too; the setting is the cause."""
    causes, fun = Histories(["jax_enable_x64"]), jitted(lambda: 1)
    judge(causes, fun, call(leaf(1), context=(False,)))

    cause = judge(causes, fun, call(leaf(1, dtype="float64"), context=(True,)))

    assert name(cause) == "context"
    assert texts(cause) == [
        "jax_enable_x64: False → True",
        "argument x: float32[1] → float64[1]",
    ]


def test_the_most_frequent_change_of_leaves_is_the_cause() -> None:
    """One weak type among two new shapes is not the cause."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, call(leaf(1), leaf(1), leaf()))

    cause = judge(causes, fun, call(leaf(2), leaf(2), leaf(weak=True)))

    assert name(cause) == "shape"
    assert len(texts(cause)) == 3


def test_the_same_again_was_evicted() -> None:
    """A signature that was compiled before was dropped, however many came between."""
    causes, fun = Histories(), jitted(lambda: 1)
    for size in range(40):
        judge(causes, fun, call(leaf(size)))

    assert name(judge(causes, fun, call(leaf(0)))) == "evicted"


def test_two_lambdas_of_one_line_are_two() -> None:
    """What JAX says of their source is the same; their code is not."""
    causes, source = Histories(), "<lambda> at file.py:1"
    first, second = (lambda x: x + 1), (lambda x: x + 2)

    assert judge(causes, jitted(first, source), call(leaf())) is None
    assert judge(causes, jitted(second, source), call(leaf())) is None


def test_a_new_function_of_the_same_line_is_named() -> None:
    """A recreated lambda is the cause, and other differences are reported as well."""
    causes = Histories()
    first, second = ((lambda: 1) for _ in range(2))
    judge(causes, jitted(first), call(leaf()))

    cause = judge(causes, jitted(second), call(leaf(3)))

    assert name(cause) == "new_function"
    assert "jit outside the loop" in texts(cause)[0]
    assert texts(cause)[1:] == ["argument x: float32[] → float32[3]"]


def test_what_a_new_function_captures_is_named() -> None:
    """Jitted once, it would keep the value: that has to become an argument."""
    state = 3
    makes = {"state": lambda: lambda x: x * state, "": lambda: lambda x: x * 3}
    for captured, make in makes.items():
        causes, first, second = Histories(), make(), make()
        judge(causes, jitted(first), call(leaf()))

        cause = judge(causes, jitted(second), call(leaf()))

        assert name(cause) == "new_function"
        assert texts(cause)[0].partition("; it captures ")[2] == captured


def test_a_long_list_of_differences_is_cut() -> None:
    """Of a thousand changed leaves the first are kept, and the rest counted."""
    causes, fun = Histories(), jitted(lambda: 1)
    keys = [str(number) for number in range(1000)]
    judge(causes, fun, tree(*keys, count=1))

    cause = judge(causes, fun, tree(*keys, count=2))

    assert cause is not None
    assert (len(cause.differences), cause.omitted) == (SHOWN, 1000 - SHOWN)


def test_few_signatures_of_many_leaves_are_kept() -> None:
    """What is remembered of a function is bounded in leaves, too."""
    causes, fun = Histories(), jitted(lambda: 1)
    keys = [str(number) for number in range(20_000)]
    for size in range(6):
        judge(causes, fun, tree(*keys, count=size))

    (history,) = causes._seen.values()
    assert len(history.signatures) == 3


def test_nothing_is_kept_of_a_function_that_is_gone() -> None:
    """Histories go with their functions; an unreferable one has none."""
    causes = Histories()
    for _ in range(100):
        judge(causes, jitted(lambda: 1), call(leaf()))
    judge(causes, jitted(3, "other"), call(leaf()))
    gc.collect()

    assert causes._seen == {}
    assert sorted(map(len, causes._recreations._lines.values())) == [1, 1]
    assert name(judge(causes, jitted(3, "other"), call(leaf(2)))) == "unknown"


def test_a_call_without_a_signature_is_unknown() -> None:
    """If the arguments are unknown, the recompile still counts."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, call(leaf()))

    assert name(judge(causes, fun, None)) == "unknown"


def with_static(value: object, *leaves: Leaf) -> Signature:
    known = value_of(value)
    static = (Static("n", by_name=False, value=known),)
    beyond = (PartlyCompared("static_argument", "n", known),)
    return Signature((), leaves, static, (), (), None, beyond)


class Versioned:
    """An object that says itself what it is equal to."""

    def __init__(self, version: int) -> None:
        self._version = version

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    def __hash__(self) -> int:
        raise AssertionError


def test_what_a_class_hides_is_the_cause_if_nothing_else_is() -> None:
    """A difference that is certain comes first; the same again was evicted."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, with_static(Versioned(1)))

    hidden = judge(causes, fun, with_static(Versioned(2)))
    assert name(hidden) == "static_argument"
    assert texts(hidden) == [
        (
            "static argument n: Versioned() → Versioned() (looks equal, but JAX "
            "treats it as different)"
        )
    ]
    assert name(judge(causes, fun, with_static(Versioned(2)))) == "evicted"


def test_what_was_not_looked_at_in_full_is_not_called_evicted() -> None:
    """It may differ where it was not looked at; neither is claimed."""
    causes, fun = Histories(), jitted(lambda: 1)
    judge(causes, fun, with_static(tuple(range(5_000))))

    cause = judge(causes, fun, with_static(tuple(range(5_000))))

    assert name(cause) == "unknown"
    [only] = texts(cause)
    assert only.startswith("static argument n: (0, 1, 2,")
    assert only.endswith("is too large or opaque to compare in full")
