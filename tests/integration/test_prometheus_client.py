"""jaxmon's figures on a page that the program serves by prometheus_client."""

import subprocess
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, series
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import require_program


# Serves both pages, and prints them as they were at one moment.
PROGRAM = """
import json
import urllib.request
import jax
import jax.numpy as jnp
import jaxmon
from jaxmon.prometheus import AgentCollector
from prometheus_client import REGISTRY, Counter, start_http_server

agent = jaxmon.instrument(port=0)
REGISTRY.register(AgentCollector(agent))
Counter("predictions", "Of the program's own.").inc(7)
server, thread = start_http_server(0, addr="127.0.0.1")
theirs = f"http://127.0.0.1:{server.server_port}/metrics"

@jax.jit
def double(x):
    return x * 2

for size in (2, 3, 3, 3):
    double(jnp.zeros(size)).block_until_ready()
with jaxmon.request('a "quoted" \\\\ route'):
    pass

def read(url, accept="text/plain"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()

# Programs are read in the background; either page may be the first with the last one.
while 'jaxmon_programs_total{function="__main__.double"} 2' not in read(agent.url):
    pass
# So are the lines that hold memory, the first time.
while "jaxmon_leak_growth_bytes{" not in read(agent.url):
    pass

found = {
    "theirs": read(theirs),
    "openmetrics": read(theirs, "application/openmetrics-text; version=1.0.0"),
    "ours": read(agent.url),
}
jaxmon.uninstrument()
found["after"] = read(theirs)
server.shutdown()
server.server_close()
thread.join()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the pages that `PROGRAM` prints, by name."""
    run_dir = tmp_path_factory.mktemp("run")
    return run_preloaded("-c", PROGRAM, run_dir=run_dir).json()


def figures(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of each series; fail where one stands twice."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for sample in samples
    }
    assert len(found) == len(samples)
    return found


def of_jaxmon(page: str) -> dict[Any, float]:
    found = figures(page)
    return {key: found[key] for key in found if key[0].startswith("jaxmon_")}


def test_each_series_is_there_with_its_value(pages: dict[str, str]) -> None:
    """What the agent serves and what prometheus_client serves are the same."""
    ours, theirs = of_jaxmon(pages["ours"]), of_jaxmon(pages["theirs"])
    # The page of the agent tells of the scrape before it, and arrays come and go.
    own = {key for key in ours.keys() ^ theirs.keys() if "scrape" not in key[0]}
    assert not own
    counts = {
        "jaxmon_jit_calls_total": 4,
        "jaxmon_jit_cache_misses_total": 2,
        "jaxmon_jit_cache_hits_total": 2,
    }
    for name, count in counts.items():
        key = (name, (("function", "__main__.double"),))
        assert ours[key] == theirs[key] == count


def test_labels_survive(pages: dict[str, str]) -> None:
    """A quote and a backslash in a label come out as they went in."""
    routes = {dict(key[1]).get("route") for key in of_jaxmon(pages["theirs"])}
    assert 'a "quoted" \\ route' in routes


def test_the_programs_own_series_are_left_alone(pages: dict[str, str]) -> None:
    """Its own counter stays, and what both would export is exported once."""
    found = figures(pages["theirs"])
    assert found["predictions_total", ()] == 7
    assert found["process_cpu_seconds_total", ()] > 0


def test_nothing_is_left_of_us_afterwards(pages: dict[str, str]) -> None:
    """After `jaxmon.uninstrument` the page is the program's own again."""
    assert not of_jaxmon(pages["after"])
    assert ("predictions_total", ()) in figures(pages["after"])


def test_openmetrics_is_served_as_well(pages: dict[str, str]) -> None:
    """prometheus_client's strict parser reads what its exposition makes of ours."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    found = {
        family.name: family
        for family in text_string_to_metric_families(pages["openmetrics"])
    }
    shown = {
        name: (found[name].type, found[name].unit, found[name].samples[0].name)
        for name in ("jaxmon_jit_calls", "jaxmon_compile_seconds", "jaxmon_build")
    }
    assert shown == {
        "jaxmon_jit_calls": ("counter", "", "jaxmon_jit_calls_total"),
        "jaxmon_compile_seconds": (
            "histogram",
            "seconds",
            "jaxmon_compile_seconds_bucket",
        ),
        "jaxmon_build": ("info", "", "jaxmon_build_info"),
    }


class Told:
    """An agent that exports *families*."""

    running = True

    def __init__(self, *families: Family) -> None:
        self.families = families

    def collect(self) -> list[Family]:
        return list(self.families)


def page_of(agent: Told) -> str:
    """Return the page of a registry with *agent* and a counter of the program's."""
    from prometheus_client import CollectorRegistry, Counter, generate_latest

    from jaxmon.prometheus import AgentCollector

    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    Counter("own", "Of the program's own.", registry=registry).inc()
    return generate_latest(registry).decode()


def test_any_label_and_value_survives() -> None:
    """What is hard to quote comes out as it went in; what is no number stays out."""
    odd = ['a"b', "a\\", "a\nb", "{},=# ", "\u2028é", "", "\\n", '",x="', "\r\t\x0b"]
    samples: list[tuple[str, float]] = [
        (series(catalog.RECOMPILES, text, cause), number)
        for number, text in enumerate(odd)
        for cause in odd
    ]
    nan = [(series(catalog.RECOMPILES, "f", "nan"), float("nan"))]
    more = Family(catalog.RECOMPILES, [(series(catalog.RECOMPILES, "f", "x"), True)])
    found = figures(page_of(Told(Family(catalog.RECOMPILES, samples + nan), more)))
    name = catalog.RECOMPILES.name
    expected: dict[Any, float] = {
        (name, (("cause", shown(cause)), ("function", shown(text)))): number
        for number, text in enumerate(odd)
        for cause in odd
    }
    expected[name, (("cause", "x"), ("function", "f"))] = 1
    assert {key: found[key] for key in found if key[0] == name} == expected


def shown(text: str) -> str:
    """Return a label value as it is exported."""
    return {"\u2028é": "\\u2028é", "\r\t\x0b": "\\r\\t\\x0b"}.get(text, text)


def test_a_failure_of_ours_costs_our_series_only(caplog):
    """The program's page is served without them; the log says so once."""
    broken = Told(Family(catalog.HOST_CPUS, [("jaxmon_host_cpus", None)]))  # type: ignore[list-item]
    assert figures(page_of(broken))["own_total", ()] == 1
    from prometheus_client import CollectorRegistry

    from jaxmon.prometheus import AgentCollector

    caplog.clear()
    registry = CollectorRegistry()
    registry.register(AgentCollector(broken))
    assert [list(registry.collect()) for _ in range(3)] == [[], [], []]
    assert len(caplog.records) == 1


def test_a_family_that_is_no_number_costs_itself() -> None:
    """The others are on the program's page."""
    broken: Any = [("jaxmon_host_cpus", "many")]
    load = Family(catalog.HOST_LOAD_1M, [("jaxmon_host_load1", 0.5)])
    found = figures(page_of(Told(Family(catalog.HOST_CPUS, broken), load)))
    assert found["jaxmon_host_load1", ()] == 0.5
    assert found["own_total", ()] == 1


def test_prometheus_takes_the_page(pages: dict[str, str]) -> None:
    """Prometheus's own checker has no complaint."""
    checked = subprocess.run(
        [require_program("promtool"), "check", "metrics"],
        input=pages["theirs"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
