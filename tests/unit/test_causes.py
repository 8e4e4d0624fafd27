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


def test_a_leaf_that_differs_in_one_part_is_closer() -> None:
    """Another type is no other shape because the latest call had one."""
    causes, fun = Histories(), jitted(lambda: 1)
    for size in (8, 16):
        judge(causes, fun, call(leaf(size), leaf()))

    cause = judge(causes, fun, call(leaf(8, weak=True), leaf()))

    assert name(cause) == "weak_type"


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
