"""Copies of the code that JAX runs on a miss."""

import functools
import sys
from typing import Any

import jax

from jaxmon.agent.jaxlink import jit as codes
from jaxmon.agent.jaxlink.frames import is_call


ORIGINAL: Any = jax._src.pjit._cpp_pjit


def test_the_closure_is_that_of_the_function_inside() -> None:
    """Decorators are taken off first."""
    inside, outside = 1, 2

    def function() -> int:
        return inside

    @functools.wraps(function)
    def wrapper() -> int:
        return outside

    assert codes.closure(wrapper) == {"inside": 1}
    assert codes.closure(codes.closure) == {}


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
