"""What a thread does, from the functions on its stack."""

from __future__ import annotations

import sys

import jax
import pytest
from jax._src import pjit
from jax._src.interpreters import pxla

from jaxmon.agent.jaxlink.activity import ActivityReader
from jaxmon.agent.jaxlink.call_sites import DEVICE, EAGER, CallSites
from jaxmon.agent.jaxlink.other_threads import Position


def called(sites: CallSites, state: str) -> Position:
    """Return where the caller is, which calls a jitted function there."""
    frame = sys._getframe(1)
    sites.add(frame, state, "__main__.step")
    return Position(frame.f_code, frame.f_lasti, globals())


@pytest.mark.parametrize(
    ("state", "expected"), [(DEVICE, "__main__.step"), (EAGER, "")]
)
def test_what_runs_for_the_first_time_has_a_name(state: str, expected: str) -> None:
    """A program just compiled is run from Python, but by the call of its function."""
    sites = CallSites()
    caller = called(sites, state)
    run = pxla.ExecuteReplicated.__call__
    of_jax = [getattr(run, "__wrapped__", run), pjit._pjit_call_impl_python]
    stack = [*(Position(one.__code__, 0, {}) for one in of_jax), caller]

    found = ActivityReader(jax, sites).read(stack)

    assert (found.state, found.function) == (DEVICE, expected)
    assert found.line.function == caller.code.co_name
