"""Runs of programs that mark no steps."""

import jax
import pytest

from jaxmon.agent.agent import runtime_of
from jaxmon.agent.goodput import part
from jaxmon.agent.goodput.part import RunGoodput
from jaxmon.clocks import monotonic
from tests.helpers.agents import instrumented
from tests.helpers.processes import until


@pytest.mark.parametrize(
    ("calls", "later", "works"),
    [(12, 0.0, False), (12, 130.0, True), (5, 130.0, False), (120, 0.0, True)],
)
def test_a_program_that_calls_again_and_again_is_at_work(
    calls, later, works, tmp_path, monkeypatch
):
    """After a hundred calls, or ten in two minutes: steps may take half a minute."""
    with instrumented(run="train", run_state=tmp_path, run_interval=3600.0) as agent:
        jitted = jax.jit(lambda x: x + 1)
        jitted(1.0)
        runtime = runtime_of(agent)
        assert runtime is not None
        goodput = runtime.part(RunGoodput)
        assert goodput is not None
        until(lambda: goodput.describe().run, "a record")
        for _ in range(calls - 1):
            jitted(1.0)
        goodput.describe()
        monkeypatch.setattr(part, "monotonic", lambda: monotonic() + later)
        before = goodput.describe().seconds
        after = until(
            lambda: [
                found
                for found in [goodput.describe().seconds]
                if sum(found.values()) > sum(before.values()) + 0.2
            ],
            "some time",
        )[0]
    grown = max(after, key=lambda one: after[one] - before.get(one, 0.0))
    assert grown == ("unknown" if works else "startup")
