"""Live bytes by line, growth and leaks, of programs that know what they hold."""

import gc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent.memory import leaks, lines
from jaxmon.agent.memory import profile as pprof
from jaxmon.facts.record import encoded
from tests.helpers import inside, processes
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import until


DEVICES = 4
FLAGS = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
HOLDERS = processes.ROOT / "tests" / "programs" / "holders.py"


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the program of twenty innocent lines noted, and the agent said."""
    path = tmp_path_factory.mktemp("holders") / "holding.py"
    return run_preloaded(str(HOLDERS), str(path), env=FLAGS).json()


@pytest.mark.ground_truth
def test_the_line_that_leaks_is_named_with_its_bytes(books: Any) -> None:
    """Of twenty-one lines the largest is the one that keeps everything, to the byte."""
    first = books["told"][0]

    assert (first["file"], first["line"]) == (books["file"], books["leak"])
    assert (first["kind"], first["function"]) == ("buffer", "leak")
    held = [first["bytes"], first["arrays"]]
    assert held == books["held"][str(books["leak"])]


@pytest.mark.ground_truth
def test_each_innocent_line_has_its_bytes(books: Any) -> None:
    """However an array came to be, and wherever its shards are."""
    told = {
        str(row["line"]): [row["bytes"], row["arrays"]]
        for row in books["told"]
        if row["kind"] == "buffer" and row["file"] == books["file"]
    }

    assert len(books["held"]) == 21
    assert {line: told.get(line) for line in books["held"]} == books["held"]


@pytest.mark.ground_truth
def test_growth_is_of_one_line(books: Any) -> None:
    """Between two moments only the line that leaks grew, by half of what it holds."""
    size, count = books["held"][str(books["leak"])]

    assert books["growth"] == [[books["leak"], size // 2, count // 2]]


@pytest.mark.ground_truth
def test_bytes_are_told_by_device(books: Any) -> None:
    """Shards count where they are, under the number that JAX gives the device."""
    assert sorted(books["devices"]) == [str(at) for at in range(DEVICES)]
    held = sum(size for size, _ in books["held"].values())
    constants = 64 * 200 * 4 + 8
    assert sum(books["devices"].values()) == held + constants
    others = {size for at, size in books["devices"].items() if at != "0"}
    assert len(others) == 1


KEPT: list[Any] = []


@pytest.mark.ground_truth
def test_what_a_young_program_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it grows, with the line, its bytes and the list; not before."""
    monkeypatch.setattr(leaks, "YOUNG_GROWTH", 1 << 20)
    monkeypatch.setattr(leaks, "YOUNG_SECONDS", 0.0)
    # The memory of the process of the tests may grow or not.
    monkeypatch.setattr(lines, "_YOUNG_BYTES", -(1 << 50))
    with instrumented(memory_lines_interval=3600) as agent:
        step, x = jax.jit(lambda x: x + 1), jnp.zeros(1 << 14)

        def found(*, keeps: bool) -> Any:
            for _ in range(20):
                y = step(x).block_until_ready()
                if keeps:
                    KEPT.append(y)  # kept
            return inside.allocations(agent).snapshot()

        began = until(lambda: found(keeps=False).time, "a snapshot")
        until(lambda: found(keeps=False).time > began + 2, "more snapshots")
        assert found(keeps=False).leaks == ()
        (leak,) = until(lambda: found(keeps=True).leaks, "a leak", seconds=60)
        (held,) = until(
            lambda: [k.holder for k in found(keeps=True).leaks if k.holder.name],
            "what holds it",
            seconds=60,
        )
        KEPT.clear()

    assert leak.lines[0].growth_bytes == leak.lines[0].growth_arrays << 16
    # A snapshot and the number of calls are of two moments.
    assert leak.calls >= 10
    assert held.name.endswith("test_allocations.KEPT")
    assert [place.rpartition("/")[2] for place in held.adds] == [ADDS]


_LINES = Path(__file__).read_text().splitlines()
_NUMBER = next(n for n, line in enumerate(_LINES, 1) if line.endswith("# kept"))
ADDS = f"test_allocations.py:{_NUMBER}"

LEAKING = """
import json, sys, time
import jax, jax.numpy as jnp, numpy as np, jaxmon
from tests.helpers import inside
agent = jaxmon.instrument(
    port=0, socket=False, memory_interval=0, memory_lines_interval=0.1, leak_window=1
)
device = jax.devices()[1]
step = jax.jit(lambda x: x * 2)
state = step(np.ones((256, 256), np.float32))

def figures():
    return {
        series.partition('"')[2].partition('"')[0]: value
        for family in agent.collect()
        if family.metric.name == "jaxmon_leak_growth_bytes"
        for series, value in family.samples
    }

def run(until, keep):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for _ in range(3):
            global state
            state = step(state)
            kept.append(jax.device_put(np.ones((64, 512), np.float32), device))  # leak
        if not keep:
            del kept[:-3]
        time.sleep(0.02)
        if until():
            return figures()
    raise SystemExit(f"waited in vain; {figures()}")

kept = []
looks = lambda: agent.memory().time
quiet = run(lambda: figures() and looks() > start + 3, keep=False) if (
    start := time.time()
) else None
leaking = run(lambda: any(figures().values()), keep=True)
event = inside.events(agent).since(0, "leak")
cleared = run(lambda: not any(figures().values()), keep=False)
print(json.dumps([quiet, leaking, [e.details for e in event], event[0].message,
      cleared, list(inside.allocations(agent).snapshot().leaks)]))
jaxmon.uninstrument()
"""


@pytest.mark.ground_truth
def test_a_leak_is_told_and_forgotten(tmp_path: Path) -> None:
    """It is named with its line, and 0 again when the arrays are gone."""
    script = tmp_path / "leaking.py"
    script.write_text(LEAKING)
    quiet, leaking, details, message, cleared, leaks = run_preloaded(
        str(script), env=FLAGS, cwd=tmp_path
    ).json()

    none = {str(at): 0 for at in range(DEVICES)}
    assert quiet == none
    assert leaking["1"] >= 1 << 20
    assert {**leaking, "1": 0} == none
    assert [one["device"] for one in details] == ["1"]
    number = LEAKING.partition("# leak")[0].count("\n") + 1
    (line,) = details[0]["lines"]
    assert (line["file"], line["line"]) == ("leaking.py", number)
    assert line["growth_bytes"] == details[0]["growth_bytes"]
    assert line["growth_bytes"] == line["growth_arrays"] * 64 * 512 * 4
    assert line["bytes"] == line["arrays"] * 64 * 512 * 4
    assert f"leaking.py:{number} (run)" in message
    assert cleared == none
    assert leaks == []


FILLING = """
import json, resource, time
import jax, numpy as np, jaxmon
from jaxmon.agent.memory import leaks, lines
from jaxmon.host.resources import container
from tests.helpers import inside
leaks.WINDOW_SECONDS, leaks.TREND_SECONDS, lines._LOOK_SECONDS = 1.0, 0.5, 0.1
agent = jaxmon.instrument(port=None, socket=False, memory_interval=0)
step = jax.jit(lambda x: x * 2)
state = step(np.ones(9, np.float32))
time.sleep(0.5)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
soft = container.memory()["virtual"] + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

kept, found = [], []
deadline = time.monotonic() + 60
while not found and time.monotonic() < deadline:
    state = step(state)
    kept.append(jax.device_put(np.ones(1 << 20, np.float32)))  # leak
    time.sleep(0.08)
    found = inside.overview(agent)["allocations"].get("leaks")
print(json.dumps([found, len(kept)]))
"""


@pytest.mark.ground_truth
@pytest.mark.exhaustive
def test_a_leak_is_found_before_memory_is_full(tmp_path: Path) -> None:
    """It is named by default, with the time that is left."""
    script = tmp_path / "filling.py"
    script.write_text(FILLING)
    found, kept = run_preloaded(str(script), cwd=tmp_path).json()

    (leak,) = found
    number = FILLING.partition("# leak")[0].count("\n") + 1
    assert [one["line"] for one in leak["lines"]] == [number]
    assert 0 < leak["full_in_seconds"] <= 300
    assert kept * (4 << 20) < 1 << 30


def test_memory_is_a_profile_to_look_at() -> None:
    """`Agent.memory` reads as a table, and two of them show what grew."""
    with instrumented() as agent:
        before = agent.memory()
        kept = []
        for at in range(7):
            kept.append(jnp.ones((100, 100)) + at)  # noqa: PERF401 - a frame of its own
        after = agent.memory()
        grown = after.growth_since(before)

        assert after.bytes - before.bytes == sum(one.nbytes for one in kept)
        assert [(one.bytes, one.arrays) for one in grown if one.kind == "buffer"] == [
            (280_000, 7)
        ]
        assert grown[0].function == test_memory_is_a_profile_to_look_at.__name__
        assert f"{after.bytes:,} bytes in {after.arrays:,} live arrays" in str(after)


def test_snapshot_tells_growth_since_the_first_look() -> None:
    """The largest lines, and by how much each grew, as JSON types."""
    jax.local_devices()  # before, there is nothing to look at
    with instrumented() as agent:
        # A request within the first minute is answered as well.
        assert inside.allocations(agent).snapshot().time
        kept = [jnp.ones((100, 1000)).block_until_ready()]
        agent.refresh()
        snapshot = encoded(inside.allocations(agent).snapshot())
        (row,) = [
            row
            for row in snapshot["lines"]
            if row["kind"] == "buffer" and row["function"].startswith("test_snapshot")
        ]

        assert row["bytes"] == row["growth_bytes"] == kept[0].nbytes
        assert snapshot["bytes"] >= row["bytes"]
        assert snapshot["seconds"] > 0
        assert snapshot["leaks"] == []


def test_looks_are_turned_off_by_the_setting() -> None:
    """Without looks there is no leak detection; memory can still be asked for."""
    with instrumented(memory_lines_interval=0) as agent:
        kept = jnp.ones(5)
        agent.refresh()

        assert not [one for one in samples(agent) if one.startswith("jaxmon_leak")]
        assert agent.memory().bytes >= kept.nbytes
        assert inside.allocations(agent).lines().lines


@pytest.mark.contained
def test_lines_for_a_report_never_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """If JAX fails to report memory holders, the last snapshot is reported."""
    with instrumented(memory_lines_interval=0) as agent:
        kept = jnp.ones((50, 50))
        told = inside.allocations(agent).lines()

        def fail() -> bytes:
            raise MemoryError

        monkeypatch.setattr(jax.profiler, "device_memory_profile", fail)

        assert told.lines
        assert inside.allocations(agent).lines() == told
        assert value(agent, "jaxmon_internal_errors_total") == 0
        monkeypatch.setattr(jax.profiler, "device_memory_profile", lambda: b"\x80")
        assert inside.allocations(agent).lines(1).lines == told.lines[:1]
        assert value(agent, "jaxmon_internal_errors_total") == 1
        with pytest.raises(pprof.ProfileError):
            agent.memory()
        del kept


@pytest.mark.contained
def test_a_look_that_fails_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend may have no memory profile; live arrays are counted all the same."""
    monkeypatch.setattr(lines, "_YOUNG_PAUSE", 3600.0)  # no others
    with instrumented() as agent:
        kept = jnp.ones(3, jnp.uint8)

        def fail() -> bytes:
            msg = "UNIMPLEMENTED"
            raise jax.errors.JaxRuntimeError(msg)

        monkeypatch.setattr(jax.profiler, "device_memory_profile", fail)
        agent.refresh()

        failed = 'jaxmon_internal_errors_total{site="allocations"}'
        assert samples(agent)[failed] == 1
        assert value(agent, "jaxmon_live_arrays", dtype=str(kept.dtype)) == 1


def test_a_look_keeps_no_array_and_makes_none() -> None:
    """Arrays die with the program's last reference; looking allocates none."""
    with instrumented() as agent:
        gc.collect()
        before = len(jax.live_arrays())
        kept = [jax.device_put(np.float32(at)) for at in range(1000)]
        profile = agent.memory()
        assert len(jax.live_arrays()) == before + 1000
        kept.clear()

        assert len(jax.live_arrays()) == before
        assert profile.growth_since(agent.memory())[0].arrays == 1000


BEFORE = """
import jax, jaxmon
from jax._src import xla_bridge
from tests.helpers import inside
agent = jaxmon.instrument(port=0, socket=False, memory_lines_interval=0.1)
agent.refresh()
assert agent.memory().lines == ()
assert vars(inside.allocations(agent).lines()) == {'time': None, 'lines': ()}
assert vars(inside.allocations(agent).snapshot()) == {}
assert not xla_bridge.backends_are_initialized()
"""


def test_looking_never_starts_the_backends() -> None:
    """Before the program uses JAX, no memory is held."""
    run_preloaded("-c", BEFORE).ok()


BUSY = """
import time, threading
import jax, numpy as np, jaxmon
agent = jaxmon.instrument(
    port=0, socket=False, memory_interval=0.1, memory_lines_interval=0.1
)
kept = [jax.device_put(np.float32(1)) for _ in range(30_000)]
counted = [0]
profile = jax.profiler.device_memory_profile
costs = []
def counting():
    began = time.thread_time()
    try:
        return profile()
    finally:
        costs.append(time.thread_time() - began)
jax.profiler.device_memory_profile = counting
began = time.monotonic()
while time.monotonic() - began < 4 or not costs:
    time.sleep(0.1)
jaxmon.uninstrument()
print(sum(costs) / (time.monotonic() - began), len(costs))
"""


@pytest.mark.exhaustive
def test_looks_come_less_often_where_they_are_dear() -> None:
    """A look of 10 ms comes after a second."""
    share, looks = run_preloaded("-c", BUSY).ok().out.split()

    assert 1 <= int(looks) < 35
    assert float(share) < 0.05
