"""
Why a call had to compile a function again.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from jaxmon.agent.causes import Causes
from jaxmon.agent.stack import Jitted


@dataclass(frozen=True)
class Aval:
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    weak_type: bool = False


def jitted(fun: Any, source: str | None = "f at file.py:1") -> Jitted:
    return Jitted(fun, fun, source, call=True)


def test_the_first_compile_has_no_cause() -> None:
    """
    Two functions from two lines are both new, which is no recompile.
    """
    causes = Causes()

    assert causes.of(jitted(lambda: 1), (Aval(),)) is None
    assert causes.of(jitted(lambda: 2, "f at file.py:2"), (Aval(),)) is None


def test_another_shape_is_named() -> None:
    """
    Only a compile that differs in shapes alone from an earlier one says so.
    """
    causes, fun = Causes(), jitted(lambda: 1)
    causes.of(fun, (Aval((1,)), Aval()))

    assert causes.of(fun, (Aval((2,)), Aval())) == "shape"
    assert causes.of(fun, (Aval((2,), "int32"), Aval())) != "shape"
    assert causes.of(fun, (Aval((2,)), Aval())) != "shape"


def test_a_new_function_of_the_same_line_is_named() -> None:
    """
    A lambda made again, with the same arguments or others, is the cause.
    """
    causes = Causes()
    first, second = (lambda: 1), (lambda: 1)
    causes.of(jitted(first), (Aval(),))

    assert causes.of(jitted(second), (Aval((3,)),)) == "new_function"


def test_nothing_is_kept_of_a_function_that_is_gone() -> None:
    """
    Histories go with their functions; an unreferable one has none.
    """
    causes = Causes()
    for _ in range(100):
        causes.of(jitted(lambda: 1), (Aval(),))
    causes.of(jitted(3, "other"), (Aval(),))
    gc.collect()

    assert causes._seen == {}
    assert len(causes._sources) == 2
    assert causes.of(jitted(3, "other"), (Aval((2,)),)) == "unknown"
