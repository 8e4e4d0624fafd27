"""What calls compute, against counts of calls and FLOPs worked out by hand."""

import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent.agent import runtime_of
from jaxmon.agent.flops.part import UtilizationPart
from jaxmon.agent.flops.roofline import DevicePeak
from jaxmon.agent.jaxlink import flops as counting
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import read
from jaxmon.screens.tables import flops as section
from tests.helpers import inside
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT, until


pytestmark = pytest.mark.ground_truth

SHARDED = ROOT / "tests" / "programs" / "sharded.py"
SIZE, LAYERS, PEAK = 16, 5, 1e9
ONE = 2 * SIZE**3


def ones(*shape: int) -> Any:
    return jnp.ones(shape)


def scanned(x: Any, layers: Any) -> Any:
    return jax.lax.scan(lambda x, layer: (jnp.tanh(x @ layer), None), x, layers)[0]


def converging(x: Any) -> Any:
    return jax.lax.while_loop(lambda x: x.sum() < 1e3, lambda x: x @ x + x, x)


def batched(x: Any) -> Any:
    return x @ x.T


def doubled(x: Any) -> Any:
    return x + x


def label(name: str) -> str:
    return f"{__name__}.{name}"


def counted(agent: Any, name: str, work: str = "model") -> float:
    return value(agent, "jaxmon_flops_total", function=label(name), work=work)


def known(agent: Any, name: str) -> None:
    """Wait until the program of the function is analysed."""
    function = label(name)
    until(lambda: value(agent, "jaxmon_programs_total", function=function), name)
    until(
        lambda: any(
            f'function="{function}"' in one and "flops" in one.partition("{")[0]
            for one in samples(agent)
            if not one.startswith("jaxmon_program_flops")
        ),
        name,
    )


def function_of(agent: Any, name: str) -> FunctionFact:
    runtime = runtime_of(agent)
    assert runtime is not None
    found = read(runtime.overview.whole())
    (one,) = [one for one in found.functions if one.name == label(name)]
    return one


def test_every_call_counts() -> None:
    """
    Calls times the FLOPs of a scan's layers, whatever stays on the fast path, and the
    time that all devices of the process take for it at their peak.
    """
    with instrumented(peak_flops=PEAK, peak_bandwidth=1e8) as agent:
        fun = jax.jit(scanned)
        x, layers = ones(SIZE, SIZE), ones(LAYERS, SIZE, SIZE)
        for _ in range(11):
            fun(x, layers)
        known(agent, "scanned")

        assert counted(agent, "scanned") == 11 * LAYERS * ONE
        devices = len(jax.local_devices())
        ideal = value(agent, "jaxmon_ideal_seconds_total", function=label("scanned"))
        assert ideal == pytest.approx(11 * LAYERS * ONE / PEAK / devices)
        assert value(agent, "jaxmon_device_peak_flops", format="any") == PEAK
        program = value(agent, "jaxmon_program_matrix_flops", function=label("scanned"))
        assert program == LAYERS * ONE
        # Each trip reads a layer, at least, and writes what comes out.
        place = function_of(agent, "scanned").flops.roofline
        assert place is not None
        assert place.ridge == pytest.approx(10)
        assert LAYERS * ONE / place.intensity >= LAYERS * 8 * SIZE**2
        assert LAYERS * ONE / place.intensity <= LAYERS * 60 * SIZE**2
        # XLA's own estimate has the loop once.
        once = value(agent, "jaxmon_program_flops", function=label("scanned"))
        assert once < 2 * ONE


def test_a_loop_of_unknown_length_is_said_and_not_counted() -> None:
    """No number is better than a lower bound; the reason has a line."""
    with instrumented(peak_flops=PEAK) as agent:
        jax.jit(converging)(ones(SIZE, SIZE))
        known(agent, "converging")

        names = [one for one in samples(agent) if label("converging") in one]
        absent = "jaxmon_flops_total", "jaxmon_ideal_seconds", "_matrix_flops"
        assert [one for one in names if any(name in one for name in absent)] == []
        unknown = value(
            agent,
            "jaxmon_flops_unknown",
            function=label("converging"),
            reason="loop",
        )
        assert unknown == 1
        runtime = runtime_of(agent)
        assert runtime is not None
        (text,) = section(read(runtime.overview.whole())).below
        assert "while loop whose number of trips is unknown" in text
        assert "test_utilization.py:" in text


def scaled(x: Any) -> Any:
    return (2 * x).sum()


def test_calls_that_nothing_counts_are_unknown() -> None:
    """JAX calls some programs outside of jit; what has nothing to count has 0."""

    def fresh(number: int) -> Any:
        def square(x: Any) -> Any:
            return (x @ x).sum()

        square.__qualname__ = square.__name__ = f"of{number}"
        return jax.jit(square)

    x = ones(SIZE, SIZE)
    with instrumented(peak_flops=PEAK) as agent:
        mapped, slope, forward, both, ahead = map(fresh, range(5))
        jax.vmap(mapped)(ones(2, SIZE, SIZE))
        jax.grad(slope)(x)
        jax.jvp(forward, (x,), (x,))
        both(x)
        jax.vmap(both)(ones(2, SIZE, SIZE))
        ahead.lower(x).compile()(x)
        jax.jit(scaled)(x)
        for number in range(5):
            known(agent, f"of{number}")
            function = label(f"of{number}")
            reason = {"function": function, "reason": "uncounted"}
            assert value(agent, "jaxmon_flops_unknown", **reason) == 1, number
            assert not any(
                one.startswith("jaxmon_flops_total{") and function in one
                for one in samples(agent)
            )
        known(agent, "scaled")
        page = samples(agent)
        for name in ("flops_total", "program_matrix_flops"):
            assert [
                flops
                for one, flops in page.items()
                if one.startswith(f"jaxmon_{name}{{") and label("scaled") in one
            ] == [0]
        assert value(agent, "jaxmon_flops_unknown", function=label("scaled")) == 0


def test_functions_jitted_earlier_are_not_counted() -> None:
    """Their cached calls are seen by nothing; that is said of those that multiply."""
    fun, other = jax.jit(batched), jax.jit(doubled)
    with instrumented() as agent:
        other(ones(SIZE, SIZE))
        fun(ones(SIZE, SIZE))
        known(agent, "batched")
        assert value(agent, "jaxmon_flops_unknown", function=label("doubled")) == 0
        reason = {"function": label("batched"), "reason": "uncounted"}
        assert value(agent, "jaxmon_flops_unknown", **reason) == 1


def test_batches_of_several_sizes() -> None:
    """With a second program, a sampled call stands for those since the last."""
    with instrumented(sample_rate=100) as agent:
        fun = jax.jit(batched)
        small, large = ones(2, SIZE), ones(8, SIZE)
        for _ in range(9):
            fun(small)
        fun(large)
        known(agent, "batched")
        small_flops, large_flops = 2 * 2 * 2 * SIZE, 2 * 8 * 8 * SIZE
        until(
            lambda: counted(agent, "batched") == 9 * small_flops,
            "the calls before the second program",
        )
        calls = 0

        def moved() -> bool:
            nonlocal calls
            for _ in range(50):
                fun(large)
                calls += 1
            return counted(agent, "batched") >= 9 * small_flops + 100 * large_flops

        until(moved, "samples")
        # The call that compiled is among them; the latest ones wait for a sample.
        extra = counted(agent, "batched") - 9 * small_flops
        assert extra % large_flops == 0
        assert 100 <= extra / large_flops <= calls + 1


def test_a_format_without_a_peak_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The utilization of the process would be too low without this function."""
    with instrumented() as agent:
        runtime = runtime_of(agent)
        part = None if runtime is None else runtime.part(UtilizationPart)
        assert part is not None
        peak = DevicePeak("a device", {"bf16": 1e12})
        monkeypatch.setattr(part, "_peak_of", lambda _: peak)
        jax.jit(batched)(ones(SIZE + 1, SIZE))  # not compiled before
        known(agent, "batched")

        reason = {"function": label("batched"), "reason": "format"}
        assert value(agent, "jaxmon_flops_unknown", **reason) == 1
        assert counted(agent, "batched") == 0
        found = part.ideal_seconds()
        assert found == (0.0, 1)


@pytest.mark.contained
def test_a_failure_leaves_the_rest_of_the_program(monkeypatch):
    """What XLA says of it is exported all the same."""

    def fails(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(counting, "count", fails)
    with instrumented() as agent:
        jax.jit(batched)(ones(SIZE + 2, SIZE))
        known(agent, "batched")

        reason = {"function": label("batched"), "reason": "untraced"}
        assert value(agent, "jaxmon_flops_unknown", **reason) == 1
        assert value(agent, "jaxmon_internal_errors_total", site="flops") == 1
        assert value(agent, "jaxmon_program_flops", function=label("batched")) > 0


def test_a_program_on_several_devices() -> None:
    """What all devices compute counts once, and at the peak they share it."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    found = run_preloaded(str(SHARDED), env=flags)
    assert found.code == 0, found.err
    values = json.loads(found.out.splitlines()[-1])

    spread, alone = 4 * 2 * 64 * 32 * 16, 4 * 2 * 16**3
    for name, flops in (("spread", spread), ("alone", alone)):
        labels = f'{{function="__main__.{name}",work="model"}}'
        assert values[f"jaxmon_flops_total{labels}"] == flops
        # All eight devices would share it, also if only one did.
        ideal = values[f"jaxmon_ideal_seconds_total{labels}"]
        assert ideal == pytest.approx(flops / 1e9 / 8)
        assert values[f"jaxmon_program_matrix_flops{labels}"] == flops / 4


@pytest.mark.optimised
def test_what_a_function_achieves() -> None:
    """FLOPs over sampled execution times, its part of the peak, and what bounds it."""
    size = 1024
    with instrumented(sample_rate=50, peak_flops=1e15, peak_bandwidth=1e6) as agent:
        fun = jax.jit(batched)
        x = ones(size, size)

        fun(x)
        known(agent, "batched")

        def achieved() -> float | None:
            for _ in range(5):
                fun(x).block_until_ready()
            return function_of(agent, "batched").flops.achieved

        until(achieved, "sampled executions")
        sampling = inside.sampling(agent)
        sampling.stop()
        ((of_it, figures),) = [
            (one, of)
            for one, of in sampling._figures.items()
            if one.name == label("batched")
        ]
        slowest = max(figures.executions.latest)
        # A delayed sample, which does not stand for all calls.
        figures.executed(1e6)
        for notify in inside.observers(agent).executed:
            notify(of_it, (), 1e6)
        found = function_of(agent, "batched")
        assert 0 < found.device_seconds <= slowest * (found.calls or 0)
        seconds = found.samples.execution_mean or 0.0
        flops = 2 * size**3
        assert found.flops.achieved == pytest.approx(flops / seconds, rel=0.01)
        devices = len(jax.local_devices())
        assert devices == 1
        assert found.flops.of_peak == pytest.approx(flops / seconds / 1e15, rel=0.01)
        place = found.flops.roofline
        assert place is not None
        # One array, which is both operands, and the result. Early XLA counts it twice.
        arrays = 3 if jax.__version_info__ < (0, 9) else 2
        assert place.intensity == pytest.approx(flops / (arrays * 4 * size**2))
        assert place.ridge == pytest.approx(1e15 / 1e6)
        ((name, *cells),) = section(
            read({"functions": {found.name: _raw(agent, found.name)}})
        ).rows
        assert name == found.name
        assert cells[0] == "2.15 G"
        assert cells[-1] == "memory"


def _raw(agent: Any, name: str) -> Any:
    runtime = runtime_of(agent)
    assert runtime is not None
    return runtime.overview.whole()["functions"][name]


def test_trackers_get_it_without_a_statement() -> None:
    """Between two rows: FLOPs by hand, at the peak, over the time between."""
    import jaxmon

    every, rows = 5, dict[int, dict[str, Any]]()
    with instrumented(peak_flops=PEAK) as agent:
        fun = jax.jit(scanned)
        x, layers = ones(2 * SIZE, SIZE), ones(LAYERS, SIZE, SIZE)
        fun(x, layers)
        known(agent, "scanned")
        # The findings at the end have the number of the last row.
        jaxmon.log_to(lambda row, step: rows.setdefault(step, row), every=every)
        began, ended = [0.0], [0.0]
        for _ in jaxmon.steps(range(2 * every + 1)):
            began.append(time.perf_counter())
            fun(x, layers).block_until_ready()
            ended.append(time.perf_counter())
        until(lambda: 2 * every in rows, "the second row")
        devices = len(jax.local_devices())

    assert "jaxmon/mfu" not in rows[every]  # the first has nothing before it
    ideal = every * LAYERS * 2 * ONE / PEAK / devices
    # A row is taken after the body of its step, and before the next one.
    longest = began[2 * every + 1] - ended[every]
    shortest = ended[2 * every] - began[every + 1]
    assert ideal / longest <= rows[2 * every]["jaxmon/mfu"] <= ideal / shortest
