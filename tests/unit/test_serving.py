"""Which call JAX serves while it traces, lowers and compiles."""

from typing import Any

from jaxmon.agent.jaxlink.frames import CurrentCall


def known(_: int) -> str:
    """
    Know a call for every id, as if all its frames were gone and had been this one.
    """
    return "a call"


def cache_miss(serving: CurrentCall[str]) -> Any:
    """Have a function of the user's the name of JAX's."""
    return serving.now("compile")


def test_no_frame_but_one_of_jax_serves_a_call() -> None:
    """Whatever id or name it has, whether the stack is walked or looked at."""
    serving = CurrentCall(known)

    assert serving.now("compile") is None
    assert cache_miss(serving) is None
    serving._steps["compile"] = 0
    assert serving.now("compile") is None
