"""
Transfers between host and device: counted, measured, attributed, and never in the way.
"""

import inspect
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent.checks import numerics
from jaxmon.agent.checks import results as leaves
from jaxmon.agent.context import Sample
from jaxmon.agent.jaxlink import call_sites, transfer_hooks
from tests.helpers import inside, processes
from tests.helpers.agents import at_once, instrumented, samples, value
from tests.helpers.preloaded import run_preloaded


PROGRAM = processes.ROOT / "tests" / "programs" / "known_transfers.py"
FOUR_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

COUNT = "jaxmon_host_transfers_total"
BYTES = "jaxmon_host_transfer_bytes_total"
SECONDS = "jaxmon_host_transfer_seconds_total"
SYNCS = "jaxmon_host_syncs_total"
SYNC_SECONDS = "jaxmon_host_sync_seconds_total"
READ = {"direction": "device_to_host"}
SENT = {"direction": "host_to_device"}

double = jax.jit(lambda x: x * 2)


@pytest.fixture(scope="module")
def books() -> dict[str, Any]:
    """Return what the program of known transfers did, beside what the agent saw."""
    found: dict[str, Any] = run_preloaded(str(PROGRAM), env=FOUR_DEVICES).json()
    return found


@pytest.mark.ground_truth
def test_each_kind_of_transfer_is_counted_with_its_bytes(books: dict[str, Any]) -> None:
    """Count and bytes of every case equal what the program knows that it moved."""
    cases = books["cases"]

    assert len(cases) > 35
    assert {name: case["seen"] for name, case in cases.items()} == {
        name: case["made"] for name, case in cases.items()
    }


@pytest.mark.ground_truth
def test_lines_add_up_to_the_totals(books: dict[str, Any]) -> None:
    """The line of the loop has its own statistics, and is reported once."""
    text = PROGRAM.read_text().splitlines()
    number = 1 + next(i for i, line in enumerate(text) if '"a loop"' in line)
    [line] = [line for line in books["lines"] if line["line"] == number]
    [event] = [one for one in books["events"] if one[1]["line"] == number]

    assert line["file"].endswith(PROGRAM.name)
    assert (line["direction"], line["how"]) == ("device_to_host", "float")
    assert (line["count"], line["bytes"]) == (250, 1000)
    assert line["seconds"] > 0
    assert event[1]["count"] == 100
    assert f"{PROGRAM.name}:{number} reads from the device repeatedly" in event[0]


WAITING = """
import json, jax, jax.numpy as jnp, jaxmon
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: jnp.sin(y @ y), x))
slow(jnp.ones((100, 100))).block_until_ready()
agent = jaxmon.instrument(port=None, socket=False, memory_interval=0)
slow(jnp.ones((100, 100))).tolist()
slow(jnp.ones((100, 100))).block_until_ready()
print(json.dumps({s: v for family in agent.collect() for s, v in family.samples}))
"""


def test_waiting_for_a_result_counts_as_blocked() -> None:
    """Seconds hold the time until the result was there, in reads and in waits."""
    # In a process of its own: JAX 0.6 waits in each call once a callback has failed.
    page = run_preloaded("-c", WAITING).json()

    assert page[f'{SECONDS}{{direction="device_to_host"}}'] > 0.001
    assert page[SYNC_SECONDS] > 0.001
    assert page[SYNCS] == 1


@pytest.mark.ground_truth
def test_transfers_that_pass_unobserved_are_counted() -> None:
    """Loops of two threads in which few are observed: number and bytes are exact."""
    sent, read = np.ones(100, np.float32), double(np.ones(4, np.float32))
    with instrumented() as agent:
        times = 4_000

        def send_and_read() -> None:
            for _ in range(times):
                jax.device_put(sent)
                read.tolist()

        at_once(*[send_and_read] * 2)
        page = samples(agent)

        reads = page[f'{COUNT}{{direction="device_to_host"}}']
        assert page[f'{COUNT}{{direction="host_to_device"}}'] == 2 * times
        assert page[f'{BYTES}{{direction="host_to_device"}}'] == 2 * times * 400
        # Up to 0.4, JAX keeps what it has read.
        assert reads in {1, 2, 2 * times}
        assert page[f'{BYTES}{{direction="device_to_host"}}'] == 16 * reads


def test_counters_start_at_zero() -> None:
    """Every series is there before the first transfer."""
    with instrumented() as agent:
        page = samples(agent)

        for name in (COUNT, BYTES, SECONDS):
            for direction in ("device_to_host", "host_to_device"):
                assert page[f'{name}{{direction="{direction}"}}'] == 0
        assert page[SYNCS] == page[SYNC_SECONDS] == 0
        assert page['jaxmon_hook_active{hook="transfers"}'] == 1


def test_nothing_of_ours_stands_on_the_stack() -> None:
    """An error of a read or wait leaves through frames of JAX and the user."""
    with instrumented():
        gone = double(1.0)
        gone.delete()
        for use in (float, lambda x: x.block_until_ready(), np.asarray, repr):
            with pytest.raises(RuntimeError) as caught:
                use(gone)
            frames = traceback.extract_tb(caught.value.__traceback__)
            assert not [f for f in frames if "jaxmon/agent" in f.filename]


@pytest.mark.contained
def test_a_failure_of_ours_leaves_the_transfer_alone() -> None:
    """An observer that raises costs the figure, not the value."""
    with instrumented() as agent:
        found = inside.transfers(agent)._crossings
        assert found is not None
        found._origins.of = lambda *_, **__: 1 / 0  # type: ignore[assignment, method-assign]

        assert float(double(2.0)) == 4
        assert jax.device_put(np.ones(3)).shape == (3,)
        assert double(2.0).block_until_ready() == 4
        assert value(agent, "jaxmon_internal_errors_total", site="transfers") >= 3


def test_methods_look_as_without_us() -> None:
    """A look-up on the class, a bound method's name and its signature are JAX's."""
    name = double(1.0).block_until_ready.__name__
    unbound = jax.Array.__class__, type(double(1.0)).block_until_ready
    with instrumented():
        array = double(1.0)

        assert array.block_until_ready.__name__ == name
        assert (jax.Array.__class__, type(array).block_until_ready) == unbound
        assert callable(array.block_until_ready)
        assert type(array).block_until_ready(array) is array


def test_switched_off_nothing_is_replaced() -> None:
    """With ``transfers=False`` JAX's array class stays, and there is no series."""
    array_class = type(double(1.0))
    before = dict(vars(array_class))
    with instrumented(transfers=False) as agent:
        now = vars(array_class)
        replaced = {
            name for name in {*before, *now} if now.get(name) != before.get(name)
        }
        assert not replaced
        assert not [name for name in samples(agent) if "host_transfer" in name]
        assert 'jaxmon_hook_active{hook="transfers"}' not in samples(agent)


@pytest.mark.parametrize("module", [transfer_hooks, leaves, numerics])
def test_our_own_reading_is_not_the_programs(module: ModuleType) -> None:
    """What the agent reads, on its own threads or in a check, is not counted."""
    with instrumented() as agent:
        code = compile("float(x)", str(module.__file__), "eval")
        array = double(1.0)
        eval(code, {"x": array})  # noqa: S307 - ours
        assert value(agent, COUNT, **READ) == 0
        float(double(1.0))
        assert value(agent, COUNT, **READ) == 1


def test_below_a_mark_of_jaxmon_the_line_is_the_programs() -> None:
    """A decorator of ours stands between the program and what it decorates."""
    with instrumented() as agent:
        array = double(1.0)
        jaxmon.activity("reading")(array.tolist)()
        [line] = inside.transfers(agent).snapshot().lines

    assert line.file.endswith("test_transfers.py")


def test_numpy_arguments_are_told_of_where_a_call_is_sampled() -> None:
    """JAX converts them uncounted; a sampled call shows them, once."""
    large, small = np.ones(1 << 16, np.float32), np.ones(3)
    with instrumented(sample_rate=0) as agent:
        function = inside.table(agent).named("f")
        for args in ((small,), (large, small), (large, large)):
            for observe in inside.observers(agent).sample:
                observe(Sample(function, double, args, {}, None))
        [event] = inside.events(agent).since(kind="transfer")

        assert inside.transfers(agent).snapshot().arguments == {"f": 262_168}
        assert value(agent, COUNT) == 0
    assert event.function == "f"
    assert "each call transfers 262,168 bytes to the device" in event.message


def test_sites_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that makes code again and again is counted without its lines."""
    monkeypatch.setattr(call_sites, "MAX_SITES", 5)
    with instrumented() as agent:
        for number in range(20):
            code = compile("float(x)", f"<made {number}>", "eval")
            eval(code, {"x": double(1.0)})  # noqa: S307 - ours
        found = inside.transfers(agent).snapshot()

        assert value(agent, COUNT, **READ) == 20
        assert len(found.lines) == 6
        assert sum(line.count for line in found.lines) == 20


def steps(report: Any, x: Any) -> Any:
    def body(_, x: Any) -> Any:
        jax.debug.callback(report, x[0])  # the callback
        return x * 0.5

    return jax.lax.fori_loop(0, 200, body, x)


def test_calls_of_python_by_programs_are_counted(tmp_path: Path) -> None:
    """
    With their line and time, by the clock of what is called, and as long as the program
    runs; so are starts and stops of profiles.
    """
    spent: list[float] = []

    def report(x: Any) -> None:
        began = time.perf_counter()
        float(x)
        spent.append(time.perf_counter() - began)

    with instrumented() as agent:
        run = jax.jit(lambda x: steps(report, x))
        for _ in range(2):
            run(np.ones(3, np.float32)).block_until_ready()
            jax.effects_barrier()
        with jax.profiler.trace(tmp_path):  # the profile
            double(1.0).block_until_ready()
        found = inside.transfers(agent).snapshot()
    run(np.ones(3, np.float32)).block_until_ready()
    jax.effects_barrier()
    assert inside.transfers(agent).snapshot().callbacks == found.callbacks

    [callback], [profile] = found.callbacks, found.profiles
    line = steps.__code__.co_firstlineno + 2
    assert callback.place.endswith(f"test_transfers.py:{line}")
    assert callback.count == 400
    assert callback.seconds >= sum(spent[:400])
    assert len(spent) == 600
    assert profile.place.endswith("test_transfers.py:" + str(profile_line()))
    assert profile.count == 2
    assert profile.seconds > 0


def test_a_callback_that_vmap_makes_sequential_has_its_line() -> None:
    """In the loop that JAX makes for it, nothing has a line of the program's."""

    def doubled(x: Any) -> Any:
        return jax.pure_callback(lambda x: x * 2, x, x, vmap_method="sequential")

    with instrumented() as agent:
        run = jax.jit(jax.vmap(doubled))
        assert list(run(np.ones(3, np.float32))) == [2, 2, 2]
        [callback] = inside.transfers(agent).snapshot().callbacks

    line = doubled.__code__.co_firstlineno + 1
    assert callback.place.endswith(f"test_transfers.py:{line}")
    assert callback.count == 3


def profile_line() -> int:
    test = test_calls_of_python_by_programs_are_counted
    lines, first = inspect.getsourcelines(test)
    return first + next(n for n, line in enumerate(lines) if "# the profile" in line)


# What asks arrays looks often, while the program reads what a callback computes.
READS_WHAT_A_CALLBACK_MAKES = """
import time
import jax, jax.numpy as jnp, jaxmon
jaxmon.instrument(
    port=0, socket=False, memory_interval=0.1, memory_lines_interval=0.1,
    time_interval=0.02, sample_rate=100,
)
@jax.jit
def told(x):
    jax.debug.callback(lambda total: time.sleep(0.05), x.sum())
    return x + 1
x = jnp.ones((300, 300))
for _ in range(60):
    jaxmon.log_values({"made": jnp.sum(y := told(x @ x))})
    float(y[0, 0])
print(jax.__version_info__ < (0, 6))
"""


@pytest.mark.ground_truth
def test_a_program_ends_that_reads_what_a_callback_makes() -> None:
    """Up to JAX 0.5 it would wait forever for what asks about the array meanwhile."""
    ran = run_preloaded("-c", READS_WHAT_A_CALLBACK_MAKES, seconds=60).ok()

    assert ran.out.strip() == str("jaxmon has disabled" in ran.err)


def test_arrays_that_change_with_32_bits_and_those_given_again() -> None:
    """Timestamps and large integers, beside what survives; the same array each time."""
    rng = np.random.default_rng(0)
    times = 1.7e9 + np.cumsum(rng.exponential(20.0, 4096))
    rounded = np.where(np.arange(4096) % 2, 0.1 + 0.2, 0.3)
    large, other = np.ones(1 << 16, np.float32), np.ones(1 << 16, np.float32)
    with instrumented(sample_rate=0) as agent:
        jnp.asarray(times), jnp.asarray(times - times[0]), jnp.asarray(rounded)
        jnp.asarray(np.arange(9) + (1 << 40)), jnp.asarray(np.arange(9))
        jnp.asarray(times, jnp.float32)
        jax.device_put({"times": times, "from": times - times[0]})
        for name, given in (("same", [large] * 4), ("refilled", [other] * 4)):
            function = inside.table(agent).named(name)
            for array in given:
                other += 1
                for observe in inside.observers(agent).sample:
                    observe(Sample(function, double, (array, times), {}, None))
        found = inside.transfers(agent).snapshot()

    assert [(loss.function, loss.dtype, loss.asked) for loss in found.narrowed] == [
        ("", "float64", False),
        ("", "int64", False),
        ("", "float64", True),
        ("", "float64", False),
        ("same", "float64", False),
        ("refilled", "float64", False),
    ]
    assert found.narrowed[0].share > 0.5
    assert found.narrowed[0].spacing == np.spacing(np.float32(1.7e9)) == 128.0
    assert found.narrowed[1].share == 1.0
    assert found.same == {"same": large.nbytes}
