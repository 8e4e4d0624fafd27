"""Budgets: what counts, what is said when more was spent, and what is left behind."""

import gc
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent.agent import running
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from tests.helpers import inside
from tests.helpers.agents import value
from tests.helpers.processes import run_python


pytestmark = pytest.mark.ground_truth


@pytest.fixture
def double() -> Any:
    def doubled(x: Any) -> Any:
        return x * 2

    return jax.jit(doubled)


@pytest.fixture
def agent() -> Iterator[jaxmon.Agent]:
    """Return an agent that runs before any budget does."""
    yield jaxmon.instrument(port=None, socket=False, memory_lines_interval=0)
    jaxmon.uninstrument()


def ones(length: int) -> Any:
    """Return an argument that no compile of JAX's own is needed for."""
    return np.ones(length, np.float32)


def test_what_was_there_is_looked_for_once(double, monkeypatch):
    """A look at every object takes long; an agent remembers which were compiled."""
    double(ones(3))
    looks: list[int] = []
    all_objects = gc.get_objects

    def look() -> list[Any]:
        looks.append(1)
        return all_objects()

    monkeypatch.setattr(gc, "get_objects", look)
    jaxmon.instrument(port=None, socket=False, memory_lines_interval=0)
    try:
        with jaxmon.budget(recompiles=0):
            pass
        with jaxmon.budget(recompiles=1) as spent:
            double(ones(4))
    finally:
        jaxmon.uninstrument()
    assert (spent.recompiles, looks) == (1, [1])


def test_what_is_allowed_may_be_spent(double: Any) -> None:
    """As many compiles as allowed pass, and the result has their number."""
    with jaxmon.budget(compiles=2, recompiles=1) as spent:
        double(ones(3))
        double(ones(3))
        double(ones(4))
    assert (spent.compiles, spent.recompiles) == (2, 1)
    assert spent.seconds > 0
    assert (spent.transfers, spent.live_bytes_growth) == (None, None)
    assert "doubled: 2 in" in str(spent)
    assert running() is None


def test_more_compiles_than_allowed_fail(double: Any) -> None:
    """One compile too many raises, naming the function; so does a recompile's cause."""
    with pytest.raises(jaxmon.BudgetExceeded) as caught, jaxmon.budget(compiles=1):
        _ = double(ones(3)), double(ones(4))
    message = str(caught.value)
    assert message.startswith("compiles: 2 (allowed: 1)\nrecompiles:\n")
    assert "doubled: shape 1" in message
    assert re.search(r"doubled: 2 in \d+\.\d", message)
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, jaxmon.JaxmonError)
    assert running() is None


def test_recompile_of_a_warm_function_is_noticed(double: Any) -> None:
    """A recompile of what was compiled before any agent ran counts; a hit does not."""
    double(ones(3))
    with jaxmon.budget(recompiles=0, compiles=0):
        double(ones(3))
    with pytest.raises(jaxmon.BudgetExceeded) as caught, jaxmon.budget(recompiles=0):
        double(ones(4))
    assert "recompiles: 1 (allowed: 0)" in str(caught.value)
    assert "was compiled before jaxmon started" in str(caught.value)


def loss(x: Any) -> Any:
    return (x * x).sum()


def test_several_functions_are_no_recompiles() -> None:
    """A loss and its gradient, and models with the same code, are one compile each."""

    class Model:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def apply(self, x: Any) -> Any:
            return x * self.factor

    jax.jit(loss)(ones(3))
    with jaxmon.budget(recompiles=0) as spent:
        jax.jit(jax.grad(loss))(ones(3))
        models = [Model(factor) for factor in range(3)]
        for apply in [jax.jit(model.apply) for model in models]:
            apply(ones(3))
    assert spent.compiles == 4


def test_recompiles_under_a_transformation_are_noticed(agent: jaxmon.Agent) -> None:
    """A gradient outside of jit compiles twice a step: a finding with the line."""
    jitted = jax.jit(loss)

    def train() -> None:
        for size in range(1, 16):
            jax.grad(jitted)(jax.device_put(ones(size)))

    with pytest.raises(jaxmon.BudgetExceeded) as caught, jaxmon.budget(recompiles=0):
        train()

    assert "loss: shape 28" in str(caught.value)
    assert value(agent, "jaxmon_recompiles_total", cause="shape") == 28
    told = inside.events(agent).since(kind="recompile")
    assert len(told) == 28
    events = {"events": [one._asdict() for one in told]}
    findings = find(read(inside.overview(agent), events))
    (storm,) = [one for one in findings if one.topic == "recompile"]
    assert storm.seconds > 0
    assert all("test_budget.py:" in text for text in storm.evidence)
    assert "float32[14] → float32[15]" in storm.evidence[0]


def test_compile_ahead_of_time_is_no_recompile(double: Any) -> None:
    """``lower().compile()`` of a warm function counts as a compile only."""
    double(ones(3))
    with jaxmon.budget(recompiles=0) as spent:
        jax.jit(double).lower(ones(4)).compile()
    assert (spent.compiles, spent.recompiles) == (1, 0)


def test_running_agent_is_read_and_left(double: Any, agent: jaxmon.Agent) -> None:
    """With an agent that saw the first compile, the cause is known; it runs on."""
    double(ones(3))
    with pytest.raises(jaxmon.BudgetExceeded) as caught, jaxmon.budget(recompiles=0):
        double(ones(4))
    assert "doubled: shape 1" in str(caught.value)
    assert "argument x: float32[3] → float32[4]" in str(caught.value)
    assert running() is agent


def test_functions_of_jax_count_when_asked_for() -> None:
    """Operations outside of jit are compiled, and are not the user's functions."""
    with jaxmon.budget(compiles=0) as spent:
        jnp.cumsum(ones(17)).block_until_ready()
    assert spent.compiles == 0
    with (
        pytest.raises(jaxmon.BudgetExceeded, match=r"jax\._src\."),
        jaxmon.budget(compiles=0, internal=True),
    ):
        jnp.cumsum(ones(19)).block_until_ready()


@pytest.mark.parametrize("by", ["itself", "name", "label"])
def test_one_function_may_be_counted(double: Any, by: str) -> None:
    """A budget for one function, given or named, ignores the others."""
    label = f"{double.__module__}.{double.__qualname__}"
    wanted: Any = {"itself": double, "name": "doubled", "label": label}[by]
    other = jax.jit(lambda x: x + 1)
    with jaxmon.budget(compiles=0, function=wanted):
        other(ones(3))
    with (
        pytest.raises(jaxmon.BudgetExceeded),
        jaxmon.budget(compiles=0, function=wanted),
    ):
        double(ones(3))


def test_growth_of_live_arrays_fails() -> None:
    """Arrays that outlive the block count with all their bytes, and are described."""
    kept = []
    with jaxmon.budget(live_bytes_growth=0) as spent:
        jax.device_put(ones(1024)).block_until_ready()
    assert spent.live_bytes_growth == 0
    with (
        pytest.raises(jaxmon.BudgetExceeded) as caught,
        jaxmon.budget(live_bytes_growth=4095),
    ):
        kept.append(jax.device_put(ones(1024)))
    assert "live bytes growth: 4,096 (allowed: 4,095)" in str(caught.value)
    assert "float32[1024]: +1 array" in str(caught.value)
    assert "+4,096 bytes at " in str(caught.value)
    assert "test_budget.py:" in str(caught.value)
    with jaxmon.budget(live_bytes_growth=0) as spent:
        kept.clear()
    assert spent.live_bytes_growth == -4096


def test_arrays_in_a_cycle_are_no_growth() -> None:
    """What the garbage collector can free is not held against the block."""
    with jaxmon.budget(live_bytes_growth=0):
        cycle: list[Any] = [jax.device_put(ones(1024))]
        cycle.append(cycle)
        del cycle


def test_transfers_fail_with_their_lines(double: Any) -> None:
    """Transfers of either direction count, and the lines that made them are named."""
    array = jax.device_put(ones(3))
    double(array)
    with jaxmon.budget(transfers=0):
        result = double(array)
    with pytest.raises(jaxmon.BudgetExceeded) as caught, jaxmon.budget(transfers=1):
        _ = [float(result[0]) for _ in range(2)]
    message = str(caught.value)
    assert message.startswith("transfers: 2 (allowed: 1)\n")
    assert "device to host: 2" in message
    assert "test_budget.py:" in message
    with jaxmon.budget(transfers=5) as spent:
        jnp.asarray(ones(3))
    assert spent.transfers == 1


def test_transfers_that_nobody_counts_are_an_error() -> None:
    """An agent without that hook cannot keep such a budget, and others it can."""
    jaxmon.instrument(port=None, socket=False, transfers=False)
    try:
        with pytest.raises(jaxmon.JaxmonError, match="transfers=True"):  # noqa: SIM117
            with jaxmon.budget(transfers=0):
                pass
        with jaxmon.budget(compiles=0):
            pass
    finally:
        jaxmon.uninstrument()


def test_functions_without_a_label_are_an_error() -> None:
    """Beyond ``max_functions`` the user's functions look like those of JAX."""
    jaxmon.instrument(port=None, socket=False, max_functions=1)
    try:
        with (
            pytest.raises(jaxmon.JaxmonError, match="beyond max_functions"),
            jaxmon.budget(compiles=9),
        ):
            _ = [jax.jit(one)(ones(3)) for one in (jnp.sin, jnp.cos)]
        with jaxmon.budget(compiles=9, internal=True) as spent:
            jax.jit(jnp.tan)(ones(3))
        assert spent.compiles == 1
    finally:
        jaxmon.uninstrument()


def test_stopped_agent_is_an_error(agent: jaxmon.Agent) -> None:
    """The cost of a block whose agent was stopped meanwhile is unknown."""
    with (
        pytest.raises(jaxmon.JaxmonError, match="was stopped while a budget"),
        jaxmon.budget(compiles=0),
    ):
        jaxmon.uninstrument()


@pytest.mark.contained
def test_failure_of_a_hook_is_an_error(double, monkeypatch, agent):
    """A budget does not pass because jaxmon failed to count."""
    monkeypatch.setattr(inside.compiles(agent), "_settle", None)
    with (
        pytest.raises(jaxmon.JaxmonError, match="failed with JAX"),
        jaxmon.budget(compiles=0),
    ):
        double(ones(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compiles": -1}, "compiles=-1 is not a valid limit"),
        ({"recompiles": 1.5}, r"recompiles=1\.5 is not a valid limit"),
        ({"transfers": True}, "transfers=True is not a valid limit"),
        (
            {"live_bytes_growth": "1 MB"},
            "live_bytes_growth='1 MB' is not a valid limit",
        ),
        ({"function": 3}, "function=3 is not a function"),
        ({"function": ""}, "function='' is not a function"),
        ({"internal": 1}, "internal=1 is invalid"),
    ],
)
def test_limits_that_are_none_are_refused(options, message):
    """A mistake is reported where it was made, before the block begins."""
    with pytest.raises(jaxmon.SettingsError, match=message):
        jaxmon.budget(**options)
    assert jaxmon.budget(compiles=0, recompiles=None) is not None


def test_long_lists_are_cut() -> None:
    """A message stays readable, whatever the number of functions."""
    functions = []
    for number in range(13):
        scope: dict[str, Any] = {}
        exec(f"def step_{number}(x): return x + {number}", scope)  # noqa: S102 - names
        functions.append(jax.jit(scope[f"step_{number}"]))
    with pytest.raises(jaxmon.BudgetExceeded) as caught, jaxmon.budget(compiles=12):
        _ = [function(ones(3)) for function in functions]
    assert "... and 3 more functions" in str(caught.value)


def test_silent_agent_heeds_no_environment(double, monkeypatch):
    """A budget counts where the environment disables jaxmon."""
    monkeypatch.setenv("JAXMON_ENABLED", "false")
    monkeypatch.setenv("JAXMON_LEAK_WINDOW", "nonsense")
    with jaxmon.budget(compiles=5) as spent:
        double(ones(3))
    assert spent.compiles == 1


def test_naming_the_budget_loads_no_jax() -> None:
    """JAX is imported with the block."""
    code = (
        "import sys, jaxmon\n"
        "block = jaxmon.budget(compiles=0)\n"
        "assert 'jax' not in sys.modules\n"
        "with block as spent: assert 'jax' in sys.modules\n"
        "print(spent)\n"
    )
    assert run_python("-c", code).ok().out == "nothing\n"
