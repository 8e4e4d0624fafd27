"""
The page of a real agent: both formats, both lint tools, both ways to the catalogue.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from jaxmon import catalog
from jaxmon.catalog import BY_NAME, METRICS
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import require_program


OPENMETRICS = "application/openmetrics-text;version=1.0.0"

# What a healthy agent on a CPU has nothing to say about.
ABSENT_ON_CPU = {
    catalog.DEVICE_MEMORY_BYTES,
    catalog.DEVICE_ALLOCATIONS,
    catalog.PROGRAM_CODE_BYTES,
    catalog.INTERNAL_ERRORS,
    catalog.OTLP_EXPORTS,
    catalog.SLOWDOWN,
    *catalog.BORROWED,
    # Of a job of several processes.
    catalog.CALL_AGE_SECONDS,
    # Of several devices.
    catalog.DEVICE_DEVIATIONS,
    # Of Orbax, which the program does not use.
    catalog.CHECKPOINT_BYTES,
    catalog.CHECKPOINT_FAILURES,
    catalog.CHECKPOINT_SECONDS,
}

PROGRAM = """
import sys, time, urllib.request
import jax, numpy as np, jaxmon
agent = jaxmon.instrument(
    port=0, socket=False, sample_rate=100, peak_flops=1e11, run_state=sys.argv[4]
)
jax.config.update("jax_compilation_cache_dir", sys.argv[4])
step = jax.jit(lambda x: x + 1)
for batch in jaxmon.steps([np.ones(3), np.ones(3), np.ones(4)], items=len):
    step(batch)
with jaxmon.request("predict") as request:
    request.tenant = "acme"
    step(np.ones(3))
matrix = np.ones((4, 4), np.float32)
@jax.jit
def square(x):
    return x @ x
square(matrix)
@jax.jit
def until(x):
    return jax.lax.while_loop(lambda y: y.sum() < 1e3, square, x)
until(matrix)
with jaxmon.activity("save"):
    pass
jaxmon.serverless(route="predict")(lambda *_: None)({}, None)
jaxmon.queue("predict").set(3)
jaxmon.batch("predict", size=5, capacity=8)
jaxmon.log_values({"loss": step(np.ones(1))})
jaxmon.check_determinism(step, np.ones(3))
jaxmon.check_gradients(jax.numpy.sin, (1.0,))
@jax.jit
def twice(key):
    return jax.random.bits(key) + jax.random.bits(key)
with jax.debug_key_reuse(True):
    try:
        twice(jax.random.key(0))
    except jax.errors.KeyReuseError:
        pass
jaxmon.ready()
jax.config.update("jax_enable_x64", True)
jax.jit(lambda x: x * np.float64(2))(np.ones(2, np.float32))
jax.config.update("jax_enable_x64", False)
# Not left, so that what is only there while a loop runs is there.
running = iter(jaxmon.steps([1, 2]))
next(running)
agent.refresh()
shown = 'jaxmon_programs_total{function="__main__.<lambda>"} 4'
sampled = ("execution_seconds_count", "nonfinite_total{", "promotions_total{")
sampled += ("run_seconds_total{",)
for _ in range(1000):  # programs and directories are read by threads of their own
    page = urllib.request.urlopen(agent.url, timeout=60).read().decode()
    step(np.ones(4))
    names = (shown, "jaxmon_persistent_cache_entries", "flops_unknown{", *sampled)
    if all(name in page for name in names):
        break
    time.sleep(0.02)
else:
    raise TimeoutError([name for name in names if name not in page])
for accept, path in (("text/plain", sys.argv[1]), (sys.argv[3], sys.argv[2])):
    request = urllib.request.Request(agent.url, headers={"Accept": accept})
    for _ in range(2):  # the second page also holds what the first one cost
        with urllib.request.urlopen(request, timeout=60) as page:
            body = page.read()
    open(path, "wb").write(body)
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the text and the OpenMetrics page of an agent that saw a few calls."""
    directory = tmp_path_factory.mktemp("pages")
    text, openmetrics = directory / "text", directory / "openmetrics"
    cache = str(directory / "cache")
    run_preloaded("-c", PROGRAM, str(text), str(openmetrics), OPENMETRICS, cache).ok()
    return text.read_text(), openmetrics.read_text()


def test_page_holds_exactly_the_metrics_of_the_catalogue(pages):
    """Nothing is exported that the catalogue does not name, and the other way round."""
    text, _ = pages
    # The parser takes ``_total`` off the names of counters.
    exported = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in parse_text(text)
    }
    absent = ABSENT_ON_CPU
    named = {m.name for m in METRICS if "agent" in m.sources and m not in absent}
    # Where this test runs there may be a control group, or none.
    container = {m.name for m in METRICS if m.group == "Container"}
    # Other programs may slow this one down.
    slowed = {catalog.SLOWDOWN.name}

    assert named - container == exported - container - slowed


def test_labels_are_those_of_the_catalogue(pages: tuple[str, str]) -> None:
    """Each sample has its metric's labels, with values in the closed sets."""
    text, _ = pages
    for family in parse_text(text):
        for sample in family.samples:
            name = family.name + ("_total" if family.type == "counter" else "")
            metric = BY_NAME[name]
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            assert set(metric.labels) == set(labels), sample.name
            for label, allowed in metric.values:
                assert labels[label] in allowed, sample.name


def test_both_formats_carry_the_same_series(pages: tuple[str, str]) -> None:
    """The OpenMetrics page passes a strict parser and differs in syntax only."""
    text, openmetrics = pages

    def series(families: Iterable[Any]) -> set[tuple[str, tuple[Any, ...]]]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in families
            for sample in family.samples
        }

    assert series(parse_text(text)) == series(parse_openmetrics(openmetrics))


def test_promtool_finds_nothing(pages: tuple[str, str]) -> None:
    """``promtool check metrics`` has no remark."""
    done = subprocess.run(
        [require_program("promtool"), "check", "metrics"],
        input=pages[0],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INSTRUMENTED_WHERE_BACKENDS_ARE_DOWN = """
import jax, jaxmon, urllib.request
from jax._src import xla_bridge
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0.1)
agent.refresh()
page = urllib.request.urlopen(agent.url, timeout=60).read().decode()
assert "jaxmon_hook_active" in page
assert "jaxmon_runtime_info{" not in page
assert not xla_bridge.backends_are_initialized()
jax.numpy.ones(3)
page = urllib.request.urlopen(agent.url, timeout=60).read().decode()
assert "jaxmon_runtime_info{" in page
"""


def test_observing_never_starts_the_backends(run_dir: Path) -> None:
    """A program may still configure JAX, or join a cluster, after `instrument`."""
    run_preloaded("-c", INSTRUMENTED_WHERE_BACKENDS_ARE_DOWN, run_dir=run_dir).ok()


def test_agent_page_is_also_served_on_its_socket(run_dir: Path) -> None:
    """The Unix socket answers with the same page as the TCP port, and with health."""
    program = """
import http.client, socket, jaxmon
agent = jaxmon.instrument(port=0)
for path in ("/metrics", "/-/healthy", "/nothing"):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(agent.socket)
    connection.request("GET", path)
    response = connection.getresponse()
    print(response.status, response.read().decode().splitlines()[0])
    connection.close()
"""
    lines = run_preloaded("-c", program, run_dir=run_dir).ok().out.splitlines()

    assert lines[0].startswith("200 # HELP ")
    assert lines[1] == "200 ok"
    assert lines[2].startswith("404 ")
