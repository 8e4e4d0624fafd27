"""JAX's backends as the program starts them, drops them, and starts others."""

import jax
import pytest

from tests.helpers.agents import instrumented, samples
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import run_python


STARTING = """
import contextlib, json, threading, urllib.request
import jax, jaxmon
from jax._src import xla_bridge
from jaxmon.facts.events import OomReport
from tests.helpers import inside

began, joined = threading.Event(), threading.Event()

def wait():
    began.set()
    joined.wait(60)
    raise RuntimeError("nobody came")

def start():
    with contextlib.suppress(RuntimeError):
        jax.devices()

# CPUs are there first, and can be asked only when this one is, or has given up.
xla_bridge.register_backend_factory("late", wait)
agent = jaxmon.instrument(
    port=0, socket=False, memory_interval=0.1, memory_lines_interval=0.1
)
starting = threading.Thread(target=start)
starting.start()
assert began.wait(60)

def page():
    with urllib.request.urlopen(agent.url, timeout=60) as answer:
        return answer.read().decode()

waiting = page()
agent.refresh()
nothing = agent.memory().lines
inside.allocations(agent).snapshot()
inside.overview(agent)
inside.oom(agent).facts._devices(OomReport())
assert starting.is_alive()
joined.set()
starting.join()
agent.refresh()
print(json.dumps([waiting, nothing, page()]))
jaxmon.uninstrument()
"""


@pytest.mark.ground_truth
def test_backends_that_take_long_to_start_keep_nobody_waiting() -> None:
    """Endpoints respond while a cluster's slowest host still starts its backend."""
    waiting, lines, after = run_python(
        "-c", STARTING, env={"JAX_PLATFORMS": "cpu,late"}
    ).json()

    assert 'jaxmon_hook_active{hook="compiles"} 1' in waiting
    assert "jaxmon_device_info{" not in waiting
    assert "jaxmon_live_arrays{" not in waiting
    assert lines == []
    assert "jaxmon_device_info{" in after
    assert "jaxmon_live_arrays{" in after


CLEARED = """
import json
import jax, jax.extend, jax.numpy as jnp, jaxmon
from jax._src import xla_bridge
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0)
NAMES = "array", "leak", "_info", "jaxmon_process_index"

def look():
    agent.refresh()
    return {
        series.partition("{")[0]: number
        for family in agent.collect() for series, number in family.samples
        if any(name in series.partition("{")[0] for name in NAMES)
    }

kept = jnp.ones(1000, jnp.int8)
before, held = look(), agent.memory().bytes
del kept
jax.extend.backend.clear_backends()
cleared, left = look(), agent.memory().bytes
assert not xla_bridge.backends_are_initialized()
kept = jnp.ones(3000, jnp.int8)
print(json.dumps([before, cleared, look(), held, left]))
jaxmon.uninstrument()
"""


@pytest.mark.ground_truth
def test_figures_go_with_the_backends_and_come_back() -> None:
    """While a program has dropped its devices, nothing is reported or started."""
    before, cleared, after, *sizes = run_preloaded("-c", CLEARED).json()

    assert {"jaxmon_live_array_bytes", "jaxmon_device_info"} < set(before)
    assert set(cleared) == {"jaxmon_build_info"}
    assert set(after) == set(before)
    assert sizes == [1000, 0]


@pytest.mark.parametrize(
    ("environ", "release"),
    [
        ({"JAXMON_RELEASE": "v2"}, "v2"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.version=1.4 ,c=d"}, "1.4"),
        ({"JAXMON_RELEASE": 'v"2', "OTEL_RESOURCE_ATTRIBUTES": "x=1"}, r"v\"2"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "my.service.version=3"}, ""),
    ],
)
def test_the_release_stands_with_the_versions(monkeypatch, environ, release):
    """As the setting names it, or the resource of OpenTelemetry."""
    for name, given in environ.items():
        monkeypatch.setenv(name, given)
    jax.devices()
    with instrumented() as agent:
        (info,) = [of for of in samples(agent) if of.startswith("jaxmon_runtime_info{")]

    assert f'release="{release}",' in info


FORKS = """
import os
import jax
from jaxmon.agent.jaxlink import backends

def child():
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    before = backends.forked(jax)
    if START:
        jax.devices()
    print(before, backends.forked(jax), flush=True)
    os._exit(0)

START = True
child()
jax.devices()
print(backends.forked(jax), flush=True)
START = False
child()
"""


def test_a_child_of_a_process_that_has_used_jax_lacks_its_threads() -> None:
    """One that initialises the devices itself has them, as has the parent."""
    done = run_preloaded("-c", FORKS).ok()
    assert done.out.splitlines() == ["False False", "False", "True True"]
