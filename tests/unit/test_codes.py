"""Copies of the code that JAX runs on a miss."""

import functools
import sys
from typing import Any

import jax

from jaxmon.agent.jaxlink import jit as codes
from jaxmon.agent.jaxlink.frames import is_call


ORIGINAL: Any = jax._src.pjit._cpp_pjit


def test_a_copy_is_what_the_original_is_but_for_that_code() -> None:
    """Only the code that a miss runs is another object, equal to JAX's."""
    before = codes.missing(ORIGINAL)
    assert before is not None
    after = before.replace()
    copy: Any = codes.with_code(ORIGINAL, before, after)

    assert after == before
    assert codes.missing(copy) is after
    assert codes.missing(ORIGINAL) is before
    for name in ("__name__", "__globals__", "__closure__", "__defaults__"):
        assert getattr(copy, name) is getattr(ORIGINAL, name)
    assert copy.__kwdefaults__ == ORIGINAL.__kwdefaults__


def test_what_has_no_such_code_is_told() -> None:
    """A foreign wrapper, and what is not a Python function, have none."""

    @functools.wraps(ORIGINAL)
    def wrapper(*args: Any) -> Any:
        return ORIGINAL(*args)

    assert codes.missing(wrapper) is None
    assert codes.missing(len) is None


def test_the_closure_is_that_of_the_function_inside() -> None:
    """Decorators are taken off first."""
    inside, outside = 1, 2

    def function() -> int:
        return inside

    @functools.wraps(function)
    def wrapper() -> int:
        return outside

    assert codes.closure(wrapper) == {"inside": 1}
    assert codes.closure(test_what_has_no_such_code_is_told) == {}


def test_a_call_is_known_by_its_file() -> None:
    """A function of the same name in another file of JAX, or the user's, is no call."""

    def seen(file: str) -> bool:
        source = "def cache_miss():\n    return sys._getframe()\nframe = cache_miss()"
        variables: dict[str, Any] = {"sys": sys}
        exec(compile(source, file, "exec"), variables)  # noqa: S102 - of a file's name
        return is_call(variables["frame"])

    assert seen("/x/jax/_src/pjit.py")
    assert seen("/x/jax/_src/api.py")
    assert not seen("/x/jax/_src/util.py")
    assert not seen("/x/pjit.py")
